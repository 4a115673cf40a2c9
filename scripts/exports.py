"""What practitioners export, imported: makes the files of `exports_list.py`, imports each, compares with onnxruntime.

    python3 -m venv out/exports-venv
    out/exports-venv/bin/pip install -r scripts/exports-requirements.txt     # some gigabytes: PyTorch, TensorFlow
    out/exports-venv/bin/python scripts/exports.py make                      # files and samples, in out/exports
    out/exports-venv/bin/python scripts/exports.py judge                     # results, in out/exports/results.json
    out/exports-venv/bin/python scripts/exports.py table                     # docs/exports.md

`make` and `judge` take names (`own-unet`) or sources (`own`); without, they do all. Nothing of this is needed by `make test`.

A file counts as imported when `tacit model import` takes it for a back end; as right when, on inputs that the import
did not see, the float network is onnxruntime's (within `FLOAT_ERROR` of the range of the outputs).
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
from exports_list import COLLECTION, Export

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "exports"
TACIT = os.environ.get("TACIT_BIN", str(ROOT / "target" / "debug" / "tacit"))
MAKERS = {"torchvision": "exports_torch", "timm": "exports_torch", "own": "exports_torch", "keras": "exports_keras"}
FLOAT_ERROR = 1e-3
# Seconds for one import, with the debug build.
PATIENCE = 400
UNSEEN = 8


def identity(export: Export) -> str:
    return f"{export.source}-{export.name}"


def path_of(export: Export) -> Path:
    return OUT / f"{identity(export)}.onnx"


def pictures(shape: tuple[int, ...], count: int, seed: int) -> np.ndarray:
    """Smooth patterns with some noise, `[N, ...shape]`, of mean 0 and variance 1 about, in [-2.5, 2.5]: as normalised photos."""
    rng = np.random.default_rng(seed)
    last = len(shape) == 3 and shape[2] <= 4 < shape[0]
    space = shape[:-1] if last else shape[1:]
    channels = shape[-1] if last else shape[0]
    grid = np.meshgrid(*(np.linspace(0, 1, n, endpoint=False) for n in space), indexing="ij")
    images = np.empty((count, channels, *space), np.float32)
    for image in images:
        waves = rng.normal(size=(channels, 6)) @ np.stack([wave(rng, grid) for _ in range(6)]).reshape(6, -1)
        waves = waves.reshape(channels, *space) + 0.2 * rng.normal(size=(channels, *space))
        image[:] = waves / 1.7 + rng.normal(scale=0.4, size=(channels, *[1] * len(space)))
    images = np.clip(images, -2.5, 2.5)
    return np.ascontiguousarray(np.moveaxis(images, 1, -1) if last else images)


def wave(rng: np.random.Generator, grid: list[np.ndarray]) -> np.ndarray:
    phase = rng.uniform(0, 2 * np.pi) + sum(2 * np.pi * rng.uniform(0, 4) * axis for axis in grid)
    return np.cos(phase)


def samples(export: Export, count: int, seed: int) -> np.ndarray:
    """Inputs as the network's application has them, `[N, ...shape]`."""
    rng = np.random.default_rng(seed)
    shape = (count, *export.shape)
    if export.source in ("scikit-learn", "boosting") or export.name == "iris_logreg":
        from exports_other import tabular

        x, _ = tabular(export.shape[0])
        half = len(x) // 2
        return x[:half][:count] if seed == 1 else x[half:][:count]
    if export.name in ("text_cnn", "magika"):
        return rng.integers(0, 257 if export.name == "magika" else 1000, shape).astype(np.int32 if export.name == "magika" else np.int64)
    if export.name == "tabular_embeddings":
        return np.concatenate([rng.normal(size=(count, 4)), rng.integers(0, 10, (count, 2))], 1).astype(np.float32)
    if export.name == "dqn_atari":
        return np.clip(pictures(export.shape, count, seed) * 60 + 128, 0, 255).round()
    if export.name == "normalized_dense":
        return (rng.normal(size=shape) * np.sqrt(np.linspace(0.5, 90, 13)) + np.linspace(-2, 30, 13)).astype(np.float32)
    if len(export.shape) == 1 or export.name == "dcgan_generator":
        return np.clip(rng.normal(size=shape), -2.5, 2.5).astype(np.float32)
    return pictures(export.shape, count, seed)


