"""Server, client and sidecar are killed at random moments of their phases, with material stored at both parties.

After each kill both parties are brought together once, by a client that connects and leaves. What must hold then: every material is
ready at both parties or at neither, none is under way, none goes back to an earlier state, folders hold the files of what is ready
and nothing else, the server holds no more open files than before, and the next answer is right.
"""

import json
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

from abused import PATIENCE_S, RANK, TACIT, TOLERANCE, Broken, Place, Server, check, holds

# Longest time until somebody is killed: the debug programs end an inference with both phases in about as long.
MOMENT_S = {"client": 0.35, "sidecar": 1.2}
# More than this many materials are not kept.
STOCK = 12
# Files of a folder of material beside those of materials.
OWN_FILES = {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "lock", "reserve", "server.sqlite"}
OWN_FILES |= {"server.sqlite-wal", "server.sqlite-shm"}


class Sidecar:
    """A `tacit sidecar` with a thread that asks it without pause; its answers must be right."""

    def __init__(self, place: Place, server: Server):
        self.place, self.path, self.answers, self.wrong = place, place.folder / "sidecar.sock", 0, ""
        command = [TACIT, "sidecar", "--server", server.address, "--keys", "keys", "--material", "client-material", "--model", "digits"]
        command += ["--ready", "2", "--workers", "2", "--unix", str(self.path)]
        self.path.unlink(missing_ok=True)
        self.log = (place.folder / "sidecar.log").open("wb")
        self.process = subprocess.Popen(
            command, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log
        )
        holds(self.process.stdout.readline(), "the sidecar did not start")
        self.thread = threading.Thread(target=self.ask_on, daemon=True)
        self.thread.start()

    def ask_on(self) -> None:
        for batch in cycle([1, 3]):
            if self.process.poll() is not None:
                break
            self.ask(batch)

    def ask(self, batch: int) -> None:
        """One request of so many inputs."""
        shape, expected = [batch, *self.place.shape[1:]], self.place.expected * batch
        tensor = {"name": "input", "shape": shape, "datatype": "FP32", "data": self.place.pixels * batch}
        body = json.dumps({"inputs": [tensor]}).encode()
        head = f"POST /v2/models/digits/infer HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
        request = f"{head}content-type: application/json\r\n\r\n".encode() + body
        with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
            one.settimeout(PATIENCE_S)
            one.connect(str(self.path))
            one.sendall(request)
            said = b""
            while piece := one.recv(65536):
                said += piece
            status, _, text = said.partition(b"\r\n\r\n")
            if b" 200 " not in status.split(b"\r\n")[0]:
                # A server that is gone, or material that is: it says so, and is asked again.
                time.sleep(0.02)
                return
            values = json.loads(text)["outputs"][0]["data"]
            worst = max(abs(a - b) for a, b in zip(values, expected, strict=True))
            self.wrong = self.wrong or ("" if worst < TOLERANCE else f"a wrong answer: {values}")
            self.answers += batch

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise Broken(f"the sidecar does not end on {how.name}") from error
        self.thread.join(PATIENCE_S)
        self.log.close()
        holds(b"panicked" not in (self.place.folder / "sidecar.log").read_bytes(), "the sidecar panicked")
        holds(not self.wrong, self.wrong)


