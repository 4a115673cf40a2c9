"""`tacit lab papers`: claims of [PM24], [SS26], [KDS25] and [VPN24], our figures, and the commands that reproduce them."""

import json
import shlex
import signal
import subprocess
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from os.path import exists, join
from pathlib import Path
from typing import Any

from tacit._tacit import TacitError
from tacit.lab import _print
from tacit.lab._figures import Figures, Template

# The same figure or finding; faster or smaller; partly, or by other means; another finding; no figure here.
VERDICTS = ("reproduced", "better", "in part", "differs", "not measured")


@dataclass(frozen=True)
class Claim:
    """A table, a figure or a numbered claim of a paper (`lab/experiments/papers.toml`).

    command: `{data}` stands for the folder of shared data. holds: texts that its output must contain; a command with such texts is
    quick and reads no shared data.
    """

    paper: str
    place: str
    claim: str
    theirs: str
    ours: str
    ratio: str
    command: str
    verdict: str
    why: str
    holds: list[str] = field(default_factory=list)

    @property
    def judged(self) -> str:
        """The reason for the verdict, to stand behind it."""
        return "" if self.why == "-" else f": {self.why}"


def read_claims(text: str) -> list[Claim]:
    """All claims of `papers.toml`, in its order."""
    return [Claim(**claim) for claim in tomllib.loads(text)["claims"]]


def quick(claims: Iterable[Claim], data: str) -> dict[tuple[str, ...], list[Claim]]:
    """The claims of each quick command, by its words after `tacit`; raises `TacitError` if it is no command of `tacit`."""
    found: dict[tuple[str, ...], list[Claim]] = {}
    for claim in claims:
        if claim.holds:
            found.setdefault(tuple(split(claim.command, {"{data}": data})), []).append(claim)
    return found


def split(command: str, filled: Mapping[str, str]) -> list[str]:
    """The words of a command of `tacit` after its name, with each name of `filled` replaced by its text.

    Raises `TacitError` if it is no command of `tacit`.
    """
    try:
        first, *words = shlex.split(command) or [""]
    except ValueError:
        raise TacitError(f"{command}: its quotes do not end") from None
    if first != "tacit":
        raise TacitError(f"{command}: it is no command of tacit")
    for name, text in filled.items():
        words = [word.replace(name, text) for word in words]
    return words


