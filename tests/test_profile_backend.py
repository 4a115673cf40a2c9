"""A back end measured for the simulator (docs/scripts/profile_backend.py): what is measured is what is simulated."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "docs" / "scripts" / "profile_backend.py"


def test_a_measured_profile_is_simulated(binary: Path, cli: Callable, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    command = [sys.executable, SCRIPT, "--backend", "dealt", "--networks", "tiny-cnn", "--runs", "1", "-o", profile]
    subprocess.run(command, env=os.environ | {"TACIT_BIN": str(binary)}, check=True, capture_output=True, timeout=300)
    entry = json.loads(profile.read_text())["models"]["tiny-cnn"]
    assert entry["key_bytes_client"] == 16 < entry["key_bytes_server"]
    assert entry["pre"]["peak_rss_bytes"] > 1_000_000 and entry["on"]["bytes_client_to_server"] > 0

    # One request on an idle machine takes as long as its two phases did.
    (tmp_path / "trace.csv").write_text("0,1,tiny-cnn\n")
    options = ("--trace", "trace.csv", "--cores", "2", "--policy", "fcfs", "--json")
    simulated = cli("simulate", "run", "--profile", profile, *options, cwd=tmp_path)
    (answered,) = json.loads(simulated.stdout)["inputs"]
    assert abs(answered["ended"] - entry["pre"]["wall_s"] - entry["on"]["wall_s"]) < 1e-6


def test_a_failed_measurement_writes_nothing(binary: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    command = [sys.executable, SCRIPT, "--networks", "no-such-network", "-o", profile]
    done = subprocess.run(command, env=os.environ | {"TACIT_BIN": str(binary)}, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "no-such-network" in done.stderr
    assert not profile.exists()
