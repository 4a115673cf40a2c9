"""Servers in a control group of their own: what does not fit is refused in words, and nobody is killed."""

import contextlib
import os
import re
import subprocess
import uuid
from pathlib import Path

import numpy as np
import pytest

import server_memory
from conftest import MODELS
from test_cli import as_alice

ROOT = Path("/sys/fs/cgroup")
MIB = 1 << 20


class Group:
    """A control group with a limit on memory, of whichever kind this machine has."""

    def __init__(self, folder, names):
        self.folder, (self.limit, self.peak, self.events) = folder, names

    @classmethod
    def make(cls, mib):
        """One below that of the tests; the reason, where that is not allowed."""
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        first = [path for _, kinds, path in lines if "memory" in kinds.split(",")]
        unified = [path for number, _, path in lines if number == "0"]
        if first:
            parent, names = ROOT / "memory" / first[0].lstrip("/"), ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
        else:
            parent, names = ROOT / unified[0].lstrip("/"), ("memory.max", "memory.peak", "memory.events")
        group = cls(parent / f"tacit-{uuid.uuid4().hex[:8]}", names)
        try:
            group.folder.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        try:
            (group.folder / group.limit).write_text(str(mib * MIB))
        except OSError as error:
            group.folder.rmdir()
            pytest.skip(f"memory of a control group cannot be limited here: {error}")
        return group

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self):
        told = dict(line.split() for line in (self.folder / self.events).read_text().splitlines())
        return int(told["oom_kill"])

    def most(self):
        # Linux before 5.19 does not tell it of a unified group.
        path = self.folder / self.peak
        return int(path.read_text()) if path.exists() else 0


@contextlib.contextmanager
def serving_within(binary, folder, mib, *models):
    """A `tacit serve` process in a group with so much memory: its address, and the group."""
    group = Group.make(mib)
    log = folder / "server.log"
    command = [binary, "serve", *models, "--material", "server-material", "--listen", "127.0.0.1:0"]
    try:
        with (
            log.open("w") as errors,
            subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=group.enter) as process,
        ):
            try:
                line = process.stdout.readline()
                assert line.startswith("listening on "), log.read_text()
                yield line.split()[2], group
                assert process.poll() is None, log.read_text()
            finally:
                process.terminate()
                process.communicate(timeout=30)
            assert process.returncode == 0, log.read_text()
    finally:
        group.folder.rmdir()


@pytest.fixture(scope="module")
def place(tmp_path_factory, cli):
    """SqueezeNet and the digits in one folder."""
    folder = tmp_path_factory.mktemp("limits")
    cli("zoo", "squeezenet1.1", "-o", "squeezenet.onnx", cwd=folder)
    cli("model", "import", "squeezenet.onnx", "-o", "squeezenet.tacit", cwd=folder)
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=folder)
    cli("keys", "init", "keys", "--client", "alice", cwd=folder)
    np.save(folder / "photo.npy", np.random.default_rng(1).uniform(-1, 1, (1, 3, 224, 224)).astype(np.float32))
    return folder


def test_a_server_in_a_small_group_refuses_what_does_not_fit_and_serves_the_rest(cli, binary, place):
    with serving_within(binary, place, 170, "squeezenet.tacit", "digits.tacit") as (address, group):
        asked = [binary, "infer", "photo.npy", *as_alice(address), "--model", "squeezenet"]
        both = [subprocess.Popen(asked, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for client in both:
            said = client.communicate(timeout=60)[1]
            assert client.returncode == 1
            assert re.search(r"refused the inference: .* needs .* bytes of memory, .* the machine has .* bytes of memory", said), said
        done = cli("infer", MODELS / "digit.npy", *as_alice(address), "--model", "digits", cwd=place)
        assert "class" in done.stdout
        assert group.kills() == 0 and group.most() <= 170 * MIB
    assert "may be used for that model=squeezenet" in (place / "server.log").read_text(), "nor was it warmed up"


def test_a_server_of_encrypted_networks_takes_what_is_stated(cli, binary, place):
    samples = MODELS / "digits_samples.npy"
    cli("model", "import", MODELS / "digits_square.onnx", "--calibrate", samples, "--backend", "ckks", "-o", "square.tacit", cwd=place)
    found = server_memory.measured(binary, place, "square.tacit", MODELS / "digit.npy")
    assert not list(server_memory.faults(found)), found
