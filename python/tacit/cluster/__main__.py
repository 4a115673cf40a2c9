"""`python -m tacit.cluster up CONFIG`, `place`, `infer`: what `tacit cluster` runs."""

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
from tacit.cluster._place import Place, Trusted, pins, shown
from tacit.cluster._place import place as checked

PATIENCE_S = 60.0
"""For a place instead of a lost one: many leases."""
NOT_BUILT = """\
Not built: a second front that takes over (without its front a cluster ends within a lease), rules of access by client beyond who is \
admitted and a daily quota, clients in Rust or Python that ask the front by themselves (`place` tells the address, `infer` asks with it)."""


DEALERS = """\
Dealers (back ends dealt and fss): which one a node works with the front says, but it chooses only among those that --dealer-pin names; \
without one, no dealer is used."""


def arguments() -> argparse.Namespace:
    """The command line. What follows the first -- is for `tacit infer`."""
    parser = argparse.ArgumentParser(prog="tacit cluster", description="Servers on several machines, placed on Ray.", epilog=NOT_BUILT)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run a front here and a server on every node of a Ray cluster, until a signal")
    up.add_argument("config", type=Path, help="TOML: keys, models, folder, ..; docs/scale.md has all keys")
    up.add_argument("--address", help="of a Ray cluster; without it, one is made on this machine")
    place = commands.add_parser("place", help="ask the front which server answers this client")
    place.add_argument("model")
    infer = commands.add_parser(
        "infer",
        usage="%(prog)s MODEL INPUT.. --front HOST:PORT --keys KEYS [options] [-- arguments of `tacit infer`]",
        help="ask the front, and then privately at the node that it tells; again elsewhere, where a node is lost",
        epilog=DEALERS,
    )
    infer.add_argument("model")
    infer.add_argument("inputs", nargs="+", help="and after -- more arguments of `tacit infer`")
    infer.add_argument("--dealer-keys", type=Path, metavar="DIR", help="ca.pem and the client's certificate for the dealers [default: --keys]")
    infer.add_argument("--program", default="tacit", help=argparse.SUPPRESS)
    for command in (place, infer):
        command.add_argument("--front", required=True, metavar="HOST:PORT")
        command.add_argument("--keys", type=Path, required=True)
        command.add_argument("--client", default="client")
        command.add_argument(
            "--dealer-pin", action="append", default=[], metavar="PIN", help="fingerprint of the key of a dealer that is trusted; may be repeated"
        )
        command.add_argument("--server-name", metavar="NAME", help="in the certificate of front and nodes, if it is not that of their addresses")
    for command in (up, place, infer):
        command.add_argument("--json", action="store_true", help="print JSON, a line each")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    args = parser.parse_args(given[:cut])
    args.more = given[cut + 1 :]
    if args.more and args.command != "infer":
        parser.error(f"nothing follows -- for `{args.command}`")
    if args.command == "infer":
        if args.dealer_keys and not args.dealer_pin:
            infer.error("--dealer-keys is for dealers that --dealer-pin names")
        settled = [option for option in SETTLED if any(word.partition("=")[0] == option for word in args.more)]
        if settled:
            infer.error(f"{settled[0]} cannot follow --: {SETTLED[settled[0]]}")
    return args


SETTLED = {
    "--server": "the front tells it",
    "--model": "it is the first argument",
    "--dealer": "the front chooses among those that --dealer-pin names",
} | dict.fromkeys(("--keys", "--client", "--server-name", "--dealer-pin", "--dealer-keys"), "it goes before that")
"""Options of `tacit infer` that this command settles, and why."""


def main() -> int:
    """0, or 1 with a message."""
    args = arguments()
    try:
        return {"up": run_up, "place": run_place, "infer": run_infer}[args.command](args)
    except (TacitError, OSError, http.client.HTTPException) as error:
        # The front's words may be in it.
        text = shown(str(error))
        print(json.dumps({"error": text}) if args.json else f"error: {text}", file=sys.stderr)
        return 1


def placed(args: argparse.Namespace) -> Place:
    """What the front says, as far as this client takes it from a front."""
    from tacit.cluster._front import Front, Refused, client_context

    if not args.front.rpartition(":")[2].isdigit():
        raise TacitError(f"--front is HOST:PORT, not {args.front!r}")
    trusted = Trusted(pins(args.dealer_pin), args.server_name)
    front = Front(args.front, client_context(args.keys, args.client), args.server_name or "", patience_s=60.0)
    try:
        return checked(front.place(args.model), trusted)
    except Refused as refused:
        raise TacitError(f"the front: {refused}") from None
    finally:
        front.close()


def say_note(told: Place) -> None:
    if told.note:
        print(f"note: {told.note}", file=sys.stderr)


def run_place(args: argparse.Namespace) -> int:
    """Prints the address."""
    told = placed(args)
    say_note(told)
    print(json.dumps(told.as_json(args.model)) if args.json else told.address)
    return 0


def run_infer(args: argparse.Namespace) -> int:
    """Runs `tacit infer` at the client's node. Where that node is lost, its jobs are, too: they are asked for again where the front says then."""
    from tacit.cluster._node import reachable

    told = placed(args)
    while True:
        say_note(told)
        done = subprocess.run(infer_command(args, told))
        if done.returncode == 0 or reachable(told.address):
            return done.returncode
        print(f"{told.node} is lost: asking the front again", file=sys.stderr)
        told = elsewhere(args, told)


def infer_command(args: argparse.Namespace, told: Place) -> list[str]:
    """`tacit infer` at a node. Of the front's words there are the address, and a dealer whose pin this client has given."""
    command = [args.program, "infer", f"--server={told.address}", f"--keys={args.keys}", f"--client={args.client}", f"--model={args.model}"]
    command += ["--json"] if args.json else []
    command += [f"--server-name={args.server_name}"] if args.server_name else []
    if told.dealer:
        address, pin = told.dealer
        command += [f"--dealer={address}", f"--dealer-pin={pin}"]
        command += [f"--dealer-keys={args.dealer_keys}"] if args.dealer_keys else []
    return [*command, *args.inputs, *args.more]


def elsewhere(args: argparse.Namespace, lost: Place) -> Place:
    """The next place, once the lost run of a node is written off."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            told = placed(args)
            if (told.node, told.run) != (lost.node, lost.run):
                return told
            why = f"{lost.node} is still held for one that lives"
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
        raise TacitError("placement needs Ray: pip install '.[ray]' in a clone of the repository") from error
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
