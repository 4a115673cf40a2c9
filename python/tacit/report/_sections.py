"""What a page is made of, and the sections that need no plot: links and results."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from tacit.report._cells import LINK_KEYS, Grid, Group
from tacit.report._format import NONE, Stat, Table, percent, plain, spread, stat
from tacit.report._load import Link, Run

MAX_RESULT_COLUMNS = 8


@dataclass(frozen=True)
class Item:
    """A plot (or none) and the tables beside it. `group` gathers items under a heading that folds."""

    title: str
    name: str
    caption: str
    tables: tuple[Table, ...]
    figure: Figure | None = None
    group: str = ""


@dataclass(frozen=True)
class Section:
    """A chapter of the page."""

    title: str
    intro: str
    items: tuple[Item, ...]


def links(grid: Grid) -> Section | None:
    """Links as asked for and as measured just before each run."""
    by_link: dict[str, list[Run]] = {}
    for group in grid.groups:
        name = ", ".join(group.value(k) for k in LINK_KEYS if group.value(k)) or "the link"
        by_link.setdefault(name, []).extend(r for r in group.runs if r.link)
    rows = [_link_row(name, [r.link for r in runs if r.link]) for name, runs in by_link.items() if runs]
    if not rows:
        return None
    columns = (
        "link", "n", "up: target (Mbit/s)", "measured", "off by", "down: target (Mbit/s)", "measured", "off by",
        "RTT: target (ms)", "measured", "off by (ms)", "under load (ms)",
    )  # fmt: skip
    intro = "TCP goodput and round-trip time as measured just before each run: mean \u00b1 SD. RTT is the median of the idle link."
    return Section("Links: target and measured", intro, (Item("", "links", "", (Table(columns, tuple(rows)),)),))


def _link_row(name: str, all_of: list[Link]) -> tuple[str, ...]:
    def both(target: Stat | None, value: Stat | None) -> tuple[str, str, str]:
        off = percent(value.mean / target.mean - 1) if value and target and target.mean > 0 else NONE
        return plain(target.mean, 4) if target else "unlimited", spread(value), off

    def figure(of: Callable[[Link], float | None], factor: float) -> Stat | None:
        found = stat([of(link) for link in all_of])
        return found.scaled(factor) if found else None

    target, rtt = figure(lambda k: k.target_rtt_s, 1e3), figure(lambda k: k.rtt_s, 1e3)
    off = f"{rtt.mean - target.mean:+.2f}".replace("-", "\u2212") if rtt and target else NONE
    return (
        name, str(len(all_of)),
        *both(figure(lambda k: k.target_up_bps, 1e-6), figure(lambda k: k.up_bps, 1e-6)),
        *both(figure(lambda k: k.target_down_bps, 1e-6), figure(lambda k: k.down_bps, 1e-6)),
        plain(target.mean) if target else NONE, spread(rtt), off, spread(figure(lambda k: k.loaded_rtt_s, 1e3)),
    )  # fmt: skip


# How the workload's figures are shown: unit, and what to multiply by. Others are shown as they are.
UNITS = {
    "_bps": ("Mbit/s", 1e-6),
    "_bytes": ("MB", 1e-6),
    "_s": ("s", 1.0),
    "_j": ("J", 1.0),
    "_w": ("W", 1.0),
}


def _unit(key: str) -> tuple[str, float]:
    for suffix, (unit, factor) in UNITS.items():
        if key.endswith(suffix):
            return f"{key.removesuffix(suffix).replace('_', ' ')} ({unit})", factor
    return ("duration (s), own" if key == "seconds" else key.replace("_", " ")), 1.0


FIRST = ("latency_s", "goodput_bps", "sent_bytes", "received_bytes", "messages")


def _importance(key: str) -> tuple[bool, int, bool, str]:
    """What to sort columns by. What the server says comes last, since the client said most of it already; then details (`latency.p95_s`)."""
    return key.startswith("server."), FIRST.index(key) if key in FIRST else len(FIRST), "." in key or key == "seconds", key


def results(grid: Grid) -> Section | None:
    """Everything the workload reported, one row per cell."""
    if not grid.groups:
        return None
    keys = sorted({k for g in grid.groups for r in g.runs for k in r.results})
    keys.sort(key=_importance)
    shown, hidden = keys[:MAX_RESULT_COLUMNS], keys[MAX_RESULT_COLUMNS:]
    head = (*(grid.keys or ("cell",)), "n", "duration (s)", *(_unit(k)[0] for k in shown))
    rows = tuple((*_names(grid, g), str(len(g.runs)), *_figures(g, shown)) for g in grid.groups)
    note = f"Not shown: {', '.join(hidden)} (all are in runs.jsonl)." if hidden else ""
    intro = "What each cell of the experiment gave: mean \u00b1 SD over its repetitions. Megabytes are 10\u2076 bytes."
    return Section("Results", intro, (Item("", "results", "", (Table(head, rows, note=note),)),))


def _names(grid: Grid, group: Group) -> tuple[str, ...]:
    return tuple(group.value(k) or NONE for k in grid.keys) or ("all runs",)


def _figures(group: Group, keys: list[str]) -> list[str]:
    made = [spread(group.stat(lambda r: r.duration_s))]
    for key in keys:
        found = stat([r.results.get(key) for r in group.runs])
        made.append(spread(found.scaled(_unit(key)[1]) if found else None))
    return made
