"""Imports each file of the collection with one program, lowers it for every back end, and compares answers."""

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from collection import Export, identity
from places import RESULTS, ROOT, beside, network

TACIT = Path(os.environ.get("TACIT_BIN", ROOT / "target" / "debug" / "tacit"))
BACKENDS = ("cheetah", "sci-he", "dealt", "fss", "ckks")
# Seconds for one command.
PATIENCE_S = 300


class TooLong(Exception):
    """A command took longer than that."""


def tacit(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(TACIT), *map(str, arguments)]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TooLong(f"took longer than {PATIENCE_S} s") from error


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that was called with `--json`."""
    for line in done.stderr.splitlines():
        with contextlib.suppress(ValueError, AttributeError):
            said = json.loads(line).get("error")
            if said:
                # Without the name of the file.
                return re.sub(r"^/\S+: ", "", said)
    return f"exit {done.returncode}: {done.stderr.strip()[-300:]}"


def program(commit: str | None) -> dict[str, str]:
    """What is judged, and where; without `commit`, it was built from what is checked out."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "version": tacit("--version").stdout.strip(),
        "commit": commit or git.stdout.strip(),
        "sha256": hashlib.sha256(TACIT.read_bytes()).hexdigest(),
        "machine": f"{cpu()}, {len(os.sched_getaffinity(0))} processors",
    }


def cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def judge_all(exports: list[Export], backends: Sequence[str], again: bool, commit: str | None) -> int:
    """Writes the verdicts; of what is judged already, on the back ends alone that it was not judged for."""
    here = program(commit)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    # Results of another program are no results of this one.
    results = kept.get("exports", {}) if kept.get("program", {}).get("sha256") == here["sha256"] else {}
    for export in exports:
        name = identity(export)
        known = {} if again else results.get(name, {})
        missing = [b for b in backends if b not in known.get("backends", {})]
        if "refusal" in known or not missing:
            continue
        if not beside(export, "wanted").exists():
            print(f"{name} is not made", file=sys.stderr)
            continue
        results[name] = judge(export, missing, known.get("backends", {}))
        print(json.dumps({"name": name} | results[name]), flush=True)
        document = {"program": here, "date": time.strftime("%Y-%m-%d"), "exports": results}
        RESULTS.write_text(json.dumps(document, indent=1))
    return 0


def judge(export: Export, backends: Sequence[str], known: dict) -> dict:
    """The verdict on one export, for the results; `known`: of other back ends."""
    with tempfile.TemporaryDirectory(prefix="tacit-exports-") as folder:
        model = Path(folder) / "model.tacit"
        start = time.monotonic()
        try:
            done = tacit(
                "model", "import", "--json", network(export), "--calibrate", beside(export, "calibration"),
                "--backend", "none", "-o", model,
            )
        except TooLong as error:
            return {"refusal": str(error)}
        if done.returncode != 0:
            return {"refusal": reason(done)}
        found = {"import_s": round(time.monotonic() - start, 1), "notes": json.loads(done.stdout)["rewritten"]}
        found |= compare_floats(export, model, Path(folder))
        found["backends"] = known | {backend: lowered(export, model, backend) for backend in backends}
        return found


def lowered(export: Export, model: Path, backend: str) -> dict:
    """What a back end says of a model: errors and agreement on the unseen inputs, or why it refuses."""
    start = time.monotonic()
    try:
        done = tacit("model", "check", "--json", model, "--data", beside(export, "unseen"), "--backend", backend)
    except TooLong as error:
        return {"refusal": str(error)}
    if done.returncode != 0:
        return {"refusal": reason(done)}
    checked = json.loads(done.stdout)
    kept = {key: checked[key] for key in ("inputs", "refused", "agreement", "output_error", "overflowed")}
    return kept | {"seconds": round(time.monotonic() - start, 1)}


def compare_floats(export: Export, model: Path, folder: Path) -> dict:
    """How far our float network is from onnxruntime, over the unseen inputs in the range that calibration told."""
    wanted = np.load(beside(export, "wanted"))
    try:
        rows, ours, error = answers(model, np.load(beside(export, "unseen")), folder)
    except TooLong as late:
        return {"wrong": str(late)}
    if not ours:
        return {"wrong": error}
    found: dict = {"compared": len(ours), "out_of_range": len(wanted) - len(ours)}
    values = np.array(ours)
    if values.shape != wanted[rows].shape:
        return found | {"wrong": f"{values.shape[1]} outputs, onnxruntime has {wanted.shape[1]}"}
    found |= {"float_error": distance(values, wanted[rows]), "float_agreement": same_class(values, wanted[rows])}
    if beside(export, "real").exists():
        found["real_error"] = distance(values, np.load(beside(export, "real"))[rows])
    return found


def answers(model: Path, unseen: np.ndarray, folder: Path) -> tuple[list[int], list[list[float]], str]:
    """Which inputs the model accepts, its answers on them, and what it says of the last of the others."""
    rows, values, error = [], [], ""
    # All at once where all are accepted.
    for group in ([range(len(unseen))], [[i] for i in range(len(unseen))]):
        for part in group:
            path = folder / "inputs.npy"
            np.save(path, unseen[list(part)])
            done = tacit("model", "run", "--json", model, path)
            if done.returncode != 0:
                error = reason(done)
                continue
            rows += part
            values += [json.loads(line)["values"] for line in done.stdout.splitlines()]
        if len(rows) == len(unseen):
            break
    return rows, values, error


def distance(values: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference, as a share of the range of what is wanted."""
    return float(np.abs(values - wanted).max() / max(float(np.ptp(wanted)), 1e-9))


def same_class(values: np.ndarray, wanted: np.ndarray) -> float:
    """Share of rows with the same largest output, or the same sign of a single one."""
    if wanted.shape[1] == 1:
        return float(np.mean(np.sign(values) == np.sign(wanted)))
    return float(np.mean((values.argmax(1) == wanted.argmax(1)) & ~np.isnan(values).any(1)))
