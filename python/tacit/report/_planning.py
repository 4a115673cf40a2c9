"""The page of a plan (crates/app/cli/src/plan): the ranking, where time goes, what would change it, where figures are from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tacit._tacit import TacitError
from tacit.report import _fields as f
from tacit.report import _style as style
from tacit.report._format import NONE, Table, plain
from tacit.report._page import simulation_page
from tacit.report._sections import Item, Section
from tacit.report._write import write

FORMAT, VERSION = "tacit-plan", 1
# What the wall time of a phase is made of.
PARTS = {"compute_s": "computing", "transfer_s": "bytes on the link", "round_trips_s": "round trips"}
KNOBS = {
    "rate": ("link rate", "Mbit/s"),
    "round-trip": ("round trip", "ms"),
    "client": ("client's speed", "times as fast"),
    "server": ("server's speed", "times as fast"),
}
TRUST = {"two-party": "private", "dealer": "private, with a dealer", "server-sees-input": "not private: the server sees the input"}


@dataclass(frozen=True)
class Choice:
    """A back end with its options, and what it was predicted to take for one input."""

    name: str
    private: bool
    trust: str
    pareto: bool
    threads: str
    phases: Mapping[str, Any]
    score: float
    objections: tuple[str, ...]

    def phase(self, name: str, key: str) -> float:
        """A figure of `setup`, `offline` or `online`."""
        return f.amount(f.objects(self.phases, name), key)

    def client_j(self) -> float:
        """Joules of the client above idle for an input, without the setup."""
        return self.phase("offline", "client_j") + self.phase("online", "client_j")

    def megabytes(self) -> float:
        """Payload of an input both ways, without the setup."""
        phases, ways = ("offline", "online"), ("up_bytes", "down_bytes")
        return sum(self.phase(phase, way) for phase in phases for way in ways) / 1e6


def is_plan(path: Path) -> bool:
    """Whether the file says that it is one."""
    try:
        with path.open("rb") as file:
            return b'"tacit-plan"' in file.read(1 << 16)
    except OSError:
        return False


def build(path: Path, output: Path) -> Path:
    """Writes the page and, beside it, the plots."""
    try:
        source = f.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise TacitError(f"{path}: {error.strerror or error}") from None
    if source.get("format") != FORMAT:
        raise TacitError(f"{path}: no plan; `tacit plan -o FILE` writes them")
    f.check_version(source, VERSION, str(path))
    choices = [_choice(item) for item in f.items(source, "ranked") if isinstance(item, dict)]
    if not choices:
        raise TacitError(f"{path}: a plan without choices")
    sections = [_ranking(source, choices), _times(choices), _changes(source), _sources(source)]
    setting = f.objects(source, "setting")
    devices = [f.text(f.objects(setting, party), "name") for party in ("client", "server")]
    facts = [
        ("client", devices[0]),
        ("server", devices[1]),
        ("link", f.text(f.objects(setting, "link"), "name")),
        ("goal", f.text(source, "goal")),
        ("inputs a day", plain(f.amount(f.objects(source, "usage"), "per_day"))),
    ]
    return write(
        sections,
        output.with_name(f"{output.stem}-plots"),
        output,
        lambda plots: simulation_page(f"tacit plan: {f.text(source, 'model')}", facts, sections, plots),
    )


def _choice(source: f.Object) -> Choice:
    options, choice = f.text(source, "options"), f.objects(source, "choice")
    backend = f.text(source, "backend")
    return Choice(
        name=f"{backend} ({options})" if options else backend,
        private=source.get("private") is True,
        trust=TRUST.get(f.text(source, "trust"), "not private: the client has the model"),
        pareto=choice.get("pareto") is True,
        threads=f"{f.amount(choice, 'client_threads'):.0f} / {f.amount(choice, 'server_threads'):.0f}",
        phases=f.objects(choice, "predicted"),
        score=f.amount(choice, "score"),
        objections=tuple(f.clean(text) for text in f.items(choice, "objections")),
    )


def _ranking(source: f.Object, choices: Sequence[Choice]) -> Section:
    columns = (
        "back end", "who learns what", "threads, client / server", "online (s)", "offline (s)", "bytes (MB)", "client (J)",
        "server (J)", "limits",
    )  # fmt: skip
    rows = tuple(
        (
            choice.name + (" *" if choice.pareto else ""),
            choice.trust,
            choice.threads,
            plain(choice.phase("online", "wall_s")),
            plain(choice.phase("offline", "wall_s")),
            plain(choice.megabytes()),
            plain(choice.client_j()),
            plain(choice.phase("offline", "server_j") + choice.phase("online", "server_j")),
            "; ".join(choice.objections) or "within",
        )
        for choice in choices
    )
    note = "* nothing private is better in latency, client energy and bytes at once. Joules are above idle; setup is not in them."
    left_out = Table(("left out",), tuple((f.clean(text),) for text in f.items(source, "refused")))
    tables = (Table(columns, rows, note=note), left_out)
    return Section("Ranking", "Predicted for one input, the best first.", (Item("", "pareto", "", tables, _pareto(choices)),))


def _pareto(choices: Sequence[Choice]) -> Figure:
    figure, (axes,) = style.panel()
    with style.look():
        for k, choice in enumerate(choices):
            x, y = choice.phase("online", "wall_s"), choice.client_j()
            if x <= 0 or y <= 0:
                continue
            colour, marker = style.COLOURS[k % len(style.COLOURS)], style.MARKERS[k % len(style.MARKERS)]
            face = colour if choice.private else "white"
            axes.plot([x], [y], marker, color=colour, markerfacecolor=face, markersize=8, label=style.short(choice.name))
        style.log_x(axes, [choice.phase("online", "wall_s") for choice in choices if choice.phase("online", "wall_s") > 0])
        style.log_y(axes)
        axes.set_xlabel("answer (online), s")
        axes.set_ylabel("client, J above idle")
        axes.set_title("hollow: not private", loc="left")
        style.legend(figure, axes)
    return figure


def _times(choices: Sequence[Choice]) -> Section:
    items = []
    for phase in ("online", "offline"):
        shown = [choice for choice in choices if choice.phase(phase, "wall_s") > 0]
        if shown:
            rows = tuple((c.name, *(plain(c.phase(phase, key)) for key in (*PARTS, "wall_s"))) for c in shown)
            table = Table(("back end", *(f"{title} (s)" for title in PARTS.values()), "in all (s)"), rows)
            items.append(Item(phase, f"times-{phase}", "", (table,), _bars(shown, phase)))
    intro = "Of computing and the link, half of the shorter one happens while the longer one goes on, so the parts add up to more."
    return Section("Where the time goes", intro, tuple(items))


def _bars(choices: Sequence[Choice], phase: str) -> Figure:
    figure, (axes,) = style.panel(height=0.9 + 0.32 * len(choices))
    with style.look():
        left = [0.0] * len(choices)
        for (key, title), colour in zip(PARTS.items(), style.PHASE_COLOURS, strict=False):
            values = [choice.phase(phase, key) for choice in choices]
            axes.barh(range(len(choices)), values, left=left, color=colour, label=title)
            left = [a + b for a, b in zip(left, values, strict=True)]
        axes.set_yticks(range(len(choices)), [style.short(choice.name) for choice in choices])
        axes.invert_yaxis()
        axes.set_xlabel("s")
        axes.grid(False)
        style.legend(figure, axes)
    return figure


def _changes(source: f.Object) -> Section:
    offers = [offer for offer in f.items(source, "offers") if isinstance(offer, dict)]

    def name(index: object) -> str:
        if not isinstance(index, int) or not 0 <= index < len(offers):
            return "nothing within the limits"
        options = f.text(offers[index], "options")
        return f.text(offers[index], "backend") + (f" ({options})" if options else "")

    rows = []
    for varied in f.items(source, "varied"):
        if not isinstance(varied, dict):
            continue
        title, unit = KNOBS.get(f.text(varied, "knob"), (f.text(varied, "knob"), ""))
        scores = [f.as_number(score) for score in f.items(varied, "score")] + [None, None]
        reigns = [reign for reign in f.items(varied, "reigns") if isinstance(reign, dict)]
        spans = [f"{name(r.get('offer'))}: {plain(f.amount(r, 'from'))} to {plain(f.amount(r, 'to'))}" for r in reigns]
        ends = [plain(score) if score is not None else NONE for score in scores[:2]]
        rows.append((f"{title} ({unit})", plain(f.amount(varied, "at")), *ends, "; ".join(spans)))
    unit = f.text(source, "unit")
    columns = ("what", "here", f"score at a quarter ({unit})", f"at four times ({unit})", "best private back end, where")
    intro = "One thing at a time is better or worse; what moves the score of the best most comes first."
    return Section("What would change it", intro, (Item("", "changes", "", (Table(columns, tuple(rows)),)),))


def _sources(source: f.Object) -> Section:
    setting = f.objects(source, "setting")
    rows = tuple(
        (party, f.text(f.objects(setting, party), "name"), f.clean(text))
        for party in ("client", "server")
        for text in f.items(f.objects(setting, party), "sources")
    )
    return Section("Where the figures are from", "", (Item("", "sources", "", (Table(("party", "device", "source"), rows),)),))
