"""A node: a `tacit serve` that admits whom the front has sent, for as long as the front grants it a lease."""

import http.client
import json
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tacit import _tacit
from tacit._folders import managed_folder
from tacit._tacit import TacitError
from tacit.cluster._front import Front, Refused, Report, client_context, connected

GUARD = 0.2
"""Share of a lease that a node leaves unused at its end: its watch may be woken late on a machine that is busy."""


@dataclass(frozen=True)
class Settings:
    """What a node needs. Paths are of its own machine: what lies there never leaves it."""

    name: str
    host: str
    """Address that clients reach it at."""
    keys: Path
    """Folder with ca.pem, server.pem, server.key, and the operator's pair."""
    operator: str
    """Name of the operator's certificate."""
    models: tuple[Path, ...]
    folder: Path
    """For material and the list of clients; of this node alone."""
    cores: int = 1
    port: int = 0
    program: str = "tacit"
    arguments: tuple[str, ...] = ()
    """More arguments of `tacit serve`."""
    lease_s: float = 5.0
    start_s: float = 120.0
    """What the server may take to start: it reads its models, and warms up."""
    daily_quota: int | None = None
    server_name: str = ""
    """Name in the server's certificate, where it is not that of `host`."""
    dealers: tuple[str, ...] = ()
    """Dealers, each "HOST:PORT PIN"."""


def fingerprint(pem: Path) -> str:
    """What servers know the client of a certificate by."""
    return _tacit.client_fingerprint(ssl.PEM_cert_to_DER_cert(pem.read_text()))


def reachable(address: str, patience_s: float = 1.0) -> bool:
    """Whether somebody listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), patience_s).close()
        return True
    except OSError:
        return False


def rendezvous(key: str, names: Sequence[str]) -> list[str]:
    """`names`, the one that `key` belongs to first. One that comes or goes moves only the keys that are its own."""

    def weight(name: str) -> bytes:
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        return sha256(f"{len(key)}:{key}{name}".encode()).digest()

    return sorted(names, key=weight, reverse=True)


def dealer_of(node: str, dealers: Sequence[str]) -> str:
    """The node's dealer: the first of its order that is reached, so that one that is gone moves only its own nodes. None reached: the first."""
    order = rendezvous(node, dealers)
    return next((dealer for dealer in order if reachable(dealer.partition(" ")[0])), order[0] if order else "")


def access_rules(operator: str, clients: Sequence[str], daily_quota: int | None) -> str:
    """Rules for `tacit serve --access` that admit these clients and the operator, by fingerprint, and nobody else."""
    quota = [] if daily_quota is None else [f"queries_per_day = {daily_quota}"]
    tables = ["[default]", "revoked = true", *quota]
    for client in sorted({operator, *clients}):
        tables += ["", f"[client.{client}]", "revoked = false"]
    return "\n".join(tables) + "\n"


def _is_ours(path: Path) -> bool:
    """Whether something in an unmarked folder is what version 0.1 has made there."""
    if path.name in {"access.toml", "access.new"}:
        return path.is_file() and path.read_text(errors="replace").startswith("[default]\nrevoked = true")
    return path.name == "material" and path.is_dir()


