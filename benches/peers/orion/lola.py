"""LoLA (a convolution, two fully connected layers, squares; 28 x 28) on encrypted slots by Orion, with random weights, and
the same network as ONNX for `tacit`. Prints seconds of each step and how far the encrypted answer is from the clear one.

    python -m venv venv && venv/bin/pip install orion-fhe==1.0.2 onnx     # PyTorch comes with it
    GOMAXPROCS=1 venv/bin/python lola.py out     # writes lola.onnx, samples.npy and input.npy there
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import orion
import orion.nn as on
import torch
from onnx import TensorProto, helper, numpy_helper

# Those of Orion's own LoLA: 2^13, conjugate-invariant ring, five levels of 26 bits.
PARAMETERS = {
    "ckks_params": {
        "LogN": 13,
        "LogQ": [29, 26, 26, 26, 26, 26],
        "LogP": [29, 29],
        "LogScale": 26,
        "H": 8192,
        "RingType": "ConjugateInvariant",
    },
    "orion": {
        "margin": 2,
        "embedding_method": "hybrid",
        "backend": "lattigo",
        "fuse_modules": True,
        "debug": False,
        "io_mode": "none",
    },
}


class LoLA(on.Module):
    """Orion's `models/lola.py` without batch norms, which it folds anyway."""

    def __init__(self):
        super().__init__()
        self.conv = on.Conv2d(1, 5, kernel_size=2, padding=0, stride=2)
        self.first, self.second = on.Quad(), on.Quad()
        self.flatten = on.Flatten()
        self.hidden = on.Linear(980, 100)
        self.last = on.Linear(100, 10)

    def forward(self, x):
        return self.last(self.second(self.hidden(self.flatten(self.first(self.conv(x))))))


def as_onnx(net, path):
    """The same network, by hand: its layers are no PyTorch modules that export."""
    arrays = {
        name: getattr(getattr(net, layer), what).detach().numpy()
        for layer in ("conv", "hidden", "last")
        for what, name in (("weight", f"{layer}_w"), ("bias", f"{layer}_b"))
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv_w", "conv_b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Mul", ["c", "c"], ["c2"]),
        helper.make_node("Flatten", ["c2"], ["f"]),
        helper.make_node("Gemm", ["f", "hidden_w", "hidden_b"], ["h"], transB=1),
        helper.make_node("Mul", ["h", "h"], ["h2"]),
        helper.make_node("Gemm", ["h2", "last_w", "last_b"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "lola",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    net = LoLA()
    net.eval()
    samples = torch.rand(64, 1, 28, 28)
    one = samples[:1]
    as_onnx(net, out / "lola.onnx")
    np.save(out / "samples.npy", samples.numpy())
    np.save(out / "input.npy", one.numpy()[0])
    clear = net(one)
    took = {}

    def timed(name, what):
        start = time.perf_counter()
        result = what()
        took[name] = round(time.perf_counter() - start, 3)
        return result

    orion.init_scheme(PARAMETERS)
    timed("fit", lambda: orion.fit(net, one))
    level = timed("compile, keys included", lambda: orion.compile(net))
    cipher = timed("encrypt", lambda: orion.encrypt(orion.encode(one, level)))
    net.he()
    answers = [timed(f"answer {i}", lambda: net(cipher)) for i in range(3)]
    result = timed("decrypt", lambda: answers[-1].decrypt().decode())
    off = (result.reshape(-1)[:10] - clear.reshape(-1)).abs().max().item()
    print(json.dumps({"seconds": took, "off": off, "largest": clear.abs().max().item()}))


if __name__ == "__main__":
    main()
