"""How plots look: colours that colour-blind readers can tell apart (Okabe and Ito), dark text on white, no mathematics in labels."""

import io
import math
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    ScalarFormatter,
)

from tacit.report._format import brief, plain

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx")
PHASE_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#999999")
INK = "#1a1a1a"
# One panel fills a phone's width and half a desktop's.
WIDTH, HEIGHT = 4.9, 3.1
DPI = 200
MAX_LABEL = 48

# Labels come from files: a `$` in them is no formula.
_PARAMETERS: Any = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tacit",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "axes.unicode_minus": True,
    "path.simplify": True,
    "figure.facecolor": "white",
}


def look() -> AbstractContextManager[None]:
    """The settings above, for as long as something is drawn: a user's own matplotlib settings change nothing, and stay."""
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")}
    return matplotlib.rc_context({**defaults, **_PARAMETERS})


def panel(
    rows: int = 1, height: float = HEIGHT, width: float = WIDTH, shares: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure of one column; `shares` are the rows' shares of the height."""
    with look():
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.add_gridspec(rows, 1, height_ratios=shares)
        axes = [figure.add_subplot(grid[i, 0]) for i in range(rows)]
    for one in axes[:-1]:
        one.tick_params(labelbottom=False)
    return figure, axes


def render(figure: Figure) -> tuple[bytes, bytes]:
    """The figure as SVG and as PNG."""
    svg, png = io.BytesIO(), io.BytesIO()
    with look(), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes in the PNG; the table beside it has it right.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": "tacit"})
        # Laying out is the slow part, and done.
        figure.set_layout_engine("none")
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": "tacit"})
    return svg.getvalue(), png.getvalue()


def short(text: str) -> str:
    """A label of bearable length, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "\u2026"


def log_x(axes: Axes, values: list[float]) -> None:
    """A logarithmic axis with a tick at each value, as far as they do not collide."""
    axes.set_xscale("log")
    ticks: list[float] = []
    for value in sorted(values):
        if not ticks or value > ticks[-1] * 1.25:
            ticks.append(value)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: plain(v, 3)))
    if values:
        axes.set_xlim(min(values) / 1.4, max(values) * 1.4)


def log_y(axes: Axes) -> None:
    """A logarithmic axis with plain numbers that spans a factor of two at least: a ripple shall not look like a cliff."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 2 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
        axes.set_ylim(low, high)
    if high < 6 * low:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        subs = (1.0,) if high / low > 1e4 else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: brief(v)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def plain_ticks(axis: Axis) -> None:
    """Numbers without exponents and offsets."""
    formatter = ScalarFormatter(useOffset=False)
    formatter.set_scientific(False)
    axis.set_major_formatter(formatter)


def legend(figure: Figure, axes: Axes) -> None:
    """Below the plot, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        longest = max(len(label) for label in labels)
        # As few rows as fit, evenly filled.
        rows = -(-len(labels) // max(1, 80 // (longest + 8)))
        columns = -(-len(labels) // rows)
        with look():
            figure.legend(handles, labels, loc="outside lower center", ncols=columns)
