"""What a device has left to do when a helper does its offline phase: processor seconds and bytes of its programs.

    TACIT_BIN=target/release/tacit python docs/scripts/helper_work.py net.tacit -o helper-work       # loopback, some minutes for SqueezeNet

For each back end a server, a helper and a device on this machine, one thread each. The device answers one input alone (`tacit infer` without
stock: setup, offline and online phase), then has `--count` materials made (`tacit prepare --helper`), fetches them, and answers one input with
one of them. Processor seconds are those of the whole program, start and reading included, by the system's account of it; bytes are those of the
protocol, before TLS. Options of the back ends follow after `--`.
"""

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

PROGRAM = os.environ.get("TACIT_BIN", "target/release/tacit")


def tacit(*arguments: str) -> tuple[list[dict], float]:
    """The lines of JSON that a program prints, and its processor seconds."""
    process = subprocess.Popen([PROGRAM, *arguments, "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"tacit {' '.join(arguments)}: exit status {process.returncode}")
    return [json.loads(line) for line in text.splitlines()], usage.ru_utime + usage.ru_stime


def start(programs: ExitStack, *arguments: str) -> str:
    """A program of ours that listens; its address."""
    process = subprocess.Popen([PROGRAM, *arguments, "--listen", "127.0.0.1:0", "--json"], stdout=subprocess.PIPE, text=True)
    programs.enter_context(process)
    programs.callback(process.kill)
    assert process.stdout is not None
    return json.loads(process.stdout.readline())["listening"]


def online(answer: dict) -> dict:
    """Seconds and bytes of the phases that an answer took at the device."""
    phases = answer["phases"]

    def figure(key: str, party: str) -> float:
        return sum(phase[party][key] for phase in phases.values())

    return {
        "phases": sorted(phases), "phase_cpu_s": figure("cpu_s", "client"), "up_bytes": figure("sent_bytes", "client"),
        "down_bytes": figure("sent_bytes", "server"),
    }  # fmt: skip


def measure(folder: Path, backend: str, args: argparse.Namespace) -> dict:
    keys, own = str(folder / "keys"), folder / backend
    own.mkdir()
    with ExitStack() as programs:
        options = ["--no-warm-up", "--material", str(own / "server"), "--backend", backend, *args.options]
        serving = start(programs, "serve", args.model, "--keys", keys, *options)
        helping = start(programs, "helper", "--server", serving, "--keys", keys, "--client", "gateway", "--folder", str(own / "helper"))
        who = ["--server", serving, "--keys", keys, "--client", "alice", "--material", str(own / "device")]
        infer = ["infer", str(folder / "input.npy"), "--normalised", *who]
        alone, alone_s = tacit(*infer)
        made, made_s = tacit("prepare", "--helper", helping, "--count", str(args.count), *who)
        helped, helped_s = tacit(*infer)
        got = [line for line in made if "sealed_bytes" in line]
        assert len(got) == args.count and "offline" not in helped[0]["phases"]
        assert alone[0]["values"] == helped[0]["values"] or backend != "sci-he", "it is exact"
        return {
            "backend": backend, "alone": {"program_cpu_s": alone_s, **online(alone[0])},
            "fetched": {"program_cpu_s": made_s, "materials": args.count, "helper_up": made[-1]["helper_bytes_up"],
                        "helper_down": made[-1]["helper_bytes_down"], "sealed_bytes": got[0]["sealed_bytes"]},
            "helped": {"program_cpu_s": helped_s, **online(helped[0])},
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the owner's model: .tacit")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for keys and results")
    parser.add_argument("--backends", nargs="+", default=["cheetah", "sci-he"])
    parser.add_argument("--count", type=int, default=4, help="materials that are ordered at once")
    parser.add_argument("options", nargs="*", help="options of the server, such as -O frac_bits=12")
    args = parser.parse_args()
    folder = args.output.resolve()
    folder.mkdir(parents=True)
    keys = str(folder / "keys")
    for made in (["init", keys, "--client", "alice"], ["add-helper", keys, "gateway", "--of", "alice", "--host", "127.0.0.1"]):
        subprocess.run([PROGRAM, "keys", *made], check=True, stdout=subprocess.DEVNULL)
    inspected = subprocess.run([PROGRAM, "model", "inspect", args.model, "--json"], capture_output=True, text=True, check=True)
    interface = json.loads(inspected.stdout)["interface"]
    low, high = interface["input"]["range"]
    values = np.random.default_rng(1).uniform(low, high, interface["input_shape"]).astype(np.float32)
    np.save(folder / "input.npy", values)
    rows = [measure(folder, backend, args) for backend in args.backends]
    (folder / "helper_work.json").write_text(json.dumps(rows, indent=1))
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
