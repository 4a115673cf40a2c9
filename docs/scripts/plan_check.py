"""How far `tacit plan` is off: private inference measured on emulated links, beside what was planned for the same cells.

    tacit calibrate -o near.toml --json > near.json                                     # first, on the same machine
    .. plan_check.py -o over --for-calibration --prepare; .. --run; .. --as-runs over.json     # as below: what happens while bytes travel
    tacit calibrate -o here.toml --no-measure --with near.json --with over.json
    sudo TACIT_BIN=target/release/tacit python docs/scripts/plan_check.py -o check --prepare
    sudo TACIT_BIN=target/release/tacit python docs/scripts/plan_check.py -o check --run --budget 480    # again, until all cells are there
    TACIT_BIN=target/release/tacit python docs/scripts/plan_check.py -o check --calibration here.toml    # compares; again, with other plans

Networks that no calibration has seen, on every back end, over links of the lab (`tacit lab link`, root), with one and two threads. Both
parties and the dealer run here, each link in namespaces of its own. Of each cell the median of its repetitions counts, and their spread
is told, since no plan can be better than that. Links have what the emulator adds, so a plan gets the rates and the round trip that were
measured before the runs. A cell that was measured is not measured again; a run that fails is told and tried again by the next call.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKS = {
    "slow": ("3.89mbit", "0.6ms"),
    "mid": ("20mbit", "40ms"),
    "fast": ("100mbit", "0.6ms"),
    "wan": ("100mbit", "40ms"),
    "lan": ("941mbit", "0.6ms"),
}
ALL = "slow mid fast wan lan"
# Model, back end, threads of each party, links.
CELLS = [
    ("digits", "cheetah", 1, ALL),
    ("digits", "cheetah", 2, "wan lan"),
    ("digits", "dealt", 1, "slow mid lan"),
    ("digits", "sci-he", 1, "mid lan"),
    ("digits", "fss", 1, "mid lan"),
    ("digits", "clear", 1, "slow mid lan"),
    ("minionn-mnist", "cheetah", 1, ALL),
    ("minionn-mnist", "cheetah", 2, "lan"),
    ("minionn-mnist", "dealt", 1, "slow mid lan"),
    ("minionn-mnist", "sci-he", 1, "lan"),
    ("minionn-mnist", "fss", 1, "mid lan"),
    ("minionn-mnist", "clear", 1, "mid"),
    ("m1", "cheetah", 1, "fast wan lan"),
    ("m1", "cheetah", 2, "lan"),
    ("m1", "dealt", 1, "mid lan"),
    ("m1", "sci-he", 1, "lan"),
    ("m1", "fss", 1, "lan"),
    ("m1", "clear", 1, "slow lan"),
    ("hinet", "cheetah", 1, "fast wan lan"),
    ("hinet", "cheetah", 2, "lan"),
    ("hinet", "dealt", 1, "mid lan"),
    ("hinet", "sci-he", 1, "lan"),
    ("hinet", "fss", 1, "fast"),
    ("hinet", "clear", 1, "mid"),
    ("shark-hinet", "cheetah", 1, "wan lan"),
    ("shark-hinet", "cheetah", 2, "lan"),
    ("shark-hinet", "dealt", 1, "wan"),
    ("resnet20", "cheetah", 1, "fast wan lan"),
    ("resnet20", "cheetah", 2, "lan"),
    ("resnet20", "dealt", 1, "mid wan lan"),
    ("resnet20", "sci-he", 1, "lan"),
    ("resnet20", "clear", 1, "lan"),
    ("digits_square", "ckks", 1, "fast lan"),
    ("cryptonets", "ckks", 1, "lan"),
]
# For memory, and for what happens while bytes travel: networks that a calibration has seen.
CALIBRATING = [
    *((model, backend, 1, "lan") for model in ("tiny-cnn", "minionn-mlp", "lenet") for backend in ("cheetah", "dealt", "fss", "sci-he", "clear")),
    *(("hinet-mnist", backend, 1, "lan") for backend in ("cheetah", "dealt", "fss", "clear")),
    ("m2", "cheetah", 1, "fast"),
    ("m2", "dealt", 1, "fast"),
    ("m2", "fss", 1, "fast"),
    ("m2", "sci-he", 1, "fast"),
    ("resnet32", "cheetah", 1, "fast mid"),
    ("resnet32", "dealt", 1, "fast mid"),
    ("resnet32", "fss", 1, "fast"),
    ("resnet32", "sci-he", 1, "fast"),
    ("minionn-cifar", "cheetah", 1, "fast wan"),
    ("minionn-cifar", "dealt", 1, "fast"),
    ("minionn-cifar", "fss", 1, "fast"),
    ("minionn-cifar", "sci-he", 1, "fast"),
    *((model, "ckks", 1, "lan") for model in ("tiny-square", "square-cnn")),
    ("square-mlp", "ckks", 1, "lan fast"),
]
FILES = {"digits": "digits", "digits_square": "digits_square"}
PHASES = ("setup", "offline", "online")
PARTIES = ("client", "server")
SERVER = "198.18.0.2"
"""The lab's address of the server side: a dealer's certificate has it."""
FIRST_PORT = 7900
DEALER_PORT = 7890


def program() -> str:
    return str(Path(os.environ.get("TACIT_BIN", ROOT / "target/release/tacit")).resolve())


def tacit(*arguments: str) -> str:
    done = subprocess.run([program(), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tacit {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def each(kinds: list[tuple[str, str, int, str]]) -> list[tuple[str, str, int, str]]:
    return [(model, backend, threads, link) for model, backend, threads, links in kinds for link in links.split()]


def prepare(folder: Path, kinds: list[tuple[str, str, int, str]]) -> None:
    """Models, lowered for their back ends, inputs, keys, and the links as they are."""
    import numpy as np

    for model in dict.fromkeys(model for model, *_ in kinds):
        path = folder / f"{model}.tacit"
        if path.exists():
            continue
        if model in FILES:
            onnx, more = ROOT / f"models/{FILES[model]}.onnx", ["--calibrate", str(ROOT / "models/digits_samples.npy")]
        else:
            onnx, more = folder / f"{model}.onnx", []
            tacit("zoo", model, "-o", str(onnx))
        backends = list(dict.fromkeys(backend for other, backend, *_ in kinds if other == model))
        tacit("model", "import", str(onnx), *more, "-o", str(path), "--backend", backends[0])
        for backend in backends[1:]:
            tacit("model", "lower", str(path), "--backend", backend)
        shape = json.loads(tacit("model", "inspect", str(path), "--json"))["interface"]["input_shape"]
        np.save(folder / f"{model}.npy", np.random.default_rng(1).uniform(0, 0.9, shape).astype(np.float32))
        print(f"{model}: lowered for {', '.join(backends)}", flush=True)
    if not (folder / "keys").exists():
        tacit("keys", "init", str(folder / "keys"), "--client", "alice")
        (folder / "pin").write_text(tacit("keys", "add-dealer", str(folder / "keys"), "--host", SERVER).split()[1])


def measure_links(folder: Path) -> None:
    file = folder / "links.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    for name, (rate, rtt) in LINKS.items():
        if name not in known:
            known[name] = json.loads(tacit("lab", "link", "--rate", rate, "--rtt", rtt, "--effort", "3s", "--json"))
            file.write_text(json.dumps(known, indent=1))


def servers(folder: Path, group: list[dict]) -> str:
    """The shell command of the server side: a dealer where one is needed, and a server for each back end and number of threads."""
    keys, tool, pin = folder / "keys", program(), (folder / "pin").read_text()
    lines = []
    if any(cell["backend"] in ("dealt", "fss") for cell in group):
        numbers = folder / "numbers.sqlite"
        lines.append(f"{tool} dealer --keys {keys} --listen $TACIT_LINK_SERVER:{DEALER_PORT} --threads 1 --numbers {numbers} >&2 & sleep 0.4;")
    for cell in group:
        backend, more = cell["backend"], ""
        if backend == "clear":
            more = "--allow-clear"
        elif backend in ("dealt", "fss"):
            more = f"--dealer $TACIT_LINK_SERVER:{DEALER_PORT} --dealer-pin {pin}"
        # As `tacit plan --apply` has it, which is what memory is planned for.
        more += f" --material {folder / 'server-material' / cell['model']}-{cell['port']}"
        lines.append(
            f"{tool} serve {folder / cell['model']}.tacit --keys {keys} --listen $TACIT_LINK_SERVER:{cell['port']} --backend {backend} {more}"
            f" --threads {cell['threads']} --no-warm-up >&2 &"
        )
    return " ".join(lines) + " wait"


def as_client(folder: Path, group_file: Path, repetitions: int) -> None:
    """The client side, inside the link: all cells of a group, one after the other; a line of JSON for each run."""
    address, pin = os.environ["TACIT_LINK_SERVER"], (folder / "pin").read_text()
    for cell in json.loads(group_file.read_text()):
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection((address, cell["port"]), 1).close()
                break
            except OSError:
                if time.monotonic() > until:
                    print(json.dumps(cell | {"failure": "its server does not listen"}), flush=True)
                    break
                time.sleep(0.05)
        dealer = ["--dealer", f"{address}:{DEALER_PORT}", "--dealer-pin", pin] if cell["backend"] in ("dealt", "fss") else []
        command = [
            program(), "infer", str(folder / f"{cell['model']}.npy"), "--normalised", "--server", f"{address}:{cell['port']}",
            "--server-name", "localhost", "--keys", str(folder / "keys"), "--client", "alice", "--backend", cell["backend"],
            "--threads", str(cell["threads"]), *dealer, "--json",
        ]  # fmt: skip
        for _ in range(repetitions):
            # What a dealer's clients keep of a model is fetched by every run.
            with tempfile.TemporaryDirectory() as kept:
                done = subprocess.run([*command, "--material", kept], capture_output=True, text=True)
            if done.returncode != 0:
                print(json.dumps(cell | {"failure": done.stderr.strip()[-400:]}), flush=True)
                continue
            print(json.dumps(cell | {"phases": json.loads(done.stdout.splitlines()[0])["phases"]}), flush=True)


def measured(folder: Path) -> dict[tuple, list[dict]]:
    """Phases of all runs so far, by cell."""
    runs = defaultdict(list)
    file = folder / "runs.jsonl"
    for line in file.read_text().splitlines() if file.exists() else []:
        run = json.loads(line)
        if "phases" in run:
            runs[run["model"], run["backend"], run["threads"], run["link"]].append(run["phases"])
    return runs


def run(folder: Path, kinds: list[tuple[str, str, int, str]], budget_s: float, repetitions: int) -> None:
    """Measures what is not there yet, a link and a model at a time, until the budget is spent."""
    until, known = time.monotonic() + budget_s, measured(folder)
    groups = defaultdict(list)
    for model, backend, threads, link in each(kinds):
        if len(known[model, backend, threads, link]) < repetitions:
            group = groups[link, model]
            group.append({"model": model, "backend": backend, "threads": threads, "link": link, "port": FIRST_PORT + len(group)})
    (folder / "server-material").mkdir(exist_ok=True)
    for (link, model), group in groups.items():
        if time.monotonic() > until:
            print(f"{len(groups)} groups were to be measured, some are left: call this again")
            return
        (folder / "group.json").write_text(json.dumps(group))
        rate, rtt = LINKS[link]
        began = time.monotonic()
        command = [
            program(), "lab", "link", "--rate", rate, "--rtt", rtt, "--no-measure", "--server", servers(folder, group),
            "--server-port", str(group[-1]["port"]), "--", sys.executable, str(Path(__file__).resolve()), "-o", str(folder),
            "--as-client", str(folder / "group.json"), "--repetitions", str(repetitions),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        with (folder / "runs.jsonl").open("a") as file:
            file.write(done.stdout)
        failed = [json.loads(line) for line in done.stdout.splitlines() if "failure" in line]
        print(f"{model} over {link}: {len(group)} cells in {time.monotonic() - began:.0f} s, {len(failed)} runs failed", flush=True)
        if done.returncode != 0 or failed:
            print(done.stderr[-800:], *(f"  {cell['backend']}: {cell['failure']}" for cell in failed), sep="\n")
    print("all cells are measured")


def bucket(link: dict) -> int:
    """Bytes that an emulated link carries at once: 2 ms, and two packets at least (lab/experiments/src/link/setup.rs)."""
    return max(3000, round(min(link["up_bps"], link["down_bps"]) / 8 / 500))


def planned(folder: Path, calibration: list[str]) -> dict[tuple, dict]:
    """Predictions of the measured cells, both parties on this machine, over the links as they were measured."""
    figures, plans = json.loads((folder / "links.json").read_text()), {}

    def written(link: dict) -> str:
        return f"{round(link['up_bps'] / 1e3)}kbit:{round(link['down_bps'] / 1e3)}kbit/{1e6 * link['rtt_s']:.0f}us/{bucket(link)}"

    names = list(figures)
    links = [written(figures[name]) for name in names]
    for model in sorted({model for model, *_ in measured(folder)}):
        said = tacit(
            "plan", str(folder / f"{model}.tacit"), "--device", "this", "--server", "this", "--link", links[0], "--cells", ",".join(links),
            *calibration, "--json",
        )  # fmt: skip
        for entry in json.loads(said)["cells"]:
            if not entry["options"]:
                plans[model, entry["backend"], entry["threads"], names[entry["link"]]] = entry
    return plans


def compare(folder: Path, calibration: list[str]) -> list[dict]:
    """A row for each cell and phase."""
    plans, rows = planned(folder, calibration), []
    for cell, runs in measured(folder).items():
        plan = plans.get(cell)
        for phase in PHASES:
            seen = [run[phase] for run in runs if phase in run]
            if not plan or not plan["predicted"] or not seen:
                continue
            # Of later setups something may be there already: a dealer's public part, keys that a server keeps.
            if phase == "setup":
                all_of_it = max(sum(one[party]["sent_bytes"] for party in PARTIES) for one in seen)
                seen = [one for one in seen if sum(one[party]["sent_bytes"] for party in PARTIES) == all_of_it]
            own, walls = plan["predicted"][phase], [one["wall_s"] for one in seen]
            middle = statistics.median(walls)
            # The smallest: material that was audited by chance is ordered anew. Memory of the first: later ones find what earlier ones left.
            sent = min(sum(one[party]["sent_bytes"] for party in PARTIES) for one in seen)
            rows.append({
                "model": cell[0], "backend": cell[1], "threads": cell[2], "link": cell[3], "phase": phase, "wall_s": middle,
                "planned_s": own["wall_s"], "off": own["wall_s"] / middle - 1, "spread": (max(walls) - min(walls)) / middle,
                "bytes": sent, "planned_bytes": plan["bytes"][phase],
                "cpu_s": [statistics.median(one[party]["cpu_s"] for one in seen) for party in PARTIES],
                "planned_cpu_s": [own["client_cpu_s"], own["server_cpu_s"]],
                "memory": [min(one[party]["peak_rss_bytes"] for one in seen) for party in PARTIES],
                "planned_memory": [own["client_bytes"], own["server_bytes"]],
                "compute_s": own["compute_s"], "transfer_s": own["transfer_s"], "round_trips_s": own["round_trips_s"],
            })  # fmt: skip
    return rows


def as_runs(folder: Path) -> dict:
    """Measured cells as runs for `tacit calibrate --with`."""
    links, plans, runs = json.loads((folder / "links.json").read_text()), planned(folder, []), defaultdict(list)
    for (model, backend, threads, link), seen in measured(folder).items():
        over = {"bits": (links[link]["up_bps"] + links[link]["down_bps"]) / 2, "rtt_s": links[link]["rtt_s"], "bucket": bucket(links[link])}
        for phases in seen:
            of_phase = {
                phase: {"wall_s": one["wall_s"], "cpu_s": [one[p]["cpu_s"] for p in PARTIES], "peak_bytes": [one[p]["peak_rss_bytes"] for p in PARTIES]}
                for phase, one in phases.items()
            }
            costs = plans[model, backend, threads, link]["costs"]
            runs[backend].append({"network": model, "threads": threads, "link": over, "costs": costs, "phases": of_phase})
    return {"runs": runs, "local_mac_s": []}


def share(values: list[float], part: float) -> float:
    """The value that this part of all is not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def summary(rows: list[dict]) -> dict:
    """Errors over rows."""
    off = [abs(row["off"]) for row in rows]
    memory = [abs(planned / seen - 1) for row in rows for seen, planned in zip(row["memory"], row["planned_memory"])]
    return {
        "cells": len({(row["model"], row["backend"], row["threads"], row["link"]) for row in rows}),
        "times": len(rows),
        "median": round(statistics.median(off), 4),
        "p90": round(share(off, 0.9), 4),
        "worst": round(max(off), 4),
        "spread": round(statistics.median(row["spread"] for row in rows), 4),
        "bytes_exact": sum(row["bytes"] == row["planned_bytes"] for row in rows),
        "memory_median": round(statistics.median(memory), 4),
        "memory_p90": round(share(memory, 0.9), 4),
    }


