"""Idle baselines (`idle.jsonl`): the host's power while nothing of the experiment ran, before and after the runs."""

from dataclasses import dataclass
from pathlib import Path

from tacit._tacit import TacitError
from tacit.report import _fields as f
from tacit.report import _figures as figures
from tacit.report._format import Stat, Table, plain, spread, stat
from tacit.report._merge import Curve, Merged, choose_slot, merge
from tacit.report._overtime import MAX_LINES, read_record
from tacit.report._sections import Item, Section


@dataclass(frozen=True)
class Idle:
    """One baseline by one source: mean power, its standard uncertainty, and the SD of single samples, in watts."""

    when: str
    source: str
    record: str
    duration_s: float
    mean_w: float
    mean_sd_w: float
    sd_w: float
    n: int


def idle(folder: Path, warnings: list[str]) -> Section | None:
    """The section; nothing where no baseline was taken."""
    baselines = _load(folder / "idle.jsonl", warnings)
    if not baselines:
        return None
    rows = [
        (
            str(k + 1),
            b.when,
            b.source,
            plain(b.duration_s),
            spread(Stat(b.n, b.mean_w, b.mean_sd_w)),
            plain(b.sd_w),
            str(b.n),
        )
        for k, b in enumerate(baselines)
    ]
    columns = ("", "when", "source", "length (s)", "mean \u00b1 its uncertainty (W)", "SD of samples (W)", "samples")
    table = Table(columns, tuple(rows), note=_drift(baselines))
    lines = _lines(folder, baselines, warnings)
    figure = figures.over_time(lines, [], "power (W)", "time (s)") if lines else None
    intro = "The host's power while nothing of the experiment ran. Net energy is gross energy minus this power times the duration."
    return Section("Idle power", intro, (Item("", "idle", "", (table,), figure),))


def _load(path: Path, warnings: list[str]) -> list[Idle]:
    if not path.exists():
        return []
    found = []
    for number, line, _ in f.lines(path):
        try:
            source = f.parse(line, f"{path.name}, line {number}")
        except TacitError as error:
            warnings.append(f"{error}: left out.")
            continue
        for name, power in f.objects(source, "power").items():
            if isinstance(power, dict):
                found.append(_one(source, f.clean(name), power))
    return found


def _one(baseline: f.Object, source: str, power: f.Object) -> Idle:
    return Idle(
        when=f.text(baseline, "when"),
        source=source,
        record=f.text(baseline, "record"),
        duration_s=f.amount(baseline, "duration_s"),
        mean_w=f.amount(power, "mean_w"),
        mean_sd_w=f.amount(power, "mean_sd_w"),
        sd_w=f.amount(power, "sd_w"),
        n=int(f.amount(power, "n")),
    )


def _drift(baselines: list[Idle]) -> str:
    """By how much the idle power changed between before and after."""
    said = []
    for source in dict.fromkeys(b.source for b in baselines):
        ends = [stat([b.mean_w for b in baselines if b.source == source and b.when == when]) for when in ("before", "after")]
        if ends[0] and ends[1]:
            said.append(f"{source}: {plain(ends[1].mean - ends[0].mean)} W")
    return f"Drift, after minus before: {'; '.join(said)}." if said else ""


def _lines(folder: Path, baselines: list[Idle], warnings: list[str]) -> list[tuple[str, Merged]]:
    lines = []
    for k, baseline in enumerate(baselines[:MAX_LINES]):
        trace = read_record(folder, baseline.record, warnings)
        if trace and baseline.source in trace.energy:
            slot = choose_slot(float(trace.t[-1]), trace.interval_s)
            curve = merge([Curve(trace.t, trace.energy[baseline.source])], slot)
            lines.append((f"{k + 1}: {baseline.when}, {baseline.source}", curve))
    return lines
