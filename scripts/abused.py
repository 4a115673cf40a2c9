"""What the scenarios of `scripts/abuse.py` have in common: the programs, a place with keys and material, and what must hold."""

import ast
import json
import os
import re
import sqlite3
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
TACIT = os.environ.get("TACIT_BIN", str(ROOT / "target" / "release" / "tacit"))
# The states of material, in the order in which it may go through them.
RANK = {"generating": 0, "ready": 1, "claimed": 2, "burnt": 3}
# Back ends that keep the input private, those that run several inputs as one, and those whose material a dealer makes.
BACKENDS = ["cheetah", "sci-he", "dealt", "fss", "ckks"]
BATCHING = ["cheetah", "sci-he", "dealt", "fss"]
DEALT = ["dealt", "fss"]
# A command that takes longer hangs.
PATIENCE_S = 120


class Broken(Exception):
    """Something that must hold does not."""


class Skipped(Exception):
    """This machine does not allow the scenario."""


def holds(condition: object, what: str) -> None:
    if not condition:
        raise Broken(what)


@dataclass
class Done:
    code: int
    out: str
    err: str


def check(arguments: list[object], code: int, err: str) -> None:
    """No panic, and no death by a signal that nobody sent."""
    command = " ".join(map(str, arguments))
    holds("panicked" not in err and code != 101, f"{command} panicked:\n{err[-2000:]}")
    holds(code >= 0, f"{command} died of signal {-code}:\n{err[-2000:]}")


def run(*arguments: object, ok: bool | None = True, cwd: Path | None = None, **options: object) -> Done:
    """Runs `tacit` to its end. `ok`: whether it should succeed; `None` for either."""
    command = [TACIT, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, **options
        )
    except subprocess.TimeoutExpired as error:
        raise Broken(f"{' '.join(command)} hangs") from error
    result = Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    check(list(arguments), result.code, result.err)
    if ok is not None:
        holds(ok == (result.code == 0), f"{' '.join(command)} ended with {result.code}:\n{result.err[-2000:]}")
        holds(ok or result.err.strip(), f"{' '.join(command)} failed without a word")
    return result


