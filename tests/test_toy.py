"""A back end that only the tests have, through the command line and Python: nothing outside of its file and the registry knows it.

It is `crates/backends/tests/toy.rs`, and hides nothing. The programs are built once, in the profile of `cargo test`, with the feature that
registers it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tacit
from conftest import MODELS, ROOT
from test_bench import check_report
from test_cli import serving

PHASES = {"setup", "offline", "online"}


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder with `tacit`, `tacit-server` and the Python module that know the toy."""
    packages = ["-p", "tacit-cli", "-p", "tacit-serve", "-p", "tacit-python"]
    command = ["cargo", "build", "--locked", "--quiet", *packages, "--features", "tacit-backends/test-util"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


@pytest.fixture(scope="session")
def toy_cli(built):
    """Runs the binary that knows the toy; its standard output."""

    def run(*args, cwd):
        done = subprocess.run([built / "tacit", *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"tacit {args}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def toy_python(built, tmp_path_factory):
    """Runs a Python program with the package that knows the toy; the JSON that it prints."""
    packages = tmp_path_factory.mktemp("packages")
    shutil.copytree(
        Path(tacit.__file__).parent, packages / "tacit", ignore=shutil.ignore_patterns("_tacit*.so", "__pycache__")
    )
    shutil.copy(built / "lib_tacit.so", packages / "tacit" / "_tacit.abi3.so")

    def run(program, *args):
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, args)],
            cwd=packages,
            env=os.environ | {"PYTHONPATH": str(packages)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, toy_cli, digit_images):
    """A folder with a model imported for the toy, keys and inputs."""
    folder = tmp_path_factory.mktemp("toy")
    samples = MODELS / "digits_samples.npy"
    toy_cli(
        "model",
        "import",
        MODELS / "digits.onnx",
        "--calibrate",
        samples,
        "--backend",
        "toy",
        "-o",
        "digits.tacit",
        cwd=folder,
    )
    toy_cli("keys", "init", "keys", cwd=folder)
    np.save(folder / "three.npy", digit_images[:3])
    return folder


@pytest.fixture(scope="module")
def truth(digits, digit_images):
    """What the float network says, rounded as the toy rounds it."""
    return digits.run(digit_images[:3]).astype(np.float32)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_the_command_line_imports_serves_prepares_and_infers(toy_cli, built, workplace, truth):
    assert "toy" in toy_cli("model", "backends", cwd=workplace)
    with serving(built / "tacit", workplace, "--backend", "toy", "--allow-clear", "--material", "server-material") as address:
        me = ["--server", address, "--material", "material", "--backend", "toy"]
        answers = lines(toy_cli("infer", "three.npy", *me, "--json", cwd=workplace))
        assert np.array_equal([a["values"] for a in answers], truth)
        made = lines(toy_cli("prepare", *me, "--count", 3, "--json", cwd=workplace))
        assert len([line for line in made if "id" in line]) == 3
        answers = lines(toy_cli("infer", "three.npy", *me, "--json", cwd=workplace))
        assert np.array_equal([a["values"] for a in answers], truth)
        assert all(set(a["phases"]) == {"online"} for a in answers), "prepared material was used"


def test_the_command_line_measures_it(toy_cli, workplace):
    toy_cli("bench", "--model", "digits.tacit", "--backend", "toy", "--runs", 2, "-o", "bench.json", cwd=workplace)
    check_report(json.loads((workplace / "bench.json").read_text()), 2, "toy", PHASES, {"offline"})


def test_options_and_another_preparation_pass_through(toy_cli, built, workplace, truth):
    option = ["-O", "preparation=nothing"]
    toy_cli("model", "lower", "digits.tacit", "--backend", "toy", *option, cwd=workplace)
    with serving(built / "tacit", workplace, "--backend", "toy", "--allow-clear", *option) as address:
        answers = lines(toy_cli("infer", "three.npy", "--server", address, "--backend", "toy", "--json", cwd=workplace))
        assert np.array_equal([a["values"] for a in answers], truth)
        assert all("offline" not in a["phases"] for a in answers)


SERVE_AND_INFER = """
import json, sys
import numpy as np
import tacit

images = np.load(sys.argv[2])
model = tacit.Model.load(sys.argv[1])
with tacit.serve(model, backend=["toy", "cheetah"], allow_clear=True) as server, server.client(backend="toy") as client:
    client.prepare(1)
    answers = client.infer(images)
    facts = {
        "backends": [backend.id for backend in tacit.backends()],
        "backend": client.backend,
        "same": client.digest == model.lower("toy").digest,
        "answers": answers.tolist(),
        "reference": model.lower("toy").reference(images).tolist(),
        "phases": [cost.phase for cost in client.costs],
    }
unprepared = {"backend": "toy", "options": {"preparation": "nothing"}, "allow_clear": True}
with tacit.serve(model, **unprepared) as server, server.client(backend="toy") as client:
    client.infer(images[0])
    facts["unprepared"] = [cost.phase for cost in client.costs]
print(json.dumps(facts))
"""


def test_python_serves_and_infers(toy_python, workplace, truth):
    facts = toy_python(SERVE_AND_INFER, workplace / "digits.tacit", workplace / "three.npy")
    assert "toy" in facts["backends"]
    assert (facts["backend"], facts["same"]) == ("toy", True)
    assert np.array_equal(facts["answers"], truth)
    assert np.array_equal(np.float32(facts["reference"]), truth)
    assert facts["phases"] == ["setup", "offline", "online", *["offline", "online"] * 2]
    assert facts["unprepared"] == ["setup", "online"]


BENCH = """
import json, sys
import tacit

print(json.dumps(tacit.bench(tacit.Model.load(sys.argv[1]), backend="toy", runs=2)))
"""


def test_python_measures_it(toy_python, workplace):
    check_report(toy_python(BENCH, workplace / "digits.tacit"), 2, "toy", PHASES, {"offline"})


def test_nothing_that_is_installed_knows_it(cli, digits, tmp_path):
    assert "toy" not in cli("model", "backends", cwd=tmp_path).stdout
    digits.save(tmp_path / "digits.tacit")
    done = cli("model", "lower", "digits.tacit", "--backend", "toy", cwd=tmp_path, ok=False)
    assert "toy" in done.stderr
    assert "cheetah" in done.stderr, "it says what there is"
    cli("keys", "init", "keys", cwd=tmp_path)
    done = cli("serve", "digits.tacit", "--backend", "toy", cwd=tmp_path, ok=False)
    assert "toy" in done.stderr
    assert "toy" not in {backend.id for backend in tacit.backends()}
    with pytest.raises(tacit.TacitError, match="toy"):
        digits.lower("toy")
