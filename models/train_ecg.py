"""Trains a classifier of heart beats, normal or premature, and writes `ecg.onnx` next to this file.

usage: train_ecg.py [--out FOLDER] [--arrays FOLDER]

A 1-D CNN with squares, for encrypted slots: Conv 7 (2 -> 8, stride 2), square, Conv 5 (8 -> 16, stride 2), square, average of 4, Flatten, Gemm (128 -> 2).
Input `[N, 2, 128]`, a beat of the MIT-BIH record of the data folder as `scripts/ecg.py` makes it. The first 60 % of the record train, the rest tests:
one patient, so this says nothing of others. Premature beats are rare (34 of 2271), so training sees each one 30 times, moved by up to three samples.
Plain numpy (Adam, cross entropy), one seed, one thread, half a minute. With `--arrays` nothing is trained: beats for calibration (all premature
ones of the training part, and those with the largest values), test beats and classes, as .npy.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one summation order, so one result

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from adam import Adam
from onnx import TensorProto, helper
from train_networks import constants

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import ecg  # noqa: E402
import shared_data  # noqa: E402

SEED = 20261124
# Channels, size, stride and padding of each convolution.
LAYERS = ((8, 7, 2, 3), (16, 5, 2, 2))
POOL = 4
TRAINED = 0.6
REPEATED, MOVED = 30, 3
BATCH, EPOCHS, RATE, WEIGHT_DECAY = 64, 30, 3e-3, 1e-3
LARGEST = 32
LEAST = 0.98


def columns(x, size, stride, pad):
    """Patches of `[N, C, L]` as `[N, L', C * size]`."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (pad, pad))), size, axis=2)
    return windows[:, :, ::stride].transpose(0, 2, 1, 3).reshape(len(x), -1, x.shape[1] * size)


def back(grad, channels, length, size, stride, pad):
    """The transpose of `columns`."""
    n, count, _ = grad.shape
    grad = grad.reshape(n, count, channels, size).transpose(0, 2, 1, 3)
    x = np.zeros((n, channels, length + 2 * pad), grad.dtype)
    for k in range(size):
        x[:, :, k : k + stride * count : stride] += grad[..., k]
    return x[:, :, pad : pad + length]


def initial_parameters(rng):
    p, channels, length = {}, 2, ecg.LENGTH
    for number, (out, size, stride, _) in enumerate(LAYERS):
        p[f"w{number}"] = rng.standard_normal((out, channels * size)) / np.sqrt(channels * size)
        p[f"b{number}"] = np.zeros(out)
        channels, length = out, length // stride
    features = channels * length // POOL
    p |= {"w": rng.standard_normal((2, features)) / np.sqrt(features), "b": np.zeros(2)}
    return {k: v.astype(np.float32) for k, v in p.items()}


def gradients(p, x, labels):
    kept = []
    for number, (_, size, stride, pad) in enumerate(LAYERS):
        patches = columns(x, size, stride, pad)
        y = patches @ p[f"w{number}"].T + p[f"b{number}"]
        kept.append((x.shape, patches, y))
        x = (y * y).transpose(0, 2, 1)
    pooled = x.reshape(*x.shape[:2], -1, POOL).mean(3)
    features = pooled.reshape(len(x), -1)
    logits = features @ p["w"].T + p["b"]
    exp = np.exp(logits - logits.max(1, keepdims=True))
    grad = exp / exp.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(np.maximum(grad[rows, labels], 1e-12)).mean()
    grad[rows, labels] -= 1
    grad /= len(x)
    g = {"w": grad.T @ features, "b": grad.sum(0)}
    grad = np.repeat((grad @ p["w"]).reshape(pooled.shape) / POOL, POOL, axis=2)
    for number in reversed(range(len(LAYERS))):
        _, size, stride, pad = LAYERS[number]
        shape, patches, y = kept[number]
        grad = grad.transpose(0, 2, 1) * 2 * y
        g[f"w{number}"] = np.tensordot(grad, patches, ((0, 1), (0, 1)))
        g[f"b{number}"] = grad.sum((0, 1))
        grad = back(grad @ p[f"w{number}"], shape[1], shape[2], size, stride, pad)
    return g, loss