def make(export: Export) -> None:
    """Writes the network, 24 samples for its calibration (fewer large ones), and some that stay unseen."""
    OUT.mkdir(parents=True, exist_ok=True)
    calibration = samples(export, 64 if np.prod(export.shape) < 30_000 else 16, 1)
    np.save(path_of(export).with_suffix(".calibration.npy"), calibration)
    np.save(path_of(export).with_suffix(".unseen.npy"), samples(export, UNSEEN, 2))
    maker = importlib.import_module(MAKERS.get(export.source, "exports_other"))
    with contextlib.redirect_stdout(io.StringIO()):
        maker.write(export, path_of(export), calibration)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TACIT, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that was called with `--json`."""
    for line in done.stderr.splitlines():
        with contextlib.suppress(ValueError):
            said = json.loads(line).get("error")
            if said:
                return said if isinstance(said, str) else said.get("message", str(said))
    return f"exit {done.returncode}: {done.stderr.strip()[-300:]}"


def judged_by_onnxruntime(path: Path, inputs: np.ndarray) -> np.ndarray:
    """Outputs of each input, flattened and joined, class labels left out: `[N, outputs]`."""
    import onnxruntime

    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
    first = session.get_inputs()[0]
    kind = {"tensor(float16)": np.float16, "tensor(float)": np.float32}.get(first.type, inputs.dtype)

    def flat(output) -> np.ndarray:
        if isinstance(output, list):  # A map of scores.
            return np.array(list(output[0].values()))
        return output.reshape(-1) if output.dtype.kind == "f" else np.empty(0)

    rows = [session.run(None, {first.name: x[None].astype(kind)}) for x in inputs]
    return np.stack([np.concatenate([flat(y) for y in row]) for row in rows]).astype(np.float64)


def import_it(export: Export, backend: str) -> tuple[subprocess.CompletedProcess[str], float]:
    path = path_of(export)
    model = path.with_suffix(".tacit")
    start = time.monotonic()
    done = run(
        "model", "import", "--json", str(path), "--calibrate", str(path.with_suffix(".calibration.npy")),
        "--backend", backend, "-o", str(model),
    )
    return done, time.monotonic() - start


def judge(export: Export) -> dict:
    """The verdict on one export, for `results.json`."""
    import onnx

    path = path_of(export)
    model = onnx.load(path, load_external_data=False)
    opsets = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    result = {"name": identity(export), "exporter": export.exporter, "shape": export.shape, "nodes": len(model.graph.node)}
    result |= {"opset": opsets.get("ai.onnx", max(opsets.values())), "backend": None}
    try:
        for backend in ("cheetah", "dealt"):
            done, seconds = import_it(export, backend)
            if done.returncode == 0:
                result |= {"backend": backend, "seconds": round(seconds, 1)} | compare(export, backend, done.stdout)
                break
            result.setdefault("refusal", reason(done))
    except subprocess.TimeoutExpired:
        result["refusal"] = f"took longer than {PATIENCE} s"
    return result


def compare(export: Export, backend: str, report: str) -> dict:
    """How far the float network is from onnxruntime, and the fixed-point one from the float network."""
    path, unseen = path_of(export), path_of(export).with_suffix(".unseen.npy")
    model = str(path.with_suffix(".tacit"))
    wanted = judged_by_onnxruntime(path, np.load(unseen))
    done = run("model", "run", "--json", model, str(unseen))
    if done.returncode:
        return {"wrong": reason(done)}
    ours = np.array([json.loads(line)["values"] for line in done.stdout.splitlines()])
    if ours.shape != wanted.shape:
        return {"wrong": f"{ours.shape[1]} outputs, onnxruntime has {wanted.shape[1]}"}
    size = max(float(np.ptp(wanted)), 1e-9)
    found = {"float_error": float(np.abs(ours - wanted).max() / size), "notes": json.loads(report)["notes"]}
    if found["float_error"] > FLOAT_ERROR:
        found["wrong"] = f"off by {found['float_error']:.2%} of the range"
    done = run("model", "check", "--json", model, "--data", str(unseen), "--backend", backend)
    checked = json.loads(done.stdout) if done.returncode == 0 else {}
    found["fixed_error"] = float(checked["output_error"]) / size if checked else None
    found["overflowed"] = checked.get("overflowed")
    return found
