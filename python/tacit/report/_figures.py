"""The plots: from numbers to a figure, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit.report import _style as style
from tacit.report._format import plain
from tacit.report._merge import Floats, Merged
from tacit.report._style import COLOURS, HATCHES, MARKERS, PHASE_COLOURS

# More cores than this are drawn as a map instead of lines.
MAX_CORE_LINES = 8


@dataclass(frozen=True)
class Line:
    """Points with error bars; `hollow` for the second of two figures of one thing. `colour` counts the things."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]
    colour: int
    hollow: bool = False


@dataclass(frozen=True)
class Bars:
    """One bar per category, stacked by `parts`, each with a label; `error` belongs to the top."""

    label: str
    values: Sequence[float]
    error: Sequence[float]


@dataclass(frozen=True)
class Span:
    """A shaded phase."""

    label: str
    begin: float
    end: float


def against_bandwidth(lines: Sequence[Line], x_label: str, y_label: str) -> Figure:
    """Figures against link bandwidth, both axes logarithmic ([PM24] Fig. 5). Values that are not positive have no place there."""
    figure, (axes,) = style.panel()
    with style.look():
        for line in lines:
            shown = [(x, y, e) for x, y, e in zip(line.x, line.y, line.error, strict=True) if x > 0 and y > 0]
            if not shown:
                continue
            x, y, error = (np.array(column) for column in zip(*sorted(shown), strict=True))
            colour = COLOURS[line.colour % len(COLOURS)]
            axes.errorbar(
                x, y, yerr=np.stack([np.minimum(error, y * 0.95), error]), label=style.short(line.label),
                color=colour, ecolor=colour, elinewidth=1, capsize=3, linewidth=1.5, markersize=5.5,
                marker=MARKERS[line.colour % len(MARKERS)], markerfacecolor="white" if line.hollow else colour,
                linestyle="--" if line.hollow else "-",
            )  # fmt: skip
        style.log_x(axes, [x for line in lines for x in line.x if x > 0])
        style.log_y(axes)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
    style.legend(figure, axes)
    return figure


