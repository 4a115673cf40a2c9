"""Trains the three small networks of [SS26] and writes them next to this file.

usage: train_networks.py [--only NAME]... [--arrays FOLDER]        (m1, m2, hinet)

Data: MNIST and the 30,000 CIFAR-10 training images of the data folder (`../shared/data` beside the clone, or TACIT_DATA; see
scripts/shared_data.py). Inputs: m1 `[N, 1, 28, 28]`, pixel / 255; m2 and hinet `[N, 3, 32, 32]`, (pixel / 255 - mean) / std by
channel with the mean and deviation of `shared_data.CIFAR_MEAN`, `CIFAR_STD`.

The layers are those of `tacit zoo m1 | m2 | hinet`, which says where they come from. Plain numpy (Adam, cross entropy, mirrored and
shifted images), one seed, one thread. Weights are kept as 16-bit floats, which halves the files and changes no digit of the accuracy.

Needs numpy, onnx, onnxruntime (all in requirements.lock). Prints the accuracy on the 10,000 test images of each data set. With
`--arrays` nothing is trained: it writes 64 training images, all test images and their labels as .npy, for `tacit model import` and `check`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one summation order, so one result

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import shared_data  # noqa: E402

SEED = 20261122
BATCH = 64
CALIBRATION_IMAGES = 64
WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class Conv:
    """A square convolution and its ReLU."""

    out: int
    size: int
    pad: int


@dataclass(frozen=True)
class Pool:
    """Max pooling."""

    size: int
    stride: int


@dataclass(frozen=True)
class Network:
    """Layers in front of the one fully connected layer, and how long they are trained."""

    channels: int
    side: int
    layers: tuple[Conv | Pool, ...]
    images: int
    epochs: int
    rate: float
    mirrored: bool
    least: float


# HiNet's last layer has 27,648 inputs, so that a step of the others' size throws its outputs about.
NETWORKS = {
    "m1": Network(1, 28, (Conv(64, 5, 0), Pool(2, 2), Conv(224, 5, 0), Pool(2, 2)), 40_000, 1, 1e-3, False, 0.98),
    "m2": Network(3, 32, (Conv(48, 3, 1), Pool(2, 2), Conv(96, 3, 1), Pool(2, 2), Conv(192, 3, 0), Conv(416, 3, 0)), 30_000, 3, 1e-3, True, 0.65),
    "hinet": Network(3, 32, (Conv(64, 5, 1), Pool(3, 2), Conv(192, 5, 1)), 30_000, 3, 3e-4, True, 0.6),
}  # fmt: skip


def columns(x, conv):
    """Patches of `[N, H, W, C]` as rows `[N, H', W', size * size * C]`."""
    p = conv.pad
    padded = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (conv.size, conv.size), axis=(1, 2))
    return np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3)).reshape(*windows.shape[:3], -1)


def images_from_columns(grad, shape, conv):
    """The transpose of `columns`: sums the gradient of each patch into the image."""
    n, h, w, c = shape
    p, k = conv.pad, conv.size
    padded = np.zeros((n, h + 2 * p, w + 2 * p, c), grad.dtype)
    rows, cols = grad.shape[1:3]
    grad = grad.reshape(n, rows, cols, k, k, c)
    for i in range(k):
        for j in range(k):
            padded[:, i : i + rows, j : j + cols] += grad[:, :, :, i, j]
    return padded[:, p : p + h, p : p + w]


def window(x, pool, i, j):
    """Element `(i, j)` of each pooling window of `[N, H, W, C]`."""
    rows, cols = ((n - pool.size) // pool.stride + 1 for n in x.shape[1:3])
    return x[:, i : i + pool.stride * rows : pool.stride, j : j + pool.stride * cols : pool.stride]


def pool_forward(x, pool):
    y = window(x, pool, 0, 0).copy()
    for i in range(pool.size):
        for j in range(pool.size):
            np.maximum(y, window(x, pool, i, j), out=y)
    return y


def pool_backward(grad, x, y, pool):
    """Each window's gradient goes to its maximum. Ties are at zero, where the ReLU in front stops the gradient."""
    out = np.zeros_like(x)
    for i in range(pool.size):
        for j in range(pool.size):
            target = window(out, pool, i, j)
            target += grad * (window(x, pool, i, j) == y)
    return out


