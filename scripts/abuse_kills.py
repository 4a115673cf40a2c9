"""Server, client, sidecar and dealer are killed at random moments of their phases, with material stored at both parties.

The smallest network is served with every back end, and each kill is of another one, at random.

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

import abused
from abused import BATCHING, DEALT, PATIENCE_S, RANK, Broken, Dealer, Place, Server, check, holds
from abused_relay import Relay

# Longest time until somebody is killed: so many times what one answer takes, and seconds to start.
MOMENTS, STARTS_S = {"client": 2, "sidecar": 4}, {"client": 0.1, "sidecar": 0.6}
# More than this many materials are not kept.
STOCK = 12
# Materials that pools hold at most, and some that jobs have just drawn.
MOST_POOLED = 40
# Files of a folder of material beside those of materials.
OWN_FILES = {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "lock", "reserve", "server.sqlite"}
OWN_FILES |= {"server.sqlite-wal", "server.sqlite-shm"}
# Of keys on encrypted slots: the client's secrets, and what the server keeps.
OWN_FILES |= {"secrets", "uploads"}
# What says whose folder it is.
OWN_FILES |= {".tacit-folder"}


class Sidecar:
    """A `tacit sidecar`; its answers must be right."""

    def __init__(self, place: Place, address: str, ready: int, workers: int, prefix: tuple[str, ...] = ()):
        self.place, self.path, self.answers, self.wrong = place, place.folder / "sidecar.sock", 0, ""
        place.read_digit()
        command = [*prefix, abused.TACIT, "sidecar", "--server", address, "--keys", "keys", "--material", "client-material", *place.trusted]
        command += ["--model", f"{place.model}={place.backend}", "--unix", str(self.path)]
        command += ["--ready", str(ready), "--workers", str(workers)]
        self.path.unlink(missing_ok=True)
        self.log = (place.folder / "sidecar.log").open("wb")
        self.process = subprocess.Popen(
            command, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log
        )
        holds(self.process.stdout.readline(), "the sidecar did not start")
        self.thread = threading.Thread(target=self.ask_on, daemon=True)

    def ask_without_pause(self) -> "Sidecar":
        self.thread.start()
        return self

    def ask_on(self) -> None:
        for batch in cycle([1, 3]):
            if self.process.poll() is not None:
                break
            self.ask(batch)

    def ask(self, batch: int) -> None:
        """One request of so many inputs."""
        shape = [batch, *self.place.shape[1:]]
        tensor = {"name": "input", "shape": shape, "datatype": "FP32", "data": self.place.pixels * batch}
        body = json.dumps({"inputs": [tensor]}).encode()
        with suppress(OSError):
            status, _, text = self.said("POST", f"/v2/models/{self.place.model}/infer", body).partition(b"\r\n\r\n")
            if b" 200 " not in status.split(b"\r\n")[0]:
                # A server that is gone, or material that is: it says so, and is asked again.
                time.sleep(0.02)
                return
            values = json.loads(text)["outputs"][0]["data"]
            outputs = len(self.place.expected)
            answers = [values[at : at + outputs] for at in range(0, len(values), outputs)]
            is_right = len(answers) == batch and all(map(self.place.is_right, answers))
            self.wrong = self.wrong or ("" if is_right else f"a wrong answer: {values}")
            self.answers += batch

    def said(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The whole answer to a request."""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(PATIENCE_S)
            one.connect(str(self.path))
            one.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
            said = b""
            while piece := one.recv(65536):
                said += piece
            return said

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise Broken(f"the sidecar does not end on {how.name}") from error
        if self.thread.ident is not None:
            self.thread.join(PATIENCE_S)
        self.process.stdout.close()
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
        # What a dealer masked once for all materials of a model.
        files = {name for name in files if not name.endswith(".kept")}
        wanted = {f"{id.hex()}.material" for id in ready[party]}
        holds(files == wanted, f"after {what} the {party}'s folder holds {sorted(files ^ wanted)}")


def open_files(process: subprocess.Popen, dealer: str) -> list[str]:
    """Open files of a server, less its connections to the dealer, of which it keeps as many as it has needed at once, and its pools of
    dealt material, in files without a name, which hold so many at most.
    """
    links, files = {}, []
    for line in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        links[f"socket:[{line.split()[9]}]"] = f"tcp {local} {remote} {state}"
    for file in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            name = os.readlink(file)
            files.append(links.get(name, name))
    pooled = [file for file in files if file.endswith(".material (deleted)")]
    holds(len(pooled) <= MOST_POOLED, f"the server holds {len(pooled)} pooled materials")
    files = [file for file in files if file not in pooled]
    port = f":{int(dealer.rsplit(':', 1)[1]):04X}"
    return sorted(file for file in files if not (file.startswith("tcp") and file.split()[2].endswith(port)))


