"""`tacit lab compare`: two campaigns, cell by cell, with the ratio of means (B over A) and its 95 % interval."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tacit._tacit import TacitError
from tacit.lab import _print
from tacit.lab._stats import Interval, Summary, fieller, ratio

Run = Mapping[str, Any]
"""A line of `runs.jsonl` (lab/experiments/src/campaign.rs)."""
Cell = Mapping[str, str]
# Links first, since most campaigns vary them.
FIRST = ("link", "transport", "workload", "pace")
JOULES = ("net_j", "gross_j")
VERDICTS = {
    "smaller": "smaller",
    "larger": "larger",
    "no_difference_seen": "no difference seen",
    "unknown": "too few runs or too noisy to tell",
}


def compare(a: Sequence[Run], b: Sequence[Run], ignore: Collection[str] = (), whole: bool = False) -> dict[str, list[Any]]:
    """Compares the runs of B to those of A; failed ones are left out.

    Labels in `ignore` may differ between matching cells. `whole`: all figures of both, not only latency, goodput, processor time and
    energy. Gives what `--json` prints: `rows` by cell, then metric; cells of `only_a` and `only_b`; `notes` on what was left out.
    """
    failed = [(name, sum("failure" in run for run in runs)) for name, runs in (("A", a), ("B", b))]
    notes = [f"{name}: {count} failed runs left out" for name, count in failed if count]
    in_a, in_b = _cells(a, ignore), _cells(b, ignore)
    common = sorted(in_a.keys() & in_b.keys())
    rows = [row for cell in common for row in _compare_cell(dict(cell), in_a[cell], in_b[cell], whole, notes)]
    only_a, only_b = ([dict(cell) for cell in sorted(own.keys() - common)] for own in (in_a, in_b))
    return {"rows": rows, "only_a": only_a, "only_b": only_b, "notes": notes}


def _cells(runs: Iterable[Run], ignore: Collection[str]) -> dict[tuple[tuple[str, str], ...], list[Run]]:
    cells: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        if "failure" not in run:
            cells.setdefault(tuple(sorted((k, v) for k, v in run["cell"].items() if k not in ignore)), []).append(run)
    return cells


def _values(runs: Iterable[Run]) -> dict[str, list[float]]:
    """Every figure over a cell's runs."""
    made: dict[str, list[float]] = {}
    for run in runs:
        for name, value in _figures(run):
            made.setdefault(name, []).append(float(value))
    return made


def _figures(run: Run) -> Iterator[tuple[str, float]]:
    yield from run.get("results", {}).items()
    yield "duration_s", run["duration_s"]
    for party, used in run.get("parties", {}).items():
        yield f"{party}_cpu_s", used["user_s"] + used["system_s"]
        yield f"{party}_peak_bytes", used["rss_bytes"]
    for party, energy in run.get("energy", {}).items():
        for kind in JOULES:
            if kind in energy:
                yield f"{party}_{kind}", energy[kind]


def _energies(runs: Iterable[Run], metric: str) -> list[Mapping[str, Any]]:
    """The energy figures behind a metric; none unless it is one of joules."""
    found = [(energy, kind) for run in runs for party, energy in run.get("energy", {}).items() for kind in JOULES if metric == f"{party}_{kind}"]
    return [energy for energy, kind in found if kind in energy]


def _is_usual(metric: str, common: Collection[str]) -> bool:
    """Whether a metric is always shown: gross energy only if there is no net energy."""
    if metric.endswith("_gross_j"):
        return metric.removesuffix("_gross_j") + "_net_j" not in common
    return metric in ("latency_s", "goodput_bps") or metric.endswith(("_cpu_s", "_net_j"))


