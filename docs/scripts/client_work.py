"""What each setting of `--client-work` costs the client: chosen by `tacit infer`, then counted as it ran.

    TACIT_BIN=target/release/tacit python docs/scripts/client_work.py net.tacit -o client-work       # loopback, some minutes for SqueezeNet
    python docs/scripts/client_work.py -o client-work --draw docs/client-work.svg                    # the Pareto front of what was measured

One server offers the model with `cheetah`, `sci-he` and `dealt` (a dealer of its own beside it); the client is asked once for each
setting, without and with the dealer named, and once for `sci-he` by name. Then one server each with other options that move work between the
parties, `fss`, and a helper of the client's (`helper_work.py`). Processor seconds and bytes are counted in the run (setup, offline and online
phase of a new client, with what its dealer sends; with a helper those of the device's whole programs), joules are modelled: coefficients of the device profile for processor
seconds and bytes, as in `chosen`, which is the planner's. Options of the back ends follow after `--`.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import helper_work
import numpy as np

BACKENDS = ("cheetah", "sci-he", "dealt")
SETTINGS = ((), ("--backend", "sci-he"), ("--client-work", "balanced"), ("--client-work", "min"), ("--client-work", "any"))
# Servers of one back end each, with an option.
ALONE = (
    ("cheetah", "leaves=weighed2"),
    ("cheetah", "leaves=weighed16"),
    ("cheetah", "leaves=direct4"),
    ("sci-he", "leaves=weighed2"),
    ("dealt", ""),
    ("fss", ""),
)
PROGRAM = os.environ.get("TACIT_BIN", "target/release/tacit")


def tacit(*arguments: str) -> str:
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tacit {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def start(programs: ExitStack, *arguments: str) -> str:
    """A program of ours that listens; its address."""
    process = subprocess.Popen([PROGRAM, *arguments, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True)
    programs.enter_context(process)
    programs.callback(process.kill)
    assert process.stdout is not None
    return json.loads(process.stdout.readline())["listening"]


def dealt_bytes(model: str) -> dict[str, int]:
    """What a dealer sends to the client for an input, by back end: no party counts it."""
    link = "1gbit/1ms"
    cells = json.loads(
        tacit("plan", model, "--device", "this", "--server", "this", "--link", link, "--cells", link, "--json")
    )["cells"]
    return {cell["backend"]: cell["costs"]["dealing"]["client_bytes"] for cell in cells if not cell["options"]}


def row(name: str, answer: dict, seconds: dict[str, float], dealt: int) -> dict:
    """What a run took."""
    phases = answer["phases"].values()
    both = [sum(phase[party][key] for phase in phases) for key in ("cpu_s", "sent_bytes") for party in ("client", "server")]
    both[3] += dealt
    joules = seconds["core_w"] * both[0] + seconds["byte_j"] * (both[2] + both[3])
    chosen = answer.get("chosen") or {}
    return {
        "setting": name, "chosen": chosen.get("backend", "-"), "client_cpu_s": both[0], "server_cpu_s": both[1],
        "up_bytes": both[2], "down_bytes": both[3], "client_j": joules, "planned_cpu_s": chosen.get("client_cpu_s"),
        "planned_j": chosen.get("client_j"),
    }  # fmt: skip


def helped(backend: str, folder: Path, args: argparse.Namespace) -> dict:
    """What is left for a device with a helper: it fetches a material, and answers with it."""
    seen = helper_work.measure(folder, backend, argparse.Namespace(model=args.model, count=1, options=args.options))
    fetched, online = seen["fetched"], seen["helped"]
    cpu = fetched["program_cpu_s"] + online["program_cpu_s"]
    up, down = online["up_bytes"] + fetched["helper_up"], online["down_bytes"] + fetched["helper_down"]
    return {
        "setting": f"{backend}, a helper", "chosen": backend, "client_cpu_s": cpu, "server_cpu_s": None, "up_bytes": up, "down_bytes": down,
        "client_j": args.core_w * cpu + args.byte_j * (up + down), "planned_cpu_s": None, "planned_j": None,
    }  # fmt: skip


def front(rows: list[dict]) -> list[dict]:
    """Those of which none is better in both joules and bytes, by joules."""

    def place(row: dict) -> tuple[float, float]:
        return row["client_j"], row["up_bytes"] + row["down_bytes"]

    best: list[dict] = []
    for row in sorted(rows, key=place):
        if not best or place(row)[1] < place(best[-1])[1]:
            best.append(row)
    return best


def trust(row: dict) -> str:
    """Who has to be trusted beside the two parties."""
    if "helper" in row["setting"]:
        return "a helper of the client's"
    return "a dealer" if "dealt" in row["setting"] or "fss" in row["setting"] else "two parties"


def draw(rows: list[dict], path: Path) -> None:
    """Joules of the client against bytes of its links, and the front for each kind of trust."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    names = {"as the server offers": "cheetah", "--backend sci-he": "sci-he"}
    # What `--client-work` chose is one of the others.
    rows = [
        row | {"setting": names.get(row["setting"], row["setting"])} for row in rows if "--client-work" not in row["setting"]
    ]
    plt.rcParams["svg.hashsalt"] = "tacit"
    figure, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, kind in enumerate(("two parties", "a helper of the client's", "a dealer")):
        own = [row for row in rows if trust(row) == kind]
        places = {row["setting"]: (row["client_j"], (row["up_bytes"] + row["down_bytes"]) / 1e6) for row in own}
        best = [places[row["setting"]] for row in front(own)]
        axes.step(*zip(*best), where="post", color=f"C{number}", alpha=0.5)
        axes.plot(*zip(*places.values()), "o", color=f"C{number}", fillstyle="none", label=kind)
        axes.plot(*zip(*best), "o", color=f"C{number}")
        for at, (name, place) in enumerate(sorted(places.items(), key=lambda entry: entry[1][1])):
            axes.annotate(
                name,
                place,
                xytext=(8, -3) if at % 2 else (-8, -3),
                textcoords="offset points",
                fontsize=8,
                ha="left" if at % 2 else "right",
            )
    axes.set(
        xscale="log", yscale="log", xlabel="client, joules above idle (modelled)", ylabel="bytes of the client's links, MB"
    )
    axes.set_title("Work left to the client; filled: on the Pareto front of its kind of trust")
    axes.margins(x=0.25, y=0.1)
    axes.legend(loc="upper left")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="the owner's model: .tacit")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for keys and results")
    parser.add_argument(
        "--draw", type=Path, metavar="SVG", help="measure nothing: draw what a run before has in this folder"
    )
    parser.add_argument(
        "--core-w", type=float, default=5.0, help="joules of a processor second (docs/lab.md: generic-x86-server)"
    )
    parser.add_argument("--byte-j", type=float, default=1e-8, help="joules of a byte")
    parser.add_argument("options", nargs="*", help="options of the server, such as -O frac_bits=12")
    args = parser.parse_args()
    folder = args.output.resolve()
    if args.draw:
        return draw(json.loads((folder / "client-work.json").read_text()), args.draw)
    if not args.model:
        parser.error("which model?")
    folder.mkdir(parents=True)
    keys = str(folder / "keys")
    tacit("keys", "init", keys, "--client", "alice")
    tacit("keys", "add-helper", keys, "gateway", "--of", "alice", "--host", "127.0.0.1")
    pin = json.loads(tacit("keys", "add-dealer", keys, "--json"))["dealer"]
    interface = json.loads(tacit("model", "inspect", args.model, "--json"))["interface"]
    values = folder / "input.npy"
    low, high = interface["input"]["range"]
    np.save(values, np.random.default_rng(1).uniform(low, high, interface["input_shape"]).astype(np.float32))
    rows = []

    def note(row: dict) -> None:
        rows.append(row)
        print(json.dumps(row), flush=True)
        (folder / "client-work.json").write_text(json.dumps(rows, indent=1))

    dealt = dealt_bytes(args.model)
    joules = {"core_w": args.core_w, "byte_j": args.byte_j}
    with ExitStack() as programs:
        dealing = start(programs, "dealer", "--keys", keys, "--numbers", str(folder / "dealer.sqlite"))
        named = ["--dealer", dealing, "--dealer-pin", pin]

        def ask(serving: str, kept: str) -> list[str]:
            who = ["--keys", keys, "--client", "alice", "--server", serving, "--material", str(folder / kept)]
            return ["infer", str(values), "--normalised", *who, "--json"]

        with ExitStack() as one:
            offered = [word for name in BACKENDS for word in ("--backend", name)]
            material = ["--material", str(folder / "server-material"), "--no-warm-up"]
            serving = start(one, "serve", args.model, "--keys", keys, *material, *offered, *named, *args.options)
            for setting in SETTINGS:
                for dealer in ([], named) if "--client-work" in setting else ([],):
                    answer = json.loads(tacit(*ask(serving, "client-material"), *dealer, *setting).splitlines()[0])
                    name = " ".join(setting) + (", a dealer named" if dealer else "")
                    backend = (answer.get("chosen") or {}).get("backend", "")
                    note(row(name or "as the server offers", answer, joules, dealt.get(backend, 0)))
        for number, (backend, option) in enumerate(ALONE):
            with ExitStack() as one:
                dealer = named if backend in ("dealt", "fss") else []
                material = [
                    "--material",
                    str(folder / f"server-{number}"),
                    "--no-warm-up",
                    *(["-O", option] if option else []),
                ]
                serving = start(
                    one, "serve", args.model, "--keys", keys, *material, "--backend", backend, *dealer, *args.options
                )
                answer = json.loads(tacit(*ask(serving, f"client-{number}"), "--backend", backend, *dealer).splitlines()[0])
                note(row(" ".join((backend, option)).strip(), answer, joules, dealt[backend]))
    for backend in ("cheetah", "sci-he"):
        note(helped(backend, folder, args))


if __name__ == "__main__":
    main()
