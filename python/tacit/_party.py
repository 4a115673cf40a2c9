"""One party of `tacit.bench`, as a process of its own: `python -m tacit._party server|client|local ...`.

A benchmark must measure separate processes; these are found wherever the package is installed.
"""

import json
import sys

import numpy as np

from tacit import Lowered, Model, _tacit, make_keys, serve


def dealer(keys: str) -> None:
    """Deals until standard input ends, with keys for everybody in a new folder; the lines it prints are its address and fingerprint."""
    native = _tacit.Dealer.start("127.0.0.1:0", keys, f"{keys}.sqlite", True)
    print(native.address, native.pin, sep="\n", flush=True)
    sys.stdin.read()
    native.stop()


def server(lowered: str, keys: str, threads: str, *pinned: str) -> None:
    """Serves until standard input ends; the line it prints is its address."""
    if not pinned:
        make_keys(keys)
    model = Lowered.load(lowered)
    allow_clear = model.trust == "server-sees-input"
    with serve(
        {"bench": model}, keys=keys, threads=int(threads), allow_clear=allow_clear, dealer=_pair(pinned)
    ) as running:
        print(running.address, flush=True)
        sys.stdin.read()


def client(address: str, keys: str, backend: str, inputs: str, threads: str, runs: str, *pinned: str) -> None:
    """Prints the client's runs as a JSON list."""
    made = _tacit.bench_client(
        address, keys, "bench", backend, np.load(inputs), int(threads), int(runs), _pair(pinned)
    )
    print(json.dumps([json.loads(run) for run in made]))


def _pair(pinned: tuple[str, ...]) -> tuple[str, str] | None:
    """Address and fingerprint of the dealer, if there is one."""
    return (pinned[0], pinned[1]) if pinned else None


def local(model: str, inputs: str) -> None:
    """Prints what the float model costs here; loading it is not counted."""
    print(_tacit.bench_local(Model.load(model)._native, np.load(inputs)))


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    match role:
        case "dealer":
            dealer(*rest)
        case "server":
            server(*rest)
        case "client":
            client(*rest)
        case "local":
            local(*rest)
        case _:
            sys.exit(f"{role} is no party of a benchmark")
