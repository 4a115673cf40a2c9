"""Trains the small digit classifiers of `make demo` and of encrypted inference, and writes them next to this file.

Data: scikit-learn's copy of the UCI "Optical Recognition of Handwritten Digits" test set (1797 images of 8x8 pixels,
0..16; E. Alpaydin and C. Kaynak, CC BY 4.0). Input of the network: `[N, 1, 8, 8]`, pixel / 16, so 0..1.

Network: Conv 3x3 (1 -> 8), ReLU, MaxPool 2, Conv 3x3 (8 -> 16), ReLU, MaxPool 2, Flatten, Gemm (64 -> 10). The other
has squares and averages in the place of ReLU and MaxPool, which encrypted slots (`ckks`) compute as they are.
Trained with plain numpy (Adam, cross entropy, shifted copies of the images), one seed, one thread.

Writes:
  digits.onnx          the trained network
  digits_square.onnx   the one with squares and averages
  digits_samples.npy   64 training images for calibration, float32 [64, 1, 8, 8]
  digits_test.npz      images float32 [450, 1, 8, 8] and labels int64 [450], never seen in training
  digit.npy            the first of them, [1, 1, 8, 8], to try `tacit infer` on

Run: python models/train_digits.py        (needs numpy, onnx, onnxruntime, scikit-learn; about twenty seconds)
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one summation order, so one result

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

HERE = Path(__file__).resolve().parent
SEED = 20240607
TEST_IMAGES = 450
CALIBRATION_IMAGES = 64
EPOCHS = 200
BATCH = 64
LEARNING_RATE = 4e-3
SHIFTED = 0.25
WEIGHT_DECAY = 1e-4


def patches(x):
    """3x3 patches with zero padding 1: `[N, C, H, W]` to `[N, H, W, C * 9]`."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(*x.shape[:1], *x.shape[2:], -1)


def conv_forward(x, weight, bias):
    columns = patches(x)
    out = columns @ weight.reshape(len(weight), -1).T + bias
    return out.transpose(0, 3, 1, 2), columns


def conv_backward(grad, columns, weight, channels):
    flat = grad.transpose(0, 2, 3, 1)
    grad_weight = np.tensordot(flat, columns, axes=([0, 1, 2], [0, 1, 2])).reshape(weight.shape)
    grad_columns = (flat @ weight.reshape(len(weight), -1)).reshape(*flat.shape[:3], channels, 3, 3)
    n, h, w = flat.shape[:3]
    grad_x = np.zeros((n, channels, h + 2, w + 2), grad.dtype)
    for i in range(3):
        for j in range(3):
            grad_x[:, :, i : i + h, j : j + w] += grad_columns[..., i, j].transpose(0, 3, 1, 2)
    return grad_x[:, :, 1:-1, 1:-1], grad_weight, flat.sum((0, 1, 2))


def pool_forward(x):
    n, c, h, w = x.shape
    windows = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
    winner = windows.argmax(-1)
    return np.take_along_axis(windows, winner[..., None], -1)[..., 0], winner


def pool_backward(grad, winner):
    n, c, h, w = grad.shape
    windows = np.zeros((n, c, h, w, 4), grad.dtype)
    np.put_along_axis(windows, winner[..., None], grad[..., None], -1)
    return windows.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)


def average_forward(x):
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5)), None


def average_backward(grad, _):
    return grad.repeat(2, 2).repeat(2, 3) / 4


# Activation, what it multiplies gradients with, pooling and its gradient.
RELU = (lambda x: np.maximum(x, 0), lambda x: x > 0, pool_forward, pool_backward)
SQUARE = (lambda x: x * x, lambda x: 2 * x, average_forward, average_backward)


def initial_parameters(rng):
    def he_normal(*shape):
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    def zeros(n):
        return np.zeros(n, np.float32)

    return {
        "conv1.weight": he_normal(8, 1, 3, 3), "conv1.bias": zeros(8),
        "conv2.weight": he_normal(16, 8, 3, 3), "conv2.bias": zeros(16),
        "fc.weight": he_normal(10, 64), "fc.bias": zeros(10),
    }  # fmt: skip


