"""`make abuse`: kills, floods, full disks, restored folders and damaged files against the programs, on loopback only.

    python scripts/abuse.py [--seconds N] [--seed N] [--only NAME ...] [--keep]

Each scenario gets its share of the time and ends with one line of what it did. What must hold: no process panics, no answer is wrong, no
material is used again, an honest client is served, errors are said. Exits with 1 and the place of the evidence where something does not
hold; what this machine does not allow is said as SKIPPED in the summary. Needs Python alone (no packages) and a machine with Linux.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
TACIT = os.environ.get("TACIT_BIN", str(ROOT / "target" / "release" / "tacit"))
# The states of material, in the order in which it may go through them.
RANK = {"generating": 0, "ready": 1, "claimed": 2, "burnt": 3}
# The private answer on the digit may differ by this much from the float network's, which is an eighth of its lead over the second class.
TOLERANCE = 0.8
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


class Server:
    """A `tacit serve` process on a port of its own."""

    def __init__(self, place: "Place", prefix: tuple[str, ...] = (), stderr: object = None, extra: tuple[str, ...] = ()):
        self.log = place.folder / "server.log"
        command = [*prefix, TACIT, "serve", "digits.tacit", "--keys", "keys", "--listen", "127.0.0.1:0"]
        command += ["--material", "server-material", *extra]
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
        if not line.startswith("listening on "):
            code = self.process.wait(PATIENCE_S)
            check(["serve"], code, self.errors())
            raise Broken(f"the server did not start: {self.errors()[-2000:]}")
        self.address = line.split()[2]
        host, port = self.address.rsplit(":", 1)
        self.peer = (host, int(port))

    def errors(self) -> str:
        return self.log.read_bytes()[self.start :].decode(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        holds("panicked" not in self.errors(), f"the server panicked:\n{self.errors()[-2000:]}")

    def stop(self) -> float:
        """Asks it to end; the seconds that it took."""
        start = time.monotonic()
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise Broken("the server does not end on SIGTERM") from error
        check(["serve"], code, self.errors())
        return time.monotonic() - start


@dataclass
class Place:
    """A folder with a model, keys and both parties' material."""

    folder: Path
    seen: dict[tuple[str, bytes], int] = field(default_factory=dict)
    expected: list[float] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path) -> "Place":
        folder.mkdir(parents=True)
        samples = MODELS / "digits_samples.npy"
        run("model", "import", MODELS / "digits.onnx", "--calibrate", samples, "-o", "digits.tacit", cwd=folder)
        run("keys", "init", "keys", cwd=folder)
        place = cls(folder)
        place.expected = json.loads(run("model", "run", "digits.tacit", place.digit, "--json", cwd=folder).out)["values"]
        return place

    @property
    def digit(self) -> Path:
        return MODELS / "digit.npy"

    def client(self, server: Server, command: str, *arguments: object, **options: object) -> Done:
        common = ["--server", server.address, "--keys", "keys", "--material", "client-material"]
        return run(command, *common, *arguments, cwd=self.folder, **options)

    def infer(self, server: Server, ok: bool | None = True) -> bool:
        """One private answer, which must be right; whether there was one."""
        done = self.client(server, "infer", self.digit, "--json", ok=ok)
        if done.code != 0:
            return False
        values = json.loads(done.out)["values"]
        worst = max(abs(a - b) for a, b in zip(values, self.expected, strict=True))
        holds(worst < TOLERANCE, f"a wrong answer: {values} instead of {self.expected}")
        return True

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


