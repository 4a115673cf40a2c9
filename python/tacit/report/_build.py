"""From the folder to the page: load, tables and figures, files."""

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import NamedTemporaryFile

from tacit._tacit import TacitError
from tacit.report import _load
from tacit.report._cells import Grid, grid
from tacit.report._energy import NO_JOULES
from tacit.report._idle import idle
from tacit.report._load import Campaign
from tacit.report._overtime import over_time
from tacit.report._page import page
from tacit.report._sections import Item, Section, links, results
from tacit.report._style import render
from tacit.report._sweep import sweep
from tacit.report._transports import transports


def build(folder: Path, output: Path) -> Path:
    """Writes the page and the plots. The page appears whole or not at all."""
    campaign = _load.load(folder)
    cells = grid(campaign.runs)
    warnings = list(campaign.warnings)
    sections = make_sections(campaign, cells, warnings)
    return write(sections, folder / "plots", output, lambda plots: page(campaign, cells, sections, plots, warnings))


def write(sections: list[Section], plots: Path, output: Path, page: Callable[[dict[str, bytes]], str]) -> Path:
    """Writes the plots into the folder `plots`, then the page that is made of them."""
    try:
        text = page(_write_plots(sections, plots))
        _replace(output, text.encode("utf-8"))
    except OSError as error:
        raise TacitError(f"{error.filename or output}: {error.strerror or error}: the report cannot be written") from None
    return output


def make_sections(campaign: Campaign, cells: Grid, warnings: list[str]) -> list[Section]:
    """Whatever the data allow."""
    made = [
        _first(campaign),
        results(cells),
        links(cells),
        idle(campaign.folder, warnings),
        sweep(cells),
        transports(cells),
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


def _write_plots(sections: list[Section], folder: Path) -> dict[str, bytes]:
    """Two files for each figure; returns the SVGs by name."""
    # Plots of an earlier report are removed, and only those: a folder that came from elsewhere must not lead us outside.
    if folder.is_symlink():
        raise TacitError(f"{folder}: is a link, and plots are written into a folder of their own only; remove it")
    folder.mkdir(exist_ok=True)
    for old in [*folder.glob("*.svg"), *folder.glob("*.png")]:
        old.unlink()
    made: dict[str, bytes] = {}
    for section in sections:
        for item in section.items:
            if item.figure is None:
                continue
            svg, png = render(item.figure)
            (folder / f"{item.name}.svg").write_bytes(svg)
            (folder / f"{item.name}.png").write_bytes(png)
            made[item.name] = svg
    return made


def _replace(path: Path, content: bytes) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
