"""The page of simulated runs (lab/sim/src/output.rs): figures side by side, then each run's timeline and queues."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit._tacit import TacitError
from tacit.report import _fields as f
from tacit.report import _gantt as gantt
from tacit.report._format import Table, plain
from tacit.report._gantt import Job
from tacit.report._merge import Floats
from tacit.report._page import simulation_page
from tacit.report._sections import Item, Section
from tacit.report._write import write

FORMAT, VERSION = "tacit-simulation", 1
QUEUES = {"pre": "Q_pre", "waiting": "Q_waiting", "transit": "Q_transit", "ready": "Q_ready", "stock": "stock"}
# What is shown of a run's summary: title with unit, keys, factor.
FIGURES = (
    ("input delay D (s)", ("all", "input_delay"), 1.0),
    ("waiting time W (s)", ("all", "waiting_time"), 1.0),
    ("99th percentile of D (s)", ("all", "p99"), 1.0),
    ("makespan (s)", ("makespan",), 1.0),
    ("throughput (/s)", ("throughput",), 1.0),
    ("cores in use (%)", ("core_use",), 100.0),
)
MORE_FIGURES = (
    ("median of D (s)", ("all", "p50"), 1.0),
    ("95th percentile (s)", ("all", "p95"), 1.0),
    ("memory in use (%)", ("memory_use",), 100.0),
)


@dataclass(frozen=True)
class Run:
    """One policy's run. `samples` holds a column each for `at`, the queues, `cores` and `memory`."""

    policy: str
    workload: str
    rate: float
    seed: int
    cores: int
    memory: float
    models: tuple[str, ...]
    summary: Mapping[str, Any]
    jobs: tuple[Job, ...]
    samples: Mapping[str, Floats]


def load(path: Path) -> list[Run]:
    """The runs of a file: one, or a list of them."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise TacitError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise TacitError(f"{path}: not valid JSON ({error})") from None
    return [_run(source, str(path)) for source in (content if isinstance(content, list) else [content])]


def _run(source: object, where: str) -> Run:
    if not isinstance(source, dict) or source.get("format") != FORMAT:
        raise TacitError(f"{where}: no simulated run; `tacit simulate run -o FILE` writes them")
    f.check_version(source, VERSION, where)
    models = tuple(f.text(model, "name") for model in f.items(source, "models") if isinstance(model, dict))
    samples = [sample for sample in f.items(source, "samples") if isinstance(sample, dict)]
    run = Run(
        policy=f.text(source, "policy"),
        workload=f.text(source, "workload"),
        rate=f.amount(source, "rate"),
        seed=int(f.amount(source, "seed")),
        cores=int(f.amount(source, "cores")),
        memory=f.amount(source, "memory"),
        models=models,
        summary=f.objects(source, "summary"),
        jobs=tuple(_job(job) for job in f.items(source, "jobs") if isinstance(job, dict)),
        samples={key: np.array([f.amount(s, key) for s in samples]) for key in ("at", *QUEUES, "cores", "memory")},
    )
    if not 1 <= run.cores <= gantt.MAX_CORES or any(not 0 <= job.model < len(models) for job in run.jobs):
        raise TacitError(f"{where}: {run.cores} cores, or a job of a model that is not listed")
    return run


def _job(source: f.Object) -> Job:
    model = f.number(source, "model")
    return Job(
        model=-1 if model is None else int(model),
        online=source.get("phase") == "on",
        threads=int(f.amount(source, "threads")),
        begin=f.amount(source, "from"),
        end=f.amount(source, "to"),
    )


def build(path: Path, output: Path) -> Path:
    """Writes the page and, beside it, the plots."""
    runs = load(path)
    if not runs:
        raise TacitError(f"{path}: an empty list of runs")
    end = max((job.end for run in runs for job in run.jobs), default=0.0)
    shown = [item(f"timeline-{i + 1}", run, end, run.policy) for i, run in enumerate(runs) if run.jobs]
    intro = "One lane per core; pale is T_pre (offline), full is T_on (online). Queue lengths are in inputs."
    sections = [_figures(runs), Section("Timelines", intro, tuple(shown))]
    first = runs[0]
    facts = [
        ("workload", first.workload),
        ("requests per second", plain(first.rate)),
        ("machine", f"{first.cores} cores, {first.memory / 2**30:,.0f} GiB"),
        ("seed", str(first.seed)),
    ]
    return write(
        sections,
        output.with_name(f"{output.stem}-plots"),
        output,
        lambda plots: simulation_page(f"tacit simulate: {first.workload}", facts, sections, plots),
    )


def _value(source: Mapping[str, Any], keys: Sequence[str]) -> float:
    for key in keys[:-1]:
        source = f.objects(source, key)
    return f.amount(source, keys[-1])


def _figures(runs: Sequence[Run]) -> Section:
    policies = [run.policy for run in runs]
    columns = {title: [_value(run.summary, keys) * factor for run in runs] for title, keys, factor in FIGURES + MORE_FIGURES}
    rows = tuple((policy, *(plain(column[i]) for column in columns.values())) for i, policy in enumerate(policies))
    of_all = Table(("policy", *columns), rows)
    ends = [f.numbers(r.summary, "outcomes") for r in runs]
    names = sorted({name for one in ends for name in one})
    outcomes = Table(
        ("policy", *names, "refused"),
        tuple(
            (r.policy, *(f"{one.get(n, 0):.0f}" for n in names), f"{f.amount(r.summary, 'refused'):.0f}")
            for r, one in zip(runs, ends, strict=True)
        ),
        "How inputs ended",
    )
    keys = ("input_delay", "waiting_time", "p99")
    by_model = tuple(
        (run.policy, f.clean(model), *(plain(f.amount(figures, key)) for key in keys))
        for run in runs
        for model, figures in f.objects(run.summary, "models").items()
        if isinstance(figures, dict)
    )
    models = Table(("policy", "model", "D (s)", "W (s)", "99th percentile of D (s)"), by_model, "By model")
    panels = {title: columns[title] for title, _, _ in FIGURES}
    item = Item("", "figures", "", (of_all, outcomes, models), gantt.small_bars(policies, panels))
    return Section("Figures", "Over the inputs that were done.", (item,))


def item(name: str, run: Run, end: float, group: str) -> Item:
    """A run's timeline until `end`, in a group that folds."""
    lengths = {label: run.samples[key] for key, label in QUEUES.items()}
    use = {
        "cores": run.samples["cores"] / run.cores * 100,
        "memory": run.samples["memory"] / max(run.memory, 1.0) * 100,
    }
    figure = gantt.timeline(run.jobs, run.models, run.cores, run.samples["at"], lengths, use, end)
    caption = f"The first {gantt.MAX_JOBS} jobs are drawn." if len(run.jobs) > gantt.MAX_JOBS else ""
    return Item("", name, caption, (), figure, group)
