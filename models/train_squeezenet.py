"""Trains two SqueezeNets for CIFAR-10 and writes them next to this file: one with squares, one with ReLU.

usage: train_squeezenet.py [--only square|relu] [--epochs N] [--out FOLDER]

Input `[N, 3, 32, 32]`, normalised as `shared_data.cifar10_normalised` does; output `logits` `[N, 10]`. A convolution of 16 channels, five fire modules
(1x1 down, then 1x1 and 3x3 side by side, concatenated), average pooling after the first and third activation of the grid,
a 1x1 convolution and the global average: 17.0 million multiplications. No tensor has more than 2^14 elements, the slots of one ciphertext of set B.

The square, as in AESPA (arXiv 2201.06699), is the Hermite expansion of ReLU up to degree 2 behind a batch norm that is folded into the convolution before
it: 0.2 x^2 + 0.5 x, the same for all channels, so that no channel needs a factor of its own. Squares square whatever lies far
out, layer after layer, so training adds a penalty on what lies beyond 5 deviations.

Data: the 30,000 CIFAR-10 training images of the data folder (see scripts/shared_data.py), mirrored, shifted by up to four pixels, with a square cut out.
Needs PyTorch, which is no dependency of the project (models/README.md says how to install it), and numpy, onnx, onnxruntime. One seed, one thread.
Sums of bfloat16 on other processors give other weights.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional
from train_networks import accuracy, constants, test_data, training_data

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import shared_data  # noqa: E402

SEED = 20261124
BATCH = 128
STEM = 16
# Squeezed channels, channels of each expanding convolution, whether an average of 2x2 goes before it.
FIRES = [(16, 32, True), (32, 32, False), (32, 128, True), (32, 128, False), (64, 128, False)]
SQUARE = (0.2, 0.5)
FAR = 5.0
PENALTY = 0.02
RATE = {"square": 0.05, "relu": 0.1}
EPOCHS = 40
WEIGHT_DECAY = 5e-4
LEAST = 0.8


class Activation(nn.Module):
    """A batch norm and the function behind it; keeps how far out the values of the last batch lay."""

    def __init__(self, channels, kind):
        super().__init__()
        self.norm, self.kind, self.far = nn.BatchNorm2d(channels), kind, 0.0

    def forward(self, x):
        x = self.norm(x)
        if self.kind == "relu":
            return functional.relu(x)
        if self.training:
            self.far = functional.relu(x.abs() - FAR).square().float().sum() / len(x)
        return (SQUARE[0] * x + SQUARE[1]) * x


class Fire(nn.Module):
    def __init__(self, channels, squeezed, expanded, pooled, kind):
        super().__init__()
        self.pooled = pooled
        self.squeeze = nn.Conv2d(channels, squeezed, 1, bias=False)
        self.squeezed = Activation(squeezed, kind)
        self.one = nn.Conv2d(squeezed, expanded, 1, bias=False)
        self.three = nn.Conv2d(squeezed, expanded, 3, padding=1, bias=False)
        self.expanded = Activation(2 * expanded, kind)

    def forward(self, x):
        x = functional.avg_pool2d(x, 2) if self.pooled else x
        x = self.squeezed(self.squeeze(x))
        return self.expanded(torch.cat((self.one(x), self.three(x)), 1))


class SqueezeNet(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, STEM, 3, padding=1, bias=False), Activation(STEM, kind)
        channels, fires = STEM, []
        for squeezed, expanded, pooled in FIRES:
            fires.append(Fire(channels, squeezed, expanded, pooled, kind))
            channels = 2 * expanded
        self.fires, self.last = nn.Sequential(*fires), nn.Conv2d(channels, 10, 1)

    def forward(self, x):
        return self.last(self.fires(self.first(self.stem(x)))).mean((2, 3))


def varied(x, random):
    """Half of the images mirrored, all moved by up to four pixels, and half of them with a square of 8 x 8 cut out."""
    n, _, h, w = x.shape
    rows, columns = torch.randint(0, 9, (2, n), generator=random)
    padded = functional.pad(x, (4, 4, 4, 4))
    y = rows[:, None] + torch.arange(h)
    flip = torch.rand(n, 1, generator=random) < 0.5
    line = torch.where(flip, torch.arange(w - 1, -1, -1), torch.arange(w))
    moved = padded.permute(0, 2, 3, 1)[torch.arange(n)[:, None, None], y[:, :, None], (columns[:, None] + line)[:, None, :]]
    top, left = torch.randint(0, h - 7, (2, n), generator=random)
    cut = torch.rand(n, generator=random) < 0.5
    inside = lambda first: (torch.arange(h) >= first[:, None]) & (torch.arange(h) < first[:, None] + 8)  # noqa: E731
    hole = inside(top)[:, :, None] & inside(left)[:, None, :] & cut[:, None, None]
    return moved.masked_fill(hole[..., None], 0.0).permute(0, 3, 1, 2)


def right(network, images, labels):
    network.eval()
    with torch.no_grad():
        answers = [network(part).argmax(1) for part in images.split(500)]
    network.train()
    return (torch.cat(answers) == labels).float().mean().item()


def train(kind, epochs, images, labels, test):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(SEED)
    network = SqueezeNet(kind).to(memory_format=torch.channels_last)
    rule = torch.optim.SGD(network.parameters(), RATE[kind], momentum=0.9, nesterov=True, weight_decay=WEIGHT_DECAY)
    steps = len(images) // BATCH
    rates = torch.optim.lr_scheduler.OneCycleLR(rule, RATE[kind], epochs=epochs, steps_per_epoch=steps, pct_start=0.2)
    activations = [m for m in network.modules() if isinstance(m, Activation)]
    compiled = torch.compile(network)  # two and a half times faster; needs a C++ compiler
    for epoch in range(epochs):
        losses, start = [], time.process_time()
        order = torch.randperm(len(images), generator=random)
        for batch in order[: steps * BATCH].split(BATCH):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = compiled(varied(images[batch], random))
            loss = functional.cross_entropy(logits.float(), labels[batch], label_smoothing=0.05)
            losses.append(loss.item())
            rule.zero_grad()
            (loss + PENALTY * sum(a.far for a in activations)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            rule.step()
            rates.step()
        spent = time.process_time() - start
        print(f"  {kind} {epoch + 1}/{epochs}: loss {np.mean(losses):.3f}, {right(network, *test):.2%} of 2000, {spent:.0f} s of CPU", flush=True)
    return network.eval()


def folded(conv, norm, channels):
    """Weights and bias of a convolution with its share of the batch norm behind it."""
    factor = (norm.weight / (norm.running_var + norm.eps).sqrt())[channels]
    bias = norm.bias[channels] - norm.running_mean[channels] * factor
    return (conv.weight * factor[:, None, None, None]).detach().numpy(), bias.detach().numpy()


class Writer:
    """Nodes of the file, one behind the other."""

    def __init__(self):
        self.nodes, self.tensors = [], []

    def conv(self, key, source, weight, bias):
        for part, value in (("weight", weight), ("bias", bias)):
            tensor, cast = constants(f"{key}.{part}", value)
            self.tensors.append(tensor)
            self.nodes.append(cast)
        pads = [weight.shape[-1] // 2] * 4
        sizes = {"kernel_shape": list(weight.shape[2:]), "pads": pads}
        return self.add("Conv", key, [source, f"{key}.weight", f"{key}.bias"], **sizes)

    def activation(self, key, source, kind):
        if kind == "relu":
            return self.add("Relu", key, [source])
        scaled = self.add("Mul", f"{key}.scaled", [source, "square"])
        moved = self.add("Add", f"{key}.moved", [scaled, "linear"])
        return self.add("Mul", key, [moved, source])

    def add(self, op, key, inputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [key], key, **attributes))
        return key


def to_onnx(network, kind):
    w, all_of = Writer(), slice(None)
    if kind == "square":
        w.tensors += [numpy_helper.from_array(np.float32(v), k) for k, v in zip(("square", "linear"), SQUARE, strict=True)]
    last = w.activation("first", w.conv("stem", "image", *folded(network.stem, network.first.norm, all_of)), kind)
    for number, (fire, (_, expanded, pooled)) in enumerate(zip(network.fires, FIRES, strict=True), 2):
        key = f"fire{number}"
        if pooled:
            last = w.add("AveragePool", f"{key}.pool", [last], kernel_shape=[2, 2], strides=[2, 2])
        squeezed = w.conv(f"{key}.squeeze", last, *folded(fire.squeeze, fire.squeezed.norm, all_of))
        squeezed = w.activation(f"{key}.squeezed", squeezed, kind)
        one = w.conv(f"{key}.one", squeezed, *folded(fire.one, fire.expanded.norm, slice(0, expanded)))
        three = w.conv(f"{key}.three", squeezed, *folded(fire.three, fire.expanded.norm, slice(expanded, None)))
        last = w.activation(f"{key}.expanded", w.add("Concat", f"{key}.both", [one, three], axis=1), kind)
    scores = w.conv("last", last, network.last.weight.detach().numpy(), network.last.bias.detach().numpy())
    mean = w.add("GlobalAveragePool", "mean", [scores])
    w.add("Flatten", "logits", [mean], axis=1)
    graph = helper.make_graph(
        w.nodes,
        f"squeezenet_{kind}",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 32, 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        w.tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="tacit")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=RATE, help="train this one only")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--out", type=Path, default=HERE, metavar="FOLDER")
    options = parser.parse_args()
    # Before minutes of training, not after them.
    options.out.mkdir(parents=True, exist_ok=True)
    data = shared_data.folder()
    if data is None or not (data / "cifar10" / "train_rest_20k.bin.gz").is_file():
        print("CIFAR-10 is missing: put it in ../shared/data, or set TACIT_DATA (see scripts/shared_data.py)", file=sys.stderr)
        return 2
    tensors = lambda images, labels: (torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64)))  # noqa: E731
    images, labels = tensors(*training_data(data, "hinet"))
    test = test_data(data, "hinet")
    for kind in [options.only] if options.only else RATE:
        network = train(kind, options.epochs, images, labels, [t[:2000] for t in tensors(*test)])
        path = options.out / f"squeezenet_{kind}.onnx"
        onnx.save(to_onnx(network, kind), path)
        share = accuracy(path, *test)
        print(f"{kind}: {share:.2%} of 10000 test images, {path.stat().st_size} bytes", flush=True)
        assert share >= LEAST, f"the accuracy of {kind} fell below {LEAST:.0%}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
