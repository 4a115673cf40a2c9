"""A record of the meter (lab/meter/src/record.rs) as columns, read as a stream and thinned while it is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit._tacit import TacitError
from tacit.report import _fields as f
from tacit.report._merge import Floats

FORMAT = "tacit-record"
VERSION = 1
# Counters are cumulative, so dropping samples loses detail in time and nothing else.
MAX_SAMPLES = 4096
# Bytes of the lines that are kept; in memory they are several times as large.
MAX_KEPT = 64 << 20
MAX_MARKS = 2000
MAX_CORES = 1024
SAMPLE = b'{"type":"sample",'


@dataclass(frozen=True)
class Rails:
    """A power source: what its joules are, and which of its rails add up to the host's total (one at least)."""

    name: str
    provenance: str
    counted: tuple[bool, ...]


@dataclass(frozen=True)
class Phase:
    """A phase as a party told it, seconds of the record's clock."""

    party: str
    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Trace:
    """One record. Every counter is cumulative since `t[0] = 0`.

    `energy`: joules by source `[n]`. `cpu`: by party user and kernel seconds `[n, 2]`. `cores`: user, kernel, idle seconds
    `[n, cores, 3]`. `mhz`: frequencies `[n, cores]`, NaN where unknown. `traffic`: by interface received and sent bytes `[n, 2]`.
    """

    t: Floats
    interval_s: float
    sources: tuple[Rails, ...]
    energy: Mapping[str, Floats]
    cpu: Mapping[str, Floats]
    cores: Floats
    mhz: Floats
    traffic: Mapping[str, Floats]
    phases: tuple[Phase, ...]
    notes: tuple[str, ...]


def read(path: Path) -> Trace:
    """Reads a record; one that was cut off is read as far as it goes, and says so in its notes."""
    reader = _Reader(path)
    for number, line, whole in f.lines(path):
        reader.take(number, line, whole)
    return reader.finish()


class _Reader:
    """Keeps every `stride`-th sample and the last one; the stride doubles whenever there are too many."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] | None = None
        self.samples: list[dict[str, Any]] = []
        self.last: tuple[int, bytes] | None = None
        self.seen = 0
        self.stride = 1
        self.kept = 0
        self.marks: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.broken = 0
        self.complete = False

    def take(self, number: int, line: bytes, whole: bool) -> None:
        where = f"{self.path.name}, line {number}"
        if self.header is None:
            self.header = f.parse(line, where)
            if self.header.get("type") != "header" or self.header.get("format") != FORMAT:
                raise TacitError(f"{where}: not a record of the meter: the first line is no `{FORMAT}` header")
            f.check_version(self.header, VERSION, where)
        elif whole and line.startswith(SAMPLE):
            self.sample(number, line)
        else:
            try:
                self.other(number, line, f.parse(line, where))
            except TacitError:
                self.broken += whole

    def sample(self, number: int, line: bytes) -> None:
        """Parsing is what costs time, so a sample that will not be kept is not parsed."""
        keep = self.seen % self.stride == 0
        self.seen += 1
        self.last = None if keep else (number, line)
        if not keep:
            return
        try:
            self.samples.append(f.parse(line, self.path.name))
            self.kept += len(line)
        except TacitError:
            self.broken += 1
        if len(self.samples) >= 2 * MAX_SAMPLES or (self.kept > MAX_KEPT and len(self.samples) > 2):
            self.samples = self.samples[::2]
            self.stride *= 2
            self.kept //= 2

    def other(self, number: int, line: bytes, value: dict[str, Any]) -> None:
        match value.get("type"):
            case "sample":
                self.sample(number, line)
            case "mark" if len(self.marks) < MAX_MARKS:
                self.marks.append(value)
            case "note" if len(self.notes) < 20:
                self.notes.append(f"{f.amount(value, 't'):.1f} s: {f.text(value, 'text')}")
            case "summary":
                self.complete = True

    def finish(self) -> Trace:
        if self.header is None:
            raise TacitError(f"{self.path.name}: empty")
        if self.last is not None:
            try:
                self.samples.append(f.parse(self.last[1], self.path.name))
            except TacitError:
                self.broken += 1
        if not self.complete:
            self.notes.append("the record ends early: it has no summary")
        if self.broken:
            self.notes.append(f"{self.broken} broken lines left out")
        samples = _in_order(self.samples)
        if len(samples) < 2:
            raise TacitError(f"{self.path.name}: no two samples in it")
        t = np.array([f.amount(s, "t") for s in samples])
        sources = _sources(self.header)
        return Trace(
            t=t,
            interval_s=max(f.amount(self.header, "interval_s"), float(np.median(np.diff(t)))),
            sources=sources,
            energy=self.energy(samples, sources),
            cpu=_pairs(samples, "parties", ("user_s", "system_s")),
            cores=_cores(samples),
            mhz=_frequencies(samples),
            traffic=_pairs(samples, "interfaces", ("rx_bytes", "tx_bytes")),
            phases=_phases(self.marks, float(t[-1])),
            notes=tuple(self.notes),
        )

    def energy(self, samples: list[dict[str, Any]], sources: tuple[Rails, ...]) -> dict[str, Floats]:
        """Joules by source. A source that never gave a value is absent, not zero."""
        found = {s.name: _joules(samples, s) for s in sources}
        self.notes += [f"the source {name} gave no value" for name, joules in found.items() if joules is None]
        return {name: joules for name, joules in found.items() if joules is not None}


def _in_order(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Samples of rising time, beginning at 0, where all counters are 0 by the format's definition."""
    kept: list[dict[str, Any]] = []
    before = -1.0
    for sample in samples:
        t = f.number(sample, "t")
        if t is not None and t > before and t >= 0:
            kept.append(sample)
            before = t
    if kept and f.amount(kept[0], "t") > 0:
        kept.insert(0, {"t": 0.0})
    return kept


