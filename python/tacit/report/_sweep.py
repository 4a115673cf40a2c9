"""Latency, mean power, energy and processor time against bandwidth ([PM24] Fig. 5)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.report import _figures as figures
from tacit.report._cells import LINK_KEYS, Grid, Group, latency_s
from tacit.report._energy import PROVENANCE_NOTE, Account, account, worst
from tacit.report._figures import Line
from tacit.report._format import NONE, Stat, Table, slug, spread, stat
from tacit.report._load import Run
from tacit.report._sections import Item, Section

MAX_LINES = 8
MAX_SHARED = 4
Series = list[tuple[str, list[Group]]]
Axis = Callable[[Group], Stat | None]
Point = Callable[[Group], tuple[float, float] | None]


def sweep(grid: Grid) -> Section | None:
    """The section; nothing unless links or paces of at least two speeds were measured."""
    if _differ([_link_mbps(g) for g in grid.groups]):
        return _section(grid, LINK_KEYS, _link_mbps, "measured bandwidth (Mbit/s)", "Against bandwidth", LINK_INTRO)
    if _differ([_paced_mbps(g) for g in grid.groups]):
        return _section(grid, ("pace",), _paced_mbps, "pace (Mbit/s)", "Against pace", PACE_INTRO)
    return None


LINK_INTRO = (
    "Bandwidth is the TCP goodput measured just before each run, the lower of both directions. Points are means over the repetitions, "
    "error bars one standard deviation. Both axes are logarithmic."
)
PACE_INTRO = (
    "The sender was held to a pace on purpose, which caps power ([PM24] 5.2); without one, or where the link is slower, the link's measured "
    "goodput stands for it. Points are means over the repetitions, error bars one standard deviation. Both axes are logarithmic."
)


def _differ(speeds: Sequence[Stat | None]) -> bool:
    present = [s.mean for s in speeds if s and s.mean > 0]
    return bool(present) and max(present) >= min(present) * 1.25


def _link_mbps(group: Group) -> Stat | None:
    found = group.goodput_bps
    return found.scaled(1e-6) if found else None


def _paced_mbps(group: Group) -> Stat | None:
    """The pace of the cell, `20mbit`; the link's speed where there is no pace, or where it is lower."""
    link = _link_mbps(group)
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([kmg])bit", group.value("pace"))
    if not match:
        return link
    pace = float(match[1]) * {"k": 1e-3, "m": 1.0, "g": 1e3}[match[2]]
    return link if link and link.mean < pace else Stat(len(group.runs), pace, None)


def _section(grid: Grid, keys: tuple[str, ...], x: Axis, x_label: str, title: str, intro: str) -> Section:
    series = [(label, with_x) for label, them in grid.split(keys) if (with_x := [g for g in them if _at(x, g) > 0])]
    whole = Plot(series, x, x_label)
    items = [_latency(whole)]
    # Few lines share their plots; where there are many, each series has plots of its own.
    apart = len(series) > 1 and len(series) * len(whole.parties) > MAX_SHARED
    for plot in [Plot([("", groups)], x, x_label, label) for label, groups in series] if apart else [whole]:
        if any(r.energy for _, groups in plot.series for g in groups for r in g.runs):
            items += [_power(plot), _energy(plot)]
        if any(r.parties for _, groups in plot.series for g in groups for r in g.runs):
            items.append(_processor(plot))
    return Section(title, intro, tuple(items))


def _at(x: Axis, group: Group) -> float:
    found = x(group)
    return found.mean if found else 0.0


@dataclass(frozen=True)
class Plot:
    """Series of cells, and what they are plotted against; `group` names them all where there are other plots like it."""

    series: Series
    x: Axis
    x_label: str
    group: str = ""

    def item(self, title: str, what: str, caption: str, table: Table, lines: Sequence[Line], y_label: str) -> Item:
        """The plot with its table."""
        name = f"sweep-{what}-{slug(self.group)}" if self.group else f"sweep-{what}"
        figure = figures.against_bandwidth(lines, self.x_label, y_label)
        return Item(title, name, caption, (table.without_empty_columns(),), figure, self.group)

    @property
    def head(self) -> tuple[str, ...]:
        """Titles of the columns that `first` fills."""
        return ("", self.x_label.removeprefix("measured "), "n")

    def first(self, label: str, group: Group) -> tuple[str, ...]:
        """The columns that every table begins with."""
        return (label, spread(self.x(group)), str(len(group.runs)))

    def line(self, label: str, groups: Sequence[Group], of: Point, colour: int, hollow: bool = False) -> Line:
        """A line through the cells that have the figure."""
        points = [(_at(self.x, g), *found) for g in groups if (found := of(g))]
        x, y, error = ([p[i] for p in points] for i in range(3))
        return Line(label, x, y, error, colour, hollow)

    @property
    def parties(self) -> list[str]:
        """Everybody in any cell."""
        return sorted({p for _, groups in self.series for g in groups for p in g.parties})

    @property
    def each(self) -> list[tuple[str, str, list[Group]]]:
        """One for each line: label, party, cells."""
        return [
            (f"{label}, {party}" if label else party, party, them) for label, them in self.series for party in self.parties
        ]

    def left_out(self, parties: int) -> str:
        """What a caption says where there are too many lines."""
        count = len(self.series) * parties
        return f"The first {MAX_LINES} of {count} series are drawn; the table has all." if count > MAX_LINES else ""


