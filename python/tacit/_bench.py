"""Time, bytes and memory of private inference: two processes on loopback over mutual TLS, as `tacit bench` does it."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit import _tacit
from tacit._arrays import each_input
from tacit._client import check_threads
from tacit._model import Model
from tacit._tacit import TacitError


def bench(model: Model, x: ArrayLike | None = None, *, runs: int = 1, threads: int = 1) -> dict[str, Any]:
    """Measures `runs` private inferences of `x` (default: zeros), each by a fresh client with its own setup.

    Returns what `tacit bench --json` writes: `model`, `backend`, `threads` (of each party), `link`, `machine` and `runs`, each with
    wall seconds, rounds, processor seconds, peak memory and bytes for every phase, the material's size, and the answer's
    distance from the fixed-point reference in units of its last place. CPU time and memory include the Python interpreter
    that hosts each party.
    """
    check_threads(threads)
    if runs < 1:
        raise TacitError(f"bench: at least one run is needed, got {runs}")
    values = np.clip(np.zeros(model.input_shape, np.float32), *model.input_range) if x is None else x
    integers = each_input(values, model.spec, model._native.quantize)
    if integers.ndim != 1:
        raise TacitError("bench: one input is measured, not a batch")
    with TemporaryDirectory(prefix="tacit-bench-") as folder:
        made = _measure(Path(folder), model, integers, runs, threads)
    judged = [json.loads(_tacit.bench_judge(model._native, json.dumps(run), integers)) for run in made]
    return {
        "model": model.name,
        "backend": "cheetah",
        "threads": threads,
        "link": "loopback, TLS 1.3",
        "machine": _tacit.machine(),
        "runs": judged,
    }


def _measure(folder: Path, model: Model, integers: np.ndarray, runs: int, threads: int) -> list[dict[str, Any]]:
    """Starts both parties and returns what the client measured."""
    file, keys, inputs = folder / "model.tacit", folder / "keys", folder / "input.npy"
    model.save(file)
    np.save(inputs, integers)
    party = [sys.executable, "-m", "tacit._party"]
    server = [*party, "server", str(file), str(keys), str(threads)]
    with subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise TacitError("bench: the server process did not start")
            client = [*party, "client", address, str(keys), str(inputs), str(threads), str(runs)]
            done = subprocess.run(client, capture_output=True, text=True)
        finally:
            # The end of its input is the server's sign to stop.
            process.communicate("")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise TacitError(f"bench: the client process failed: {lines[-1]}")
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made
