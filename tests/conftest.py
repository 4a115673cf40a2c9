"""Fixtures: the committed digits model, the `tacit` binary, the data folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import shared_data
import tacit

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with real models and data sets; the test is skipped where it is missing."""
    folder = shared_data.folder()
    if folder is None:
        pytest.skip("no ../shared/data (or TACIT_DATA): real models and data sets are not here")
    return folder


@pytest.fixture(scope="session")
def digits() -> tacit.Model:
    """The digits network, calibrated."""
    return tacit.import_onnx(MODELS / "digits.onnx", calibrate=np.load(MODELS / "digits_samples.npy"))


@pytest.fixture(scope="session")
def digit_images() -> np.ndarray:
    """450 held-out digits, float32 `[450, 1, 8, 8]`."""
    with np.load(MODELS / "digits_test.npz") as file:
        return file["images"]


@pytest.fixture(scope="session")
def binary() -> Path:
    """The `tacit` binary that `make` built."""
    found = os.environ.get("TACIT_BIN") or shutil.which("tacit")
    if not found or not Path(found).exists():
        pytest.skip("no tacit binary: run through `make test`, or set TACIT_BIN")
    return Path(found)


@pytest.fixture(scope="session")
def cli(binary: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the binary to its end; `cwd` and `ok=False` for a run that should fail."""

    def run(*args: object, cwd: Path, ok: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [binary, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
            env={"TACIT_PYTHON": sys.executable} | os.environ,
        )  # fmt: skip
        assert (done.returncode == 0) == ok, f"tacit {args} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "panicked" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def float_answers() -> Callable[[bytes | Path, np.ndarray], np.ndarray]:
    """Runs an ONNX network with onnxruntime, one input at a time; flat outputs `[N, outputs]`."""

    def run(network: bytes | Path, inputs: np.ndarray) -> np.ndarray:
        session = onnxruntime.InferenceSession(network)
        name = session.get_inputs()[0].name
        return np.stack([session.run(None, {name: x[None]})[0].reshape(-1) for x in inputs])

    return run
