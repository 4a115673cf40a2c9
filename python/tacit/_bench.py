"""Time, bytes and memory of private inference: two processes on loopback over mutual TLS, as `tacit bench` does it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _tacit
from tacit._arrays import Options, each_input
from tacit._client import check_threads
from tacit._errors import one_error
from tacit._lowered import Lowered
from tacit._model import Model
from tacit._tacit import blank
from tacit._tacit import TacitError

PARTY = [sys.executable, "-m", "tacit._party"]


@one_error
def bench(
    model: Model,
    x: ArrayLike | None = None,
    *,
    backend: str | None = None,
    options: Options | None = None,
    runs: int = 1,
    threads: int = 1,
) -> dict[str, Any]:
    """Measures `runs` private inferences of `x` (default: zeros), each by a fresh client with its own setup.

    `backend` and `options` as for `Model.lower`. Returns what `tacit bench --json` prints: `model`, `backend`, `threads` (of each
    party), `link`, `machine` and `runs`, each with wall seconds, rounds, processor seconds, peak memory and bytes for every phase that
    the back end has, the seconds from the request to the answer with the claim of stored material, the material's size, and the answer's distance from the back end's reference. `lower_bounds` are what no private
    inference can beat: `clear` (one run in which the server sees the input) and `local` (the float model run by its client). CPU time
    and memory include the Python interpreter that hosts each party.
    """
    check_threads(threads)
    if runs < 1:
        raise TacitError(f"bench: at least one run is needed, got {runs}")
    values = blank(json.dumps(model.spec)).reshape(model.input_shape) if x is None else x
    inputs = each_input(values, model.spec, lambda flat: flat, normalised=x is None)
    if inputs.ndim != 1:
        raise TacitError("bench: one input is measured, not a batch")
    # The float network says now what is wrong with the input, before any process starts.
    model.run(inputs.reshape(model.input_shape), normalised=True)
    lowered = model.lower(backend, **(options or {}))
    measured = _measure(lowered, inputs, runs, threads)
    plain = model.lower(_tacit.lower_bound())
    bound = _measure(plain, inputs, 1, threads)
    return {
        "model": model.name,
        "backend": lowered.backend,
        "threads": threads,
        "link": "loopback, TCP, TLS 1.3",
        "machine": _tacit.machine(),
        "runs": measured,
        "lower_bounds": {plain.backend: bound[0], "local": _local(model, inputs)},
    }


@contextmanager
def _folder(inputs: NDArray[np.float32]) -> Iterator[Path]:
    """A folder with the input, for parties to share."""
    with TemporaryDirectory(prefix="tacit-bench-") as scratch:
        np.save(Path(scratch) / "input.npy", inputs)
        yield Path(scratch)


def _measure(lowered: Lowered, inputs: NDArray[np.float32], runs: int, threads: int) -> list[dict[str, Any]]:
    """Starts the parties, a dealer if there must be one; what the client measured, compared with the reference."""
    with _folder(inputs) as folder, ExitStack() as parties:
        file, keys = folder / "model.lowered", str(folder / "keys")
        lowered.save(file)
        pinned: list[str] = []
        if lowered.trust == "dealer":
            dealer = parties.enter_context(_process("dealer", keys))
            parties.callback(dealer.communicate, "")
            pinned = [_line("dealer", dealer), _line("dealer", dealer)]
        server = parties.enter_context(_process("server", str(file), keys, str(threads), *pinned))
        # The end of its input is a party's sign to stop.
        parties.callback(server.communicate, "")
        wanted = [_line("server", server), keys, lowered.backend, str(folder / "input.npy"), str(threads), str(runs)]
        made: list[dict[str, Any]] = _output("client", *wanted, *pinned)
    return [json.loads(_tacit.bench_judge(lowered._native, json.dumps(run), inputs)) for run in made]


def _line(role: str, process: subprocess.Popen[str]) -> str:
    """The next line that a party says."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise TacitError(f"bench: the {role} process did not start")
    return line


def _local(model: Model, inputs: NDArray[np.float32]) -> dict[str, Any]:
    """The float model, run by a process of its own."""
    with _folder(inputs) as folder:
        model.save(folder / "model.tacit")
        figures: dict[str, Any] = _output("local", str(folder / "model.tacit"), str(folder / "input.npy"))
    return figures


@contextmanager
def _process(role: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A party's process, which an error ends. In a session of its own: Ctrl-C is for this process, which ends the parties."""
    command, pipe = [*PARTY, role, *arguments], subprocess.PIPE
    errors = None if role in ("server", "dealer") else pipe
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=errors, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            process.wait()
            raise


def _output(role: str, *arguments: str) -> Any:
    """The JSON that a party prints."""
    with _process(role, *arguments) as process:
        printed, errors = process.communicate("")
    if process.returncode:
        lines = errors.strip().splitlines() or ["no message"]
        raise TacitError(f"bench: the {role} process failed: {lines[-1]}")
    return json.loads(printed)