@contextmanager
def at_work(place: Place, server: Server, kind: str, dice: random.Random) -> Iterator[object]:
    """Somebody who makes and uses material, until the end of the block."""
    if kind == "sidecar":
        sidecar = Sidecar(place, server.address, ready=2, workers=2).ask_without_pause()
        yield sidecar
        if sidecar.process.poll() is None:
            sidecar.end(signal.SIGTERM)
        else:
            sidecar.end(signal.SIGKILL)
        return
    digit = str(place.digit)
    # Single inputs and batches, with material made anew and with what is stored, of which a part is left over at times.
    kinds = [["infer", digit], ["infer", *[digit] * dice.randint(2, 5)]]
    if place.backend != "ckks":
        kinds.append(["prepare", "--count", "3"])
    if place.backend in BATCHING:
        kinds.append(["prepare", "--count", "2", "--batch", "3"])
    arguments = dice.choice(kinds)
    command = [abused.TACIT, arguments[0], *place.asking(server.address), *arguments[1:]]
    client = subprocess.Popen(command, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    yield client
    try:
        error = client.communicate(timeout=PATIENCE_S)[1].decode(errors="replace")
    except subprocess.TimeoutExpired as timeout:
        client.kill()
        raise Broken("a client whose server was killed hangs") from timeout
    if client.returncode != -signal.SIGKILL:
        check(command, client.returncode, error)


def closes(server: Server, to_dealer: Relay, files: list[str], what: str) -> None:
    """The server has no more files open than before, when the last connection has been closed."""
    until = time.monotonic() + PATIENCE_S
    while len(now := open_files(server.process, to_dealer.address)) > len(files) and time.monotonic() < until:
        time.sleep(0.01)
    holds(len(now) <= len(files), f"after {what} the server has open files {now}, before {files}")


def warm_up(place: Place, server: Server) -> dict[str, float]:
    """Everybody has asked once: how long one answer takes, by back end."""
    took = {}
    for place.backend in place.backends:
        start = time.monotonic()
        place.infer(server)
        took[place.backend] = time.monotonic() - start
    settle(place, server)
    return took


def in_turns(choices: list[str], dice: random.Random) -> Iterator[str]:
    """Each of them once in random order, again and again: a few draws leave none out."""
    while True:
        yield from dice.sample(choices, len(choices))


def kills(place: Place, end: float, dice: random.Random, at_least: int) -> str:
    """One of the four is killed at a random moment, as often as there is time, and at least so often."""
    backends, workers = in_turns(place.backends, dice), in_turns(["client", "client", "sidecar"], dice)
    victims = in_turns(["worker", "server", "dealer"], dice)
    place.client_of_operator()
    counts, by_backend, answers = {"client": 0, "server": 0, "sidecar": 0, "dealer": 0}, dict.fromkeys(place.backends, 0), 0
    dealer = Dealer(place)
    # The dealer's address stays the same.
    to_dealer = Relay(dealer.peer)
    place.trust(to_dealer.address)
    server = Server(place)
    usual = warm_up(place, server)
    files, most = open_files(server.process, to_dealer.address), 0
    while time.monotonic() < end or sum(counts.values()) < at_least:
        place.backend, kind = next(backends), next(workers)
        victim = next(victims)
        if victim == "worker" or (victim == "dealer" and place.backend not in DEALT):
            victim = kind
        with at_work(place, server, kind, dice) as worker:
            time.sleep(dice.uniform(0.0, MOMENTS[kind] * usual[place.backend] + STARTS_S[kind]))
            counts[victim] += 1
            by_backend[place.backend] += 1
            if victim == "dealer":
                dealer.kill()
                dealer = Dealer(place)
                to_dealer.peer = dealer.peer
            elif victim == "server":
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
        what = f"the {victim} was killed at work with the {kind}, {place.backend}, kill {sum(counts.values())}"
        in_step(place, what)
        if victim != "server":
            closes(server, to_dealer, files, what)
        place.infer(server)
        stock = place.ready("client")
        most = max(most, len(stock))
        if len(stock) > STOCK:
            place.ask(server, "material", "--material", "client-material", "discard", "--all")
    server.stop()
    dealer.kill()
    to_dealer.close()
    place.check_ledgers()
    used = sum(rank >= RANK["claimed"] for rank in place.seen.values())
    killed = ", ".join(f"{n} {name}s" for name, n in counts.items())
    killed += f" ({', '.join(f'{n} with {backend}' for backend, n in by_backend.items())})"
    return f"killed {killed}; {used} halves used or burnt, none twice, both parties in step after each; {answers} answers of sidecars, at most {most} in stock"
