"""One party of `tacit.bench`, as a process of its own: `python -m tacit._party server|client`. Talks JSON lines with its parent.

Lives beside the API because `bench` must measure two separate processes, wherever the package is installed.
"""

import dataclasses
import json
import sys

import numpy as np

from tacit import Client, Model, make_keys, serve


def server(model: str, keys: str, threads: int) -> None:
    """Serves until standard input ends; the first line out is the address."""
    make_keys(keys)
    with serve(Model.load(model), keys=keys, threads=threads) as running:
        print(json.dumps({"address": running.address}), flush=True)
        sys.stdin.read()


def client(address: str, keys: str, inputs: str, threads: int, runs: int) -> None:
    """Makes `runs` inferences, each on a connection of its own so that setup is measured too; one line out for each."""
    array = np.load(inputs)
    for run in range(runs):
        with Client(address, keys=keys, threads=threads) as connected:
            connected.setup()
            connected.prepare()
            integers = connected.infer_integers(array[run % len(array)])
            costs = [dataclasses.asdict(cost) for cost in connected.costs]
        print(json.dumps({"costs": costs, "integers": integers.tolist()}), flush=True)


def main(arguments: list[str]) -> None:
    role, *rest = arguments
    if role == "server":
        server(rest[0], rest[1], int(rest[2]))
    else:
        client(rest[0], rest[1], rest[2], int(rest[3]), int(rest[4]))


if __name__ == "__main__":
    main(sys.argv[1:])
