"""What a server of encrypted networks takes, beside what its model states.

    python scripts/server_memory.py NETWORK.onnx --calibrate SAMPLES.npy -O rotations=powers
    python scripts/server_memory.py NETWORK.tacit --input DIGIT.npy --inputs 3

Lowers the network for `ckks`, starts `tacit serve --material`, lets it warm up, asks from a client of its own, and reads the peak of
the server's process (`VmHWM`, children included) behind each answer. Fails if the statement is less than the peak, or more than 1.6
times as much. Needs Linux, and the program that TACIT_BIN names (target/release/tacit).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# The statement may exceed what was measured by this factor.
MOST = 1.6
WARM_UP_S = 3600
ANSWER_S = 3600


def run(binary, *arguments, cwd):
    done = subprocess.run([binary, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=ANSWER_S)
    if done.returncode:
        raise RuntimeError(f"tacit {arguments[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def peak(process):
    """Most bytes that a process has had since this was asked last, its children included."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    status = Path(f"/proc/{process}/status").read_text()
    # The peak begins anew.
    Path(f"/proc/{process}/clear_refs").write_text("5")
    own = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) << 10
    return own + sum(peak(int(child)) for child in children)


@contextlib.contextmanager
def warm_server(binary, folder, model, threads):
    """A server that has warmed up: its address and its number."""
    command = [binary, "serve", model, "--backend", "ckks", "--material", "server-material", "--threads", str(threads)]
    command += ["--listen", "127.0.0.1:0"]
    log = folder / "server.log"
    told = {**os.environ, "TACIT_LOG": "warn,tacit_serve=info"}
    with log.open("w") as errors, subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, env=told) as process:
        try:
            address = process.stdout.readline().split()[2]
            end = time.monotonic() + WARM_UP_S
            while "warmed up in" not in log.read_text():
                if "not warmed up" in log.read_text() or process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"the server did not warm up: {log.read_text()}")
                time.sleep(0.1)
            yield address, process.pid
        finally:
            process.terminate()
            process.communicate(timeout=60)


def drawn(interface):
    """One normalised input, uniform in the range that the model declares for each channel, or for all of them."""
    shape, taken = interface["input_shape"], interface["input"]
    ranges = np.array(taken.get("declared") or [taken["range"]])
    low, high = (end.reshape(-1, *[1] * (len(shape) - 1)) for end in ranges.T)
    # Rounding to single precision may cross an end of the range.
    inside = np.random.default_rng(1).uniform(0.001, 0.999, shape)
    return (low + inside * (high - low)).astype(np.float32)[None]


def measured(binary, folder, model, given=None, inputs=2, threads=1):
    """What a server of `MODEL.tacit`, which lies in the folder with its lowering and keys, states and takes, in bytes."""
    facts = json.loads(run(binary, "model", "inspect", Path(model).with_suffix(".ckks.lowered"), "--json", cwd=folder))
    costs, interface = facts["costs"], facts["interface"]
    server, client = (max(costs[phase][who]["peak_memory_bytes"] for phase in ("setup", "online")) for who in ("server", "client"))
    asked = [given]
    if given is None:
        np.save(folder / "drawn.npy", drawn(interface))
        asked = ["drawn.npy", "--normalised"]
    peaks = []
    with warm_server(binary, folder, model, threads) as (address, process):
        warm_up = peak(process)
        for _ in range(inputs):
            # An answer outside of the outputs' range is refused at the client: it was computed all the same.
            command = [binary, "infer", *asked, "--server", address, "--client", "alice", "--material", "client-material", "--json"]
            done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=ANSWER_S)
            if done.returncode and "the answer was refused" not in done.stderr:
                raise RuntimeError(done.stderr)
            told = [json.loads(line) for line in done.stdout.splitlines()]
            # The server lets its peak begin anew for each phase, and tells it.
            phases = [phase["server"]["peak_rss_bytes"] for line in told for phase in line.get("phases", {}).values()]
            peaks.append(max([*phases, peak(process)]))
    return {"stated": server, "stated_client": client, "warm_up": warm_up, "peaks": peaks}


def faults(found):
    """What does not hold."""
    stated, most = found["stated"], max(found["peaks"])
    if most > stated:
        yield f"a peak of {most / 1e6:.0f} MB, where {stated / 1e6:.0f} are stated"
    if stated > MOST * most:
        yield f"{stated / 1e6:.0f} MB are stated, more than {MOST} times the peak of {most / 1e6:.0f}"
    # Both parties of a made-up input are in one process.
    if found["warm_up"] > stated + found["stated_client"]:
        yield f"a warm-up took {found['warm_up'] / 1e6:.0f} MB, where {(stated + found['stated_client']) / 1e6:.0f} are stated for both parties"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path)
    parser.add_argument("--calibrate", type=Path)
    parser.add_argument("-O", "--option", action="append", default=[])
    parser.add_argument("--input", type=Path)
    parser.add_argument("--inputs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    binary = Path(os.environ.get("TACIT_BIN", "target/release/tacit")).resolve()
    options = [part for option in args.option for part in ("-O", option)]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        run(binary, "keys", "init", "keys", "--client", "alice", cwd=folder)
        model = folder / "model.tacit"
        if args.network.suffix == ".tacit":
            model.write_bytes(args.network.read_bytes())
            run(binary, "model", "lower", "model.tacit", "--backend", "ckks", *options, cwd=folder)
        else:
            samples = ["--calibrate", args.calibrate.resolve()] if args.calibrate else []
            run(binary, "model", "import", args.network.resolve(), *samples, "--backend", "ckks", *options, "-o", "model.tacit", cwd=folder)
        found = measured(binary, folder, "model.tacit", args.input and args.input.resolve(), args.inputs, args.threads)
    print(json.dumps(found))
    wrong = list(faults(found))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
