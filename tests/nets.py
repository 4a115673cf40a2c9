"""Small ONNX networks for the tests, one for each operation that the importer takes."""

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG_SEED = 5


@dataclass
class Net:
    """A network `x -> y`: nodes, parameters and the input's shape (without the batch)."""

    name: str
    shape: tuple[int, ...]
    nodes: list[onnx.NodeProto]
    params: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 13
    output_type: int = TensorProto.FLOAT

    def to_bytes(self) -> bytes:
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *self.shape])],
            [helper.make_tensor_value_info("y", self.output_type, None)],
            [numpy_helper.from_array(v, k) for k, v in self.params.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model)
        return model.SerializeToString()

    def samples(self, count: int, seed: int = 1) -> np.ndarray:
        """Inputs in -1..1, float32 `[count, *shape]`."""
        return np.random.default_rng(seed).uniform(-1, 1, (count, *self.shape)).astype(np.float32)


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    """A node; `inputs` are names separated by spaces (`_` stands for an omitted input)."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, output.split(), output.split()[0] + "_node", **attributes)


def weights(*shape: int, seed: int = RNG_SEED) -> np.ndarray:
    fan_in = max(1, int(np.prod(shape[1:])))
    rng = np.random.default_rng(seed + sum(shape))
    return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _conv(name: str, shape: tuple[int, int, int], weight: tuple[int, ...], **attributes: object) -> Net:
    nodes = [node("Conv", "x w b", "y", **attributes)]
    return Net(f"conv_{name}", shape, nodes, {"w": weights(*weight), "b": weights(weight[0])})


def _batch_norm(channels: int, prefix: str = "") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(RNG_SEED)
    return {
        f"{prefix}scale": rng.uniform(0.5, 1.5, channels).astype(np.float32),
        f"{prefix}shift": rng.uniform(-0.5, 0.5, channels).astype(np.float32),
        f"{prefix}mean": rng.uniform(-0.2, 0.2, channels).astype(np.float32),
        f"{prefix}var": rng.uniform(0.5, 2, channels).astype(np.float32),
    }


def _convolutions() -> list[Net]:
    return [
        _conv("3x3", (3, 9, 7), (5, 3, 3, 3), pads=[1, 1, 1, 1]),
        _conv("1x1", (6, 5, 5), (4, 6, 1, 1)),
        _conv("stride", (3, 11, 10), (4, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]),
        _conv("asymmetric", (2, 8, 8), (3, 2, 3, 2), pads=[0, 1, 2, 0], strides=[2, 1]),
        _conv("dilated", (2, 10, 10), (3, 2, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2]),
        _conv("grouped", (6, 6, 6), (4, 3, 3, 3), group=2, pads=[1, 1, 1, 1]),
        _conv("depthwise", (5, 7, 7), (5, 1, 3, 3), group=5),
        _conv("same_upper", (3, 8, 9), (2, 3, 4, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
        _conv("same_lower", (3, 8, 9), (2, 3, 4, 3), auto_pad="SAME_LOWER", strides=[2, 2]),
        _conv("valid", (3, 8, 9), (2, 3, 3, 3), auto_pad="VALID"),
    ]


def _dense() -> list[Net]:
    flat = node("Flatten", "x", "f")
    return [
        Net("gemm", (20,), [node("Gemm", "x w b", "y", transB=1)], {"w": weights(7, 20), "b": weights(7)}),
        Net("gemm_plain", (20,), [node("Gemm", "x w b", "y", alpha=0.5, beta=2.0)], {"w": weights(20, 7), "b": weights(7)}),
        Net("matmul", (20,), [node("MatMul", "x w", "m"), node("Add", "m b", "y")], {"w": weights(20, 6), "b": weights(6)}),
        Net("flatten", (3, 4, 5), [flat, node("Gemm", "f w", "y", transB=1)], {"w": weights(6, 60)}),
        Net("reshape", (3, 4, 5), [node("Reshape", "x s", "r"), node("Gemm", "r w", "y", transB=1)],
            {"s": ints(1, 60), "w": weights(6, 60)}),
        Net("relu_between", (12,), [node("Gemm", "x w1", "h", transB=1), node("Relu", "h", "r"),
            node("Gemm", "r w2", "y", transB=1)], {"w1": weights(16, 12), "w2": weights(5, 16)}),
    ]  # fmt: skip


def _normalisation() -> list[Net]:
    bn = "scale shift mean var"
    conv = {"w": weights(4, 3, 3, 3)}
    return [
        Net("bn_folded", (3, 6, 6), [node("Conv", "x w", "c"), node("BatchNormalization", f"c {bn}", "y")],
            conv | _batch_norm(4)),
        Net("bn_unfolded", (3, 6, 6), [node("BatchNormalization", f"x {bn}", "n"), node("Relu", "n", "r"),
            node("Conv", "r w", "y")], conv | _batch_norm(3)),
        Net("bn_after_relu", (3, 6, 6), [node("Conv", "x w", "c"), node("Relu", "c", "r"),
            node("BatchNormalization", f"r {bn}", "y")], conv | _batch_norm(4)),
    ]  # fmt: skip


def _pooling() -> list[Net]:
    conv = [node("Conv", "x w", "c", pads=[1, 1, 1, 1])]
    p = {"w": weights(4, 3, 3, 3)}

    def after_conv(name: str, *nodes: onnx.NodeProto) -> Net:
        return Net(name, (3, 9, 9), [*conv, *nodes], dict(p))

    return [
        after_conv("maxpool", node("MaxPool", "c", "y", kernel_shape=[2, 2], strides=[2, 2])),
        after_conv("maxpool_overlap", node("Relu", "c", "r"),
                   node("MaxPool", "r", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])),
        after_conv("maxpool_ceil", node("MaxPool", "c", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)),
        after_conv("avgpool", node("AveragePool", "c", "y", kernel_shape=[3, 3], strides=[3, 3])),
        after_conv("avgpool_pads", node("AveragePool", "c", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])),
        after_conv("avgpool_pads_counted",
                   node("AveragePool", "c", "y", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)),
        after_conv("global_pool", node("GlobalAveragePool", "c", "g"), node("Flatten", "g", "y")),
    ]  # fmt: skip


def _wiring() -> list[Net]:
    p = {"w": weights(4, 4, 3, 3), "w2": weights(4, 4, 1, 1)}
    conv = node("Conv", "x w", "c", pads=[1, 1, 1, 1])
    short = node("Conv", "x w2", "s")

    def net(name: str, *nodes: onnx.NodeProto, **params: np.ndarray) -> Net:
        used = {i for n in nodes for i in n.input}
        return Net(name, (4, 8, 8), list(nodes), {k: v for k, v in (p | params).items() if k in used})

    channel = np.array([0.5, -1.5, 2, 1], np.float32).reshape(4, 1, 1)
    return [
        net("residual", conv, node("Relu", "c", "r"), node("Add", "r x", "a"), node("Relu", "a", "y")),
        net("two_branches", conv, short, node("Add", "c s", "y")),
        net("concat", conv, short, node("Concat", "c s", "y", axis=1)),
        net("concat_input", conv, node("Concat", "x c", "y", axis=1)),
        net("slice", conv, node("Slice", "c st en ax sp", "y"),
            st=ints(0, 1), en=ints(8, 2**31), ax=ints(2, 3), sp=ints(2, 2)),
        net("pad", conv, node("Pad", "c pd", "y"), pd=ints(0, 1, 0, 2, 0, 1, 1, 0)),
        net("add_constant", conv, node("Add", "c k", "y"), k=channel),
        net("sub_constant", conv, node("Sub", "c k", "y"), k=channel),
        net("mul_constant", conv, node("Mul", "c k", "y"), k=channel),
        net("dropout_identity", conv, node("Dropout", "c", "d"), node("Identity", "d", "i"), node("Relu", "i", "y")),
        net("clip", conv, node("Clip", "c lo hi", "k"), node("Conv", "k w2", "y"),
            lo=np.array(0, np.float32), hi=np.array(0.75, np.float32)),
        net("leaky_relu", conv, node("LeakyRelu", "c", "l", alpha=0.1), node("Conv", "l w2", "y")),
        net("constant_node", node("Constant", "", "k", value=numpy_helper.from_array(channel)), conv,
            node("Add", "c k", "y")),
    ]  # fmt: skip


NETS: list[Net] = [*_convolutions(), *_dense(), *_normalisation(), *_pooling(), *_wiring()]
