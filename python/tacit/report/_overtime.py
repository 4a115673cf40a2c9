"""Power, processors and traffic over time, the repetitions of a cell merged ([PM24] section 4.3)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit._tacit import TacitError
from tacit.report import _figures as figures
from tacit.report._cells import Grid, Group
from tacit.report._energy import worst
from tacit.report._figures import Span
from tacit.report._format import NONE, Stat, Table, brief, plain, slug, spread, stat
from tacit.report._merge import Curve, Floats, Merged, choose_slot, merge
from tacit.report._record import Phase, Trace, read
from tacit.report._sections import Item, Section

MAX_CELLS = 24
MAX_LINES = 8
MAX_SPANS = 40
Lines = list[tuple[str, Merged]]


def over_time(grid: Grid, folder: Path, warnings: list[str]) -> Section | None:
    """The section; nothing where no record could be read. What cannot be read is added to `warnings`."""
    items: list[Item] = []
    drawn = 0
    for group in grid.groups:
        if drawn == MAX_CELLS:
            warnings.append(f"Only the first {MAX_CELLS} cells are drawn over time; the records of all are in the folder.")
            break
        traces = _traces(group, folder, warnings)
        if traces:
            items += _cell(grid.label(group), traces)
            drawn += 1
    if not items:
        return None
    intro = (
        "The repetitions of a cell are merged as in [PM24] 4.3: the time stamps of run i are multiplied by t*/t_i (t* the mean length), "
        "then each slot has the mean and the standard deviation (the band) of the runs' mean values in it. Power is not rescaled: the "
        "curve keeps the runs' mean power, and its energy is t* times that."
    )
    return Section("Over time", intro, tuple(items))


def _traces(group: Group, folder: Path, warnings: list[str]) -> list[Trace]:
    found = [read_record(folder, run.record, warnings) for run in group.runs]
    return [trace for trace in found if trace]


def read_record(folder: Path, record: str, warnings: list[str]) -> Trace | None:
    """A record of the campaign; nothing where there is none. What is wrong with it is added to `warnings`."""
    if not record:
        return None
    try:
        path = (folder / record).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise TacitError(f"{record}: outside the campaign's folder")
        trace = read(path)
    except (TacitError, ValueError, OSError) as error:
        warnings.append(f"Record not used: {error}.")
        return None
    warnings += [f"{record}: {note}." for note in trace.notes]
    return trace


def _cell(label: str, traces: Sequence[Trace]) -> list[Item]:
    lengths = stat([float(t.t[-1]) for t in traces])
    assert lengths is not None
    slot = choose_slot(lengths.mean, max(t.interval_s for t in traces))
    spans, phases = _phases(traces, lengths.mean)
    caption = _caption(traces, lengths, slot)
    makers = (_power, _processors, _cores, _traffic)
    made = [item for maker in makers if (item := maker(label, traces, slot, spans))]
    if not made:
        return []
    first = made[0]
    tables = (*first.tables, phases) if phases.rows else first.tables
    made[0] = Item(first.title, first.name, f"{caption} {first.caption}".strip(), tables, first.figure, label)
    return made


def _caption(traces: Sequence[Trace], lengths: Stat, slot: float) -> str:
    runs = f"{len(traces)} runs" if len(traces) > 1 else "1 run, so no band"
    paper = "" if slot == 1 else " (1 s in the paper)"
    return f"{runs}, length {spread(lengths)} s, slots of {brief(slot)} s{paper}."


def _name(what: str, label: str) -> str:
    return f"time-{what}-{slug(label)}" if label else f"time-{what}"


def _all_names(each: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in each for name in names))


def _power(label: str, traces: Sequence[Trace], slot: float, spans: Sequence[Span]) -> Item | None:
    names = _all_names([[s.name for s in t.sources if s.name in t.energy] for t in traces])
    kinds = {name: worst(s.provenance for t in traces for s in t.sources if s.name == name) for name in names}
    lines: Lines = []
    rows = []
    for source, kind in list(kinds.items())[:MAX_LINES]:
        merged = merge([Curve(t.t, t.energy[source]) for t in traces if source in t.energy], slot)
        lines.append((f"{source} ({kind})", merged))
        between = stat([float(t.energy[source][-1] / t.t[-1]) for t in traces if source in t.energy])
        joules = merged.overall * merged.duration_s
        rows.append((source, kind, spread(between), plain(float(merged.mean.max())), plain(joules), str(merged.runs)))
    if not lines:
        return None
    columns = ("source", "provenance", "mean (W)", "highest slot (W)", "energy of the merged run (J)", "n")
    return Item(
        "Power", _name("power", label), "The host's power, idle included.", (Table(columns, tuple(rows)),),
        figures.over_time(lines, spans, "power (W)"), label,
    )  # fmt: skip


def _processors(label: str, traces: Sequence[Trace], slot: float, spans: Sequence[Span]) -> Item | None:
    lines: Lines = []
    rows = []
    for party in sorted(_all_names([list(t.cpu) for t in traces])):
        merged = merge([Curve(t.t, t.cpu[party].sum(axis=1)) for t in traces if party in t.cpu], slot)
        lines.append((party, merged))
        ends = [t.cpu[party][-1] for t in traces if party in t.cpu]
        user, kernel = stat([float(e[0]) for e in ends]), stat([float(e[1]) for e in ends])
        rows.append((party, spread(user), spread(kernel), plain(merged.overall), plain(float(merged.mean.max()))))
    if not lines:
        return None
    columns = ("party", "user (s)", "kernel (s)", "mean (cores)", "highest slot (cores)")
    figure = figures.over_time(lines[:MAX_LINES], spans, "processor use (cores)")
    return Item("Processor use of each party", _name("cpu", label), "", (Table(columns, tuple(rows)),), figure, label)


def _cores(label: str, traces: Sequence[Trace], slot: float, spans: Sequence[Span]) -> Item | None:
    count = min(t.cores.shape[1] for t in traces)
    if not count:
        return None
    use, mhz, rows = [], [], []
    for core in range(count):
        busy = _share(traces, core, slot)
        clock = [Curve(t.t, total) for t in traces if (total := _integral(t.t, t.mhz[:, core])) is not None]
        frequency = merge(clock, slot) if clock else None
        use.append(busy)
        mhz.append(frequency)
        spread_of = (frequency.mean.min(), frequency.overall, frequency.mean.max()) if frequency else (None, None, None)
        rows.append(
            (str(core), plain(busy.overall * 100), plain(float(busy.mean.max() * 100)), *(_mhz(v) for v in spread_of))
        )
    columns = ("core", "mean use (%)", "highest slot (%)", "lowest (MHz)", "mean (MHz)", "highest (MHz)")
    table = Table(columns, tuple(rows)).without_empty_columns()
    caption = "" if any(mhz) else "The kernel tells no frequencies here."
    return Item("Cores", _name("cores", label), caption, (table,), figures.cores(use, mhz, spans), label)


def _share(traces: Sequence[Trace], core: int, slot: float) -> Merged:
    """Busy time over all time that the kernel accounts for, which in short slots is not the time of the clock."""
    busy = merge([Curve(t.t, t.cores[:, core, :2].sum(axis=1)) for t in traces], slot)
    idle = merge([Curve(t.t, t.cores[:, core, 2]) for t in traces], slot)
    accounted = busy.mean + idle.mean
    share = np.divide(busy.mean, accounted, out=np.zeros_like(accounted), where=accounted > 0)
    return Merged(busy.edges, share, None, busy.runs)


def _mhz(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _integral(t: Floats, value: Floats) -> Floats | None:
    """The running integral of a value that is read now and then; each reading stands for the time since the one before."""
    if np.isnan(value).all():
        return None
    known = np.where(np.isnan(value), np.nanmean(value), value)
    return np.concatenate([[0.0], np.cumsum(known[1:] * np.diff(t))])


def _traffic(label: str, traces: Sequence[Trace], slot: float, spans: Sequence[Span]) -> Item | None:
    lines: Lines = []
    rows = []
    for interface in _all_names([list(t.traffic) for t in traces]):
        for k, way in enumerate(("received", "sent")):
            merged = merge([Curve(t.t, t.traffic[interface][:, k] * 8e-6) for t in traces if interface in t.traffic], slot)
            if merged.overall == 0:
                continue
            lines.append((f"{interface}, {way}", merged))
            carried = stat([float(t.traffic[interface][-1, k]) / 1e6 for t in traces if interface in t.traffic])
            rows.append((interface, way, spread(carried), plain(merged.overall), plain(float(merged.mean.max()))))
    if not lines:
        return None
    columns = ("interface", "", "MB per run", "mean (Mbit/s)", "highest slot (Mbit/s)")
    caption = f"The first {MAX_LINES} of {len(lines)} are drawn." if len(lines) > MAX_LINES else ""
    figure = figures.over_time(lines[:MAX_LINES], spans, "traffic (Mbit/s)")
    return Item("Traffic", _name("traffic", label), caption, (Table(columns, tuple(rows)),), figure, label)


def _phases(traces: Sequence[Trace], duration: float) -> tuple[list[Span], Table]:
    """Phases on the merged time axis: the same scaling, then the mean of begin and end over the runs."""
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for trace in traces:
        scale = duration / float(trace.t[-1])
        counts: dict[tuple[str, str], int] = {}
        for phase in trace.phases:
            key = (phase.party, phase.name)
            counts[key] = counts.get(key, 0) + 1
            found.setdefault((*key, counts[key]), []).append(_on_axis(phase, scale, duration))
    mean = {key: (float(np.mean([b for b, _ in them])), float(np.mean([e for _, e in them]))) for key, them in found.items()}
    table = _phase_table(mean)
    # One party's word is enough for the shading: the client's, if it said anything. The lab's own mark spans the whole run.
    parties = sorted({party for party, _, _ in mean} - {"runner"}, key=lambda p: (p != "client", p))
    spans = [Span(name, *at) for (party, name, _), at in mean.items() if party in parties[:1]]
    return (spans if len(spans) <= MAX_SPANS else []), table


def _on_axis(phase: Phase, scale: float, duration: float) -> tuple[float, float]:
    return min(max(phase.begin * scale, 0.0), duration), min(max(phase.end * scale, 0.0), duration)


def _phase_table(mean: dict[tuple[str, str, int], tuple[float, float]]) -> Table:
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (party, name, _), at in mean.items():
        rows.setdefault((name, party), []).append(at)
    ordered = sorted(rows.items(), key=lambda item: min(b for b, _ in item[1]))
    made = tuple(
        (
            name,
            party,
            str(len(them)),
            plain(min(b for b, _ in them)),
            plain(max(e for _, e in them)),
            plain(sum(e - b for b, e in them)),
        )
        for (name, party), them in ordered[:MAX_SPANS]
    )
    return Table(
        ("phase", "party", "times", "first begin (s)", "last end (s)", "in all (s)"), made, "Phases, on the merged time axis"
    )