def loss_gradients(p, x, labels, kind):
    """Gradients of the mean cross entropy on one batch."""
    act, slope, pool, unpool = kind
    a1, columns1 = conv_forward(x, p["conv1.weight"], p["conv1.bias"])
    h1, winner1 = pool(act(a1))
    a2, columns2 = conv_forward(h1, p["conv2.weight"], p["conv2.bias"])
    h2, winner2 = pool(act(a2))
    features = h2.reshape(len(x), -1)
    logits = features @ p["fc.weight"].T + p["fc.bias"]
    exp = np.exp(logits - logits.max(1, keepdims=True))
    grad = exp / exp.sum(1, keepdims=True)
    grad[np.arange(len(x)), labels] -= 1
    grad /= len(x)

    g = {"fc.weight": grad.T @ features, "fc.bias": grad.sum(0)}
    d2 = unpool((grad @ p["fc.weight"]).reshape(h2.shape), winner2) * slope(a2)
    d1, g["conv2.weight"], g["conv2.bias"] = conv_backward(d2, columns2, p["conv2.weight"], 8)
    d1 = unpool(d1, winner1) * slope(a1)
    _, g["conv1.weight"], g["conv1.bias"] = conv_backward(d1, columns1, p["conv1.weight"], 1)
    return g


def shifted(rng, x):
    """A share `SHIFTED` of the images moved by -1, 0 or 1 pixels in each direction, filled with zeros."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moved = rng.random((len(x), 1)) < SHIFTED
    offsets = np.where(moved, rng.integers(0, 3, (len(x), 2)), 1)
    return np.stack([padded[i, :, r : r + 8, c : c + 8] for i, (r, c) in enumerate(offsets)])


def train(rng, images, labels, kind):
    p = initial_parameters(rng)
    mean = {k: np.zeros_like(v) for k, v in p.items()}
    square = {k: np.zeros_like(v) for k, v in p.items()}
    step = 0
    for epoch in range(EPOCHS):
        rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(images))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            gradients = loss_gradients(p, shifted(rng, images[batch]), labels[batch], kind)
            step += 1
            for k, g in gradients.items():
                mean[k] = 0.9 * mean[k] + 0.1 * g
                square[k] = 0.999 * square[k] + 0.001 * g * g
                update = (mean[k] / (1 - 0.9**step)) / (np.sqrt(square[k] / (1 - 0.999**step)) + 1e-8)
                p[k] = (p[k] - rate * (update + WEIGHT_DECAY * p[k])).astype(np.float32)
    return p


def to_onnx(p, kind):
    if kind is RELU:
        act, pool = (lambda x, out: helper.make_node("Relu", [x], [out], out)), "MaxPool"
    else:
        act, pool = (lambda x, out: helper.make_node("Mul", [x, x], [out], out)), "AveragePool"
    name = "relu" if kind is RELU else "square"
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1",
                         kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        act("conv1", f"{name}1"),
        helper.make_node(pool, [f"{name}1"], ["pool1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["pool1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2",
                         kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        act("conv2", f"{name}2"),
        helper.make_node(pool, [f"{name}2"], ["pool2"], "pool2", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool2"], ["features"], "flatten", axis=1),
        helper.make_node("Gemm", ["features", "fc.weight", "fc.bias"], ["logits"], "fc", transB=1),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(v, k) for k, v in p.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="tacit")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    labels = data.target.astype(np.int64)
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(images))
    test, rest = order[:TEST_IMAGES], order[TEST_IMAGES:]

    np.save(HERE / "digits_samples.npy", images[rest[:CALIBRATION_IMAGES]])
    np.save(HERE / "digit.npy", images[test[:1]])
    np.savez_compressed(HERE / "digits_test.npz", images=images[test], labels=labels[test])
    for file, kind in (("digits.onnx", RELU), ("digits_square.onnx", SQUARE)):
        onnx.save(to_onnx(train(rng, images[rest], labels[rest], kind), kind), HERE / file)
        session = onnxruntime.InferenceSession(HERE / file)
        for name, part in (("training", rest), ("held-out", test)):
            answers = session.run(None, {"image": images[part]})[0].argmax(1)
            print(f"{file}, {name}: {np.mean(answers == labels[part]):.2%} of {len(part)} images")
        assert np.mean(answers == labels[test]) >= 0.97, "the held-out accuracy fell below 97 %"


if __name__ == "__main__":
    main()
