"""Trains the intrusion detector and writes `detector.onnx`, and `detector.json` with what a client
must know to encode a record, next to this file.

usage: train_detector.py [--steps T] [--out FOLDER] [--arrays FOLDER]

A GRU of 128 hidden units, then three fully connected layers (64, 32, 5) with sigmoids, as [KDS25] measures; input `[N, T, 122 / T]`, a record of
NSL-KDD as `scripts/nsl_kdd.py` makes it, output `scores` `[N, 5]` (normal, dos, probe, r2l, u2r). The paper does not say over how many steps its GRU
runs: here one, unless `--steps` cuts a record into so many parts, padded with zeros. In one step from a state of zeros the recurrent weights and the reset gate
have no effect, so they stay zero in the file. The last sigmoid is a node of the file, and the client's to apply.

Encrypted, sigmoid and tanh are polynomials, good on a range: training adds a penalty on what they read beyond FAR. Plain numpy (Adam, cross entropy of
each class against the others), one seed, one thread, about two minutes; 16-bit weights.

Data: nine tenths of KDDTrain+ (see scripts/nsl_kdd.py and scripts/shared_data.py). Prints the accuracy on the other tenth and on KDDTest+, which has attacks
that KDDTrain+ has not. With `--arrays` nothing is trained: it writes calibration records, and records and classes of both tests, as .npy. Calibration records
are 32 chosen by chance and those on which functions of the network read the most and the least, so that polynomials hold on all of them.
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
from onnx import TensorProto, helper, numpy_helper
from train_networks import constants

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import nsl_kdd  # noqa: E402
import shared_data  # noqa: E402

SEED = 20261124
HIDDEN = 128
LAYERS = (64, 32, 5)
BATCH = 256
EPOCHS = 24
RATE = 3e-3
WEIGHT_DECAY = 1e-5
# What sigmoid and tanh may read, and the penalty on more.
FAR = {"sigmoid": 3.0, "tanh": 1.5}
PENALTY = 1.0
# How often an epoch sees the records of the two rare classes, r2l and u2r.
REPEATED = {3: 2, 4: 10}
CHOSEN = 32
LEAST = 0.99


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def beyond(x, kind):
    """How far `x` lies outside of what its function should read, with its sign: half the gradient of the penalty."""
    return x - np.clip(x, -FAR[kind], FAR[kind])


def in_steps(x, steps):
    """Records as `[N, T, F]`."""
    width = -(-x.shape[1] // steps)
    return np.pad(x, ((0, 0), (0, steps * width - x.shape[1]))).reshape(len(x), steps, width)


def initial_parameters(rng, features, recurrent):
    """Gates of the GRU in the order of ONNX (update, reset, candidate), then the layers; all weights `[out, in]`."""
    some = lambda rows, columns: rng.standard_normal((rows, columns)) / np.sqrt(columns)  # noqa: E731
    p = {}
    for gate in "zrc":
        p[f"w{gate}"], p[f"b{gate}"] = some(HIDDEN, features), np.zeros(HIDDEN)
        p[f"r{gate}"] = some(HIDDEN, HIDDEN) if recurrent else np.zeros((HIDDEN, HIDDEN))
    width = HIDDEN
    for number, out in enumerate(LAYERS):
        p[f"w{number}"], p[f"b{number}"] = some(out, width), np.zeros(out)
        width = out
    return {k: v.astype(np.float32) for k, v in p.items()}


def forward(p, x):
    """Scores before the last sigmoid, and what the way back needs."""
    h, steps = np.zeros((len(x), HIDDEN), np.float32), []
    for t in range(x.shape[1]):
        given = x[:, t]
        az, ar = (given @ p[f"w{g}"].T + h @ p[f"r{g}"].T + p[f"b{g}"] for g in "zr")
        z, r = sigmoid(az), sigmoid(ar)
        ac = given @ p["wc"].T + (r * h) @ p["rc"].T + p["bc"]
        c = np.tanh(ac)
        steps.append((given, h, az, ar, ac, z, r, c))
        h = (1 - z) * c + z * h
    layers = []
    for number in range(len(LAYERS)):
        a = h @ p[f"w{number}"].T + p[f"b{number}"]
        layers.append((h, a))
        h = sigmoid(a)
    return a, steps, layers


def gradients(p, x, labels):
    """Gradients of the loss on one batch, and the loss without the penalty."""
    scores, steps, layers = forward(p, x)
    wanted = np.zeros_like(scores)
    wanted[np.arange(len(x)), labels] = 1
    loss = (np.logaddexp(0, scores) - wanted * scores).sum(1).mean()
    share = np.float32(2 * PENALTY / len(x))
    g = {k: np.zeros_like(v) for k, v in p.items()}
    grad = (sigmoid(scores) - wanted) / len(x)
    for number in reversed(range(len(LAYERS))):
        given, a = layers[number]
        if number + 1 < len(LAYERS):
            s = sigmoid(a)
            grad = grad * s * (1 - s) + share * beyond(a, "sigmoid")
        g[f"w{number}"], g[f"b{number}"] = grad.T @ given, grad.sum(0)
        grad = grad @ p[f"w{number}"]
    for given, h, az, ar, ac, z, r, c in reversed(steps):
        back = {"c": (1 - z) * grad * (1 - c * c) + share * beyond(ac, "tanh")}
        back["z"] = (h - c) * grad * z * (1 - z) + share * beyond(az, "sigmoid")
        reset = back["c"] @ p["rc"]
        back["r"] = reset * h * r * (1 - r) + share * beyond(ar, "sigmoid")
        grad = z * grad + reset * r + back["z"] @ p["rz"] + back["r"] @ p["rr"]
        for gate, own in (("z", h), ("r", h), ("c", r * h)):
            g[f"w{gate}"] += back[gate].T @ given
            g[f"r{gate}"] += back[gate].T @ own
            g[f"b{gate}"] += back[gate].sum(0)
    return g, loss


def train(records, labels):
    rng = np.random.default_rng(SEED)
    often = np.repeat(np.arange(len(labels)), [REPEATED.get(label, 1) for label in labels])
    records, labels = records[often], labels[often]
    p = initial_parameters(rng, records.shape[2], records.shape[1] > 1)
    adam = Adam(p, RATE, WEIGHT_DECAY, EPOCHS * (len(records) // BATCH))
    for epoch in range(EPOCHS):
        losses = []
        order = rng.permutation(len(records))
        for batch in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            g, loss = gradients(p, records[batch], labels[batch])
            losses.append(loss)
            adam.change(g)
        print(f"  epoch {epoch + 1}/{EPOCHS}: loss {np.mean(losses):.4f}", flush=True)
    return p


def to_onnx(p, steps, features):
    tensors, nodes = [numpy_helper.from_array(np.array([0]), "first")], []

    def weights(name, value):
        tensor, cast = constants(name, value)
        tensors.append(tensor)
        nodes.append(cast)
        return name

    gates = [weights(f"gru.{name}", np.concatenate([p[f"{name}{g}"] for g in "zrc"])[None]) for name in "wr"]
    biases = np.concatenate([p[f"b{g}"] for g in "zrc"])
    bias = weights("gru.b", np.concatenate([biases, np.zeros_like(biases)])[None])
    nodes.append(helper.make_node("Transpose", ["record"], ["steps"], "transpose", perm=[1, 0, 2]))
    nodes.append(helper.make_node("GRU", ["steps", *gates, bias], ["", "last"], "gru", hidden_size=HIDDEN))
    nodes.append(helper.make_node("Squeeze", ["last", "first"], ["state"], "squeeze"))
    last = "state"
    for number in range(len(LAYERS)):
        key = f"fc{number + 1}"
        given = [last, weights(f"{key}.weight", p[f"w{number}"]), weights(f"{key}.bias", p[f"b{number}"])]
        nodes.append(helper.make_node("Gemm", given, [key], key, transB=1))
        last = "scores" if number + 1 == len(LAYERS) else f"{key}.sigmoid"
        nodes.append(helper.make_node("Sigmoid", [key], [last], last))
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("record", TensorProto.FLOAT, ["N", steps, features])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", LAYERS[-1]])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], producer_name="tacit")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def of_file(path):
    """The parameters of a file that `to_onnx` made."""
    halves = {t.name: numpy_helper.to_array(t).astype(np.float32) for t in onnx.load(path).graph.initializer}
    p = {}
    for name in "wrb":
        parts = halves[f"gru.{name}.half"][0].reshape(-1, HIDDEN, *halves[f"gru.{name}.half"].shape[2:])
        p |= {f"{name}{g}": parts[k] for k, g in enumerate("zrc")}
    for number in range(len(LAYERS)):
        p[f"w{number}"], p[f"b{number}"] = halves[f"fc{number + 1}.weight.half"], halves[f"fc{number + 1}.bias.half"]
    return p


def calibration(p, x):
    """Records by chance, and those on which functions read the most and the least: 4 for each function and end."""
    _, steps, layers = forward(p, x)
    read = [a for step in steps for a in (step[2], step[4])] + [a for _, a in layers[:-1]]
    ends = [np.argsort(side)[-4:] for a in read for side in (a.max(1), -a.min(1))]
    chance = np.random.default_rng(SEED).choice(len(x), CHOSEN, replace=False)
    return x[np.unique(np.concatenate([*ends, chance]))]


def accuracy(path, records, labels):
    answers = onnxruntime.InferenceSession(path).run(None, {"record": records})[0].argmax(1)
    return float(np.mean(answers == labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1, metavar="T", help="cut a record into so many parts, one for each step of the GRU")
    parser.add_argument("--out", type=Path, default=HERE, metavar="FOLDER")
    parser.add_argument("--arrays", type=Path, metavar="FOLDER", help="write calibration and test records as .npy instead")
    options = parser.parse_args()
    # Before minutes of training, not after them.
    options.out.mkdir(parents=True, exist_ok=True)
    data = shared_data.folder()
    if data is None or not (data / "nsl-kdd").is_dir():
        print("NSL-KDD is missing: put it in ../shared/data, or set TACIT_DATA (see scripts/shared_data.py)", file=sys.stderr)
        return 2
    lines, path = nsl_kdd.lines(data), options.out / "detector.onnx"
    encoding = nsl_kdd.Encoding.of(lines["train"], lines["train"] + lines["held_out"])
    parts = {name: encoding.records(part) for name, part in lines.items()}
    parts = {name: (in_steps(x, options.steps), y) for name, (x, y) in parts.items()}
    if options.arrays:
        options.arrays.mkdir(parents=True, exist_ok=True)
        np.save(options.arrays / "detector_samples.npy", calibration(of_file(path), parts["train"][0]))
        for name in ("held_out", "test"):
            np.save(options.arrays / f"detector_{name}.npy", parts[name][0])
            np.save(options.arrays / f"detector_{name}_labels.npy", parts[name][1])
        return 0
    p = train(*parts["train"])
    onnx.save(to_onnx(p, options.steps, parts["train"][0].shape[2]), path)
    encoding.write(options.out / "detector.json")
    shares = {name: accuracy(path, *parts[name]) for name in ("held_out", "test")}
    print(f"detector: {shares['held_out']:.2%} of the held-out tenth, {shares['test']:.2%} of KDDTest+, {path.stat().st_size} bytes")
    assert shares["held_out"] >= LEAST, f"the accuracy fell below {LEAST:.0%}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
