"""The trained networks of [SS26] in `models/`: they are those of `tacit zoo`, and their lowerings answer as the float networks do."""

import json
import sys

import numpy as np
import onnx
import pytest

from conftest import MODELS

# Made-up pictures belong to no class, so that many answers are close calls.
LEAST_AGREEMENT = {"m1": 0.97, "m2": 0.93, "hinet": 0.93}
SHAPES = {"m1": (1, 28, 28), "m2": (3, 32, 32), "hinet": (3, 32, 32)}
BACKENDS = ("cheetah", "sci-he", "dealt", "fss")
# Calibration: a lowering with more of them searches twice as long for finer numbers.
SAMPLES = 24
# Of so many test images; models/README.md has the whole sets.
REAL_IMAGES = 120
LEAST_ACCURACY = {"m1": 0.98, "m2": 0.65, "hinet": 0.6}


def digits_as_mnist():
    """The committed 8x8 digits as MNIST shows them: 20 pixels high in the middle of 28 x 28."""
    with np.load(MODELS / "digits_test.npz") as file:
        images, labels = file["images"][:, 0], file["labels"]
    at = (np.arange(20) + 0.5) * 8 / 20 - 0.5
    rows = np.stack([[np.interp(at, np.arange(8), row) for row in image] for image in images])
    whole = np.stack([[np.interp(at, np.arange(8), column) for column in image.T] for image in rows])
    return np.pad(whole.transpose(0, 2, 1), ((0, 0), (4, 4), (4, 4)))[:, None].astype(np.float32), labels


def made_up_pictures(count):
    """Coloured blobs with the mean and deviation of normalised CIFAR-10 images, neighbours alike."""
    rng = np.random.default_rng(26)
    coarse = np.repeat(np.repeat(rng.standard_normal((count, 3, 8, 8)), 4, 2), 4, 3)
    return (coarse + 0.3 * rng.standard_normal(coarse.shape)).astype(np.float32)


def sample(name):
    return digits_as_mnist()[0] if name == "m1" else made_up_pictures(96)


def checked(cli, folder, *arguments):
    return json.loads(cli("model", "check", *arguments, "--json", cwd=folder, timeout=900).stdout)


@pytest.mark.parametrize("name", SHAPES)
def test_the_files_hold_the_networks_of_the_zoo(cli, tmp_path, name):
    path = MODELS / f"{name}.onnx"
    assert path.stat().st_size <= 2_000_000
    graph = onnx.load(path).graph
    net = json.loads(cli("zoo", name, "--list", "--json", cwd=tmp_path).stdout)[0]
    assert [node.op_type for node in graph.node if node.op_type != "Cast"] == [layer["op"] for layer in net["layers"]]
    assert sum(int(np.prod(tensor.dims)) for tensor in graph.initializer) == net["parameters"]
    cli("zoo", name, "-o", "zoo.onnx", cwd=tmp_path)
    zoo = onnx.load(tmp_path / "zoo.onnx").graph
    assert [list(t.dims) for t in graph.initializer] == [list(t.dims) for t in zoo.initializer]


@pytest.mark.parametrize("name", SHAPES)
def test_lowered_networks_agree_with_float(cli, float_answers, tmp_path, name):
    images = sample(name)
    calibration, others = images[:SAMPLES], images[32:96]
    np.save(tmp_path / "samples.npy", calibration)
    np.save(tmp_path / "others.npy", others)
    # The float answers are onnxruntime's, not our own float network's.
    labels = float_answers(MODELS / f"{name}.onnx", others).argmax(1)
    np.save(tmp_path / "labels.npy", labels.astype(np.int64))
    cli("model", "import", MODELS / f"{name}.onnx", "--calibrate", "samples.npy", "--backend", "none",
        "-o", "net.tacit", cwd=tmp_path)  # fmt: skip
    for backend in BACKENDS:
        report = checked(cli, tmp_path, "net.tacit", "--data", "others.npy", "--labels", "labels.npy", "--backend", backend)
        assert report["inputs"] == len(others)
        assert report["agreement"] >= LEAST_AGREEMENT[name], f"{backend}: {report}"
        assert report["accuracy"]["float"] == 1.0, f"onnxruntime and our float network differ: {report}"
        assert report["output_error"] < 0.01, f"{backend}: {report}"
        assert report["overflowed"] == 0, f"{backend}: {report}"


def test_m1_knows_digits_of_another_data_set(float_answers):
    images, labels = digits_as_mnist()
    right = float_answers(MODELS / "m1.onnx", images).argmax(1) == labels
    assert right.mean() >= 0.75, f"{right.mean():.1%} of {len(labels)} digits"


@pytest.mark.parametrize("name", SHAPES)
def test_accuracy_on_real_images(cli, data, tmp_path, name):
    """Of one back end: the others are held against the same float network above. Skipped where the data folder (MNIST, CIFAR-10) is
    missing, and says so."""
    sys.path.insert(0, str(MODELS))
    import train_networks

    train_networks.write_arrays(tmp_path, data, name)
    cli("model", "import", MODELS / f"{name}.onnx", "--calibrate", f"{name}_samples.npy", "--backend", "none",
        "-o", "net.tacit", cwd=tmp_path)  # fmt: skip
    report = checked(cli, tmp_path, "net.tacit", "--data", f"{name}_test.npy", "--labels", f"{name}_labels.npy",
                     "--limit", REAL_IMAGES, "--backend", BACKENDS[0])  # fmt: skip
    assert report["agreement"] >= 0.98, report
    assert report["accuracy"]["lowered"] >= LEAST_ACCURACY[name], report
    assert report["overflowed"] == 0, report
