"""`tacit cluster up` on several nodes of Ray, as processes of this machine: a node dies, one joins, and no secret is in Ray's hands.

Skipped where Ray is not installed (`pip install '.[ray]'`): it is not in the project's own environment.
"""

import base64
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import MODELS

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'")
PATIENCE_S = 200.0


@pytest.fixture
def place(tmp_path, cli, binary):
    # Ray's name for this machine, which the servers' certificate must have.
    named = subprocess.run([sys.executable, "-c", "import ray; print(ray.util.get_node_ip_address())"], capture_output=True, text=True)
    hosts = ["--host", named.stdout.split()[-1]]
    cli("keys", "init", "keys", *hosts, "--client", "alice", "--client", "bob", cwd=tmp_path)
    cli("keys", "add-client", "keys", "ops", "--operator", cwd=tmp_path)
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=tmp_path)
    cli("model", "lower", "digits.tacit", cwd=tmp_path)
    settings = {"keys": tmp_path / "keys", "folder": tmp_path / "nodes", "front": "127.0.0.1:0", "program": binary}
    lines = [f'{key} = "{value}"' for key, value in settings.items()]
    lines += [f'models = ["{tmp_path}/digits.tacit"]', "lease_s = 4.0", 'arguments = ["--no-warm-up"]', "queries_per_day = 100"]
    (tmp_path / "cluster.toml").write_text("\n".join(lines) + "\n")
    return tmp_path


class Process:
    """A program that prints a line of JSON for each thing that happens."""

    def __init__(self, log, *command):
        self.log = log
        # Workers start where `PYTHONPATH` has the package.
        command = [sys.executable, *map(str, command)]
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        # What hangs ends the test.
        self.end = threading.Timer(PATIENCE_S, self.process.kill)
        self.end.start()

    def told(self, key):
        return self.told_all(key)[key]

    def told_all(self, key):
        while line := self.process.stdout.readline():
            if line.startswith("{") and key in (said := json.loads(line)):
                return said
        raise AssertionError(f"it ended: {self.log.read_text()[-3000:]}")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.told("done") == line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)
        self.end.cancel()


def asked(cli, place, front, client):
    """Where a client is sent, once it is sent anywhere."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        options = ["--front", front, "--keys", "keys", "--client", client]
        done = subprocess.run(
            [sys.executable, "-m", "tacit.cluster", "place", "digits", *options, "--json"], cwd=place, capture_output=True, text=True
        )
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)


def infers(cli, place, client, address):
    options = ["--server", address, "--keys", "keys", "--client", client, "--material", f"{client}-material"]
    assert "class 5" in cli("infer", MODELS / "digit.npy", *options, cwd=place).stdout


def secrets(place):
    """What must not be found: keys as they are in files and in memory, and the beginning of every stored material."""
    for key in (place / "keys").glob("*.key"):
        body = "".join(line for line in key.read_text().splitlines() if not line.startswith("-"))
        yield key.name, base64.b64decode(body)[-32:]
        yield key.name, body[-40:].encode()
    for material in [*place.glob("nodes/*/material/*.material"), *place.glob("*-material/*.material")]:
        yield material.name, material.read_bytes()[-48:]


def rays_hands(session):
    """Everything that Ray has of a session: logs and other files, object stores, arguments and variables of its processes."""
    for path in Path(session).rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes()
            if b"ray" not in arguments:
                continue
            yield process / "cmdline", arguments
            yield process / "environ", (process / "environ").read_bytes()
            for opened in (process / "fd").iterdir():
                if "plasma" in os.readlink(opened):
                    yield opened, opened.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue


def test_nodes_die_and_join_and_no_secret_is_in_rays_hands(place, cli):
    with Process(place / "ray.log", Path(__file__).with_name("cluster_of_rays.py"), "n1", "n2") as rays:
        line = rays.told_all("address")
        with Process(place / "up.log", "-m", "tacit.cluster", "up", place / "cluster.toml", "--address", line["address"], "--json") as up:
            front = up.told("front")
            homes = {client: asked(cli, place, front, client) for client in ("alice", "bob")}
            for client, ticket in homes.items():
                infers(cli, place, client, ticket["address"])
            address = homes["alice"]["address"]
            cli("prepare", "--server", address, "--keys", "keys", "--client", "alice", "--material", "alice-material", "--count", 2, cwd=place)
            rays.say("add n3")
            needles = list(secrets(place))
            assert len(needles) >= 10 + 4, "keys and both halves of two materials"
            held = list(rays_hands(line["session"]))
            assert len(held) > 20
            for name, needle in needles:
                found = [str(path) for path, text in held if needle in text]
                assert not found, f"{name} is in {found}"
            # Alice's node dies without a word: she is answered elsewhere, bob where he was unless it was the same.
            gone = homes["alice"]["node"]
            rays.say(f"kill {gone}")
            assert up.told("gone") == gone
            for client, before in homes.items():
                while (ticket := asked(cli, place, front, client))["node"] == gone:
                    time.sleep(0.1)
                assert before["node"] in (gone, ticket["node"])
                infers(cli, place, client, ticket["address"])
    leftover = subprocess.run(["pgrep", "-f", str(place / "nodes")], capture_output=True, text=True).stdout
    assert leftover == "", f"servers are left: {leftover}"