def tell_counts(claims: Iterable[Claim]) -> str:
    """Number of claims for each verdict: "20 reproduced, 3 differs"."""
    counts = Counter(claim.verdict for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Turns an error into one that says what was being done."""
    try:
        yield
    except OSError as error:
        raise TacitError(f"{what}: {error.strerror} (os error {error.errno})") from None
    except ValueError as error:
        raise TacitError(f"{what}: {error}") from None


def start(tacit: str, words: Sequence[str], command: str, **settings: Any) -> str:
    """What `tacit` prints; raises `TacitError` if it cannot be started, or fails."""
    with doing(f"starting {command}"):
        ran = subprocess.run([tacit, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **settings)
    if code := ran.returncode:
        ended = f"exit status: {code}" if code > 0 else f"signal: {-code} ({signal.Signals(-code).name})"
        said = "" if ran.stderr is None else f": {ran.stderr.decode(errors='replace').strip()}"
        raise TacitError(f"{command}: {ended}{said}")
    return str(ran.stdout.decode(errors="replace"))


@dataclass
class Checked:
    """What came of a text of a document (`old` and, by its commands, `new`), or why nothing was compared."""

    command: str
    document: str
    old: str | None = None
    new: str | None = None
    skipped: str | None = None
    problem: str | None = None
    updated: bool = False

    @property
    def differs(self) -> bool:
        """Whether the document is wrong."""
        return self.problem is not None or (self.old != self.new and not self.updated)

    def told(self) -> str:
        """The result in a line or two."""
        by = f"{self.document} by `{self.command}`"
        if self.skipped is not None:
            return f"  skipped: {by}: {self.skipped}"
        if self.problem is not None:
            return f"  DIFFERS: {by}: {self.problem}"
        if self.old == self.new:
            return f"  holds: {self.document}: {self.old}"
        return f"  {'written anew' if self.updated else 'DIFFERS'}: {by}\n    old  {self.old}\n    new  {self.new}"

    def compare(self, text: str, value: object, document: str, update: bool) -> str:
        """Compares a text of `document` with its command's output; returns the document, with the new text if updating."""
        try:
            template = Template(text)
            new = template.filled(value)
        except TacitError as error:
            self.problem = str(error)
            return document
        places = template.places(document)
        if len(places) != 1:
            self.problem = f"{len(places)} texts are like `{text}`, where one should be; with its numbers: {new}"
            return document
        ((begin, end),) = places
        self.old, self.new = document[begin:end], new
        self.updated = update and self.old != new
        return document[:begin] + new + document[end:] if self.updated else document


@dataclass(frozen=True)
class Runner:
    """Runs each command once, in a folder of its own."""

    tacit: str
    data: str
    clone: str
    folder: str
    printed: dict[str, str] = field(default_factory=dict)

    def run(self, command: str) -> str:
        """What the command prints; raises `TacitError` if it fails."""
        if command not in self.printed:
            words = split(command, {"{data}": str(Path(self.data).absolute()), "{clone}": str(Path(self.clone).absolute())})
            self.printed[command] = start(self.tacit, words, command, cwd=self.folder, stderr=subprocess.PIPE)
        return self.printed[command]

    def numbers(self, bound: Figures) -> Any:
        """The output of the commands as JSON."""
        for command in bound.after:
            self.run(command)
        made = []
        for command in bound.commands:
            printed = self.run(command)
            with doing(f"the output of {command}"):
                made.append(json.loads(printed))
        return made[0] if len(made) == 1 else made

    def check(self, bound: Figures, update: bool) -> list[Checked]:
        """Compares all texts of a document with the output of their commands; with `update`, writes the output into it."""
        about, path = ("; ".join(bound.commands), bound.document), join(self.clone, bound.document)
        for file in (path, *([join(self.data, bound.needs)] if bound.needs else [])):
            if not exists(file):
                return [Checked(*about, skipped=f"{file} is not there (--clone, --data)")]
        try:
            value = self.numbers(bound)
        except TacitError as error:
            return [Checked(*about, problem=str(error))]
        with doing(f"reading {path}"):
            # Bytes, so that no line end is translated.
            document = Path(path).read_bytes().decode()
        found = [Checked(*about) for _ in bound.texts]
        for one, text in zip(found, bound.texts, strict=True):
            document = one.compare(text, value, document, update)
        if any(one.updated for one in found):
            with doing(f"writing {path}"):
                Path(path).write_bytes(document.encode())
        return found


def check_figures(told: Mapping[str, Any]) -> list[Checked]:
    """Checks the figures of the documents that were asked for."""
    figures = [Figures(**bound) for bound in tomllib.loads(told["figures"])["figures"]]
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(told["tacit"], told["data"], told["clone"], folder)
        asked = [bound for bound in figures if told["heavy"] or not bound.heavy]
        return [one for bound in asked for one in runner.check(bound, told["update"])]


def carry_out(words: Sequence[str], claims: Sequence[Claim], told: Mapping[str, Any]) -> dict[str, Any]:
    """What became of the claims of a quick command: a text that the output lacks."""
    output = start(told["tacit"], words, " ".join(["tacit", *words]))
    lacks = [next((text for text in claim.holds if text not in output), None) for claim in claims]
    checked = [
        {"paper": c.paper, "place": c.place, "claim": c.claim, "holds": text is None, "lacks": text}
        for c, text in zip(claims, lacks, strict=True)
    ]
    return {"command": words, "claims": checked}


def tell(outcome: Mapping[str, Any]) -> None:
    """Prints the outcome of a quick command."""
    _print.line(" ".join(["tacit", *outcome["command"]]))
    for c in outcome["claims"]:
        claim = f"[{c['paper']}] {c['place']}: {c['claim']}"
        _print.line(f"  holds: {claim}" if c["holds"] else f"  DIFFERS: {claim}: no `{c['lacks']}` in the output")


def check(claims: Sequence[Claim], told: Mapping[str, Any]) -> None:
    """Runs the quick commands and, unless one paper was named, checks the documents; raises `TacitError` if anything differs."""
    outcomes = []
    for words, bound in quick(claims, told["data"]).items():
        outcomes.append(carry_out(words, bound, told))
        if not told["json"]:
            tell(outcomes[-1])
    figures = check_figures(told) if told["paper"] is None else []
    if told["json"]:
        _print.as_json({"commands": outcomes, "figures": [asdict(one) for one in figures]})
    elif not outcomes:
        _print.line("none of these commands is quick")
    elif figures:
        _print.line("figures of the documents")
        for one in figures:
            _print.line(one.told())
    wrong = []
    if failed := sum(not all(c["holds"] for c in outcome["claims"]) for outcome in outcomes):
        wrong.append(f"the output of {failed} commands differs from the list")
    if drifted := sum(one.differs for one in figures):
        wrong.append(f"{drifted} figures of the documents are not what their commands say (--update writes them anew)")
    if wrong:
        raise TacitError("; ".join(wrong))


def entry(claim: Claim, data: str) -> str:
    """A claim for people."""
    mark = "   (quick)" if claim.holds else ""
    return (
        f"[{claim.paper}] {claim.place}: {claim.claim}\n  paper    {claim.theirs}\n  here     {claim.ours}\n  ratio    {claim.ratio}\n"
        f"  verdict  {claim.verdict}{claim.judged}\n  {claim.command.replace('{data}', data)}{mark}\n"
    )


def run(told: Mapping[str, Any]) -> None:
    """Lists the claims, or checks them; raises `TacitError` for a paper that is not there, or if something differs."""
    every, paper = read_claims(told["papers"]), told["paper"]
    claims = [claim for claim in every if paper is None or claim.paper.lower() == paper.lower()]
    if not claims:
        raise TacitError(f"there is no paper {paper}; there are {', '.join(dict.fromkeys(claim.paper for claim in every))}")
    if told["run"]:
        check(claims, told)
    elif told["json"]:
        _print.as_json({"claims": [asdict(claim) for claim in claims]})
    else:
        for claim in claims:
            _print.line(entry(claim, told["data"]))
        _print.line(f"{len(claims)} in all: {tell_counts(claims)}")