def table(rows: list[dict]) -> str:
    """Markdown: all, by phase, by back end, by link."""
    kinds = [("all", rows)]
    kinds += [(f"{name}: {value}", [row for row in rows if row[name] == value])
              for name in ("phase", "backend", "link", "threads") for value in dict.fromkeys(row[name] for row in rows)]  # fmt: skip
    out = ["| | times | error: median | nine of ten within | worst | spread of runs | bytes exact | memory: median, nine of ten |",
           "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for name, some in kinds:
        s = summary(some)
        percent = {key: f"{100 * s[key]:.0f} %" for key in ("median", "p90", "worst", "spread", "memory_median", "memory_p90")}
        out.append(
            f"| {name} | {s['times']} | {percent['median']} | {percent['p90']} | {percent['worst']} | {percent['spread']} |"
            f" {s['bytes_exact']} of {s['times']} | {percent['memory_median']}, {percent['memory_p90']} |"
        )
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the campaign")
    parser.add_argument("--prepare", action="store_true", help="make models and keys, and measure the links")
    parser.add_argument("--run", action="store_true", help="measure cells that are not measured yet")
    parser.add_argument("--budget", type=float, default=3600, help="begin no further group after so many seconds")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--for-calibration", action="store_true", help="the few cells that a calibration needs, not those that it is checked on")
    parser.add_argument("--as-runs", type=Path, help="write what was measured to this file, for `tacit calibrate --with`")
    parser.add_argument("--calibration", help="what `tacit calibrate` wrote here; else the one that is built in")
    parser.add_argument("--as-client", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    folder = args.output.resolve()
    if args.as_client:
        return as_client(folder, args.as_client, args.repetitions)
    folder.mkdir(parents=True, exist_ok=True)
    kinds = CALIBRATING if args.for_calibration else CELLS
    if args.prepare:
        return prepare(folder, kinds)
    if args.run:
        measure_links(folder)
        return run(folder, kinds, args.budget, args.repetitions)
    if args.as_runs:
        args.as_runs.write_text(json.dumps(as_runs(folder)))
        return None
    given = args.calibration
    rows = compare(folder, ["--device-calibration", given, "--server-calibration", given] if given else [])
    if not rows:
        sys.exit("no cell has both a run and a plan")
    for row in sorted(rows, key=lambda row: abs(row["off"])):
        print(
            f"{row['model']:14} {row['backend']:8} {row['threads']} {row['link']:5} {row['phase']:8} measured {row['wall_s']:8.4f} s (+-{50 * row['spread']:.0f} %)"
            f"  planned {row['planned_s']:8.4f} s ({100 * row['off']:+.0f} %)  bytes {row['planned_bytes'] - row['bytes']:+d}"
        )
    print(table(rows))
    (folder / "plan-check.json").write_text(json.dumps({"rows": rows, "summary": summary(rows)}, indent=1))


if __name__ == "__main__":
    main()