def _of(figure: Callable[[Run], float | None]) -> Point:
    def point(group: Group) -> tuple[float, float] | None:
        found = group.stat(figure)
        return (found.mean, found.sd or 0.0) if found else None

    return point


def _latency(plot: Plot) -> Item:
    lines = [plot.line(label, groups, _of(latency_s), k) for k, (label, groups) in enumerate(plot.series[:MAX_LINES])]
    rows = [(*plot.first(label, g), spread(g.stat(latency_s))) for label, groups in plot.series for g in groups]
    table = Table((*plot.head, "latency (s)"), tuple(rows))
    return plot.item("Latency", "latency", plot.left_out(1), table, lines, "latency (s)")


def _accounts(series: Series) -> list[tuple[str, Group, str, Account]]:
    return [
        (label, group, party, found)
        for label, groups in series
        for group in groups
        for party in group.parties
        if (found := account(group, party))
    ]


def _label(label: str, groups: Sequence[Group], party: str) -> str:
    found = worst(a.provenance for g in groups if (a := account(g, party)))
    return f"{label} ({found})" if found else label


def _power(plot: Plot) -> Item:
    def point(party: str) -> Point:
        def of(group: Group) -> tuple[float, float] | None:
            found = account(group, party)
            return (found.mean_w.mean, found.mean_w.sd or 0.0) if found else None

        return of

    each = plot.each
    lines = [
        plot.line(_label(label, groups, party), groups, point(party), k)
        for k, (label, party, groups) in enumerate(each[:MAX_LINES])
    ]
    rows = [(*plot.first(label, g), party, spread(a.mean_w), a.provenance) for label, g, party, a in _accounts(plot.series)]
    table = Table((*plot.head, "party", "mean power (W)", "provenance"), tuple(rows))
    caption = " ".join(filter(None, ["Gross power, idle included.", plot.left_out(len(plot.parties))]))
    return plot.item("Mean power", "power", caption, table, lines, "mean power (W)")


def _energy(plot: Plot) -> Item:
    def gross(party: str) -> Point:
        def of(group: Group) -> tuple[float, float] | None:
            found = account(group, party)
            return (found.gross_j.mean, found.gross_j.sd or 0.0) if found else None

        return of

    def net(party: str) -> Point:
        def of(group: Group) -> tuple[float, float] | None:
            found = account(group, party)
            return (found.net_j.mean, found.net_error_j) if found and found.net_j and not found.noisy else None

        return of

    lines = []
    for k, (label, party, groups) in enumerate(plot.each[:MAX_LINES]):
        named = _label(label, groups, party)
        lines.append(plot.line(f"{named}, net", groups, net(party), k))
        lines.append(plot.line(f"{named}, gross", groups, gross(party), k, hollow=True))
    rows = [
        (*plot.first(label, g), party, spread(a.gross_j), a.net_text, a.provenance)
        for label, g, party, a in _accounts(plot.series)
    ]
    table = Table((*plot.head, "party", "gross (J)", "net (J)", "provenance"), tuple(rows), note=PROVENANCE_NOTE)
    caption = (
        "Net is gross minus idle power times duration. Its error bar is the larger of the SD over the repetitions and of each run's own "
        "uncertainty. Points that are below noise, or not above zero, are not drawn."
    )
    return plot.item("Energy", "energy", caption, table, lines, "energy per run (J)")


def _processor(plot: Plot) -> Item:
    def cpu(party: str) -> Callable[[Run], float | None]:
        return lambda run: run.parties[party].user_s + run.parties[party].system_s if party in run.parties else None

    each = plot.each
    lines = [plot.line(label, groups, _of(cpu(party)), k) for k, (label, party, groups) in enumerate(each[:MAX_LINES])]
    rows = []
    for label, groups in plot.series:
        for g in groups:
            for party in g.parties:
                memory = stat([r.parties[party].rss_bytes for r in g.runs if party in r.parties])
                rows.append((*plot.first(label, g), party, spread(g.stat(cpu(party))), _mb(memory)))
    table = Table((*plot.head, "party", "CPU (s)", "peak memory (MB)"), tuple(rows))
    caption = " ".join(
        filter(None, ["User and kernel seconds of the party's process tree.", plot.left_out(len(plot.parties))])
    )
    return plot.item("Processor time", "cpu", caption, table, lines, "CPU time per run (s)")


def _mb(value: Stat | None) -> str:
    return spread(value.scaled(1e-6)) if value and value.mean > 0 else NONE