def _sources(header: f.Object) -> tuple[Rails, ...]:
    found = []
    for source in f.items(header, "sources"):
        if isinstance(source, dict):
            counted = tuple(isinstance(r, dict) and r.get("counted") is True for r in f.items(source, "rails"))
            if any(counted):
                found.append(Rails(f.text(source, "name", "?"), f.text(source, "provenance"), counted))
    return tuple(found)


def _joules(samples: list[dict[str, Any]], source: Rails) -> Floats | None:
    """The counted rails' energy; a rail that gave nothing stands still. Nothing if no rail ever gave a value."""
    made = np.zeros((len(samples), len(source.counted)))
    seen = False
    for i, sample in enumerate(samples):
        rails = f.items(_clean_keys(f.objects(sample, "power")), source.name)
        made[i] = made[i - 1] if i else 0.0
        for k, rail in enumerate(rails[: len(source.counted)]):
            joules = f.number(rail, "j") if isinstance(rail, dict) else None
            if joules is not None:
                made[i, k] = joules
                seen = True
    total: Floats = made[:, np.array(source.counted, bool)].sum(axis=1)
    return total if seen else None


def _clean_keys(source: f.Object) -> dict[str, Any]:
    return {f.clean(k): v for k, v in source.items()}


def _pairs(samples: list[dict[str, Any]], key: str, fields: tuple[str, str]) -> dict[str, Floats]:
    """Two counters of everything that ever appears under `key`; what vanishes stands still, what appears late starts at 0."""
    rows = [_clean_keys(f.objects(s, key)) for s in samples]
    names = sorted({name for row in rows for name in row})
    made = {name: np.zeros((len(samples), 2)) for name in names}
    for name, array in made.items():
        for i, row in enumerate(rows):
            value = row.get(name)
            if isinstance(value, dict):
                array[i] = [f.amount(value, field) for field in fields]
            elif i:
                array[i] = array[i - 1]
    return made


def _cores(samples: list[dict[str, Any]]) -> Floats:
    count = min(max(len(f.items(s, "cores")) for s in samples), MAX_CORES)
    made = np.zeros((len(samples), count, 3))
    for i, sample in enumerate(samples):
        made[i] = made[i - 1] if i else 0.0
        for k, core in enumerate(f.items(sample, "cores")[:count]):
            if isinstance(core, dict):
                made[i, k] = [f.amount(core, field) for field in ("user_s", "system_s", "idle_s")]
    return made


def _frequencies(samples: list[dict[str, Any]]) -> Floats:
    count = min(max(len(f.items(s, "cores")) for s in samples), MAX_CORES)
    made = np.full((len(samples), count), np.nan)
    for i, sample in enumerate(samples):
        for k, core in enumerate(f.items(sample, "cores")[:count]):
            value = f.number(core, "mhz") if isinstance(core, dict) else None
            made[i, k] = np.nan if value is None else value
    return made


def _phases(marks: list[dict[str, Any]], end: float) -> tuple[Phase, ...]:
    """Begin and end matched per party and phase; a phase that was never ended lasts to the end of the record."""
    opened: dict[tuple[str, str], list[float]] = {}
    found = []
    for mark in sorted(marks, key=lambda m: f.amount(m, "t")):
        key = (f.text(mark, "party"), f.text(mark, "phase"))
        t = f.amount(mark, "t")
        if mark.get("edge") == "begin":
            opened.setdefault(key, []).append(t)
        elif opened.get(key):
            found.append(Phase(*key, opened[key].pop(), t))
    found += [Phase(*key, begin, max(end, begin)) for key, begins in opened.items() for begin in begins]
    return tuple(sorted(found, key=lambda p: (p.begin, p.end)))