def train(beats, labels):
    rng = np.random.default_rng(SEED)
    p = initial_parameters(rng)
    often = np.repeat(np.arange(len(labels)), np.where(labels == 1, REPEATED, 1))
    adam = Adam(p, RATE, WEIGHT_DECAY, EPOCHS * (len(often) // BATCH))
    for epoch in range(EPOCHS):
        losses = []
        for batch in rng.permutation(often)[: len(often) // BATCH * BATCH].reshape(-1, BATCH):
            moved = [np.roll(beats[i], by, axis=1) for i, by in zip(batch, rng.integers(-MOVED, MOVED + 1, BATCH), strict=True)]
            g, loss = gradients(p, np.stack(moved), labels[batch])
            losses.append(loss)
            adam.change(g)
        print(f"  epoch {epoch + 1}/{EPOCHS}: loss {np.mean(losses):.4f}", flush=True)
    return p


def to_onnx(p):
    nodes, tensors, last, channels = [], [], "beat", 2

    def weights(name, value):
        tensor, cast = constants(name, value)
        tensors.append(tensor)
        nodes.append(cast)
        return name

    for number, (out, size, stride, pad) in enumerate(LAYERS):
        key = f"conv{number + 1}"
        given = [weights(f"{key}.weight", p[f"w{number}"].reshape(out, channels, size)), weights(f"{key}.bias", p[f"b{number}"])]
        nodes.append(helper.make_node("Conv", [last, *given], [key], key, kernel_shape=[size], strides=[stride], pads=[pad, pad]))
        nodes.append(helper.make_node("Mul", [key, key], [f"{key}.square"], f"{key}.square"))
        last, channels = f"{key}.square", out
    nodes.append(helper.make_node("AveragePool", [last], ["pool"], "pool", kernel_shape=[POOL], strides=[POOL]))
    nodes.append(helper.make_node("Flatten", ["pool"], ["features"], "flatten"))
    given = ["features", weights("fc.weight", p["w"]), weights("fc.bias", p["b"])]
    nodes.append(helper.make_node("Gemm", given, ["logits"], "fc", transB=1))
    graph = helper.make_graph(
        nodes,
        "ecg",
        [helper.make_tensor_value_info("beat", TensorProto.FLOAT, ["N", 2, ecg.LENGTH])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 2])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="tacit")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, metavar="FOLDER")
    parser.add_argument("--arrays", type=Path, metavar="FOLDER", help="write calibration and test beats as .npy instead")
    options = parser.parse_args()
    # Before minutes of training, not after them.
    options.out.mkdir(parents=True, exist_ok=True)
    data = shared_data.folder()
    if data is None or not (data / "ecg").is_dir():
        print("the record is missing: put it in ../shared/data, or set TACIT_DATA (see scripts/shared_data.py)", file=sys.stderr)
        return 2
    beats, labels = ecg.beats(data)
    first = int(TRAINED * len(beats))
    if options.arrays:
        options.arrays.mkdir(parents=True, exist_ok=True)
        largest = np.argsort(np.abs(beats[:first]).max((1, 2)))
        chosen = np.unique(np.append(np.flatnonzero(labels[:first]), largest[first - LARGEST :]))
        np.save(options.arrays / "ecg_samples.npy", beats[chosen])
        np.save(options.arrays / "ecg_test.npy", beats[first:])
        np.save(options.arrays / "ecg_labels.npy", labels[first:])
        return 0
    p = train(beats[:first], labels[:first])
    path = options.out / "ecg.onnx"
    onnx.save(to_onnx(p), path)
    answers = onnxruntime.InferenceSession(path).run(None, {"beat": beats[first:]})[0].argmax(1)
    tested = labels[first:]
    found, clean = (answers[tested == 1] == 1).sum(), (answers[tested == 0] == 0).sum()
    share = float(np.mean(answers == tested))
    print(f"ecg: {share:.2%} of {len(tested)} test beats; {found} of {(tested == 1).sum()} premature ones found, {clean} of {(tested == 0).sum()} normal ones")
    assert share >= LEAST, f"the accuracy fell below {LEAST:.0%}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
