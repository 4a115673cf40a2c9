"""`make abuse`: kills, floods, full disks, restored folders and damaged files against the programs, on loopback only.

    python scripts/abuse.py [--seconds N] [--seed N] [--only NAME ...] [--kills N] [--keep]

Each scenario gets its share of the time and ends with one line of what it did. What must hold: no process panics, no answer is wrong, no
material is used again, an honest client is served, errors are said. Exits with 1 and the place of the evidence where something does not
hold; what this machine does not allow is said as SKIPPED in the summary. Needs Python alone (no packages) and a machine with Linux.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from abuse_admission import admission
from abuse_files import exhausting_files
from abuse_folders import folders
from abuse_kills import kills
from abused import BACKENDS, MODELS, PATIENCE_S, RANK, TACIT, Broken, Place, Server, Skipped, check, holds, run


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


# Parts of the time, where not one.
PARTS = {"admission": 3.0, "kills": 3.0}
# Kills at least, by how long all scenarios may take together: each back end's once, or several.
KILLS = {False: 5, True: 20}
LONG_S = 300
SCENARIOS = {"admission": admission, "kills": kills, "floods": floods, "full-disks": full_disks, "restored": restored, "damaged": damaged}
SCENARIOS |= {"folders": folders, "files": exhausting_files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540, help="time for all scenarios together (default: 540)")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier run")
    parser.add_argument("--kills", type=int, help="kills at least, however long they take (default: 20, in less than 5 minutes 5)")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="these scenarios")
    parser.add_argument("--strict", action="store_true", help="fail where this machine does not allow a scenario, too")
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    options = parser.parse_args()
    if not Path(TACIT).exists():
        sys.exit(f"no program {TACIT}: run `make binary`, or set TACIT_BIN")
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    at_least = KILLS[options.seconds >= LONG_S] if options.kills is None else options.kills
    whole = sum(PARTS.get(name, 1.0) for name in options.only)
    base, failed = Path(tempfile.mkdtemp(prefix="tacit-abuse-")), False
    print(f"abuse of {TACIT}: {options.seconds:.0f} s, --seed {seed}", flush=True)
    for name in options.only:
        start = time.monotonic()
        folder = base / name / "place"
        try:
            place = Place.small(folder, BACKENDS) if name == "kills" else Place.make(folder)
            end = start + options.seconds * PARTS.get(name, 1.0) / whole
            dice = random.Random(f"{seed} {name}")
            result = kills(place, end, dice, at_least) if name == "kills" else SCENARIOS[name](place, end, dice)
            print(f"{name}: held. {result} ({time.monotonic() - start:.0f} s)", flush=True)
        except Skipped as reason:
            failed = failed or options.strict
            print(f"{name}: SKIPPED: {reason}", flush=True)
        except Broken as error:
            failed = True
            print(f"{name}: BROKEN: {error}\n    the evidence: {folder}", flush=True)
        finally:
            # After Ctrl-C, too.
            for process in list(children()):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
    if not failed and not options.keep:
        shutil.rmtree(base)
    return int(failed)


def children() -> Iterator[int]:
    """Processes of this one that a scenario which broke off has left."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return map(int, listed.read_text().split()) if listed.exists() else iter(())


if __name__ == "__main__":
    sys.exit(main())
