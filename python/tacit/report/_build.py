"""From the folder to the page: load, tables and figures."""

from dataclasses import replace
from itertools import count
from pathlib import Path

from tacit.report import _load
from tacit.report._cells import Grid, grid
from tacit.report._energy import NO_JOULES
from tacit.report._idle import idle
from tacit.report._load import Campaign
from tacit.report._overtime import over_time
from tacit.report._page import page
from tacit.report._policies import policies, timelines
from tacit.report._sections import Item, Section, links, results
from tacit.report._study_page import study_sections
from tacit.report._sweep import sweep
from tacit.report._transports import transports
from tacit.report._write import write


def build(folder: Path, output: Path) -> Path:
    """Writes the page and the plots. The page appears whole or not at all."""
    campaign = _load.load(folder)
    cells = grid(campaign.runs)
    warnings = list(campaign.warnings)
    sections = make_sections(campaign, cells, warnings)
    return write(sections, folder / "plots", output, lambda plots: page(campaign, cells, sections, plots, warnings))


def make_sections(campaign: Campaign, cells: Grid, warnings: list[str]) -> list[Section]:
    """Whatever the data allow; the study of [PM24] has sections of its own."""
    if (study := study_sections(cells, campaign.folder, warnings)) is not None:
        around = [_first(campaign), *study, links(cells), idle(campaign.folder, warnings)]
        return _with_unique_names([section for section in around if section])
    made = [
        _first(campaign),
        results(cells),
        links(cells),
        idle(campaign.folder, warnings),
        sweep(cells),
        transports(cells),
        policies(cells),
        timelines(campaign.folder, warnings),
        over_time(cells, campaign.folder, warnings),
    ]
    return _with_unique_names([section for section in made if section])


def _first(campaign: Campaign) -> Section | None:
    """What is not there."""
    if not campaign.runs:
        return Section("No results", "No run has ended well yet, so there is nothing to show of any.", ())
    if not any(run.energy for run in campaign.runs):
        return Section("Energy", NO_JOULES, ())
    return None


def _with_unique_names(sections: list[Section]) -> list[Section]:
    """Cells whose names differ in signs only must not write to one file."""
    taken: set[str] = set()

    def unique(item: Item) -> Item:
        names = (item.name if n == 1 else f"{item.name}-{n}" for n in count(1))
        name = next(n for n in names if n not in taken)
        taken.add(name)
        return replace(item, name=name)

    return [replace(section, items=tuple(unique(item) for item in section.items)) for section in sections]