def _compare_cell(cell: Cell, a: list[Run], b: list[Run], whole: bool, notes: list[str]) -> Iterator[dict[str, Any]]:
    in_a, in_b = _values(a), _values(b)
    common = in_a.keys() & in_b.keys()
    for metric in sorted(m for m in common if whole or _is_usual(m, common)):
        at, joules_a, joules_b = f"{describe(cell)}, {plain(metric)}", _energies(a, metric), _energies(b, metric)
        kinds = sorted({energy["provenance"] for energy in joules_a + joules_b})
        if len(kinds) > 1:
            notes.append(f"{at}: {' and '.join(kinds)} joules are not comparable")
            continue
        net = metric.endswith("_net_j")
        if noisy := net and sum(energy["below_noise"] for energy in joules_a + joules_b):
            notes.append(f"{at}: {noisy} of {len(in_a[metric] + in_b[metric])} runs are below the noise of the idle power")
        sa, sb = Summary.of(in_a[metric]), Summary.of(in_b[metric])
        if not sa or not sb:
            notes.append(f"{at}: not all values are finite")
        # Two zero means have no ratio.
        elif (times := ratio(sb, sa)) is not None:
            # The uncertainty of the idle baseline, which all runs share.
            shared_a, shared_b = ([e["net_sd_j"] for e in own if net and "net_sd_j" in e] for own in (joules_a, joules_b))
            interval = fieller(sb.with_shared(shared_b), sa.with_shared(shared_a))
            ends = {"interval": dict(zip(("low", "high"), interval, strict=True))} if interval else {}
            row = {"cell": cell, "metric": metric, "a": asdict(sa), "b": asdict(sb), "ratio": {"ratio": times} | ends}
            yield row | {"verdict": _verdict(interval)} | ({"provenance": kinds[0]} if kinds else {})


def _verdict(interval: Interval | None) -> str:
    if interval is None:
        return "unknown"
    return "smaller" if interval[1] < 1 else "larger" if interval[0] > 1 else "no_difference_seen"


def plain(text: str) -> str:
    """Replaces control characters in a text from a file, which could send commands to a terminal."""
    return "".join("\ufffd" if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in text)


def describe(cell: Cell) -> str:
    """A cell in one line: `lan, tls, bulk`."""
    parts = [cell[k] for k in FIRST if k in cell] + [f"{k} {v}" for k, v in cell.items() if k not in FIRST]
    return plain(", ".join(parts)) if parts else "all"


def run(told: Mapping[str, Any]) -> None:
    """Compares and prints.

    Raises `TacitError` where no cell is in both campaigns; as JSON, that is a comparison without rows.
    """
    made = compare(told["a"], told["b"], told["ignore"], told["all"])
    if told["json"]:
        return _print.as_json(made, sort=False)
    if not made["rows"]:
        counts = [f'{len(own)} such as "{describe(own[0])}"' if own else "none" for own in (made["only_a"], made["only_b"])]
        remedy = "--ignore LABEL matches cells that differ in a label"
        raise TacitError(f"the campaigns have no cell in common; {remedy} (of {' and '.join(counts)})")
    for cell, rows in groupby(made["rows"], lambda row: describe(row["cell"])):
        _print.line(cell)
        for row in rows:
            _print.line(f"  {_tell(row)}")
    for name in ("A", "B"):
        for only in made[f"only_{name.lower()}"]:
            _print.line(f"only in {name}: {describe(only)}")
    for note in made["notes"]:
        _print.line(f"note: {note}")
    _print.line("B over A, ratio of means, 95 % interval by Fieller; of many comparisons one in twenty differs by chance")


def _tell(row: Mapping[str, Any]) -> str:
    a, b, ends = row["a"], row["b"], row["ratio"].get("interval")
    times = f"x {row['ratio']['ratio']:.3f}" + (f" [{ends['low']:.3f}, {ends['high']:.3f}]" if ends else "")
    kind = f" ({row['provenance']})" if "provenance" in row else ""
    means = f"{number(a['mean']):>12} -> {number(b['mean']):<12}"
    return f"{plain(row['metric']):<22} {means} {times:<28} {VERDICTS[row['verdict']]}, n = {a['n']}, {b['n']}{kind}"


def number(x: float) -> str:
    """Four digits, whatever the size: `0.1230`, `1.230e-7`."""
    if x == 0 or 1e-3 <= abs(x) < 1e6:
        return f"{x:.4f}"
    digits, exponent = f"{x:.3e}".split("e")
    return f"{digits}e{int(exponent)}"
