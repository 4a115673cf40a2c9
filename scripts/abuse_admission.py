"""Strangers and a known client that hoards, against each program that listens: server, dealer, helper, sidecar, front.

What must hold under each attack: an honest client is served within seconds, the log stays small, memory stays bounded.
"""

import http.client
import json
import random
import selectors
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from abused import TACIT, Broken, Dealer, Place, Program, Server, holds, run

# How long an honest client waits at most, unless a program has less time.
PATIENCE_S = 10.0
# What one program may log in all, and by how much its memory may grow.
MOST_LOG = 20_000
MOST_GROWTH_MIB = 200
# Connections of a crowd, and of one known client.
CROWD = 1000
MOST_HELD = 150
# How long an attack lasts at least, how many there are, and how many each program meets where there is no time for all.
LEAST_S = 1.0
KINDS = 6
FEWEST = 2
# With less time than this there is none for all.
SHORT_S = 45.0


@dataclass
class Attack:
    """Connections that are opened again as soon as they are closed."""

    name: str
    size: int
    # From which address the connection of this number comes.
    source: Callable[[int], str]
    # What it says at once, and what it goes on saying byte by byte.
    says: bytes = b""
    trickles: bytes = b""


# A record of TLS that announces 512 bytes, and the start of a request.
SLOW = {"tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400), "http": b"GET / HTTP/1.1\r\nhost: " + b"x" * 400}


def attacks(protocol: str, dice: random.Random) -> list[Attack]:
    return [
        Attack("silence from one address", CROWD, lambda _: "127.0.0.2"),
        Attack("silence from the honest client's address", CROWD // 2, lambda _: "127.0.0.1"),
        Attack("a slow handshake", CROWD // 2, lambda _: "127.0.0.3", trickles=SLOW[protocol]),
        Attack("garbage", CROWD // 5, lambda _: "127.0.0.4", says=dice.randbytes(300)),
        Attack("HTTP/2 and then garbage", CROWD // 5, lambda _: "127.0.0.5", says=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64)),
        Attack("a crowd from many addresses", CROWD, lambda n: f"127.{n % 200 + 1}.{n // 200 + 1}.1"),
    ]


class Crowd:
    """The connections of an attack, in one thread."""

    def __init__(self, peer: tuple[str, int], attack: Attack):
        self.peer, self.attack, self.opened, self.closed = peer, attack, 0, 0
        self.stop, self.selector = threading.Event(), selectors.DefaultSelector()
        self.said: dict[socket.socket, int] = {}
        self.waiting = list(range(attack.size))
        self.thread = threading.Thread(target=self.work, daemon=True)

    def open(self, number: int) -> None:
        one = socket.socket()
        one.setblocking(False)
        try:
            one.bind((self.attack.source(number), 0))
            one.connect_ex(self.peer)
            self.selector.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE, number)
        except OSError:
            # The system is short of ports or files for a moment.
            one.close()
            self.waiting.append(number)
            return
        self.said[one] = 0
        self.opened += 1

    def close(self, one: socket.socket, number: int) -> None:
        self.selector.unregister(one)
        one.close()
        del self.said[one]
        self.closed += 1
        self.waiting.append(number)

    def look(self, one: socket.socket, number: int, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                if self.attack.says:
                    one.send(self.attack.says)
                self.selector.modify(one, selectors.EVENT_READ, number)
            if events & selectors.EVENT_READ and not one.recv(4096):
                self.close(one, number)
        except BlockingIOError:
            pass
        except OSError:
            self.close(one, number)

    def trickle(self) -> None:
        for one, said in list(self.said.items()):
            with suppress(OSError):
                one.send(self.attack.trickles[said : said + 1])
                self.said[one] = said + 1

    def work(self) -> None:
        trickled = time.monotonic()
        while not self.stop.is_set():
            now, self.waiting = self.waiting[:200], self.waiting[200:]
            for number in now:
                self.open(number)
            for key, events in self.selector.select(0.02):
                self.look(key.fileobj, key.data, events)
            if self.attack.trickles and time.monotonic() > trickled + 0.3:
                trickled = time.monotonic()
                self.trickle()
        for one in list(self.said):
            one.close()
        self.selector.close()

    def __enter__(self) -> "Crowd":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


def connected(peer: tuple[str, int], keys: Path, name: str, protocol: str) -> ssl.SSLSocket:
    """A connection over which this client has proved its certificate."""
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_cert_chain(str(keys / f"{name}.pem"), str(keys / f"{name}.key"))
    context.set_alpn_protocols([protocol])
    return context.wrap_socket(socket.create_connection(peer, timeout=10))


def greeted(peer: tuple[str, int], keys: Path, name: str) -> ssl.SSLSocket:
    """A connection that has said hello, as the other side says it."""
    stream = connected(peer, keys, name, "tacit/2")
    hello = stream.recv(4096)
    if not hello:
        raise ConnectionError("it is full")
    stream.sendall(hello)
    return stream


def visiting(peer: tuple[str, int], keys: Path, name: str) -> ssl.SSLSocket:
    """A connection that has asked something over HTTP, and keeps quiet."""
    stream = connected(peer, keys, name, "http/1.1")
    stream.sendall(b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n")
    stream.recv(4096)
    return stream


def spoiling(peer: tuple[str, int], keys: Path, name: str) -> ssl.SSLSocket:
    """A connection of a known client that ends in garbage."""
    stream = greeted(peer, keys, name)
    stream.sendall(b"\x5a" * 200)
    return stream


@dataclass
class Target:
    """A program under attack."""

    program: Program
    honest: Callable[[], None]
    protocol: str = "tls"
    # What a known client does with each of its connections, and which clients these are.
    hoards: list[Callable[[str], ssl.SSLSocket]] = field(default_factory=list)
    hoarders: list[str] = field(default_factory=list)
    # Whether it ends by itself on SIGTERM.
    ends: bool = True
    # An honest client waits no longer than this, and three times as long as without an attack.
    patience_s: float = PATIENCE_S
    # How long full pools are left alone: whose connections are idle for less keeps them.
    idle_s: float = 0.0

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.program.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def timed(self) -> float:
        start = time.monotonic()
        self.honest()
        return time.monotonic() - start


@contextmanager
def hoarded(target: Target, connect: Callable[[str], ssl.SSLSocket]) -> Iterator[int]:
    """As many connections of known clients as the program takes, up to MOST_HELD of each."""
    held: list[ssl.SSLSocket] = []
    for name in target.hoarders:
        with suppress(OSError):
            for _ in range(MOST_HELD):
                held.append(connect(name))
    try:
        yield len(held)
    finally:
        for one in held:
            one.close()


def served(target: Target, what: str, usual: float, until: float) -> float:
    """An honest client is served, again and again; the slowest time."""
    worst = 0.0
    while True:
        start = time.monotonic()
        try:
            took = target.timed()
        except (Broken, OSError, http.client.HTTPException) as error:
            took = time.monotonic() - start
            raise Broken(f"{target.program.name}: {what} keeps an honest client out ({took:.1f} s): {error}") from error
        holds(took < target.patience_s + 3 * usual, f"{target.program.name}: {what} makes an honest client wait {took:.1f} s")
        worst = max(worst, took)
        if time.monotonic() >= until:
            return worst


def attacked(target: Target, share: float, turns: Iterator[int] | None, dice: random.Random) -> str:
    """All attacks on one program, one after the other, or the few whose turn it is."""
    usual, before, opened, worst = target.timed(), target.rss_mib(), 0, 0.0
    kinds, hoards = attacks(target.protocol, dice), target.hoards
    if turns is not None:
        kinds, hoards = [kinds[next(turns)] for _ in range(FEWEST)], dice.sample(hoards, min(1, len(hoards)))
    each = max(share / (len(kinds) + len(hoards)), LEAST_S)
    most = before
    for attack in kinds:
        with Crowd(target.program.peer, attack) as crowd:
            until = time.monotonic() + each
            while crowd.opened < attack.size and time.monotonic() < until:
                time.sleep(0.05)
            worst = max(worst, served(target, attack.name, usual, until))
            most = max(most, target.rss_mib())
            opened += crowd.opened
    held = []
    for hoard in hoards:
        with hoarded(target, hoard) as count:
            held.append(count)
            time.sleep(target.idle_s)
            worst = max(worst, served(target, f"a known client ({hoard.__name__})", usual, time.monotonic() + each))
            most = max(most, target.rss_mib())
    size, name = len(target.program.errors()), target.program.name
    holds(size < MOST_LOG, f"the {name} logged {size} bytes:\n{target.program.errors()[-2000:]}")
    holds(most < before + MOST_GROWTH_MIB, f"the {name} grew from {before:.0f} to {most:.0f} MiB")
    if target.ends:
        target.program.stop()
    else:
        target.program.kill()
    known = f", {held} of known clients" if held else ""
    return f"{name}: {opened} connections{known}; slowest {worst:.1f} s ({usual:.1f} without), {size} bytes of log, {most - before:+.0f} MiB"


def partially(action: Callable[..., ssl.SSLSocket], program: Program, keys: Path) -> Callable[[str], ssl.SSLSocket]:
    def connect(name: str) -> ssl.SSLSocket:
        return action(program.peer, keys, name)

    connect.__name__ = action.__name__
    return connect


def against_server(folder: Path) -> Iterator[Target]:
    place = Place.small(folder, ["cheetah"])
    run("keys", "add-client", "keys", "mallory", cwd=folder)
    server, keys = Server(place), folder / "keys"
    hoards = [partially(action, server, keys) for action in (greeted, visiting, spoiling)]
    yield Target(server, lambda: holds(place.infer(server), "no answer"), hoards=hoards, hoarders=["mallory"])


def against_dealer(folder: Path) -> Iterator[Target]:
    place = Place.small(folder, ["dealt"])
    dealer = Dealer(place)
    place.trust(dealer.address)
    names = [f"mallory{n}" for n in range(4)]
    for name in names:
        run("keys", "add-client", "dealing", name, cwd=folder)
    # Nothing is dealt ahead of time: each answer needs the dealer.
    server = Server(place, extra=("--pool", "0"))
    hoards = [partially(action, dealer, folder / "dealing") for action in (greeted, spoiling)]
    yield Target(dealer, lambda: holds(place.infer(server), "no answer"), hoards=hoards, hoarders=names, idle_s=6.0)
    server.stop()


def against_helper(folder: Path) -> Iterator[Target]:
    place = Place.small(folder, ["cheetah"])
    run("keys", "add-helper", "keys", "gateway", "--of", "client", "--host", "localhost", cwd=folder)
    run("keys", "add-client", "keys", "mallory", cwd=folder)
    server = Server(place)
    command = [TACIT, "helper", "--server", server.address, "--keys", "keys", "--client", "gateway"]
    helper = Program(place, "helper", [*command, "--listen", "127.0.0.1:0", "--folder", "helper-folder"])
    _, port = helper.peer

    def honest() -> None:
        place.client(server, "prepare", "--count", "1", "--helper", f"localhost:{port}")
        shutil.rmtree(folder / "client-material", ignore_errors=True)

    yield Target(helper, honest, hoards=[partially(greeted, helper, folder / "keys")], hoarders=["mallory"], ends=False)
    server.stop()


def against_sidecar(folder: Path) -> Iterator[Target]:
    place = Place.small(folder, ["cheetah"])
    server = Server(place)
    command = [TACIT, "sidecar", "--server", server.address, "--keys", "keys", "--listen", "127.0.0.1:0"]
    sidecar = Program(place, "sidecar", [*command, "--token-file", "token", "--new-token"])

    def honest() -> None:
        token = (folder / "token").read_text().strip()
        connection = http.client.HTTPConnection(*sidecar.peer, timeout=60)
        try:
            connection.request("GET", "/v2", headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            holds(answer.status == 200 and json.loads(answer.read()), f"the sidecar answers {answer.status}")
        finally:
            connection.close()

    yield Target(sidecar, honest, protocol="http")
    server.stop()


def against_front(folder: Path) -> Iterator[Target]:
    place = Place.small(folder, ["cheetah"])
    place.client_of_operator()
    run("keys", "add-client", "keys", "mallory", cwd=folder)
    command = [TACIT, "serve", "--front", "--keys", "keys", "--listen", "127.0.0.1:0", "--lease", "1"]
    front, keys = Program(place, "front", command), folder / "keys"

    def honest() -> None:
        for name, path, wanted in (("ops", "/v1/nodes", b" 200 "), ("client", "/v1/nothing", b" 404 ")):
            with connected(front.peer, keys, name, "http/1.1") as stream:
                stream.settimeout(60)
                stream.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
                answer = stream.recv(4096)
                holds(wanted in answer, f"the front answers {answer[:100]!r} to {name}")

    yield Target(front, honest, hoards=[partially(visiting, front, keys)], hoarders=["mallory"], patience_s=5.0)


TARGETS = {
    "server": against_server,
    "dealer": against_dealer,
    "helper": against_helper,
    "sidecar": against_sidecar,
    "front": against_front,
}


def admission(place: Place, end: float, dice: random.Random) -> str:
    """The same attacks on every program that listens; where there is little time, each of them on some."""
    whole, told = end - time.monotonic(), []
    turns = cycle(dice.sample(range(KINDS), KINDS)) if whole < SHORT_S else None
    for left, (name, against) in zip(range(len(TARGETS), 0, -1), TARGETS.items(), strict=True):
        share = max(end - time.monotonic(), 0.0) / left
        for target in against(place.folder / name):
            told.append(attacked(target, share, turns, dice))
    return "; ".join(told)
