"""A campaign's folder (lab/experiments/src/campaign.rs): `campaign.json` and `runs.jsonl`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tacit._tacit import TacitError
from tacit.report import _fields as f

VERSION = 1
MAX_WARNINGS = 100
PROVENANCES = ("measured", "attributed", "modelled")
MAX_DESCRIPTION_BYTES = 64 << 20
Cell = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Energy:
    """An amount of energy in joules and how sure it is; net is gross minus idle."""

    provenance: str
    gross_j: float
    mean_w: float
    idle_j: float | None = None
    net_j: float | None = None
    net_sd_j: float | None = None
    below_noise: bool = False


@dataclass(frozen=True)
class Party:
    """Processor seconds and peak resident bytes of a party's process tree."""

    user_s: float
    system_s: float
    rss_bytes: float


@dataclass(frozen=True)
class Link:
    """A link as asked for and as measured: bit/s of TCP goodput, seconds."""

    target_up_bps: float | None
    target_down_bps: float | None
    target_rtt_s: float
    up_bps: float
    down_bps: float
    rtt_s: float
    loaded_rtt_s: float


@dataclass(frozen=True)
class Run:
    """One repetition of one cell."""

    cell: Cell
    repetition: int
    record: str
    duration_s: float
    failure: str | None = None
    link: Link | None = None
    energy: Mapping[str, Energy] = field(default_factory=dict)
    parties: Mapping[str, Party] = field(default_factory=dict)
    results: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Campaign:
    """What was asked for, where, and what came of it. `runs` are the good ones; `failures` say whether they were made up for."""

    folder: Path
    experiment: str
    description: str
    spec: str
    machine: Mapping[str, str]
    started_unix_s: float
    runs: tuple[Run, ...]
    failures: tuple[tuple[Run, bool], ...]
    warnings: tuple[str, ...]


def load(folder: Path) -> Campaign:
    """Reads the folder. A broken line of `runs.jsonl` is left out with a warning; a version from the future is an error."""
    path = folder / "campaign.json"
    try:
        if path.stat().st_size > MAX_DESCRIPTION_BYTES:
            raise TacitError(f"{path}: larger than {MAX_DESCRIPTION_BYTES >> 20} MiB; this is not a campaign")
        about = f.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise TacitError(f"{path}: {error.strerror or error}; a campaign's folder is what `tacit lab run` writes") from None
    f.check_version(about, VERSION, str(path))
    runs, warnings = _runs(folder / "runs.jsonl")
    good, failures = _sorted_out(runs)
    return Campaign(
        folder=folder,
        experiment=f.text(about, "experiment", "campaign"),
        description=f.text(about, "description"),
        spec=f.text(about, "spec"),
        machine=f.texts(about, "machine"),
        started_unix_s=f.amount(about, "started_unix_s"),
        runs=good,
        failures=failures,
        warnings=tuple(warnings),
    )


def _runs(path: Path) -> tuple[list[Run], list[str]]:
    if not path.exists():
        return [], ["There is no runs.jsonl: no run has been finished yet."]
    runs: list[Run] = []
    warnings: list[str] = []
    more = 0
    for number, line, whole in f.lines(path):
        try:
            runs.append(_run(f.parse(line, f"{path.name}, line {number}")))
        except TacitError as error:
            if len(warnings) == MAX_WARNINGS:
                more += 1
                continue
            why = "cut off (a run was being written when the campaign stopped)" if not whole else "left out"
            warnings.append(f"{error}: {why}.")
    return runs, [*warnings, f"{more} more broken lines of {path.name} left out."] if more else warnings


def _run(source: f.Object) -> Run:
    failure = source.get("failure")
    link = f.objects(source, "link")
    return Run(
        cell=tuple(sorted(f.texts(source, "cell").items())),
        repetition=int(f.amount(source, "repetition")),
        record=f.text(source, "record"),
        duration_s=f.amount(source, "duration_s"),
        failure=None if failure is None else f.clean(failure),
        link=_link(link) if link else None,
        energy={f.clean(k): _energy(v) for k, v in f.objects(source, "energy").items() if isinstance(v, dict)},
        parties={f.clean(k): _party(v) for k, v in f.objects(source, "parties").items() if isinstance(v, dict)},
        results=f.numbers(source, "results"),
    )


def _link(source: f.Object) -> Link:
    return Link(
        target_up_bps=f.number(source, "target_up_bps"),
        target_down_bps=f.number(source, "target_down_bps"),
        target_rtt_s=f.amount(source, "target_rtt_s"),
        up_bps=f.amount(source, "up_bps"),
        down_bps=f.amount(source, "down_bps"),
        rtt_s=f.amount(source, "rtt_s"),
        loaded_rtt_s=f.amount(source, "loaded_rtt_s"),
    )


def _energy(source: f.Object) -> Energy:
    provenance = f.text(source, "provenance")
    return Energy(
        provenance=provenance if provenance in PROVENANCES else "of unknown provenance",
        gross_j=f.amount(source, "gross_j"),
        mean_w=f.amount(source, "mean_w"),
        idle_j=f.number(source, "idle_j"),
        net_j=f.number(source, "net_j"),
        net_sd_j=f.number(source, "net_sd_j"),
        below_noise=source.get("below_noise") is True,
    )


def _party(source: f.Object) -> Party:
    return Party(f.amount(source, "user_s"), f.amount(source, "system_s"), f.amount(source, "rss_bytes"))


def _sorted_out(runs: list[Run]) -> tuple[tuple[Run, ...], tuple[tuple[Run, bool], ...]]:
    """The last good run of each cell and repetition; the failures, each with whether a good run took its place."""
    good = {(r.cell, r.repetition): r for r in runs if r.failure is None}
    failures = tuple((r, (r.cell, r.repetition) in good) for r in runs if r.failure is not None)
    return tuple(good.values()), failures