def initial_parameters(rng, network):
    """Weights `[size, size, C, out]` and `[features, 10]` flattened to matrices, He-initialised; biases zero."""
    parameters, channels, side = {}, network.channels, network.side
    for number, layer in enumerate(network.layers):
        if isinstance(layer, Pool):
            side = (side - layer.size) // layer.stride + 1
            continue
        shape = (layer.size**2 * channels, layer.out)
        parameters[f"conv{number}.weight"] = rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / shape[0]))
        parameters[f"conv{number}.bias"] = np.zeros(layer.out, np.float32)
        channels, side = layer.out, side + 2 * layer.pad - layer.size + 1
    features = channels * side**2
    parameters["fc.weight"] = rng.standard_normal((features, 10), np.float32) * np.float32(np.sqrt(1 / features))
    parameters["fc.bias"] = np.zeros(10, np.float32)
    return parameters


def loss_gradients(network, p, x, labels):
    """Gradients of the mean cross entropy on one batch of `[N, H, W, C]`, and the batch's loss."""
    kept = []
    for number, layer in enumerate(network.layers):
        if isinstance(layer, Pool):
            y = pool_forward(x, layer)
            kept.append((x, y))
        else:
            patches = columns(x, layer)
            # One product of matrices: numpy would make one of each row of an image.
            y = patches.reshape(-1, patches.shape[-1]) @ p[f"conv{number}.weight"] + p[f"conv{number}.bias"]
            y = np.maximum(y, 0, out=y).reshape(*patches.shape[:3], layer.out)
            kept.append((x.shape, patches, y))
        x = y
    features = x.reshape(len(x), -1)
    logits = features @ p["fc.weight"] + p["fc.bias"]
    exp = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = exp / exp.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(np.maximum(probabilities[rows, labels], 1e-12)).mean()
    grad = probabilities
    grad[rows, labels] -= 1
    grad /= len(x)

    g = {"fc.weight": features.T @ grad, "fc.bias": grad.sum(0)}
    grad = (grad @ p["fc.weight"].T).reshape(x.shape)
    for number in reversed(range(len(network.layers))):
        layer = network.layers[number]
        if isinstance(layer, Pool):
            grad = pool_backward(grad, *kept[number], layer)
            continue
        shape, patches, y = kept[number]
        grad = grad * (y > 0)
        flat = grad.reshape(-1, layer.out)
        g[f"conv{number}.weight"] = patches.reshape(len(flat), -1).T @ flat
        g[f"conv{number}.bias"] = flat.sum(0)
        if number > 0:
            back = (flat @ p[f"conv{number}.weight"].T).reshape(patches.shape)
            grad = images_from_columns(back, shape, layer)
    return g, loss


def varied(rng, x, mirrored):
    """Half of the images mirrored, where that keeps their class, and all moved by up to two pixels, filled with zeros."""
    if mirrored:
        x = np.where(rng.random((len(x), 1, 1, 1)) < 0.5, x[:, :, ::-1], x)
    h, w = x.shape[1:3]
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    return np.stack([padded[i, r : r + h, c : c + w] for i, (r, c) in enumerate(rng.integers(0, 5, (len(x), 2)))])


