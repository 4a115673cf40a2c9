"""A folder of precious files given to every option that takes one, files given to every output, and clocks that jump.

What must hold: nothing of somebody else's is deleted, moved, cut or given other permissions, and the program says so and ends with
something else than 0; no material is burnt and nobody is charged by a clock that has jumped; a clock before 1970 is refused in words.
"""

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import time
from pathlib import Path

from abused import MODELS, PATIENCE_S, TACIT, Place, Server, Skipped, check, holds, run

ID, DIGEST = "0123456789abcdef" * 2, "0123456789abcdef" * 4
# Some under names that programs here use.
PRECIOUS = [
    "taxes.ods", "notes.part", "lock", "reserve", "ledger.sqlite", "server.sqlite", "own.key", "study.json", "runs.jsonl",
    f"{ID}.material", f"{ID}.sealed", f"{DIGEST}.kept", f"{ID}.part", f"uploads/{DIGEST}", f"secrets/{DIGEST}.secret",
    "keys/own.pem", "material/diary.txt", "inputs/thesis.tex", "server.sh",
]  # fmt: skip
DAY_S = 24 * 3600


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder below, with its permissions."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        meta = path.lstat()
        found[str(path)] = (meta.st_mode, path.read_bytes() if stat.S_ISREG(meta.st_mode) else b"")
    return found


def refused(place: Place, precious: Path, *arguments: object) -> None:
    """The command fails in words, and leaves everything as it was."""
    before = content(precious)
    command = [TACIT, *map(str, arguments)]
    # A program that listens has accepted the folder.
    done = subprocess.run(command, cwd=place.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    err = done.stderr.decode(errors="replace")
    check(list(arguments), done.returncode, err)
    holds(done.returncode != 0, f"{' '.join(command)} took a folder of somebody's files")
    holds(err.strip(), f"{' '.join(command)} failed without a word")
    after = content(precious)
    changed = [path for path in before | after if before.get(path) != after.get(path)]
    holds(not changed, f"{' '.join(command)} changed {changed[:3]}")


def folders_of_others(place: Place) -> int:
    home = place.folder / "home"
    for name in PRECIOUS:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious, and nobody's but mine\n")
    home.chmod(0o755)
    run("keys", "add-helper", "keys", "gateway", "--of", "client", "--host", "localhost", cwd=place.folder)
    model, nowhere = f"{place.model}.tacit", ["--server", "localhost:1"]
    image, listen = MODELS / "digit.npy", ["--listen", "127.0.0.1:0"]
    cases: list[list[object]] = [
        ["helper", "--client", "gateway", "--folder", "home", *listen, *nowhere],
        ["serve", model, "--material", "home", *listen],
        ["sidecar", "--material", "home", *listen, "--new-token", "--token-file", "token", *nowhere],
        ["dealer", "--numbers", "home/taxes.ods", *listen],
        ["prepare", "--material", "home", *nowhere],
        ["infer", image, "--material", "home", *nowhere],
        ["keyset", "list", "--material", "home", *nowhere],
        ["keyset", "delete", "--all", "--material", "home", *nowhere],
        ["material", "list", "--material", "home", *nowhere],
        ["material", "list", "--offline", "--material", "home"],
        ["material", "discard", "--all", "--offline", "--material", "home"],
        ["keys", "init", "home"],
        ["plan", model, "--apply", "home"],
        ["lab", "run", "idle", "-o", "home"],
        ["lab", "run", "ss26-live", "--quick", "-o", "home"],
        ["lab", "run", "pm24-study", "-o", "home"],
        ["lab", "measure", "-o", "home/taxes.ods", "--", "true"],
        ["model", "import", MODELS / "digits.onnx", "-o", "home/taxes.ods"],
        ["zoo", "resnet20", "-o", "home/taxes.ods"],
        ["plan", model, "-o", "home/taxes.ods"],
        ["calibrate", "--quick", "-o", "home/taxes.ods"],
    ]
    for case in cases:
        refused(place, home, *case)
    source = place.folder / "own.onnx"
    shutil.copy(MODELS / "digits.onnx", source)
    before = source.read_bytes()
    run("model", "import", source, "-o", source, ok=False)
    holds(source.read_bytes() == before, "`model import x.onnx -o x.onnx` overwrote its source")
    return len(cases) + 1


def ready(place: Place, party: str) -> int:
    ledger = place.folder / f"{party}-material" / "ledger.sqlite"
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as db:
        return db.execute("SELECT count(*) FROM material WHERE state = 'ready'").fetchone()[0]


def shift(place: Place, party: str, days: int) -> None:
    """Makes a folder as it would be had the clock been so many days behind all along: now it stands ahead."""
    with sqlite3.connect(place.folder / f"{party}-material" / "ledger.sqlite") as db:
        db.execute("UPDATE clock SET seen = seen - ?", [days * DAY_S])
        db.execute("UPDATE material SET created = created - ?1, wanted = wanted - ?1, used = used - ?1", [days * DAY_S])


def clocks_that_jump(place: Place) -> int:
    server = Server(place)
    place.client(server, "prepare", "--count", "3")
    server.stop()
    stock = ready(place, "server"), ready(place, "client")
    holds(min(stock) >= 3, f"nothing was stored: {stock}")
    for party in ["server", "client"]:
        shift(place, party, 31)
    serve = [f"{place.model}.tacit", "--backend", place.backend, "--material", "server-material", "--listen", "127.0.0.1:0"]
    done = run("serve", *serve, ok=False, cwd=place.folder)
    holds("31 days after" in done.err and "--accept-clock" in done.err, f"the clock's jump is not named: {done.err}")
    holds(ready(place, "server") == stock[0], "a clock 31 days ahead burnt the server's stock at its start")
    # The server's clock is right again; the client's is ahead.
    shift(place, "server", -31)
    server = Server(place)
    done = place.client(server, "material", "list", ok=None)
    holds(ready(place, "client") == stock[1], "a clock 31 days ahead burnt the client's stock")
    server.stop()
    return sum(stock)


def clocks_before_time(place: Place) -> str:
    """Every program that speaks TLS says that the clock is not set."""
    faketime = shutil.which("faketime")
    if faketime is None:
        return "no faketime here: the clock before 1970 is left to the unit tests"
    programs: list[list[object]] = [
        ["serve", f"{place.model}.tacit", "--listen", "127.0.0.1:0"],
        ["infer", MODELS / "digit.npy", "--server", "localhost:1"],
        ["helper", "--client", "gateway", "--server", "localhost:1", "--listen", "127.0.0.1:0"],
        ["sidecar", "--server", "localhost:1", "--listen", "127.0.0.1:0", "--new-token", "--token-file", "token"],
    ]
    for arguments in programs:
        command = [faketime, "1969-06-01 00:00:00", TACIT, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=place.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, env={**os.environ}
        )
        err = done.stderr.decode(errors="replace")
        check(list(arguments), done.returncode, err)
        holds(done.returncode != 0 and "clock" in err, f"{' '.join(command)}: {err}")
    return f"{len(programs)} programs refuse a clock before 1970"


def folders(place: Place, end: float, dice: random.Random) -> str:
    """The scenario."""
    del end, dice
    if os.name != "posix":
        raise Skipped("folders have no permissions here")
    start = time.monotonic()
    cases = folders_of_others(place)
    stock = clocks_that_jump(place)
    unset = clocks_before_time(place)
    took = time.monotonic() - start
    return f"{cases} commands refused a folder or a file of somebody's; {stock} materials outlived clocks that jump; {unset}; {took:.0f} s"
