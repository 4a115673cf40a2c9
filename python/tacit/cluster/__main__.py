"""`python -m tacit.cluster up CONFIG`, `place`: what `tacit cluster` runs."""

import argparse
import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tacit._tacit import TacitError

PATIENCE_S = 60.0
"""For a place instead of a lost one: many leases."""
NOT_BUILT = """\
Not built: a second front that takes over (without its front a cluster ends within a lease), rules of access by client beyond who is \
admitted and a daily quota, clients in Rust or Python that ask the front by themselves (`place` tells the address, `infer` asks with it)."""


def main() -> int:
    """0, or 1 with a message."""
    parser = argparse.ArgumentParser(prog="tacit cluster", description="Servers on several machines, placed on Ray.", epilog=NOT_BUILT)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run a front here and a server on every node of a Ray cluster, until a signal")
    up.add_argument("config", type=Path, help="TOML: keys, models, folder, ..; docs/scale.md has all keys")
    up.add_argument("--address", help="of a Ray cluster; without it, one is made on this machine")
    place = commands.add_parser("place", help="ask the front which server answers this client")
    place.add_argument("model")
    infer = commands.add_parser("infer", help="ask the front, and then privately at the node that it tells; again elsewhere, where a node is lost")
    infer.add_argument("model")
    infer.add_argument("inputs", nargs="+", help="and after -- more arguments of `tacit infer`")
    infer.add_argument("--program", default="tacit", help=argparse.SUPPRESS)
    for command in (place, infer):
        command.add_argument("--front", required=True, metavar="HOST:PORT")
        command.add_argument("--keys", type=Path, required=True)
        command.add_argument("--client", default="client")
    for command in (up, place, infer):
        command.add_argument("--json", action="store_true", help="print JSON, a line each")
    args = parser.parse_args()
    try:
        return {"up": run_up, "place": run_place, "infer": run_infer}[args.command](args)
    except (TacitError, OSError, http.client.HTTPException) as error:
        print(json.dumps({"error": str(error)}) if args.json else f"error: {error}", file=sys.stderr)
        return 1


def placed(args: argparse.Namespace) -> dict[str, str]:
    """What the front says."""
    from tacit.cluster._front import Front, Refused, client_context

    if not args.front.rpartition(":")[2].isdigit():
        raise TacitError(f"--front is HOST:PORT, not {args.front!r}")
    front = Front(args.front, client_context(args.keys, args.client), patience_s=60.0)
    try:
        return front.place(args.model)
    except Refused as refused:
        raise TacitError(f"the front: {refused}") from None
    finally:
        front.close()


def run_place(args: argparse.Namespace) -> int:
    """Prints the address."""
    told = placed(args)
    print(json.dumps(told) if args.json else told["address"])
    return 0


def run_infer(args: argparse.Namespace) -> int:
    """Runs `tacit infer` at the client's node. Where that node is lost, its jobs are, too: they are asked for again where the front says then."""
    from tacit.cluster._node import reachable

    told = placed(args)
    while True:
        command = [args.program, "infer", *args.inputs, "--server", told["address"], "--keys", str(args.keys), "--client", args.client]
        command += ["--model", args.model] + (["--json"] if args.json else [])
        if "server_name" in told:
            command += ["--server-name", told["server_name"]]
        if "dealer" in told:
            command += ["--dealer", told["dealer"], "--dealer-pin", told["dealer_pin"]]
        done = subprocess.run(command)
        if done.returncode == 0 or reachable(told["address"]):
            return done.returncode
        print(f"{told['node']} is lost: asking the front again", file=sys.stderr)
        told = elsewhere(args, told)


def elsewhere(args: argparse.Namespace, lost: dict[str, str]) -> dict[str, str]:
    """The next place, once the lost run of a node is written off."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            told = placed(args)
            if (told["node"], told["run"]) != (lost["node"], lost["run"]):
                return told
            why = f"{lost['node']} is still held for one that lives"
        except TacitError as error:
            # No node may have the model for a moment.
            why = str(error)
        if time.monotonic() > deadline:
            raise TacitError(f"nobody took over within {PATIENCE_S:.0f} s: {why}")
        time.sleep(0.3)


def run_up(args: argparse.Namespace) -> int:
    """Until a signal."""
    from tacit.cluster._config import read

    config = read(args.config)
    try:
        import ray
    except ImportError as error:
        raise TacitError("placement needs Ray: pip install 'tacit[ray]'") from error
    from tacit.cluster._ray import Cluster

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what) if args.json else ", ".join(f"{key}: {value}" for key, value in what.items()), flush=True)

    local = {} if args.address or not config.disk_gib else {"resources": {"tacit_disk": config.disk_gib}}
    ray.init(address=args.address, logging_level="warning", log_to_driver=False, include_dashboard=False if not args.address else None, **local)
    # After Ray, which has handlers of its own.
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    try:
        Cluster(config, say).run(over)
    except ray.exceptions.RayError as error:
        raise TacitError(f"Ray has failed, so the cluster ends: {type(error).__name__}") from error
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
