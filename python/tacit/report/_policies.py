"""The sections of live policies (crates/app/cli/src/lab/live): D and W beside the simulator's, and who held which core when."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tacit._tacit import TacitError
from tacit.report import _gantt as gantt
from tacit.report import _simulation as simulation
from tacit.report._cells import Grid, Group
from tacit.report._format import Table, plain
from tacit.report._sections import Item, Section

TIMELINES = "timelines"
MAX_TIMELINES = 64
# What is shown of a cell: title with unit, key of its results. The first is what a cell is known by.
FIGURES = (
    ("D (s)", "delay_s"),
    ("W (s)", "waiting_s"),
    ("D simulated (s)", "simulated.delay_s"),
    ("makespan (s)", "makespan_s"),
    ("D on more slots, simulated (s)", "slots.delay_s"),
)
INTRO = (
    "Measured at a real server with real clients, and simulated with the same arrivals: on the profile that the server had learned, "
    "and, on more slots, with the times that its jobs took."
)


def policies(grid: Grid) -> Section | None:
    """Bars of D, W and makespan, one panel a figure and a plot for each workload."""
    live = [group for group in grid.groups if group.value("policy") and _figure(group, "simulated.delay_s") is not None]
    if not live:
        return None
    by_load: dict[str, list[Group]] = {}
    for group in live:
        name = ", ".join(part for part in (group.value("workload"), _announced(group)) if part)
        by_load.setdefault(name, []).append(group)
    return Section("Policies, live and simulated", INTRO, tuple(_bars(name, some) for name, some in by_load.items()))


def _announced(group: Group) -> str:
    share = group.value("notices")
    return f"{share} announced" if share else ""


def _figure(group: Group, key: str) -> float | None:
    found = group.stat(lambda run: run.results.get(key))
    return None if found is None else found.mean


def _bars(name: str, groups: Sequence[Group]) -> Item:
    names = [group.value("policy") for group in groups]
    columns = {title: [_figure(group, key) or 0.0 for group in groups] for title, key in FIGURES}
    rows = tuple((policy, *(plain(column[i]) for column in columns.values())) for i, policy in enumerate(names))
    slug = re.sub(r"\W+", "-", name).strip("-")
    return Item(name, f"policies-{slug}", "", (Table(("policy", *columns), rows),), gantt.small_bars(names, columns))


def timelines(folder: Path, warnings: list[str]) -> Section | None:
    """Which job held which core, and what waited, in each cell; on one scale of time for all."""
    runs: list[tuple[str, simulation.Run]] = []
    for path in _files(folder / TIMELINES, warnings):
        try:
            runs.extend((path.stem, run) for run in simulation.load(path)[:1])
        except TacitError as error:
            warnings.append(f"{error}: left out.")
    end = max((job.end for _, run in runs for job in run.jobs), default=0.0)
    items = tuple(simulation.item(f"timeline-{stem}", run, end, f"{stem}: {run.workload}, {run.policy}") for stem, run in runs)
    intro = "One lane per job that may run; pale is T_pre (offline), full is T_on (online). Queue lengths are in inputs."
    return Section("Timelines", intro, items) if items else None


def _files(folder: Path, warnings: list[str]) -> list[Path]:
    """Those of a folder of our own: one that came from elsewhere must not lead us outside."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    found = sorted(path for path in folder.glob("*.json") if path.is_file() and not os.path.islink(path))
    if len(found) > MAX_TIMELINES:
        warnings.append(f"{len(found) - MAX_TIMELINES} more files in {TIMELINES} are left out.")
    return found[:MAX_TIMELINES]
