"""One party of `tacit.bench`, as a process of its own: `python -m tacit._party server|client ...`.

A benchmark must measure two processes; these are found wherever the package is installed.
"""

import json
import sys

import numpy as np

from tacit import Model, _tacit, make_keys, serve


def server(model: str, keys: str, threads: str) -> None:
    """Serves until standard input ends; the line it prints is its address."""
    make_keys(keys)
    with serve({"bench": Model.load(model)}, keys=keys, threads=int(threads)) as running:
        print(running.address, flush=True)
        sys.stdin.read()


def client(address: str, keys: str, inputs: str, threads: str, runs: str) -> None:
    """Prints the client's runs as a JSON list."""
    made = _tacit.bench_client(address, keys, "bench", np.load(inputs), int(threads), int(runs))
    print(json.dumps([json.loads(run) for run in made]))


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "server":
        server(*rest)
    else:
        client(*rest)
