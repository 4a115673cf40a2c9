"""The study of [PM24] (`tacit lab run pm24-study`): its cells as measured or, where they were left to the planner, as predicted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tacit.report import _fields as f
from tacit.report._cells import Grid, Group, latency_s
from tacit.report._energy import Account, account
from tacit.report._format import Stat, plain
from tacit.report._load import Run

NAME = "study.json"
VERSION = 1
PHASES = ("setup", "offline", "online")
PARTIES = ("client", "server")
# A link with a longer round trip than this is none of the sweep over bandwidths.
LAN_S = 0.005


@dataclass(frozen=True)
class Phase:
    """A phase of a cell: seconds, processor seconds of each party, bytes to the server and to the client."""

    wall_s: float
    cpu_s: Mapping[str, float]
    up: float
    down: float

    @property
    def bytes(self) -> float:
        """Both ways."""
        return self.up + self.down


@dataclass(frozen=True)
class Energy:
    """A party's energy in a cell."""

    gross_j: float
    net_j: float
    mean_w: float
    provenance: str


@dataclass(frozen=True)
class Cell:
    """A network answered by an approach over a link. `n` is 0 for what was predicted and not run. `bytes` is what all phases moved at the
    client, both ways and a dealer's included: counted on the wire where it was, else in the protocol."""

    net: str
    approach: str
    link: str
    n: int
    latency_s: float
    spread_s: float
    cpu_s: Mapping[str, float]
    energy: Mapping[str, Energy]
    phases: Mapping[str, Phase]
    bytes: float

    def net_w(self, party: str) -> float:
        """Mean power above idle."""
        return self.energy[party].net_j / self.latency_s if party in self.energy and self.latency_s > 0 else 0.0

    def total_j(self, net: bool = True) -> float:
        """Of both parties."""
        return sum(e.net_j if net else e.gross_j for e in self.energy.values())


@dataclass(frozen=True)
class Link:
    """A link as asked for."""

    name: str
    mbps: float
    rtt_s: float

    @property
    def is_lan(self) -> bool:
        """Whether it is one of the sweep over bandwidths."""
        return self.rtt_s <= LAN_S


@dataclass(frozen=True)
class Device:
    """A board as the planner knows it, with what a cell would take the client there."""

    name: str
    net: str
    approach: str
    link: str
    wall_s: float
    client_j: float


@dataclass(frozen=True)
class Study:
    """All of it. `predicted` has every cell, `cells` what is shown of each: the measured one where it ran."""

    nets: tuple[str, ...]
    approaches: tuple[str, ...]
    trust: Mapping[str, str]
    links: tuple[Link, ...]
    coefficients: Mapping[str, float]
    cells: tuple[Cell, ...]
    predicted: tuple[Cell, ...]
    boards: tuple[Device, ...]
    left_out: tuple[str, ...]

    def find(self, net: str, approach: str, link: str) -> Cell | None:
        """A cell that is shown."""
        wanted = (net, approach, link)
        return next((c for c in self.cells if (c.net, c.approach, c.link) == wanted), None)

    def ratios(self, cell: Cell) -> list[float]:
        """How far predictions were off in neighbours that ran: predicted over measured latency of the same approach on the same
        network over other links, or else on other networks."""

        def near(other: Cell) -> bool:
            return other.approach == cell.approach and other.net == cell.net

        def same(other: Cell) -> bool:
            return other.approach == cell.approach

        for is_near in (near, same):
            found = [(c, self._prediction(c)) for c in self.cells if c.n and is_near(c)]
            ratios = [p.latency_s / c.latency_s for c, p in found if p and c.latency_s > 0]
            if ratios:
                return ratios
        return []

    def _prediction(self, cell: Cell) -> Cell | None:
        wanted = (cell.net, cell.approach, cell.link)
        return next((c for c in self.predicted if (c.net, c.approach, c.link) == wanted), None)

    def lan(self) -> list[Link]:
        """The links of the sweep, fastest first."""
        return sorted((k for k in self.links if k.is_lan), key=lambda k: -k.mbps)

    def is_private(self, approach: str) -> bool:
        """Whether neither party learns what it should not."""
        return self.trust.get(approach, "") in ("two-party", "dealer")

    def needs_dealer(self, approach: str) -> bool:
        """Whether a third party is trusted."""
        return self.trust.get(approach, "") == "dealer"


