"""What long commands show on a terminal, and that they show nothing elsewhere."""

import os
import pty
import re
import subprocess
import time
from contextlib import contextmanager

import numpy as np
import pytest

import tacit
from nets import Net, node, weights
from test_cli import serving

PATIENCE_S = 120


@contextmanager
def on_a_terminal(binary, folder, *arguments):
    """The program with its standard error on a terminal: a call waits until it has shown what a pattern finds, as often as is wanted."""
    terminal, end = pty.openpty()
    process = subprocess.Popen([binary, *map(str, arguments)], cwd=folder, stdin=end, stdout=subprocess.DEVNULL, stderr=end)
    os.close(end)
    shown = b""

    def until(pattern, distinct):
        nonlocal shown
        limit = time.monotonic() + PATIENCE_S
        while len(found := set(re.findall(pattern, shown.decode(errors="replace")))) < distinct:
            assert time.monotonic() < limit, f"{found} in {shown!r}"
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                pytest.fail(f"it ended having shown {shown.decode(errors='replace')!r}")
        return found

    try:
        yield until
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_an_import_shows_how_far_it_is(binary, tmp_path):
    """10^9 multiplications an input: it does not end before it has been seen."""
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("Conv", "b v", "y", pads=[1, 1, 1, 1])]
    net = Net("slow", (128, 64, 64), nodes, {"w": weights(128, 128, 3, 3), "v": weights(128, 128, 3, 3)})
    (tmp_path / "slow.onnx").write_bytes(net.to_bytes())
    np.save(tmp_path / "samples.npy", net.samples(24))
    command = ["model", "import", "slow.onnx", "--calibrate", "samples.npy", "-o", "slow.tacit"]
    with on_a_terminal(binary, tmp_path, *command) as until:
        steps = until(r"[a-z][a-z ]+ \d+/\d+", 3)
        assert {step.split("/")[1] for step in steps} == {"24"}, steps


@pytest.fixture
def place(digits, tmp_path):
    digits.save(tmp_path / "digits.tacit")
    tacit.make_keys(tmp_path / "keys")
    return tmp_path


def test_making_one_material_shows_more_than_its_begin_and_end(binary, place):
    with (
        serving(binary, place, "--material", "server-material") as address,
        on_a_terminal(binary, place, "prepare", "--server", address, "--pace", "1mbit") as until,
    ):
        assert all(0 <= int(share) <= 100 for share in until(r"(\d+) % of", 4))


def test_no_bars_where_nobody_looks(cli, binary, place):
    with serving(binary, place, "--material", "server-material") as address:
        shown = cli("prepare", "--server", address, cwd=place).stderr
        assert "%" not in shown and "\x1b" not in shown and "\r" not in shown, shown
