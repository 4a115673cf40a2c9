"""How far `tacit plan` is off: private inference measured on emulated links, beside what was planned for the same cells.

    sudo TACIT_BIN=target/release/tacit python docs/scripts/plan_check.py -o check            # about 20 minutes, resumable
    python docs/scripts/plan_check.py -o check --only-compare                                 # again, with other plans

Networks of the zoo that no calibration has seen, on back ends that need no dealer, over links of the lab (root), by `tacit lab run`;
`--calibration` is what `tacit calibrate` wrote on this machine. Both parties run here, each with one thread. Of each cell the median
of its repetitions counts, and their spread is told, since no plan can be better than that. Links without a delay still have what the
emulator adds, so a plan gets the round trip and rate that were measured before the runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

MODELS = ["tiny-mlp", "minionn-mlp", "minionn-mnist", "hinet-mnist", "shark-hinet"]
LINKS = {
    "lan": ("941mbit", "0.6ms"),
    "fast": ("95.6mbit", "0.6ms"),
    "mid": ("19.2mbit", "0.6ms"),
    "slow": ("3.89mbit", "0.6ms"),
    "wan": ("100mbit", "40ms"),
    "lte": ("12mbit", "70ms"),
}
BACKENDS = {"cheetah": "", "clear": "--allow-clear"}
# What is compared: name, key of a run's results, and of the prediction.
PHASES = ("offline", "online")


def tacit(*arguments: str) -> str:
    program = os.environ.get("TACIT_BIN", "target/release/tacit")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tacit {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def experiment(folder: Path, models: list[str], links: list[str], repetitions: int) -> Path:
    """The campaign as a file, and the models that it needs."""
    import numpy as np

    text = [f'name = "plan-check"\nrepetitions = {repetitions}\ncool_down_s = 0.2\nidle_s = 0.0\nmeasure_s = 0.5\n']
    rows = [f'{{ name = "{name}", rate = "{LINKS[name][0]}", rtt = "{LINKS[name][1]}" }}' for name in links]
    text.append(f"links = [{', '.join(rows)}]\n")
    for model in models:
        onnx, path, values = folder / f"{model}.onnx", folder / f"{model}.tacit", folder / f"{model}.npy"
        if not path.exists():
            tacit("zoo", model, "-o", str(onnx))
            tacit("model", "import", str(onnx), "-o", str(path))
            shape = json.loads(tacit("model", "inspect", str(path), "--json"))["interface"]["input_shape"]
            np.save(values, np.random.default_rng(1).normal(0, 0.3, shape).astype(np.float32))
        for backend, more in BACKENDS.items():
            text.append(
                f'[[workloads]]\nname = "{model}+{backend}"\nready = "listening on"\n'
                f'client = "tacit infer {values} --normalised --server {{server}}:{{port}} --server-name localhost --keys {{keys}}'
                f' --backend {backend} --json"\n'
                f'server = "tacit serve {path} --keys {{keys}} --listen {{server}}:{{port}} --backend {backend} {more} --no-warm-up"\n'
            )
    file = folder / "plan-check.toml"
    file.write_text("".join(text))
    return file


def planned(folder: Path, model: str, link: str, calibration: list[str]) -> dict:
    """Predictions by back end for both parties on this machine."""
    plan = json.loads(
        tacit("plan", str(folder / f"{model}.tacit"), "--device", "this", "--server", "this", "--link", link, *calibration, "--json")
    )
    return {entry["backend"]: entry["choice"]["predicted"] for entry in plan["ranked"]}


def number(run: dict, *keys: str) -> float:
    """A result by its dotted name."""
    return float(run["results"].get(".".join(keys), 0.0))


def compare(folder: Path, calibration: list[str]) -> list[dict]:
    """A row for each cell and phase."""
    cells = defaultdict(list)
    for line in (folder / "campaign" / "runs.jsonl").read_text().splitlines():
        run = json.loads(line)
        if not run.get("failure"):
            cells[tuple(sorted(run["cell"].items()))].append(run)
    rows, plans = [], {}
    for cell, runs in cells.items():
        labels = dict(cell)
        model, backend = labels["workload"].split("+")
        rate, rtt = LINKS[labels["link"]]
        if (model, labels["link"]) not in plans:
            plans[model, labels["link"]] = planned(folder, model, f"{rate}/{rtt}", calibration)
        predicted = plans[model, labels["link"]].get(backend)
        for phase in PHASES:
            walls = [number(run, "phases", phase, "wall_s") for run in runs]
            if not predicted or min(walls) <= 0:
                continue
            sent = [sum(number(run, "phases", phase, party, "sent_bytes") for party in ("client", "server")) for run in runs]
            middle = statistics.median(walls)
            own = predicted[phase]
            rows.append({
                "model": model, "backend": backend, "link": labels["link"], "phase": phase, "wall_s": middle,
                "planned_s": own["wall_s"], "off": own["wall_s"] / middle - 1, "spread": (max(walls) - min(walls)) / middle,
                "bytes": statistics.median(sent), "planned_bytes": own["up_bytes"] + own["down_bytes"],
                "compute_s": own["compute_s"], "link_s": own["transfer_s"] + own["round_trips_s"],
            })  # fmt: skip
    return rows


def summary(rows: list[dict]) -> dict:
    """Errors over all rows, by phase."""

    def of(some: list[dict]) -> dict:
        off = sorted(abs(row["off"]) for row in some)
        spread = sorted(row["spread"] for row in some)
        bytes_off = sorted(abs(row["planned_bytes"] / row["bytes"] - 1) for row in some if row["bytes"])
        return {
            "cells": len(some),
            "median": statistics.median(off),
            "p90": off[min(len(off) - 1, int(0.9 * len(off)))],
            "worst": off[-1],
            "spread_median": statistics.median(spread),
            "bytes_median": statistics.median(bytes_off),
            "bytes_worst": bytes_off[-1],
        }

    return {phase: of([row for row in rows if row["phase"] == phase]) for phase in sorted({row["phase"] for row in rows})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the campaign")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--links", nargs="+", default=list(LINKS), choices=list(LINKS))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--calibration", help="what `tacit calibrate` wrote here; else the one that is built in")
    parser.add_argument("--only-compare", action="store_true")
    args = parser.parse_args()
    folder = args.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not args.only_compare:
        file = experiment(folder, args.models, args.links, args.repetitions)
        tacit("lab", "run", str(file), "-o", str(folder / "campaign"))
    given = args.calibration
    rows = compare(folder, ["--device-calibration", given, "--server-calibration", given] if given else [])
    if not rows:
        sys.exit("no cell has both a run and a plan")
    for row in sorted(rows, key=lambda row: abs(row["off"])):
        print(
            f"{row['model']:14} {row['backend']:8} {row['link']:5} {row['phase']:8} measured {row['wall_s']:8.4f} s (+-{50 * row['spread']:.0f} %)"
            f"  planned {row['planned_s']:8.4f} s ({100 * row['off']:+.0f} %)  bytes {100 * (row['planned_bytes'] / row['bytes'] - 1):+.2f} %"
        )
    result = {"rows": rows, "summary": summary(rows)}
    (folder / "plan-check.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
