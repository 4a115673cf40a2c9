"""Files, inputs and onnxruntime's answers of the collection."""

import contextlib
import importlib
import io
import os

import inputs
import numpy as np
import onnxruntime
from collection import Export
from places import OUT, beside, network

MAKERS = {"torchvision": "make_torch", "timm": "make_torch", "own": "make_torch", "keras": "make_keras"}


def is_made(export: Export) -> bool:
    # Written last.
    return beside(export, "wanted").exists()


def make(export: Export) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    calibration, unseen = inputs.calibration(export), inputs.unseen(export)
    np.save(beside(export, "calibration"), calibration)
    np.save(beside(export, "unseen"), unseen)
    maker = importlib.import_module(MAKERS.get(export.source, "make_other"))
    with contextlib.redirect_stdout(io.StringIO()):
        maker.write(export, network(export), calibration)
    if export.source == "quantised":
        real = maker.in_real_numbers(network(export))
        if real is not None:
            np.save(beside(export, "real"), answers(real, unseen))
    np.save(beside(export, "wanted"), answers(network(export).read_bytes(), unseen))


def answers(model: bytes, unseen: np.ndarray) -> np.ndarray:
    """onnxruntime's outputs for each input, joined, class labels left out: `[N, outputs]`; none of a network of two inputs."""
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3
    quiet.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])
    if len(session.get_inputs()) != 1:
        return np.empty((0, 0))
    first = session.get_inputs()[0]
    kind = {"tensor(float16)": np.float16, "tensor(float)": np.float32}.get(first.type, unseen.dtype)

    # A file may state its batch; then all of it is the same input.
    batch = first.shape[0] if isinstance(first.shape[0], int) else 1

    def flat(output: object) -> np.ndarray:
        if isinstance(output, list):  # A map of scores for each input.
            return np.array(list(output[0].values()))
        part = output if batch == 1 else output[:1]
        return part.reshape(-1) if output.dtype.kind == "f" else np.empty(0)

    rows = [session.run(None, {first.name: np.stack([x] * batch).astype(kind)}) for x in unseen]
    return np.stack([np.concatenate([flat(y) for y in row]) for row in rows]).astype(np.float64)


