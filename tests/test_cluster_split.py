"""Split brain: a node loses the front and not its clients. Front, nodes and clients have networks of their own (namespaces; root)."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest

from conftest import MODELS

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and iproute2")
LEASE_S = 4.0
PATIENCE_S = 60.0
# Two networks: the front's and the nodes', and that on which clients reach both.
INSIDE, OUTSIDE = "10.231.7.{}", "10.231.8.{}"
PARTIES = {"front": 1, "one": 2, "two": 3, "client": 4}


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def networks():
    """A namespace for each party, and one with the two switches; the names of the namespaces by party."""
    names = {party: f"tacit-split-{os.getpid()}-{party}" for party in (*PARTIES, "hub")}
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for switch in ("in", "out"):
            ip("-n", names["hub"], "link", "add", switch, "type", "bridge")
            ip("-n", names["hub"], "link", "set", switch, "up")
        for party, number in PARTIES.items():
            for switch, addresses in (("in", INSIDE), ("out", OUTSIDE)):
                if (party, switch) == ("client", "in"):
                    continue
                port = f"{switch}-{party}"
                ip("-n", names["hub"], "link", "add", port, "type", "veth", "peer", "name", switch, "netns", names[party])
                ip("-n", names["hub"], "link", "set", port, "master", switch, "up")
                ip("-n", names[party], "addr", "add", f"{addresses.format(number)}/24", "dev", switch)
                ip("-n", names[party], "link", "set", switch, "up")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


# A node as Ray's actors run it: NAME KEYS MODEL FOLDER HOST LEASE PROGRAM FRONT.
NODE = """
import json, sys
from pathlib import Path
from tacit.cluster._front import Front, client_context
from tacit.cluster._node import Node, Settings

name, keys, model, folder, host, lease, program, front = sys.argv[1:]
settings = Settings(name, host, Path(keys), "ops", (Path(model),), Path(folder), program=program, lease_s=float(lease), arguments=("--no-warm-up",))
node = Node(settings, Front(front, client_context(settings.keys, "ops"), patience_s=float(lease)))
print(json.dumps({"address": node.address}), flush=True)
node.run()
"""


@contextmanager
def party(namespace, log, *arguments):
    """A program there, and what it says first."""
    command = ["ip", "netns", "exec", namespace, *arguments]
    with log.open("w") as errors, subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line, log.read_text()[-2000:]
            yield json.loads(line)
        finally:
            process.kill()


def in_namespace(name, what):
    """Runs `what` in a process whose network is that one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(f"/run/netns/{name}") as handle:
                os.setns(handle.fileno(), os.CLONE_NEWNET) if hasattr(os, "setns") else setns(handle.fileno())
            os.write(writing, json.dumps(what()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def setns(descriptor):
    """Before Python 3.12."""
    import ctypes

    new_net = 0x40000000
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, new_net) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def listens(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
        return True
    except OSError:
        return False


def test_a_node_without_its_front_answers_nobody_who_is_answered_elsewhere(tmp_path, cli, binary, networks):
    from tacit.cluster._front import client_context

    outside = {name: OUTSIDE.format(number) for name, number in PARTIES.items()}
    inside = INSIDE.format(PARTIES["front"])
    hosts = [word for host in (inside, *(outside[name] for name in ("front", "one", "two"))) for word in ("--host", host)]
    cli("keys", "init", "keys", *hosts, "--client", "alice", cwd=tmp_path)
    cli("keys", "add-client", "keys", "ops", "--operator", cwd=tmp_path)
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=tmp_path)
    cli("model", "lower", "digits.tacit", cwd=tmp_path)

    def place():
        connection = http.client.HTTPSConnection(outside["front"], port, timeout=20, context=client_context(tmp_path / "keys", "alice"))
        connection.request("POST", "/v1/place", body=json.dumps({"model": "digits"}), headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        return [answer.status, json.loads(answer.read())]

    def placed():
        deadline = time.monotonic() + PATIENCE_S
        while True:
            code, told = in_namespace(networks["client"], place)
            if code == 200:
                return told
            assert time.monotonic() < deadline, told
            time.sleep(0.1)

    def infers(address):
        command = [binary, "infer", MODELS / "digit.npy", "--server", address, "--keys", "keys", "--client", "alice"]
        command = ["ip", "netns", "exec", networks["client"], *map(str, command)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    with ExitStack() as stack:
        serve = [binary, "serve", "--front", "--keys", tmp_path / "keys", "--listen", "0.0.0.0:0", "--lease", LEASE_S, "--json"]
        port = int(stack.enter_context(party(networks["front"], tmp_path / "front.log", *serve))["listening"].rpartition(":")[2])
        addresses = {}
        for name in ("one", "two"):
            words = [name, tmp_path / "keys", tmp_path / "digits.tacit", tmp_path / name, outside[name], LEASE_S, binary, f"{inside}:{port}"]
            node = party(networks[name], tmp_path / f"{name}.log", sys.executable, "-c", NODE, *words)
            addresses[name] = stack.enter_context(node)["address"]
        home = placed()
        assert "class 5" in infers(home["address"]).stdout
        # The front is cut off from the node; clients reach both.
        ip("-n", networks["hub"], "link", "set", f"in-{home['node']}", "down")
        deadline = time.monotonic() + PATIENCE_S
        while (now := placed())["node"] == home["node"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        # Whoever is sent elsewhere has no longer anybody to ask at the old place.
        assert not in_namespace(networks["client"], lambda: listens(home["address"]))
        assert "class 5" in infers(now["address"]).stdout
        assert infers(home["address"]).returncode != 0
        # It comes back: a node whose lease was over is not taken for the one that it was.
        ip("-n", networks["hub"], "link", "set", f"in-{home['node']}", "up")
        assert placed()["node"] == now["node"]
