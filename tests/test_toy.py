"""A back end that only the tests have, through the command line and Python: nothing outside of its file and the registry knows it.

It is `crates/backends/registry/tests/toy/mod.rs`, and hides nothing. `make py-test` takes the programs that `cargo test` has built, and builds the Python
module with the same feature, `test-util`, which registers it; scripts/check_rules.py sees to it that nothing else is built with it.
"""

import json

import numpy as np
import pytest

import tacit
from conftest import MODELS
from test_bench import check_report
from test_cli import serving

PHASES = {"setup", "offline", "online"}


@pytest.fixture(scope="module")
def toy_cli(cli):
    """Runs the binary, which must know the toy; its standard output."""
    known = cli("model", "backends", cwd=MODELS).stdout
    both = "toy" in known and "toy" in {backend.id for backend in tacit.backends()}
    assert both, "these programs do not know the toy back end: build those of the tests with `make py-test`"
    return lambda *args, cwd: cli(*args, cwd=cwd).stdout


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


def test_the_command_line_imports_serves_prepares_and_infers(toy_cli, binary, workplace, truth):
    with serving(binary, workplace, "--backend", "toy", "--allow-clear", "--material", "server-material") as address:
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


def test_options_and_another_preparation_pass_through(toy_cli, binary, workplace, truth):
    option = ["-O", "preparation=nothing"]
    toy_cli("model", "lower", "digits.tacit", "--backend", "toy", *option, cwd=workplace)
    with serving(binary, workplace, "--backend", "toy", "--allow-clear", *option) as address:
        answers = lines(toy_cli("infer", "three.npy", "--server", address, "--backend", "toy", "--json", cwd=workplace))
        assert np.array_equal([a["values"] for a in answers], truth)
        assert all("offline" not in a["phases"] for a in answers)


def test_python_serves_and_infers(workplace, digit_images, truth):
    model = tacit.Model.load(workplace / "digits.tacit")
    images = digit_images[:3]
    with tacit.serve(model, backend=["toy", "cheetah"], allow_clear=True) as server, server.client(backend="toy") as client:
        client.prepare(1)
        assert np.array_equal(client.infer(images), truth)
        assert (client.backend, client.digest) == ("toy", model.lower("toy").digest)
        assert np.array_equal(np.float32(model.lower("toy").reference(images)), truth)
        assert [cost.phase for cost in client.costs] == ["setup", "offline", "online", *["offline", "online"] * 2]
    unprepared = {"backend": "toy", "options": {"preparation": "nothing"}, "allow_clear": True}
    with tacit.serve(model, **unprepared) as server, server.client(backend="toy") as client:
        client.infer(images[0])
        assert [cost.phase for cost in client.costs] == ["setup", "online"]


def test_python_measures_it(workplace):
    report = tacit.bench(tacit.Model.load(workplace / "digits.tacit"), backend="toy", runs=2)
    check_report(report, 2, "toy", PHASES, {"offline"})


def test_a_back_end_that_is_not_there_is_named(cli, digits, tmp_path):
    digits.save(tmp_path / "digits.tacit")
    done = cli("model", "lower", "digits.tacit", "--backend", "tuna", cwd=tmp_path, ok=False)
    assert "tuna" in done.stderr
    assert "cheetah" in done.stderr, "it says what there is"
    cli("keys", "init", "keys", cwd=tmp_path)
    done = cli("serve", "digits.tacit", "--backend", "tuna", cwd=tmp_path, ok=False)
    assert "tuna" in done.stderr
    with pytest.raises(tacit.TacitError, match="tuna"):
        digits.lower("tuna")