def kills(place: Place, end: float, dice: random.Random) -> str:
    """Either party is killed at random moments; nothing is used twice, and the next answer is right."""
    counts = {"client": 0, "server": 0, "nobody": 0}
    server = Server(place)
    while time.monotonic() < end:
        arguments = dice.choice([["prepare", "--count", "3"], ["infer", str(place.digit), "--json"]])
        common = ["--server", server.address, "--keys", "keys", "--material", "client-material"]
        command = [TACIT, arguments[0], *common, *arguments[1:]]
        client = subprocess.Popen(command, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(dice.uniform(0.0, 0.35))
        victim = dice.choice(list(counts))
        counts[victim] += 1
        if victim == "client":
            client.kill()
        if victim == "server":
            server.kill()
        try:
            error = client.communicate(timeout=PATIENCE_S)[1].decode(errors="replace")
        except subprocess.TimeoutExpired as timeout:
            client.kill()
            raise Broken("a client whose server was killed hangs") from timeout
        if victim != "client":
            check(command, client.returncode, error)
        if victim == "nobody":
            holds(client.returncode == 0, f"an undisturbed {arguments[0]} failed:\n{error}")
        if victim == "server":
            place.check_ledgers()
            server = Server(place)
        place.infer(server)
    server.stop()
    place.check_ledgers()
    used = sum(rank >= RANK["claimed"] for rank in place.seen.values())
    return f"killed {counts['client']} clients and {counts['server']} servers, spared {counts['nobody']}; {used} uses, none twice"


@contextmanager
def crowd(peer: tuple[str, int], sources: Callable[[int], str], size: int, payload: bytes = b"") -> Iterator[dict[str, int]]:
    """`size` connections that say nothing (or rubbish), each opened again as soon as the server closes it."""
    stop, counts = threading.Event(), {"opened": 0, "closed": 0, "refused": 0}

    def member(number: int) -> None:
        while not stop.is_set():
            with socket.socket() as one:
                one.settimeout(0.5)
                try:
                    one.bind((sources(number), 0))
                    one.connect(peer)
                    counts["opened"] += 1
                    if payload:
                        one.sendall(payload)
                except OSError:
                    counts["refused"] += 1
                    stop.wait(0.2)
                    continue
                while not stop.is_set():
                    try:
                        if not one.recv(4096):
                            break
                    except TimeoutError:
                        continue
                    except OSError:
                        break
                counts["closed"] += 1

    threads = [threading.Thread(target=member, args=(i,), daemon=True) for i in range(size)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def floods(place: Place, end: float, dice: random.Random) -> str:
    """Idle and rubbish connections in crowds; an honest client gets its answers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    server, answers, worst, opened = Server(place), 0, 0.0, 0
    crowds = [
        ("one address", lambda _: "127.0.0.2", 1000, b""),
        ("the honest client's address", lambda _: "127.0.0.1", 500, b""),
        ("many addresses", lambda n: f"127.{n % 200 + 1}.{n // 200 + 1}.1", 1000, b""),
        ("rubbish", lambda _: "127.0.0.3", 200, dice.randbytes(300)),
    ]
    share = max((end - time.monotonic()) / len(crowds), 2.0)
    for name, sources, size, payload in crowds:
        with crowd(server.peer, sources, size, payload) as counts:
            until = time.monotonic() + share
            while counts["opened"] < min(size, 300) and time.monotonic() < until:
                time.sleep(0.05)
            while True:
                start = time.monotonic()
                holds(place.infer(server, ok=None), f"a crowd from {name} locks an honest client out")
                answers, worst = answers + 1, max(worst, time.monotonic() - start)
                if time.monotonic() >= until:
                    break
            opened += counts["opened"]
        place.infer(server)
    took = server.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    size = len(server.errors())
    holds(size < 200_000, f"{opened} connections made the server log {size} bytes")
    return f"{opened} connections of strangers, {answers} answers meanwhile, the slowest in {worst:.1f} s; {size} bytes of log; ended in {took:.1f} s"


def full_disks(place: Place, end: float, dice: random.Random) -> str:
    """The server's disk fills, then its log's; both parties say so, and everything that needs no disk goes on."""
    material = place.folder / "server-material"
    shutil.rmtree(material, ignore_errors=True)
    material.mkdir(mode=0o700)
    mount = f"mount -t tmpfs -o size=1200k,mode=0700 tmpfs '{material}' && exec \"$@\""
    prefix = ("unshare", "--mount", "sh", "-c", mount, "sh")
    allowed = subprocess.run([*prefix, "true"], capture_output=True, cwd=place.folder)
    if allowed.returncode != 0:
        raise Skipped(f"no file system of its own: {allowed.stderr.decode().strip()}")
    server, made, refused = Server(place, prefix=prefix), 0, 0
    while time.monotonic() < end - 2 or not refused:
        done = place.client(server, "prepare", "--count", str(dice.randint(1, 9)), "--json", ok=None)
        made += done.out.count('"id"')
        if done.code != 0:
            refused += 1
            holds(done.err.strip(), "a full disk is not said to the client")
        place.infer(server)
    server.stop()
    place.seen.clear()
    shutil.rmtree(place.folder / "client-material")
    # Programs whose output cannot be written.
    with open("/dev/full", "wb") as full:
        server = Server(place, stderr=full)
        place.infer(server)
        for arguments in (["infer", place.digit, "--json"], ["prepare", "--json"]):
            command = [TACIT, arguments[0], "--server", server.address, "--keys", "keys", *map(str, arguments[1:])]
            done = subprocess.run(command, cwd=place.folder, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S)
            check(command, done.returncode, done.stderr.decode())
            holds(done.returncode != 0 and done.stderr, f"{arguments[0]} to a full disk ends as if all were well")
        took = server.stop()
    reader, writer = os.pipe()
    server = Server(place, stderr=writer)
    os.close(writer)
    os.close(reader)
    with crowd(server.peer, lambda _: "127.0.0.4", 100, b"\0" * 64):
        time.sleep(0.5)
        place.infer(server)
    took = max(took, server.stop())
    return f"{made} materials until the disk was full, {refused} refusals; ended within {took:.1f} s without a log"


def restored(place: Place, end: float, dice: random.Random) -> str:
    """Files and folders copied back from before their use: nothing is used again."""
    rounds = {"files": 0, "client": 0, "server": 0}
    while time.monotonic() < end or not all(rounds.values()):
        what = min(rounds, key=lambda name: (rounds[name], dice.random()))
        rounds[what] += 1
        server = Server(place)
        place.client(server, "prepare", "--count", "2")
        server.stop()
        place.check_ledgers()
        backup = place.folder / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        for party in ("client", "server"):
            shutil.copytree(place.folder / f"{party}-material", backup / party)
        server = Server(place)
        before = place.ready("client")
        place.infer(server)
        used = before - place.ready("client")
        holds(used, "an answer used no material although some was ready")
        if what == "files":
            # While the server runs.
            for party in ("client", "server"):
                for file in (backup / party).glob("*.material"):
                    target = place.folder / f"{party}-material" / file.name
                    if not target.exists():
                        shutil.copy(file, target)
            for _ in range(3):
                place.infer(server, ok=None)
            server.stop()
            place.check_ledgers()
            continue
        server.stop()
        shutil.rmtree(place.folder / f"{what}-material")
        shutil.copytree(backup / what, place.folder / f"{what}-material")
        # The other party remembers; what it burnt is never used again there.
        other = "server" if what == "client" else "client"
        burnt = {id for id, state in place.ledger(other).items() if RANK[state] >= RANK["claimed"]}
        holds(used <= burnt, f"the {other} does not remember what was used")
        place.seen = {key: rank for key, rank in place.seen.items() if key[0] == other}
        server = Server(place)
        for _ in range(4):
            place.infer(server, ok=None)
        holds(place.infer(server), "no answer after a restored folder")
        server.stop()
        place.check_ledgers()
    return f"{rounds['files']} times single files, {rounds['client']} client and {rounds['server']} server folders; nothing used again"


def damage(data: bytes, dice: random.Random) -> bytes:
    """Cut, changed, lengthened, or with a length that is absurd."""
    kind = dice.randrange(5)
    at = dice.randrange(len(data)) if data else 0
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :] if data else b"\0"
    if kind == 2:
        return data + dice.randbytes(dice.randrange(1, 100))
    if kind == 3:
        return data[:at] + struct.pack("<Q", 2 ** dice.randrange(8, 64) - 1) + data[at + 8 :]
    return dice.randbytes(dice.randrange(2000))


def damaged(place: Place, end: float, dice: random.Random) -> str:
    """Every file that a program reads, damaged: an error in words or no harm, never a panic."""
    server = Server(place)
    place.client(server, "prepare", "--count", "2")
    server.stop()
    pristine = place.folder.with_name("pristine")
    shutil.copytree(place.folder, pristine)
    files = [file.relative_to(pristine) for file in pristine.rglob("*") if file.is_file() and file.suffix not in (".log",)]
    files = [file for file in files if file.name != "lock" and not file.name.endswith(("-wal", "-shm"))]
    work, count, refusals = place.folder, 0, 0
    inputs = {"digit.npy": place.digit.read_bytes(), "digits.onnx": (MODELS / "digits.onnx").read_bytes()}
    while time.monotonic() < end:
        count += 1
        shutil.rmtree(work)
        shutil.copytree(pristine, work)
        place.seen.clear()
        if dice.random() < 0.3:
            name = dice.choice(list(inputs))
            (work / name).write_bytes(damage(inputs[name], dice))
            command = ["model", "import", name, "-o", "x.tacit"] if name.endswith("onnx") else ["model", "run", "digits.tacit", name]
            refusals += run(*command, ok=None, cwd=work).code != 0
            continue
        file = dice.choice(files)
        (work / file).write_bytes(damage((pristine / file).read_bytes(), dice))
        if file.suffix == ".tacit" or file.suffix == ".lowered":
            run("model", "inspect", file, ok=None, cwd=work)
        try:
            server = Server(place)
        except Broken as error:
            holds("panicked" not in str(error) and "did not start" in str(error), str(error))
            refusals += 1
            continue
        # A damaged bit of a weight may be a right file with another answer: only that there is one or an error counts here.
        refusals += place.client(server, "infer", place.digit, "--json", ok=None).code != 0
        server.stop()
    return f"{count} damaged files of {len(files) + len(inputs)} kinds, {refusals} refused, the rest harmless"


SCENARIOS = {"kills": kills, "floods": floods, "full-disks": full_disks, "restored": restored, "damaged": damaged}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540, help="time for all scenarios together (default: 540)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier run")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="these scenarios")
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    options = parser.parse_args()
    if not Path(TACIT).exists():
        sys.exit(f"no program {TACIT}: run `make binary`, or set TACIT_BIN")
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    base, failed = Path(tempfile.mkdtemp(prefix="tacit-abuse-")), False
    print(f"abuse of {TACIT}: {options.seconds:.0f} s, --seed {seed}", flush=True)
    for name in options.only:
        start = time.monotonic()
        folder = base / name / "place"
        try:
            place = Place.make(folder)
            end = start + options.seconds / len(options.only)
            result = SCENARIOS[name](place, end, random.Random(f"{seed} {name}"))
            print(f"{name}: held. {result} ({time.monotonic() - start:.0f} s)", flush=True)
        except Skipped as reason:
            print(f"{name}: SKIPPED: {reason}", flush=True)
        except Broken as error:
            failed = True
            print(f"{name}: BROKEN: {error}\n    the evidence: {folder}", flush=True)
        for process in list(children()):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    if not failed and not options.keep:
        shutil.rmtree(base)
    return int(failed)


def children() -> Iterator[int]:
    """Processes of this one that a broken scenario has left."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return map(int, listed.read_text().split()) if listed.exists() else iter(())


if __name__ == "__main__":
    sys.exit(main())
