"""Programs whose log cannot be written go on, and end as they should (the server: `crates/service/serve/tests/suite/program.rs`)."""

import json
import os
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

import abuse_admission
from conftest import MODELS
from test_cli import serving
from test_cluster_node import fingerprint


@contextmanager
def unwritable(kind):
    """A descriptor that takes nothing: of a full device, or of a pipe that nobody reads."""
    if kind == "device":
        with open("/dev/full", "wb") as full:
            yield full.fileno()
        return
    read, write = os.pipe()
    try:
        os.set_blocking(write, False)
        with suppress(BlockingIOError):
            while True:
                os.write(write, bytes(4096))
        # As a shell hands it on.
        os.set_blocking(write, True)
        yield write
    finally:
        os.close(read)
        os.close(write)


def strangers(address, count=70):
    """Connections that say something which is no TLS and no HTTP."""
    host, port = address.rsplit(":", 1)
    for _ in range(count):
        with socket.create_connection((host, int(port)), timeout=30) as stream, suppress(ConnectionError):
            stream.sendall(b"nonsense\r\n\r\n")
            stream.recv(100)


@pytest.mark.parametrize("kind", ["device", "pipe"])
@pytest.mark.parametrize("program", ["sidecar", "dealer"])
def test_a_log_that_cannot_be_written_stops_nobody(cli, binary, tmp_path, kind, program):
    cli("model", "import", MODELS / "digits.onnx", "-o", "digits.tacit", cwd=tmp_path)
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    cli("keys", "add-dealer", "keys", cwd=tmp_path)
    with serving(binary, tmp_path) as server, unwritable(kind) as log:
        sidecar = ["sidecar", "--server", server, "--client", "alice", "--token-file", "token", "--new-token"]
        command = {"sidecar": sidecar, "dealer": ["dealer", "--keys", "keys"]}[program]
        environment = os.environ | {"TACIT_LOG": "debug"}
        with subprocess.Popen(
            [binary, *command, "--listen", "127.0.0.1:0", "--json"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["listening"].removeprefix("http://")
            strangers(address)
            assert process.poll() is None
            strangers(address, 1)
            process.terminate()
            assert process.wait(timeout=60) == 0


def lines_of(log, wanted):
    """What a log says where `wanted` stands; waited for."""
    for _ in range(600):
        found = [line for line in log.read_text().splitlines() if wanted in line]
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{wanted!r} is not in\n{log.read_text()}")


@pytest.mark.parametrize("program", ["dealer", "front"])
def test_a_log_names_a_client_beside_its_fingerprint(cli, binary, tmp_path, program):
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    cli("keys", "add-dealer", "keys", cwd=tmp_path)
    command = {"dealer": ["dealer", "--keys", "keys"], "front": ["serve", "--front", "--keys", "keys"]}[program]
    log = tmp_path / "log"
    with log.open("wb") as errors, subprocess.Popen(
        [binary, *command, "--listen", "127.0.0.1:0", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        assert process.stdout is not None
        try:
            host, port = json.loads(process.stdout.readline())["listening"].rsplit(":", 1)
            with ExitStack() as held:
                if program == "dealer":
                    # It says something that is no request.
                    held.enter_context(abuse_admission.spoiling((host, int(port)), tmp_path / "keys", "alice"))
                else:
                    # It has as many connections as one client may, and wants another.
                    for _ in range(16):
                        held.enter_context(abuse_admission.visiting((host, int(port)), tmp_path / "keys", "alice"))
                    held.enter_context(abuse_admission.connected((host, int(port)), tmp_path / "keys", "alice", "http/1.1"))
                [line, *_] = lines_of(log, "alice")
            assert f"alice ({fingerprint(tmp_path / 'keys' / 'alice.pem')})" in line
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
