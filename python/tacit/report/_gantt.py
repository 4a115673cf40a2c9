"""The plots of simulated runs: which job held which cores when, and what waited meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tacit.report import _style as style
from tacit.report._format import plain
from tacit.report._merge import Floats
from tacit.report._style import COLOURS

MAX_CORES = 4096
MAX_JOBS = 20_000
MAX_POINTS = 1200
WIDTH = 10.5
# Legends stand beside the panels.
BESIDE: Any = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)}


@dataclass(frozen=True)
class Job:
    """A job as it ran; `model` is an index, times are seconds."""

    model: int
    online: bool
    threads: int
    begin: float
    end: float


def lanes(jobs: Sequence[Job], cores: int) -> list[list[tuple[int, int]]]:
    """The cores of each job as (first, count), such that no two jobs share one. Jobs come in order of their begin."""
    free_from = np.zeros(cores)
    made = []
    for job in jobs:
        mine = np.flatnonzero(free_from <= job.begin)[: job.threads]
        free_from[mine] = job.end
        neighbours = np.split(mine, np.flatnonzero(np.diff(mine) != 1) + 1)
        made.append([(int(some[0]), len(some)) for some in neighbours if len(some)])
    return made


def timeline(
    jobs: Sequence[Job],
    models: Sequence[str],
    cores: int,
    at: Floats,
    lengths: Mapping[str, Floats],
    use: Mapping[str, Floats],
    end: float,
) -> Figure:
    """Cores over time, below that queue lengths and what is in use (percent), all until `end`."""
    figure, (top, middle, bottom) = style.panel(3, 7.5, WIDTH, (3, 1, 1))
    with style.look():
        _jobs(top, sorted(jobs, key=lambda job: job.begin)[:MAX_JOBS], models, cores)
        _curves(middle, at, lengths, "inputs")
        _curves(bottom, at, use, "in use (%)")
        for axes in (top, middle, bottom):
            axes.set_xlim(0, end or 1.0)
        bottom.set_xlabel("time (s)")
    return figure


def _jobs(axes: Axes, jobs: Sequence[Job], models: Sequence[str], cores: int) -> None:
    shapes: dict[tuple[int, bool], list[list[tuple[float, float]]]] = {}
    for job, mine in zip(jobs, lanes(jobs, cores), strict=True):
        for first, count in mine:
            low, high = first + 0.05, first + count - 0.05
            corners = [(job.begin, low), (job.end, low), (job.end, high), (job.begin, high)]
            shapes.setdefault((job.model, job.online), []).append(corners)
    for (model, online), rectangles in sorted(shapes.items()):
        colour, alpha = COLOURS[model % len(COLOURS)], 1.0 if online else 0.4
        # Thousands of shapes make a vector image that no browser likes.
        axes.add_collection(PolyCollection(rectangles, facecolors=colour, alpha=alpha, linewidths=0, rasterized=True))
    axes.set_ylim(0, cores)
    axes.set_ylabel("core")
    axes.grid(False)
    axes.legend(
        handles=[Patch(color=COLOURS[k % len(COLOURS)], label=style.short(m)) for k, m in enumerate(models)], **BESIDE
    )


def _curves(axes: Axes, at: Floats, curves: Mapping[str, Floats], y_label: str) -> None:
    for k, (label, values) in enumerate(curves.items()):
        x, y = thin(at, values)
        axes.plot(x, y, drawstyle="steps-post", color=COLOURS[k % len(COLOURS)], linewidth=1.2, label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(y_label)
    axes.legend(**BESIDE)


def thin(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most `MAX_POINTS` points: the largest value of each stretch."""
    starts = np.arange(0, len(x), max(1, -(-len(x) // MAX_POINTS)))
    return (x[starts], np.maximum.reduceat(y, starts)) if len(x) else (x, y)


def small_bars(names: Sequence[str], panels: Mapping[str, Sequence[float]]) -> Figure:
    """One panel of horizontal bars for each figure."""
    figure, all_axes = style.panel(len(panels), (0.5 + 0.24 * len(names)) * len(panels))
    with style.look():
        for axes, (title, values) in zip(all_axes, panels.items(), strict=True):
            axes.barh(range(len(names)), values, color=[COLOURS[k % len(COLOURS)] for k in range(len(names))])
            axes.set_yticks(range(len(names)), [style.short(name) for name in names])
            axes.invert_yaxis()
            axes.set_title(title, loc="left")
            axes.set_xlim(0, max(*values, 1e-9) * 1.15)
            axes.tick_params(labelbottom=False)
            axes.grid(False)
            for k, value in enumerate(values):
                axes.annotate(plain(value), (value, k), (3, 0), textcoords="offset points", va="center", fontsize=8)
    return figure