class Node:
    """Runs the server, asks for leases, says how the server does."""

    def __init__(self, settings: Settings, front: Front) -> None:
        self._settings, self._front = settings, front
        self._operator = fingerprint(settings.keys / f"{settings.operator}.pem")
        self._context = client_context(settings.keys, settings.operator)
        managed_folder(settings.folder, "cluster", "node", _is_ours, mode=0o700)
        self._access = settings.folder / "access.toml"
        self._admit([])
        self._version = 0
        self._report = Report()
        self._over = threading.Event()
        self._dealer, self._dealer_seen = dealer_of(settings.name, settings.dealers), time.monotonic()
        self._process = self._start()
        try:
            self.address = f"{settings.host}:{self._listening()}"
            self._join()
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._close()
            raise

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "it was asked for"
            with suppress(BrokenPipeError):
                pipe.close()

    def _start(self) -> "subprocess.Popen[str]":
        s = self._settings
        program = shutil.which(s.program)
        if program is None:
            raise TacitError(f"{s.program} is not a program of the machine of {s.name}")
        serve = [program, "serve", *map(str, s.models), "--keys", str(s.keys), "--listen", f"{s.host}:{s.port}"]
        serve += ["--material", str(s.folder / "material"), "--access", str(self._access), "--cores", str(s.cores), "--json"]
        if self._dealer:
            address, _, pin = self._dealer.partition(" ")
            serve += ["--dealer", address, "--dealer-pin", pin]
        # Until it has joined, nobody is admitted: the first lease is for starting.
        watched = [sys.executable, "-P", "-m", "tacit.cluster._watch", str(s.start_s), *serve, *s.arguments]
        return subprocess.Popen(watched, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _listening(self) -> str:
        assert self._process.stdout is not None, "it was asked for"
        line = self._process.stdout.readline()
        if not line:
            raise TacitError(f"the server of {self._settings.name} did not start")
        return str(json.loads(line)["listening"]).rpartition(":")[2]

    def _join(self) -> None:
        """Waits for an earlier run of this node to be over."""
        deadline = time.monotonic() + 3 * self._settings.lease_s
        while True:
            try:
                self._run = self._front.join(self._settings.name, self.address)
                return
            except Refused as refused:
                if refused.again_s is None or time.monotonic() > deadline:
                    raise
                time.sleep(min(refused.again_s + 0.05, self._settings.lease_s))

    def run(self, beat_s: float | None = None) -> None:
        """Asks for leases until the front refuses, the server ends, or `stop` was called."""
        pause = self._settings.lease_s / 5 if beat_s is None else beat_s
        try:
            while not self._over.is_set() and self._process.poll() is None:
                try:
                    self.beat()
                except Refused as refused:
                    if refused.again_s is None:
                        # Its clients may be elsewhere by now.
                        self._process.kill()
                        break
                except (OSError, http.client.HTTPException):
                    # A server or a front that cannot be reached now: the lease runs on.
                    pass
                self._over.wait(pause)
        finally:
            self._process.wait()
            self._close()
            # Where the front is gone, the lease tells it.
            with suppress(OSError, http.client.HTTPException, Refused):
                self._front.ended(self._settings.name, self._run)
            self._front.close()

    def beat(self) -> None:
        """Asks for a lease once, and admits whom the front has sent."""
        self._look_after_dealer()
        self._report = self.report()
        # A machine that is suspended has no longer lease for that.
        asked = time.clock_gettime(time.CLOCK_BOOTTIME)
        clients, version = self._front.renew(self._settings.name, self._run, self._report)
        self._say(f"until {asked + (1 - GUARD) * self._settings.lease_s}")
        if clients is not None:
            self._admit(clients)
            self._ask("POST", "/v1/reload", "{}")
        self._version = version

    def _look_after_dealer(self) -> None:
        """A server keeps its dealer; where that is gone for a lease and another is there, this run ends, and the next takes the other."""
        now = time.monotonic()
        if not self._dealer or reachable(self._dealer.partition(" ")[0]):
            self._dealer_seen = now
        elif now - self._dealer_seen > self._settings.lease_s and dealer_of(self._settings.name, self._settings.dealers) != self._dealer:
            raise Refused(f"the dealer of {self._settings.name} is gone")

    def report(self) -> Report:
        """How the server does."""
        status = self._ask("GET", "/v1/status")
        models = {model["name"]: tuple(model["backends"]) for model in status["models"]}
        answered = {row["client"]: int(row["inputs"]) for row in status["clients"]}
        return Report(expected_wait(status), models, self._stock(), answered, self._version, self._dealer)

    def stop(self) -> None:
        """Ends the server as a signal does: nobody new is sent here, jobs under way have its grace, or the rest of the lease."""
        with suppress(OSError, http.client.HTTPException, Refused):
            self._front.leave(self._settings.name, self._run)
        self._over.set()
        self._say("stop")

    def kill(self) -> None:
        """Ends the server at once."""
        self._over.set()
        self._process.kill()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None, "it was asked for"
        # Where the server has ended, `run` sees it.
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _admit(self, clients: Sequence[str]) -> None:
        text = access_rules(self._operator, clients, self._settings.daily_quota)
        beside = self._access.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self._access)

    def _ask(self, method: str, path: str, body: str | None = None) -> Any:
        connection = connected(self.address, self._context, self._settings.server_name)
        try:
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise http.client.HTTPException(f"{method} {path}: {answer.status} {text[:200]!r}")
            return json.loads(text)
        finally:
            connection.close()

    def _stock(self) -> dict[str, int]:
        """Materials ready, by client: names and counts of the server's ledger, never what they are."""
        ledger = self._settings.folder / "material" / "ledger.sqlite"
        question = "SELECT lower(hex(client)), count(*) FROM material WHERE state = 'ready' AND client IS NOT NULL GROUP BY client"
        try:
            connection = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=1)
            try:
                return dict(connection.execute(question).fetchall())
            finally:
                connection.close()
        except sqlite3.OperationalError:
            # Busy: what was known stands.
            return dict(self._report.stock)


def expected_wait(status: Any) -> float:
    """How long an input that comes now waits, by what the node's own scheduler has learned: queued and running work over cores."""
    rows, queues = status["profile"], status["queues"]

    def typical(phase: str) -> float:
        known = [float(row["expected_s"]) for row in rows if row["phase"] == phase]
        return sum(known) / len(known) if known else 1.0

    work = queues["pre"] * (typical("offline") + typical("online")) + (queues["waiting"] + queues["ready"]) * typical("online")
    for job in status["jobs"]:
        if job.get("ended_s") is None:
            expected = float(job.get("expected_s") or typical(job["phase"]))
            work += max(0.0, expected - (status["uptime_s"] - job["started_s"]))
    return float(work / max(1, status["capacity"]["cores"]))
