"""Writes the small ONNX networks that the fuzz targets start from, next to this file (needs onnx; the results are committed)."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tests"))

from nets import Net, ints, node, weights  # noqa: E402

BN = {k: weights(2) for k in ("shift", "mean")} | {"scale": abs(weights(2)) + 1, "var": abs(weights(2)) + 1}
NETS = (
    Net("conv", (2, 6, 6), [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", "c scale shift mean var", "n"),
        node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[1, 1]),
        node("AveragePool", "p", "y", kernel_shape=[2, 2]),
    ], {"w": weights(2, 2, 3, 3), "b": weights(2)} | BN),
    Net("wiring", (2, 4, 4), [
        node("Conv", "x w", "c"),
        node("Add", "c x", "a"),
        node("Concat", "a x", "k", axis=1),
        node("Slice", "k st en ax sp", "s"),
        node("Pad", "s pd", "q"),
        node("LeakyRelu", "q", "l", alpha=0.25),
        node("GlobalAveragePool", "l", "g"),
        node("Flatten", "g", "y"),
    ], {"w": weights(2, 2, 1, 1), "st": ints(0, 0), "en": ints(4, 4), "ax": ints(2, 3), "sp": ints(2, 2),
        "pd": ints(0, 0, 1, 0, 0, 0, 0, 1)}),
    Net("dense", (6,), [
        node("Gemm", "x w b", "g", transB=1),
        node("Clip", "g lo hi", "k"),
        node("Reshape", "k s", "r"),
        node("MatMul", "r v", "m"),
        node("Softmax", "m", "y", axis=1),
    ], {"w": weights(4, 6), "b": weights(4), "v": weights(4, 3), "s": ints(1, -1),
        "lo": weights(1)[0] * 0, "hi": weights(1)[0] * 0 + 6}),
)  # fmt: skip

for net in NETS:
    (HERE / f"{net.name}.onnx").write_bytes(net.to_bytes())