def settle(place: Place, server: Server) -> None:
    """Waits until the server has noticed that everybody is gone."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        done = place.ask(server, "status", "--client", "ops", "--json")
        if json.loads(done.out)["connections"] == 0:
            return
    raise Broken("connections of processes that are gone stay at the server")


def in_step(place: Place, what: str) -> None:
    """Both parties have the same, and nothing that nobody will use."""
    place.check_ledgers()
    ledgers = {party: place.ledger(party) for party in ("client", "server")}
    ready = {party: place.ready(party) for party in ledgers}
    alone = {party: [id.hex() for id in ready[party] - ready[other]] for party, other in (("client", "server"), ("server", "client"))}
    holds(not any(alone.values()), f"after {what} one party has what the other lost: {alone}")
    for party, ledger in ledgers.items():
        half = {id.hex(): state for id, state in ledger.items() if state not in ("ready", "burnt")}
        holds(not half, f"after {what} something is under way at the {party} for ever: {half}")
        files = {file.name for file in (place.folder / f"{party}-material").iterdir()} - OWN_FILES
        wanted = {f"{id.hex()}.material" for id in ready[party]}
        holds(files == wanted, f"after {what} the {party}'s folder holds {sorted(files ^ wanted)}")


def open_files(process: subprocess.Popen) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


@contextmanager
def at_work(place: Place, server: Server, kind: str, dice: random.Random) -> Iterator[object]:
    """Somebody who makes and uses material, until the end of the block."""
    if kind == "sidecar":
        sidecar = Sidecar(place, server)
        yield sidecar
        if sidecar.process.poll() is None:
            sidecar.end(signal.SIGTERM)
        else:
            sidecar.end(signal.SIGKILL)
        return
    digit = str(place.digit)
    # Single inputs and batches, with material made anew and with what is stored, of which a part is left over at times.
    kinds = [["prepare", "--count", "3"], ["infer", digit], ["prepare", "--count", "2", "--batch", "3"], ["infer", *[digit] * dice.randint(2, 5)]]
    arguments = dice.choice(kinds)
    common = ["--server", server.address, "--keys", "keys", "--material", "client-material"]
    command = [TACIT, arguments[0], *common, *arguments[1:]]
    client = subprocess.Popen(command, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    yield client
    try:
        error = client.communicate(timeout=PATIENCE_S)[1].decode(errors="replace")
    except subprocess.TimeoutExpired as timeout:
        client.kill()
        raise Broken("a client whose server was killed hangs") from timeout
    if client.returncode != -signal.SIGKILL:
        check(command, client.returncode, error)


def kills(place: Place, end: float, dice: random.Random, at_least: int) -> str:
    """One of the three is killed at a random moment, as often as there is time, and at least so often."""
    place.client_of_operator()
    place.read_digit()
    counts, answers = {"client": 0, "server": 0, "sidecar": 0}, 0
    server = Server(place)
    place.infer(server)
    settle(place, server)
    files, most = open_files(server.process), 0
    while time.monotonic() < end or sum(counts.values()) < at_least:
        kind = dice.choice(["client", "client", "sidecar"])
        victim = dice.choice([kind, "server"])
        with at_work(place, server, kind, dice) as worker:
            time.sleep(dice.uniform(0.0, MOMENT_S[kind]))
            counts[victim] += 1
            if victim == "server":
                server.kill()
                if kind == "sidecar":
                    # It finds the next server, at another address, only when it is started again.
                    worker.end(signal.SIGTERM)
            elif kind == "sidecar":
                worker.end(signal.SIGKILL)
            else:
                worker.kill()
        answers += worker.answers if kind == "sidecar" else 0
        place.check_ledgers()
        if victim == "server":
            server = Server(place)
        settle(place, server)
        # Connecting is what brings the parties together; a list needs nothing else.
        place.ask(server, "material", "--material", "client-material", "list", "--json")
        settle(place, server)
        what = f"the {victim} was killed at work with the {kind}, kill {sum(counts.values())}"
        in_step(place, what)
        if victim != "server":
            # The last connection of ours may still be closing.
            until = time.monotonic() + PATIENCE_S
            while (now := open_files(server.process)) > files and time.monotonic() < until:
                time.sleep(0.01)
            holds(now <= files, f"after {what} the server has {now} open files, {files} before")
        place.infer(server)
        stock = place.ready("client")
        most = max(most, len(stock))
        if len(stock) > STOCK:
            place.ask(server, "material", "--material", "client-material", "discard", "--all")
    server.stop()
    place.check_ledgers()
    used = sum(rank >= RANK["claimed"] for rank in place.seen.values())
    killed = ", ".join(f"{n} {name}s" for name, n in counts.items())
    return f"killed {killed}; {used} halves used or burnt, none twice, both parties in step after each; {answers} answers of sidecars, at most {most} in stock"
