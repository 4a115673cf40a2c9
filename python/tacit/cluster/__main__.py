"""`python -m tacit.cluster up CONFIG`, `place`: what `tacit cluster` runs."""

import argparse
import http.client
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tacit._tacit import TacitError

NOT_BUILT = """\
Not built: a second front that takes over (without its front a cluster ends within a lease), placement of dealers, rules of access by client \
beyond who is admitted and a daily quota, clients that ask the front by themselves (`place` tells the address)."""


def main() -> int:
    """0, or 1 with a message."""
    parser = argparse.ArgumentParser(prog="tacit cluster", description="Servers on several machines, placed on Ray.", epilog=NOT_BUILT)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run a front here and a server on every node of a Ray cluster, until a signal")
    up.add_argument("config", type=Path, help="TOML: keys, models, folder, ..; docs/scale.md has all keys")
    up.add_argument("--address", help="of a Ray cluster; without it, one is made on this machine")
    place = commands.add_parser("place", help="ask the front which server answers this client")
    place.add_argument("model")
    place.add_argument("--front", required=True, metavar="HOST:PORT")
    place.add_argument("--keys", type=Path, required=True)
    place.add_argument("--client", default="client")
    for command in (up, place):
        command.add_argument("--json", action="store_true", help="print JSON, a line each")
    args = parser.parse_args()
    try:
        return run_up(args) if args.command == "up" else run_place(args)
    except (TacitError, OSError, http.client.HTTPException) as error:
        print(json.dumps({"error": str(error)}) if args.json else f"error: {error}", file=sys.stderr)
        return 1


def run_place(args: argparse.Namespace) -> int:
    """Prints the address."""
    from tacit.cluster._node import client_context

    host, _, port = args.front.rpartition(":")
    if not port.isdigit():
        raise TacitError(f"--front is HOST:PORT, not {args.front!r}")
    connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=60, context=client_context(args.keys, args.client))
    try:
        connection.request("POST", "/v1/place", body=json.dumps({"model": args.model}))
        answer = connection.getresponse()
        told = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise TacitError(f"the front: {told.get('error', answer.status)}")
    print(json.dumps(told) if args.json else told["address"])
    return 0


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
        raise TacitError(f"the front is gone, so the cluster ends: {type(error).__name__}") from error
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
