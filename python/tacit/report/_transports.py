"""Speed, energy and processor time per byte, as bars by transport ([VPN24] Fig. 3, 4, 9)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.report import _figures as figures
from tacit.report._cells import Grid, Group, is_plain, megabytes
from tacit.report._energy import NO_JOULES, PROVENANCE_NOTE, Account, account, worst
from tacit.report._figures import Bars
from tacit.report._format import NONE, Stat, Table, slug, spread
from tacit.report._load import Run
from tacit.report._merge import Floats
from tacit.report._sections import Item, Section

MAX_FACETS = 12
MAX_BARS = 24


@dataclass(frozen=True)
class Facet:
    """Cells that differ in one key only, `key`; `label` names what they share."""

    key: str
    label: str
    groups: tuple[Group, ...]

    @property
    def categories(self) -> list[str]:
        """The names of the bars."""
        return [g.value(self.key) or "all runs" for g in self.groups]

    @property
    def baseline(self) -> Group | None:
        """What the others are compared with: the plain transport, if it is here."""
        return next((g for g in self.groups if self.key == "transport" and is_plain(g.value(self.key))), None)

    @property
    def parties(self) -> list[str]:
        """Everybody with figures in any of the cells."""
        return sorted({p for g in self.groups for p in g.parties})

    def name(self, what: str) -> str:
        """For files."""
        return f"{what}-{slug(self.label)}" if self.label else what


def transports(grid: Grid) -> Section | None:
    """The section; nothing where no run moved any bytes."""
    moving = [g for g in grid.groups if g.stat(megabytes) or g.stat(_speed)]
    if not moving:
        return None
    key = "transport" if "transport" in grid.keys else next(iter(grid.keys), "")
    split = [(label, [g for g in them if g in moving][:MAX_BARS]) for label, them in grid.split((key,))]
    facets = [Facet(key, label, tuple(them)) for label, them in split if them]
    items = [item for facet in facets[:MAX_FACETS] for item in _items(facet)]
    intro = "Means over the repetitions, error bars one standard deviation. Megabytes and gigabytes are 10\u2076 and 10\u2079 bytes of payload."
    if not any(r.energy for g in moving for r in g.runs):
        intro += " " + NO_JOULES
    if len(facets) > MAX_FACETS:
        intro += f" The first {MAX_FACETS} of {len(facets)} combinations are drawn."
    title = "Transports" if key == "transport" else "Speed and cost per byte"
    return Section(title, intro, tuple(items))


def _items(facet: Facet) -> list[Item]:
    made = [_speed_item(facet), _energy_item(facet), _cpu_item(facet)]
    return [item for item in made if item]


def _speed(run: Run) -> float | None:
    """Goodput in MB/s: as reported, else payload over time."""
    if "goodput_bps" in run.results:
        return run.results["goodput_bps"] / 8e6
    carried = megabytes(run)
    return carried / run.duration_s if carried and run.duration_s > 0 else None


def _ratio(value: Stat | None, base: Stat | None) -> str:
    return f"{value.mean / base.mean:.2f}\u00d7" if value and base and base.mean > 0 else NONE


def _bars(label: str, found: list[Stat | None]) -> Bars:
    return Bars(label, [s.mean if s else np.nan for s in found], [(s.sd or 0.0) if s else 0.0 for s in found])


def _speed_item(facet: Facet) -> Item | None:
    found = [g.stat(_speed) for g in facet.groups]
    if not any(found):
        return None
    base = facet.baseline.stat(_speed) if facet.baseline else None
    rows = [
        (c, str(len(g.runs)), spread(s), spread(g.stat(lambda r: r.duration_s)), _ratio(s, base))
        for c, g, s in zip(facet.categories, facet.groups, found, strict=True)
    ]
    table = Table((facet.key, "n", "MB/s", "duration (s)", "to plain"), tuple(rows)).without_empty_columns()
    figure = figures.bars(facet.categories, [_bars("", found)], "payload speed (MB/s)")
    return Item("Speed", facet.name("speed"), "", (table,), figure, facet.label)


def _energy_item(facet: Facet) -> Item | None:
    accounts = {(g.cell, p): a for g in facet.groups for p in facet.parties if (a := account(g, p)) and a.gross_j_per_mb}
    if not accounts:
        return None
    # Without an idle baseline there is nothing but gross.
    net = any(a.net_j_per_mb for a in accounts.values())

    def per_mb(group: Group, party: str) -> Stat | None:
        found = accounts.get((group.cell, party))
        if not found or (net and found.noisy):
            return None
        return _with_error(found) if net else found.gross_j_per_mb

    series = []
    for party in facet.parties:
        kind = worst(a.provenance for (_, p), a in accounts.items() if p == party)
        if kind:
            series.append(_bars(f"{party} ({kind})", [per_mb(g, party) for g in facet.groups]))
    rows = []
    for category, g in zip(facet.categories, facet.groups, strict=True):
        for party in facet.parties:
            if a := accounts.get((g.cell, party)):
                plain = accounts.get((facet.baseline.cell, party)) if facet.baseline else None
                # Joules of different kinds have no ratio.
                alike = facet.baseline and plain and plain.provenance == a.provenance
                base = per_mb(facet.baseline, party) if facet.baseline and alike else None
                shown = "below noise" if net and a.noisy else spread(per_mb(g, party))
                rows.append((category, party, shown, _ratio(per_mb(g, party), base), a.provenance))
    what = "net" if net else "gross"
    note = f"What [VPN24] calls mW/MB is in effect net mJ/MB: these figures times 1000. {PROVENANCE_NOTE}"
    table = Table((facet.key, "party", f"{what} J/MB", "to plain", "provenance"), tuple(rows), note=note)
    caption = (
        "Idle energy subtracted." if net else "No idle baseline was taken, so this is gross energy: idle power is in it."
    )
    figure = figures.bars(facet.categories, series, f"{what} energy (J/MB)")
    return Item("Energy per megabyte", facet.name("energy"), caption, (table.without_empty_columns(),), figure, facet.label)


def _with_error(found: Account) -> Stat | None:
    """Net J/MB with the same relative error as the net energy."""
    value = found.net_j_per_mb
    if value is None or found.net_j is None or found.net_j.mean == 0 or found.net_error_j == 0:
        return value
    return Stat(value.n, value.mean, max(value.sd or 0.0, abs(found.net_error_j / found.net_j.mean * value.mean)))


def _per_gb(party: str, field: str) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        carried = megabytes(run)
        return getattr(run.parties[party], field) / carried * 1e3 if carried and party in run.parties else None

    return of


def _cpu_item(facet: Facet) -> Item | None:
    parties = [p for p in facet.parties if any(g.stat(_per_gb(p, "user_s")) for g in facet.groups)]
    if not parties:
        return None

    def means(field: str) -> Floats:
        found = [[g.stat(_per_gb(p, field)) for g in facet.groups] for p in parties]
        return np.array([[s.mean if s else np.nan for s in row] for row in found])

    rows = []
    for category, g in zip(facet.categories, facet.groups, strict=True):
        for party in parties:
            user, kernel = g.stat(_per_gb(party, "user_s")), g.stat(_per_gb(party, "system_s"))
            if user and kernel:
                both = _total(g, party)
                base = _total(facet.baseline, party) if facet.baseline else None
                rows.append(
                    (category, party, spread(user), spread(kernel), spread(both), _ratio(both, base), *_extra(g, party))
                )
    columns = (facet.key, "party", "user (s/GB)", "kernel (s/GB)", "both (s/GB)", "to plain", "peak memory (MB)", "messages")
    table = Table(columns, tuple(rows)).without_empty_columns()
    figure = figures.stacked(facet.categories, parties, means("user_s"), means("system_s"), "CPU time (s/GB)")
    caption = "Processor seconds per gigabyte, user below kernel, each side with its tunnel process."
    return Item("Processor time per gigabyte", facet.name("cpu"), caption, (table,), figure, facet.label)


def _total(group: Group, party: str) -> Stat | None:
    def both(run: Run) -> float | None:
        user, kernel = _per_gb(party, "user_s")(run), _per_gb(party, "system_s")(run)
        return None if user is None or kernel is None else user + kernel

    return group.stat(both)


def _extra(group: Group, party: str) -> tuple[str, str]:
    memory = group.stat(lambda r: r.parties[party].rss_bytes / 1e6 if party in r.parties else None)
    messages = group.stat(lambda r: r.results.get("messages"))
    return spread(memory if memory and memory.mean > 0 else None), spread(messages)