class Program:
    """A program that listens on a port of its own."""

    def __init__(self, place: "Place", name: str, command: list[str], stderr: object = None):
        self.name, self.log = name, place.folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.start = log.tell()
            self.process = subprocess.Popen(
                command,
                cwd=place.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
            )
        line = self.process.stdout.readline().decode()
        told = re.search(r"listen(?:ing|s) on (?:http://)?(\S+)", line)
        if not told:
            code = self.process.wait(PATIENCE_S)
            self.process.stdout.close()
            check([name], code, self.errors())
            raise Broken(f"the {name} did not start: {self.errors()[-2000:]}")
        self.address = told[1]
        host, port = self.address.rsplit(":", 1)
        self.peer = (host, int(port))

    def errors(self) -> str:
        return self.log.read_bytes()[self.start :].decode(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        holds("panicked" not in self.errors(), f"the {self.name} panicked:\n{self.errors()[-2000:]}")

    def stop(self) -> float:
        """Asks it to end; the seconds that it took."""
        start = time.monotonic()
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise Broken(f"the {self.name} does not end on SIGTERM") from error
        self.process.stdout.close()
        check([self.name], code, self.errors())
        return time.monotonic() - start


class Server(Program):
    """A `tacit serve` process."""

    def __init__(self, place: "Place", prefix: tuple[str, ...] = (), stderr: object = None, extra: tuple[str, ...] = ()):
        command = [*prefix, TACIT, "serve", f"{place.model}.tacit", "--keys", "keys", "--listen", "127.0.0.1:0"]
        command += [part for backend in place.backends for part in ("--backend", backend)]
        command += ["--material", "server-material", *place.trusted, *extra]
        super().__init__(place, "server", command, stderr)


class Dealer(Program):
    """A `tacit dealer` process, for both parties of a place."""

    def __init__(self, place: "Place"):
        if not (place.folder / "dealing").exists():
            run("keys", "init", "dealing", cwd=place.folder)
            place.pin = json.loads(run("keys", "add-dealer", "dealing", "--json", cwd=place.folder).out)["dealer"]
        command = [TACIT, "dealer", "--keys", "dealing", "--listen", "127.0.0.1:0", "--numbers", "dealer.sqlite"]
        super().__init__(place, "dealer", command)


@dataclass
class Place:
    """A folder with a model, keys and both parties' material."""

    folder: Path
    model: str = "digits"
    backends: list[str] = field(default_factory=lambda: ["cheetah"])
    # That of the next client.
    backend: str = "cheetah"
    # The dealer's fingerprint, and options that name it.
    pin: str = ""
    trusted: list[str] = field(default_factory=list)
    seen: dict[tuple[str, bytes], int] = field(default_factory=dict)
    expected: list[float] = field(default_factory=list)
    # The private answer may differ by this much from the float network's: an eighth of its lead over the second class.
    tolerance: float = 0.0
    pixels: list[float] = field(default_factory=list)
    shape: list[int] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path) -> "Place":
        folder.mkdir(parents=True)
        return cls(folder)._with(MODELS / "digits.onnx")

    @classmethod
    def small(cls, folder: Path, backends: list[str]) -> "Place":
        """With the smallest network, which every back end can run."""
        folder.mkdir(parents=True)
        run("zoo", "tiny-mlp", "-o", "tiny.onnx", cwd=folder)
        return cls(folder, "tiny", backends, backends[0])._with(folder / "tiny.onnx")

    def _with(self, network: Path) -> "Place":
        file, samples = f"{self.model}.tacit", MODELS / "digits_samples.npy"
        run("model", "import", network, "--calibrate", samples, "--backend", "none", "-o", file, cwd=self.folder)
        for backend in self.backends:
            run("model", "lower", file, "--backend", backend, cwd=self.folder)
        run("keys", "init", "keys", cwd=self.folder)
        self.expected = json.loads(run("model", "run", file, self.digit, "--json", cwd=self.folder).out)["values"]
        second, first = sorted(self.expected)[-2:]
        self.tolerance = (first - second) / 8
        return self

    def trust(self, address: str) -> None:
        """Both parties take material from the dealer there."""
        self.trusted = ["--dealer", address, "--dealer-pin", self.pin, "--dealer-keys", "dealing"]

    def asking(self, address: str) -> list[str]:
        """Options of a client that asks this server."""
        common = ["--server", address, "--keys", "keys", "--material", "client-material", "--backend", self.backend]
        return [*common, *self.trusted]

    @property
    def digit(self) -> Path:
        return MODELS / "digit.npy"

    def read_digit(self) -> None:
        """The digit as numbers: a file of version 1 with `<f4` or `|u1` in it, which is what lies in `models`."""
        data = self.digit.read_bytes()
        length = struct.unpack("<H", data[8:10])[0]
        header = ast.literal_eval(data[10 : 10 + length].decode())
        kind = {"<f4": "<f", "<f8": "<d", "|u1": "<B"}[header["descr"]]
        self.shape = list(header["shape"])
        self.pixels = [float(value) for (value,) in struct.iter_unpack(kind, data[10 + length :])]

    def client_of_operator(self) -> None:
        if not (self.folder / "keys" / "ops.pem").exists():
            run("keys", "add-client", "keys", "ops", "--operator", cwd=self.folder)

    def ask(self, server: Server, *arguments: object) -> Done:
        return run(*arguments, "--server", server.address, "--keys", "keys", cwd=self.folder)

    def client(self, server: Server, command: str, *arguments: object, **options: object) -> Done:
        return run(command, *self.asking(server.address), *arguments, cwd=self.folder, **options)

    def infer(self, server: Server, ok: bool | None = True) -> bool:
        """One private answer, which must be right; whether there was one."""
        done = self.client(server, "infer", self.digit, "--json", ok=ok)
        if done.code != 0:
            return False
        values = json.loads(done.out)["values"]
        holds(self.is_right(values), f"a wrong answer: {values} instead of {self.expected}")
        return True

    def is_right(self, values: list[float]) -> bool:
        return max(abs(a - b) for a, b in zip(values, self.expected, strict=True)) < self.tolerance

    def ledger(self, party: str) -> dict[bytes, str]:
        path = self.folder / f"{party}-material" / "ledger.sqlite"
        if not path.exists():
            return {}
        with sqlite3.connect(path) as database:
            rows = database.execute("SELECT id, state FROM material").fetchall()
        database.close()
        return dict(rows)

    def check_ledgers(self) -> None:
        """No material ever goes back to an earlier state, at either party."""
        for party in ("client", "server"):
            ledger = self.ledger(party)
            for id, state in ledger.items():
                rank, before = RANK[state], self.seen.get((party, id), 0)
                holds(rank >= before, f"{id.hex()} at the {party} went back to {state}")
                self.seen[party, id] = rank
            for (owner, id), rank in self.seen.items():
                lost = owner == party and rank > 0 and id not in ledger
                holds(not lost, f"{id.hex()} is gone from the {party}'s ledger, so it might be made or used again")

    def ready(self, party: str) -> set[bytes]:
        return {id for id, state in self.ledger(party).items() if state == "ready"}
