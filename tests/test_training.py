"""The training scripts of `models/`, as far as they go without their data."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from conftest import MODELS


NO_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed; it is no dependency of the project")


@pytest.mark.parametrize("script", ["train_detector.py", "train_ecg.py", pytest.param("train_squeezenet.py", marks=NO_TORCH)])
def test_the_folder_is_there_before_training_begins(script, tmp_path):
    """It was missed after minutes of training. Without data the script ends right after that."""
    out = tmp_path / "not" / "yet"
    command = [sys.executable, str(MODELS / script), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env={"TACIT_DATA": str(tmp_path)}, timeout=120)
    assert done.returncode == 2 and "TACIT_DATA" in done.stderr and out.is_dir(), done.stderr
    file = tmp_path / "file"
    file.write_text("")
    command[-1] = str(file / "below")
    done = subprocess.run(command, capture_output=True, text=True, env={"TACIT_DATA": str(tmp_path)}, timeout=120)
    assert done.returncode == 1 and "below" in done.stderr