def load(folder: Path, grid: Grid) -> Study | None:
    """The study of a campaign's folder; nothing where the campaign is another one."""
    path = folder / NAME
    if not path.is_file():
        return None
    about = f.parse(path.read_bytes(), str(path))
    f.check_version(about, VERSION, str(path))
    coefficients = f.numbers(about, "coefficients")
    approaches = [a for a in f.items(about, "approaches") if isinstance(a, dict)]
    cells = [c for c in f.items(about, "cells") if isinstance(c, dict)]
    predicted = tuple(_predicted(c, coefficients) for c in cells)
    measured = {key: cell for group in grid.groups if (cell := _measured(group)) and (key := _key(cell))}
    # A cell that was to run and has not yet is neither.
    left = {_key(p) for p, c in zip(predicted, cells, strict=True) if f.amount(c, "repetitions") == 0}
    shown = [measured.get(_key(p)) or (p if _key(p) in left else None) for p in predicted]
    return Study(
        nets=tuple(f.clean(n) for n in f.items(about, "nets")),
        approaches=tuple(f.text(a, "name") for a in approaches),
        trust={f.text(a, "name"): f.text(a, "trust") if a.get("trust") else "" for a in approaches},
        links=tuple(_link(k) for k in f.items(about, "links") if isinstance(k, dict)),
        coefficients=coefficients,
        cells=tuple(c for c in shown if c),
        predicted=predicted,
        boards=tuple(_board(b) for b in f.items(about, "boards") if isinstance(b, dict)),
        left_out=tuple(f.clean(t) for t in f.items(about, "left_out")),
    )


def _key(cell: Cell) -> tuple[str, str, str]:
    return cell.net, cell.approach, cell.link


def _link(source: f.Object) -> Link:
    rate = min(f.amount(source, "up_bits"), f.amount(source, "down_bits")) / 1e6
    return Link(f.text(source, "name"), rate, f.amount(source, "rtt_s"))


def _phases(source: f.Object) -> dict[str, Phase]:
    def one(name: str) -> Phase:
        phase = f.objects(source, name)
        cpu = {party: f.amount(phase, f"{party}_cpu_s") for party in PARTIES}
        return Phase(f.amount(phase, "wall_s"), cpu, f.amount(phase, "up_bytes"), f.amount(phase, "down_bytes"))

    return {name: one(name) for name in PHASES}


def _predicted(source: f.Object, coefficients: Mapping[str, float]) -> Cell:
    """What the planner says, with the energy that the campaign's device profile gives it."""
    phases = _phases(f.objects(source, "phases"))
    latency = sum(p.wall_s for p in phases.values())
    cpu = {party: sum(p.cpu_s[party] for p in phases.values()) for party in PARTIES}
    moved = sum(p.bytes for p in phases.values())
    approach = f.text(source, "approach")
    parties = ("client",) if approach == "local" else PARTIES

    def energy(party: str) -> Energy:
        net = joules(coefficients, cpu[party], moved)
        gross = net + coefficients.get("base_w", 0.0) * latency
        return Energy(gross, net, gross / latency if latency > 0 else 0.0, "modelled")

    return Cell(
        f.text(source, "net"), approach, f.text(source, "link"), 0, latency, 0.0, cpu, {p: energy(p) for p in parties}, phases,
        moved,
    )  # fmt: skip


def joules(coefficients: Mapping[str, float], cpu_s: float, moved: float) -> float:
    """Above idle, by the device profile."""
    return coefficients.get("core_w", 0.0) * cpu_s + coefficients.get("byte_j", 0.0) * moved


def _board(source: f.Object) -> Device:
    phases = f.objects(source, "phases")
    each = [f.objects(phases, name) for name in PHASES]
    return Device(
        f.text(source, "device"), f.text(source, "net"), f.text(source, "approach"), f.text(source, "link"),
        sum(f.amount(p, "wall_s") for p in each), sum(f.amount(p, "client_j") for p in each),
    )  # fmt: skip


def _measured(group: Group) -> Cell | None:
    """The mean of a cell's runs; nothing for a workload that is no network by an approach."""
    net, plus, approach = group.value("workload").partition("+")
    latency = group.stat(latency_s)
    if not plus or latency is None:
        return None

    def mean(of: Callable[[Run], float | None]) -> float:
        found: Stat | None = group.stat(of)
        return found.mean if found else 0.0

    def result(key: str) -> float:
        return mean(lambda run: run.results.get(key))

    def phase(name: str) -> Phase:
        cpu = {party: result(f"phases.{name}.{party}.cpu_s") for party in PARTIES}
        up, down = (result(f"phases.{name}.{party}.sent_bytes") for party in PARTIES)
        return Phase(result(f"phases.{name}.wall_s"), cpu, up, down)

    def cpu(party: str) -> float:
        return mean(lambda run: run.parties[party].user_s + run.parties[party].system_s if party in run.parties else None)

    found = {party: a for party in PARTIES if (a := account(group, party))}
    energy = {party: _energy(a) for party, a in found.items()}
    phases = {name: phase(name) for name in PHASES}
    return Cell(
        net, approach, group.value("link"), len(group.runs), latency.mean, latency.sd or 0.0, {p: cpu(p) for p in PARTIES},
        energy, phases, result("client_wire_bytes") or sum(p.bytes for p in phases.values()),
    )  # fmt: skip


def _energy(found: Account) -> Energy:
    net = found.net_j.mean if found.net_j else found.gross_j.mean
    return Energy(found.gross_j.mean, net, found.mean_w.mean, found.provenance)


def ratio(value: float, base: float) -> str:
    """`0.33×`; nothing to compare with is said."""
    return f"{plain(value / base)}\u00d7" if base > 0 else "no figure"
