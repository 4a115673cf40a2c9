"""Runs grouped by cell, and what distinguishes one cell from another."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tacit.report._format import Stat, stat
from tacit.report._load import Cell, Run

LINK_KEYS = ("link", "rate", "bandwidth", "rtt")
TRANSPORTS = ("plain", "tcp", "tls", "wireguard", "wg")


@dataclass(frozen=True)
class Group:
    """The good runs of one cell."""

    cell: Cell
    runs: tuple[Run, ...]

    def value(self, key: str) -> str:
        """The cell's value for `key`; empty where it has none."""
        return dict(self.cell).get(key, "")

    def stat(self, of: Callable[[Run], float | None]) -> Stat | None:
        """Mean and SD of a figure over the repetitions."""
        return stat([of(run) for run in self.runs])

    @property
    def parties(self) -> list[str]:
        """Everybody whose processor time or energy is known."""
        return sorted({p for r in self.runs for p in (*r.parties, *r.energy)})

    @property
    def goodput_bps(self) -> Stat | None:
        """What the link carried just before the runs: the lower of both directions."""
        return self.stat(lambda r: min(r.link.up_bps, r.link.down_bps) if r.link else None)


@dataclass(frozen=True)
class Grid:
    """All cells, in reading order, and the keys that differ between them."""

    groups: tuple[Group, ...]
    keys: tuple[str, ...]

    def label(self, group: Group, without: tuple[str, ...] = ()) -> str:
        """The cell in words, without what all cells share and without the keys named."""
        return ", ".join(group.value(k) for k in self.keys if k not in without and group.value(k))

    def values(self, key: str) -> list[str]:
        """The values of a key in reading order."""
        return list(dict.fromkeys(g.value(key) for g in self.groups))

    def split(self, keys: tuple[str, ...]) -> list[tuple[str, list[Group]]]:
        """The groups by what they are apart from `keys`: one labelled list for each."""
        made: dict[str, list[Group]] = {}
        for group in self.groups:
            made.setdefault(self.label(group, keys), []).append(group)
        return list(made.items())


def grid(runs: tuple[Run, ...]) -> Grid:
    """Groups the runs: fastest link first, plain transport first, all else in natural order."""
    by_cell: dict[Cell, list[Run]] = {}
    for run in runs:
        by_cell.setdefault(run.cell, []).append(run)
    groups = [Group(cell, tuple(sorted(them, key=lambda r: r.repetition))) for cell, them in by_cell.items()]
    names = {key for group in groups for key, _ in group.cell}
    varying = [k for k in sorted(names) if len({g.value(k) for g in groups}) > 1]
    keys = sorted(varying, key=lambda k: (k not in LINK_KEYS, k == "transport", k))
    ranks = {key: _ranks(key, groups) for key in keys}
    groups.sort(key=lambda g: [ranks[k][g.value(k)] for k in keys])
    return Grid(tuple(groups), tuple(keys))


def _ranks(key: str, groups: list[Group]) -> dict[str, tuple[float, list[object]]]:
    """What to sort a key's values by."""
    made = {}
    for value in {g.value(key) for g in groups}:
        first = 0.0
        if key in LINK_KEYS:
            speeds = [s.mean for g in groups if g.value(key) == value and (s := g.goodput_bps)]
            first = -max(speeds, default=0.0)
        elif key == "transport":
            first = transport_rank(value)
        made[value] = (first, natural(value))
    return made


def transport_rank(name: str) -> float:
    """Plain first, then the single layers, then the combinations."""
    words = [w for w in re.split(r"[^a-z]+", name.lower()) if w]
    known = [float(TRANSPORTS.index(w)) for w in words if w in TRANSPORTS]
    return max(known, default=len(TRANSPORTS)) + (len(TRANSPORTS) if len(known) > 1 else 0)


def natural(value: str) -> list[object]:
    """`9mbit` before `10mbit`. Digits and other text take turns, so that like is compared with like."""
    return [float(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d{1,15}(?:\.\d{1,15})?)", value))]


def is_plain(name: str) -> bool:
    """Whether this is the transport that others are compared with."""
    return transport_rank(name) <= TRANSPORTS.index("tcp")


def latency_s(run: Run) -> float | None:
    """What the workload calls its latency, else the length of the measured part."""
    return run.results.get("latency_s", run.duration_s or None)


def megabytes(run: Run) -> float | None:
    """Payload carried, both ways, in units of 10^6 bytes; nothing where none is known."""
    count = run.results.get("payload_bytes")
    if count is None:
        count = run.results.get("sent_bytes", 0.0) + run.results.get("received_bytes", 0.0)
    return count / 1e6 if count > 0 else None
