"""What each setting of `--client-work` costs the client: chosen by `tacit infer`, then counted as it ran.

    TACIT_BIN=target/release/tacit python docs/scripts/client_work.py net.tacit -o client-work       # loopback, about 2 minutes for SqueezeNet

One server offers the model with `cheetah`, `sci-he` and `dealt` (a dealer of its own beside it); the client is asked once for each
setting, without and with the dealer named, and once for `sci-he` by name. Processor seconds and bytes are counted in the run (setup, offline and online phase of a new
client), joules are modelled: coefficients of the device profile for processor seconds and bytes, as in `chosen`, which is the planner's.
Options of the back ends follow after `--`.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

BACKENDS = ("cheetah", "sci-he", "dealt")
SETTINGS = ((), ("--backend", "sci-he"), ("--client-work", "balanced"), ("--client-work", "min"), ("--client-work", "any"))
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


def row(name: str, answer: dict, seconds: dict[str, float]) -> dict:
    """What a run took."""
    phases = answer["phases"].values()
    both = [sum(phase[party][key] for phase in phases) for key in ("cpu_s", "sent_bytes") for party in ("client", "server")]
    joules = seconds["core_w"] * both[0] + seconds["byte_j"] * (both[2] + both[3])
    chosen = answer.get("chosen") or {}
    return {
        "setting": name, "chosen": chosen.get("backend", "-"), "client_cpu_s": both[0], "server_cpu_s": both[1],
        "up_bytes": both[2], "down_bytes": both[3], "client_j": joules, "planned_cpu_s": chosen.get("client_cpu_s"),
        "planned_j": chosen.get("client_j"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the owner's model: .tacit")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for keys and results")
    parser.add_argument("--core-w", type=float, default=5.0, help="joules of a processor second (docs/lab.md: generic-x86-server)")
    parser.add_argument("--byte-j", type=float, default=1e-8, help="joules of a byte")
    parser.add_argument("options", nargs="*", help="options of the server, such as -O frac_bits=12")
    args = parser.parse_args()
    folder = args.output.resolve()
    folder.mkdir(parents=True)
    keys = str(folder / "keys")
    tacit("keys", "init", keys, "--client", "alice")
    pin = json.loads(tacit("keys", "add-dealer", keys, "--json"))["dealer"]
    interface = json.loads(tacit("model", "inspect", args.model, "--json"))["interface"]
    values = folder / "input.npy"
    low, high = interface["input"]["range"]
    np.save(values, np.random.default_rng(1).uniform(low, high, interface["input_shape"]).astype(np.float32))
    rows = []
    with ExitStack() as programs:
        dealing = start(programs, "dealer", "--keys", keys, "--numbers", str(folder / "dealer.sqlite"))
        named = ["--dealer", dealing, "--dealer-pin", pin]
        offered = [word for name in BACKENDS for word in ("--backend", name)]
        material = ["--material", str(folder / "server-material"), "--no-warm-up"]
        serving = start(programs, "serve", args.model, "--keys", keys, *material, *offered, *named, *args.options)
        ask = ["infer", str(values), "--normalised", "--keys", keys, "--client", "alice", "--server", serving, "--json"]
        ask += ["--material", str(folder / "client-material")]
        for setting in SETTINGS:
            for dealer in ([], named) if "--client-work" in setting else ([],):
                answer = json.loads(tacit(*ask, *dealer, *setting).splitlines()[0])
                name = " ".join(setting) + (", a dealer named" if dealer else "")
                rows.append(row(name or "as the server offers", answer, {"core_w": args.core_w, "byte_j": args.byte_j}))
                print(json.dumps(rows[-1]), flush=True)
    (folder / "client-work.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