def train(network, images, labels):
    rng = np.random.default_rng(SEED)
    p = initial_parameters(rng, network)
    mean = {k: np.zeros_like(v) for k, v in p.items()}
    square = {k: np.zeros_like(v) for k, v in p.items()}
    steps = network.epochs * (len(images) // BATCH)
    step = 0
    for epoch in range(network.epochs):
        losses, start = [], time.process_time()
        order = rng.permutation(len(images))
        for batch in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            g, loss = loss_gradients(network, p, varied(rng, images[batch], network.mirrored), labels[batch])
            losses.append(loss)
            # The rate falls to zero as a quarter of a cosine wave.
            rate = np.float32(network.rate * np.cos(np.pi / 2 * step / steps))
            step += 1
            for k, v in g.items():
                mean[k] += np.float32(0.1) * (v - mean[k])
                square[k] += np.float32(0.001) * (v * v - square[k])
                scale = np.sqrt(square[k] / np.float32(1 - 0.999**step)) + np.float32(1e-8)
                p[k] -= rate * (mean[k] / np.float32(1 - 0.9**step) / scale + np.float32(WEIGHT_DECAY) * p[k])
        print(f"  epoch {epoch + 1}/{network.epochs}: loss {np.mean(losses):.3f}, {time.process_time() - start:.0f} s of CPU",
              flush=True)  # fmt: skip
    return p


def constants(name, values):
    """A 16-bit initialiser and the node that makes floats of it."""
    half = values.astype(np.float16)
    assert np.isfinite(half).all(), f"{name} does not fit 16-bit floats"
    return numpy_helper.from_array(half, f"{name}.half"), helper.make_node(
        "Cast", [f"{name}.half"], [name], f"{name}.cast", to=TensorProto.FLOAT
    )


def to_onnx(name, network, p):
    """The network in ONNX's order of axes: weights `[out, C, size, size]`, features `[C, H, W]`."""
    nodes, tensors, last = [], [], "image"
    channels, side = network.channels, network.side

    def weights(key, values):
        for part, value in (("weight", values), ("bias", p[f"{key}.bias"])):
            tensor, cast = constants(f"{key}.{part}", value)
            tensors.append(tensor)
            nodes.append(cast)
        return [f"{key}.weight", f"{key}.bias"]

    for number, layer in enumerate(network.layers):
        if isinstance(layer, Pool):
            sizes = {"kernel_shape": [layer.size] * 2, "strides": [layer.stride] * 2}
            nodes.append(helper.make_node("MaxPool", [last], [f"pool{number}"], f"pool{number}", **sizes))
            side, last = (side - layer.size) // layer.stride + 1, f"pool{number}"
            continue
        key, k = f"conv{number}", layer.size
        matrix = p[f"{key}.weight"].reshape(k, k, channels, layer.out).transpose(3, 2, 0, 1)
        sizes = {"kernel_shape": [k, k], "pads": [layer.pad] * 4}
        nodes.append(helper.make_node("Conv", [last, *weights(key, matrix)], [key], key, **sizes))
        nodes.append(helper.make_node("Relu", [key], [f"relu{number}"], f"relu{number}"))
        channels, side, last = layer.out, side + 2 * layer.pad - k + 1, f"relu{number}"
    matrix = p["fc.weight"].reshape(side, side, channels, 10).transpose(3, 2, 0, 1).reshape(10, -1)
    nodes.append(helper.make_node("Flatten", [last], ["features"], "flatten", axis=1))
    nodes.append(helper.make_node("Gemm", ["features", *weights("fc", matrix)], ["logits"], "fc", transB=1))
    shape = ["N", network.channels, network.side, network.side]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="tacit")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def training_data(data, name):
    """Images `[N, C, H, W]` as the network takes them, and labels."""
    if name == "m1":
        images, labels = shared_data.mnist(data, "train", NETWORKS[name].images)
        return images / 255, labels
    parts = [shared_data.cifar10(data, "data_batch_1", 10_000), shared_data.cifar10(data, "train_rest_20k", 20_000)]
    images, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return shared_data.cifar10_normalised(images), labels


def test_data(data, name):
    if name == "m1":
        images, labels = shared_data.mnist(data, "t10k", 10_000)
        return images / 255, labels
    images, labels = shared_data.cifar10(data, "test_batch", 10_000)
    return shared_data.cifar10_normalised(images), labels


def accuracy(path, images, labels):
    session = onnxruntime.InferenceSession(path)
    batches = np.array_split(images, 100)
    answers = np.concatenate([session.run(None, {"image": batch})[0].argmax(1) for batch in batches])
    return float(np.mean(answers == labels))


def write_arrays(folder, data, name):
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = test_data(data, name)
    np.save(folder / f"{name}_samples.npy", training_data(data, name)[0][:CALIBRATION_IMAGES].astype(np.float32))
    np.save(folder / f"{name}_test.npy", images.astype(np.float32))
    np.save(folder / f"{name}_labels.npy", labels.astype(np.int64))


def train_and_write(data, name):
    network = NETWORKS[name]
    images, labels = training_data(data, name)
    print(f"{name}: {len(images)} images", flush=True)
    trained = train(network, np.ascontiguousarray(images.transpose(0, 2, 3, 1), np.float32), labels)
    path = HERE / f"{name}.onnx"
    onnx.save(to_onnx(name, network, trained), path)
    right = accuracy(path, *test_data(data, name))
    count = sum(v.size for v in trained.values())
    print(f"{name}: {right:.2%} of 10000 test images; {count} parameters, {path.stat().st_size} bytes", flush=True)
    assert right >= network.least, f"the accuracy of {name} fell below {network.least:.0%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=NETWORKS, help="train this network only; may be repeated")
    parser.add_argument("--arrays", type=Path, metavar="FOLDER", help="write calibration and test images as .npy instead")
    options = parser.parse_args()
    data = shared_data.folder()
    if data is None or not (data / "cifar10" / "train_rest_20k.bin.gz").is_file() or not (data / "mnist").is_dir():
        missing = "MNIST and CIFAR-10 are missing: put them in ../shared/data, or set TACIT_DATA (see scripts/shared_data.py)"
        print(missing, file=sys.stderr)
        return 2
    for name in options.only or NETWORKS:
        if options.arrays:
            write_arrays(options.arrays, data, name)
        else:
            train_and_write(data, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