def bars(categories: Sequence[str], series: Sequence[Bars], y_label: str) -> Figure:
    """Grouped bars with error bars."""
    figure, (axes,) = style.panel()
    with style.look():
        width = 0.8 / max(1, len(series))
        for k, one in enumerate(series):
            at = np.arange(len(categories)) + (k - (len(series) - 1) / 2) * width
            axes.bar(
                at, one.values, width * 0.92, yerr=one.error if any(one.error) else None, label=style.short(one.label),
                color=COLOURS[k % len(COLOURS)], capsize=3, error_kw={"elinewidth": 1},
                hatch=HATCHES[k // len(COLOURS) % len(HATCHES)], edgecolor="white", linewidth=0,
            )  # fmt: skip
            for x, value in zip(at, one.values, strict=True):
                if len(categories) * len(series) <= 6 and np.isfinite(value):
                    _inside(axes, x, value, plain(value))
        _category_axis(axes, categories)
        axes.set_ylabel(y_label)
    style.legend(figure, axes)
    return figure


def stacked(categories: Sequence[str], parties: Sequence[str], user: Floats, kernel: Floats, y_label: str) -> Figure:
    """User below kernel time; `user` and `kernel` are `[parties, categories]` ([VPN24] Fig. 9)."""
    figure, (axes,) = style.panel()
    with style.look():
        width = 0.8 / max(1, len(parties))
        for k, party in enumerate(parties):
            at = np.arange(len(categories)) + (k - (len(parties) - 1) / 2) * width
            colour = COLOURS[k % len(COLOURS)]
            axes.bar(at, user[k], width * 0.92, color=colour, label=style.short(f"{party}, user"))
            axes.bar(
                at, kernel[k], width * 0.92, bottom=np.nan_to_num(user[k]), color="white", edgecolor=colour, hatch="////",
                linewidth=1, label=style.short(f"{party}, kernel"),
            )  # fmt: skip
        _category_axis(axes, categories)
        axes.set_ylabel(y_label)
    style.legend(figure, axes)
    return figure


def _inside(axes: Axes, x: float, value: float, text: str) -> None:
    """The figure at the foot of its bar, where no error bar is in the way."""
    axes.annotate(
        text, (x, 0), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=8, color=style.INK,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )  # fmt: skip


def _category_axis(axes: Axes, categories: Sequence[str]) -> None:
    longest = max((len(c) for c in categories), default=0)
    crowded = longest * len(categories) > 60
    axes.set_xticks(range(len(categories)), [style.short(c) for c in categories])
    if crowded:
        for label in axes.get_xticklabels():
            label.set(rotation=30, ha="right", rotation_mode="anchor")
    axes.grid(False, axis="x")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    style.plain_ticks(axes.yaxis)


def over_time(
    curves: Sequence[tuple[str, Merged]], spans: Sequence[Span], y_label: str, x_label: str = "time (s), runs merged"
) -> Figure:
    """Merged curves with a band of one SD, phases shaded ([PM24] Fig. 3 and 4)."""
    figure, (axes,) = style.panel()
    with style.look():
        for k, (label, merged) in enumerate(curves):
            _curve(axes, merged, style.short(label), COLOURS[k % len(COLOURS)])
        _time_axis(axes, [m for _, m in curves], spans)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
    style.legend(figure, axes)
    return figure


def _curve(axes: Axes, merged: Merged, label: str, colour: str) -> None:
    """A staircase: each slot has one value."""
    step = np.append(merged.mean, merged.mean[-1])
    axes.plot(merged.edges, step, drawstyle="steps-post", color=colour, linewidth=1.5, label=label)
    if merged.sd is not None:
        sd = np.append(merged.sd, merged.sd[-1])
        axes.fill_between(
            merged.edges, np.maximum(step - sd, 0), step + sd, step="post", color=colour, alpha=0.22, linewidth=0
        )


def _time_axis(axes: Axes, curves: Sequence[Merged], spans: Sequence[Span]) -> None:
    end = max((m.duration_s for m in curves), default=1.0)
    names = list(dict.fromkeys(s.label for s in spans))
    for span in spans:
        colour = PHASE_COLOURS[names.index(span.label) % len(PHASE_COLOURS)]
        axes.axvspan(span.begin, span.end, facecolor=colour, alpha=0.16, linewidth=0, zorder=0)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * (1.12 if spans else 1.0))
    for name in names:
        first = max((s for s in spans if s.label == name), key=lambda s: s.end - s.begin)
        if first.end - first.begin > 0.05 * end:
            axes.annotate(
                style.short(name), (first.begin, 1), (2, -2), xycoords=("data", "axes fraction"),
                textcoords="offset points", va="top", fontsize=8,
            )  # fmt: skip
    axes.set_xlim(0, end)
    axes.set_xlabel("time (s), runs merged")
    style.plain_ticks(axes.yaxis)


def cores(use: Sequence[Merged], mhz: Sequence[Merged | None], spans: Sequence[Span]) -> Figure:
    """Use in percent and, where known, frequency of each core ([VPN24] Fig. 5, 7, 11)."""
    known = [m for m in mhz if m is not None]
    figure, panels = style.panel(2 if known else 1, style.HEIGHT * (1.5 if known else 1.0))
    scaled = [Merged(m.edges, m.mean * 100, None, m.runs) for m in use]
    with style.look():
        _core_panel(figure, panels[0], scaled, spans, "use (%)", top=105)
        if known:
            _core_panel(figure, panels[1], known, [], "frequency (MHz)", top=None)
            panels[0].set_xlabel("")
    if len(use) <= MAX_CORE_LINES:
        style.legend(figure, panels[0])
    return figure


def _core_panel(
    figure: Figure, axes: Axes, curves: Sequence[Merged], spans: Sequence[Span], label: str, top: float | None
) -> None:
    if len(curves) <= MAX_CORE_LINES:
        for k, merged in enumerate(curves):
            _curve(axes, merged, f"core {k}", COLOURS[k % len(COLOURS)])
        _time_axis(axes, curves, spans)
        axes.set_ylim(0, top or axes.get_ylim()[1] * 1.05)
        axes.set_ylabel(label)
        return
    rows = np.stack([m.mean for m in curves])
    mesh = axes.pcolormesh(curves[0].edges, np.arange(len(curves) + 1), rows, cmap="cividis", vmin=0, rasterized=True)
    axes.set_xlabel("time (s), runs merged")
    axes.set_ylabel("core")
    axes.grid(False)
    figure.colorbar(mesh, ax=axes, label=label)
