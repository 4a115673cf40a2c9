"""One party of `tacit.bench`, as a process of its own: `python -m tacit._party server|client|local ...`.

A benchmark must measure separate processes; these are found wherever the package is installed.
"""

import json
import sys

import numpy as np

from tacit import Lowered, Model, _tacit, make_keys, serve


def server(lowered: str, keys: str, threads: str) -> None:
    """Serves until standard input ends; the line it prints is its address."""
    make_keys(keys)
    model = Lowered.load(lowered)
    allow_clear = model.trust == "server-sees-input"
    with serve({"bench": model}, keys=keys, threads=int(threads), allow_clear=allow_clear) as running:
        print(running.address, flush=True)
        sys.stdin.read()


def client(address: str, keys: str, backend: str, inputs: str, threads: str, runs: str) -> None:
    """Prints the client's runs as a JSON list."""
    made = _tacit.bench_client(address, keys, "bench", backend, np.load(inputs), int(threads), int(runs))
    print(json.dumps([json.loads(run) for run in made]))


def local(model: str, inputs: str) -> None:
    """Prints what the float model costs here; loading it is not counted."""
    print(_tacit.bench_local(Model.load(model)._native, np.load(inputs)))


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    match role:
        case "server":
            server(*rest)
        case "client":
            client(*rest)
        case "local":
            local(*rest)
        case _:
            sys.exit(f"{role} is no party of a benchmark")
