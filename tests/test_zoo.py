"""`tacit zoo`: the architectures are valid ONNX, import, and follow onnxruntime."""

import json

import numpy as np
import onnx
import pytest

import tacit

SMALL = {"tiny-mlp": (1, 8, 8), "tiny-cnn": (1, 8, 8), "lenet": (1, 28, 28), "m1": (1, 28, 28), "m2": (3, 32, 32),
         "hinet": (3, 32, 32), "hinet-mnist": (1, 28, 28), "shark-hinet": (3, 32, 32), "minionn-mlp": (1, 28, 28),
         "minionn-mnist": (1, 28, 28), "minionn-cifar": (3, 32, 32), "resnet32": (3, 32, 32)}  # fmt: skip
LARGE = {"squeezenet1.1": (3, 224, 224), "resnet18": (3, 224, 224), "densenet121": (3, 224, 224)}


@pytest.fixture(scope="module")
def zoo(cli, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")

    def build(name):
        cli("zoo", name, "-o", f"{name}.onnx", cwd=folder)
        return folder / f"{name}.onnx"

    return build


def inputs(shape, count):
    return np.random.default_rng(3).uniform(-1, 1, (count, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_import_and_run_privately(zoo, float_answers, name):
    path = zoo(name)
    onnx.checker.check_model(path, full_check=True)
    images = inputs(SMALL[name], 6)
    model = tacit.import_onnx(path, calibrate=images)
    assert model.input_shape == SMALL[name]
    floats = float_answers(path, images)
    error = np.sqrt(np.mean((model.reference(images) - floats) ** 2)) / np.ptp(floats)
    assert error < 0.03, f"root mean square error is {error:.2%} of the range"
    with tacit.serve(model) as server, server.client() as client:
        answer = client.infer(images[0])
    assert np.abs(answer - model.reference(images[0])).max() < 0.1 * np.ptp(floats)


@pytest.mark.parametrize("name", LARGE)
def test_large_networks_are_valid_and_run_in_onnxruntime(zoo, float_answers, name):
    path = zoo(name)
    onnx.checker.check_model(path)
    answers = float_answers(path, inputs(LARGE[name], 1))
    assert answers.shape == (1, 1000)
    assert np.isfinite(answers).all()


def test_the_list_says_what_the_files_hold(zoo, cli, tmp_path):
    nets = {net["name"]: net for net in json.loads(cli("zoo", "--list", "--json", cwd=tmp_path).stdout)}
    assert set(SMALL) | set(LARGE) < set(nets)
    for name in ("m2", "minionn-mnist"):
        graph = onnx.load(zoo(name)).graph
        assert [layer["op"] for layer in nets[name]["layers"]] == [node.op_type for node in graph.node]
        assert nets[name]["parameters"] == sum(int(np.prod(tensor.dims)) for tensor in graph.initializer)
        assert nets[name]["input"] == list(SMALL[name])
    line = cli("zoo", "vgg16", "--list", cwd=tmp_path).stdout.splitlines()[1]
    assert " 138357544 " in line and "13 conv, 3 dense" in line


def test_an_unknown_name_is_answered_with_those_there_are(cli, tmp_path):
    done = cli("zoo", "resnet51", "-o", "x.onnx", cwd=tmp_path, ok=False)
    assert "resnet50" in done.stderr
    assert not (tmp_path / "x.onnx").exists()
