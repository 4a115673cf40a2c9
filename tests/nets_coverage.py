"""Small ONNX networks, as exporters write them: operators that move, resize, reduce, and forms that files take."""

from collections.abc import Sequence

import numpy as np
import onnx
from nets import Net, ints, node, weights
from onnx import TensorProto, helper, numpy_helper


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _net(name: str, shape: tuple[int, ...], *nodes: onnx.NodeProto, opset: int = 13, **params: np.ndarray) -> Net:
    return Net(name, shape, list(nodes), params, opset)


CONV = node("Conv", "x w", "c", pads=[1, 1, 1, 1])
W = weights(4, 4, 3, 3)
IMAGE = (4, 6, 8)


def _after_conv(name: str, *nodes: onnx.NodeProto, opset: int = 13, **params: np.ndarray) -> Net:
    """A network that computes `nodes` on the convolution `c` of an image."""
    return Net(name, IMAGE, [CONV, *nodes], {"w": W} | params, opset)


def _transposes() -> list[Net]:
    channels_last = [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Conv", "t w", "c", pads=[1, 1, 1, 1])]
    return [
        _after_conv("transpose", node("Transpose", "c", "y", perm=[0, 2, 3, 1])),
        _after_conv("transpose_batch", node("Transpose", "c", "y", perm=[3, 1, 0, 2])),
        _after_conv("transpose_flatten_gemm", node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Flatten", "t", "f"),
                    node("Gemm", "f w2", "y", transB=1), w2=weights(5, 192)),
        _after_conv("transpose_back", node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Relu", "t", "r"),
                    node("Transpose", "r", "b", perm=[0, 3, 1, 2]), node("Conv", "b w2", "y"), w2=weights(3, 4, 1, 1)),
        _net("nhwc", (6, 8, 4), *channels_last, node("Transpose", "c", "b", perm=[0, 2, 3, 1]), node("Add", "b k", "a"),
             node("Relu", "a", "r"), node("Transpose", "r", "u", perm=[0, 3, 1, 2]),
             node("MaxPool", "u", "m", kernel_shape=[2, 2], strides=[2, 2]), node("Transpose", "m", "v", perm=[0, 2, 3, 1]),
             node("Reshape", "v s", "f"), node("MatMul", "f w2", "y"),
             w=W, k=weights(4), s=ints(-1, 48), w2=weights(48, 5)),
        _net("nhwc_mean", (6, 8, 4), *channels_last, node("Transpose", "c", "b", perm=[0, 2, 3, 1]),
             node("ReduceMean", "b", "g", axes=[1, 2], keepdims=0), node("MatMul", "g w2", "y"), w=W, w2=weights(4, 5)),
        _after_conv("channel_shuffle", node("Reshape", "c s", "r"), node("Transpose", "r", "t", perm=[0, 2, 1, 3, 4]),
                    node("Reshape", "t s2", "u"), node("Conv", "u w2", "y"),
                    s=ints(1, 2, 2, 6, 8), s2=ints(1, 4, 6, 8), w2=weights(3, 4, 1, 1)),
        _net("sequence", (5, 6), node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Relu", "a", "r"),
             node("Transpose", "r", "t", perm=[0, 2, 1]), node("Conv", "t w2", "y"),
             w=weights(6, 7), b=weights(7), w2=weights(3, 7, 2)),
        _net("matmul_left", (5, 6), node("MatMul", "w x", "y"), w=weights(4, 5)),
        _net("matmul_vector", (5, 6), node("MatMul", "x w", "y"), w=weights(6)),
        _net("mixer", (6, 5), node("MatMul", "x w", "a"), node("Transpose", "a", "t", perm=[0, 2, 1]), node("MatMul", "t w2", "b"),
             node("Transpose", "b", "c", perm=[0, 2, 1]), node("Add", "c x", "y"), w=weights(5, 5), w2=weights(6, 6)),
    ]  # fmt: skip


def _picks() -> list[Net]:
    return [
        _after_conv("split", node("Split", "c s", "a b", axis=1), node("Relu", "a", "r"), node("Concat", "r b", "y", axis=1),
                    s=ints(1, 3)),
        _after_conv("split_even", node("Split", "c", "a b", axis=2), node("Sub", "a b", "y")),
        _after_conv("split_18", node("Split", "c", "a b d", axis=3, num_outputs=3), node("Concat", "a d b", "y", axis=3), opset=18),
        _after_conv("gather_one", node("Gather", "c i", "y", axis=2), i=np.array(-2, np.int64)),
        _after_conv("gather_many", node("Gather", "c i", "y", axis=1), i=ints(3, 0, 0, 2)),
        _after_conv("gather_matrix", node("Gather", "c i", "y", axis=3), i=np.array([[0, 2], [7, 5]], np.int64)),
        _after_conv("slice_backwards", node("Slice", "c st en ax sp", "y"), st=ints(-1, 7), en=ints(-100, 1), ax=ints(2, 3), sp=ints(-1, -2)),
        _after_conv("slice_channels", node("Slice", "c st en ax", "y"), st=ints(1), en=ints(3), ax=ints(1)),
        _after_conv("concat_rows", node("Concat", "c x", "y", axis=2)),
        _after_conv("concat_last", node("Concat", "c x", "y", axis=-1)),
        _after_conv("expand", node("ReduceMean", "c", "m", axes=[2, 3]), node("Expand", "m s", "e"), node("Add", "e c", "y"),
                    s=ints(1, 4, 6, 8)),
        _after_conv("broadcast_add", node("GlobalAveragePool", "c", "m"), node("Sub", "c m", "y")),
        _after_conv("tile", node("Tile", "c s", "y"), s=ints(1, 2, 1, 3)),
        _after_conv("pad_value", node("Pad", "c p v", "y"), p=ints(0, 0, 1, 2, 0, 0, 0, 1), v=scalar(0.5)),
        _after_conv("pad_channels", node("Pad", "c p", "y"), p=ints(0, 1, 0, 0, 0, 2, 0, 0)),
        _after_conv("pad_negative", node("Pad", "c p", "y"), p=ints(0, 0, -1, 2, 0, 0, 0, -1)),
        _after_conv("pad_reflect", node("Pad", "c p", "y", mode="reflect"), p=ints(0, 0, 1, 2, 0, 0, 2, 1)),
        _after_conv("pad_edge", node("Pad", "c p", "y", mode="edge"), p=ints(0, 0, 1, 2, 0, 0, 2, 1)),
        _after_conv("pad_axes", node("Pad", "c p _ a", "y"), p=ints(1, 2), a=ints(-1), opset=18),
    ]  # fmt: skip


def _folded() -> list[Net]:
    """Shape chains: everything in front of the last operator is a constant."""
    return [
        _after_conv("reshape_by_shape", node("Shape", "c", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n axis0", "nn"),
                    node("Slice", "s one four", "rest"), node("ReduceProd", "rest", "f", keepdims=1),
                    node("Concat", "nn f", "to", axis=0), node("Reshape", "c to", "r"), node("Reshape", "r fixed", "y"), fixed=ints(1, 2, 96),
                    zero=np.array(0, np.int64), axis0=ints(0), one=ints(1), four=ints(4)),
        _after_conv("expanded_constant", node("Expand", "k s", "e"), node("Mul", "c e", "y"),
                    k=weights(4, 1, 1), s=ints(1, 4, 6, 8)),
        _after_conv("sliced_weights", node("Slice", "k st en ax", "k2"), node("Gather", "k2 i", "k3", axis=0), node("Conv", "c k3", "y"),
                    k=weights(6, 8, 1, 1), st=ints(2), en=ints(6), ax=ints(1), i=ints(4, 0, 2)),
        _after_conv("where_of_shapes", node("Shape", "c", "s"), node("ConstantOfShape", "four", "ones",
                    value=numpy_helper.from_array(np.array([1], np.int64))), node("Mul", "ones minus", "m"),
                    node("Equal", "to m", "q"), node("Where", "q ones to", "to2"), node("Expand", "c to2", "y"),
                    four=ints(4), minus=ints(-1), to=ints(-1, 4, 6, 8)),
        _after_conv("squeezed_bias", node("Squeeze", "b ax", "b1"), node("Add", "c b1", "y"), b=weights(4, 1, 1, 1), ax=ints(3)),
    ]  # fmt: skip


def _activations() -> list[Net]:
    slopes = np.array([0.25, -0.5, 1.5, 0.75], np.float32)
    w2 = weights(3, 4, 1, 1)
    return [
        _after_conv("prelu_one", node("PRelu", "c a", "p"), node("Conv", "p w2", "y"), a=np.array([0.25], np.float32), w2=w2),
        _after_conv("prelu_many", node("PRelu", "c a", "p"), node("Conv", "p w2", "y"), a=slopes.reshape(4, 1, 1), w2=w2),
        _net("prelu_dense", (12,), node("Gemm", "x w", "g", transB=1), node("PRelu", "g a", "y"), w=weights(4, 12), a=slopes),
        _after_conv("leaky_negative", node("LeakyRelu", "c", "p", alpha=-0.5), node("Conv", "p w2", "y"), w2=w2),
        _after_conv("max_zero", node("Max", "c z", "y"), z=scalar(0)),
        _after_conv("max_constants", node("Max", "c z", "y"), z=weights(4, 1, 1)),
        _after_conv("max_tensors", node("Max", "c x", "y")),
        _after_conv("min_constant", node("Min", "c z", "y"), z=scalar(0.25)),
        _after_conv("min_tensors", node("Min", "c x", "y")),
        _after_conv("hard_sigmoid", node("HardSigmoid", "c", "y", alpha=1 / 6)),
        _after_conv("abs", node("Abs", "c", "y")),
        _after_conv("sum_of_three", node("Sum", "c x k", "y"), k=weights(4, 1, 1)),
        _after_conv("mean_of_two", node("Mean", "c x", "y")),
        _after_conv("sub_tensor_from_constants", node("Sub", "k c", "y"), k=weights(6, 8)),
        _after_conv("div_constants", node("Div", "c k", "y"), k=np.abs(weights(4, 1, 1)) + 0.5),
        _after_conv("mul_columns", node("Mul", "c k", "y"), k=weights(8)),
        _after_conv("add_larger_constant", node("GlobalAveragePool", "c", "g"), node("Add", "g k", "y"), k=weights(1, 4, 2, 3)),
    ]  # fmt: skip


def _reductions() -> list[Net]:
    reduce = {
        "mean_channels": ("ReduceMean", [1], 1), "mean_rows": ("ReduceMean", [2], 0), "mean_two": ("ReduceMean", [1, 3], 0),
        "max_columns": ("ReduceMax", [-1], 1), "max_all_but_batch": ("ReduceMax", [1, 2, 3], 0), "min_image": ("ReduceMin", [2, 3], 0),
        "sum_channels": ("ReduceSum", None, 1), "max_batch_too": ("ReduceMax", [0, 1], 0),
    }  # fmt: skip
    nets = []
    for name, (op, axes, keep) in reduce.items():
        if op == "ReduceSum":
            nets.append(_after_conv(f"reduce_{name}", node(op, "c a", "y", keepdims=keep), a=ints(1)))
        else:
            nets.append(_after_conv(f"reduce_{name}", node(op, "c", "y", axes=axes, keepdims=keep)))
    return [
        *nets,
        _after_conv("reduce_18", node("ReduceMean", "c a", "y", keepdims=0), a=ints(2, 3), opset=18),
        _after_conv("global_max", node("GlobalMaxPool", "c", "y")),
        _after_conv("reduce_everything", node("ReduceMean", "c", "y", keepdims=0)),
        _after_conv("squeeze_all", node("GlobalAveragePool", "c", "g"), node("Squeeze", "g", "y")),
        _after_conv("squeeze_batch", node("GlobalAveragePool", "c", "g"), node("Squeeze", "g a", "y"), a=ints(0, 2)),
        _net("scalar_out", (6,), node("Gemm", "x w", "g", transB=1), node("Squeeze", "g", "y"), w=weights(1, 6)),
        _net("tokens", (5, 6), node("ReduceMean", "x", "m", axes=[1], keepdims=0), node("Gemm", "m w", "y", transB=1), w=weights(4, 6)),
    ]


def _larger_images() -> list[Net]:
    def up(name: str, weight: tuple[int, ...], shape: tuple[int, ...] = (4, 5, 6), **attributes: object) -> Net:
        out = weight[1] * int(attributes.get("group", 1))
        return _net(f"conv_transpose_{name}", shape, node("ConvTranspose", "x w b", "y", **attributes), w=weights(*weight), b=weights(out))

    def resize(name: str, scales: Sequence[float], opset: int = 13, **attributes: object) -> Net:
        return _after_conv(f"resize_{name}", node("Resize", "c _ s", "y", **attributes), s=np.array(scales, np.float32), opset=opset)

    return [
        up("plain", (4, 3, 3, 3)),
        up("unet", (4, 3, 2, 2), strides=[2, 2]),
        up("gan", (4, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
        up("output_padding", (4, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        up("output_padding_even", (4, 3, 2, 2), strides=[3, 3], output_padding=[2, 1]),
        up("groups", (4, 2, 3, 3), strides=[2, 1], group=2),
        up("dilated", (4, 3, 3, 2), strides=[2, 2], dilations=[2, 3]),
        up("signal", (4, 3, 4), (4, 7), strides=[2], pads=[1, 1]),
        up("output_shape", (4, 3, 3, 3), strides=[2, 2], output_shape=[10, 11]),
        up("same_upper", (4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
        up("crop", (4, 3, 3, 3), pads=[2, 1, 1, 2]),
        resize("nearest_tf", [1, 1, 2, 3], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        resize("nearest_default", [1, 1, 2, 2], mode="nearest"),
        resize("nearest_odd", [1, 1, 1.5, 0.5], mode="nearest"),
        resize("linear", [1, 1, 2, 2], mode="linear"),
        resize("linear_pytorch", [1, 1, 2, 2], mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
        resize("linear_corners", [1, 1, 2, 2], mode="linear", coordinate_transformation_mode="align_corners"),
        resize("linear_asymmetric", [1, 1, 1.5, 2], mode="linear", coordinate_transformation_mode="asymmetric"),
        resize("linear_smaller", [1, 1, 0.5, 0.5], mode="linear"),
        _after_conv("resize_sizes", node("Resize", "c _ _ s", "y", mode="linear"), s=ints(1, 4, 9, 20)),
        _after_conv("resize_10", node("Resize", "c s", "y", mode="nearest"), s=np.array([1, 1, 2, 2], np.float32), opset=10),
        _after_conv("upsample_9", node("Upsample", "c s", "y", mode="linear"), s=np.array([1, 1, 2, 2], np.float32), opset=9),
        _after_conv("upsample_nearest", node("Upsample", "c s", "y"), s=np.array([1, 1, 2, 3], np.float32), opset=9),
        _after_conv("depth_to_space", node("DepthToSpace", "c", "y", blocksize=2)),
        _after_conv("depth_to_space_crd", node("DepthToSpace", "c", "y", blocksize=2, mode="CRD")),
        _after_conv("space_to_depth", node("SpaceToDepth", "c", "d", blocksize=2), node("Conv", "d w2", "y"), w2=weights(3, 16, 1, 1)),
        _after_conv("unet", node("MaxPool", "c", "m", kernel_shape=[2, 2], strides=[2, 2]), node("ConvTranspose", "m w2", "u", strides=[2, 2]),
                    node("Concat", "u c", "k", axis=1), node("Conv", "k w3", "y"), w2=weights(4, 3, 2, 2), w3=weights(2, 7, 1, 1)),
    ]  # fmt: skip


def _forms() -> list[Net]:
    return [
        _after_conv("opset_24", node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Squeeze", "t", "y"), opset=24),
        _after_conv("gemm_matrix_bias", node("Reshape", "c s", "r"), node("Gemm", "r w2 b", "y"),
                    s=ints(24, 8), w2=weights(8, 5), b=weights(24, 1)),
        _net("gemm_transposed", (1,), node("Gemm", "x w", "y", transA=1), w=weights(1, 5)),
        _after_conv("identity_outputs", node("Dropout", "c", "y")),
    ]  # fmt: skip


COVERAGE: list[Net] = [
    *_transposes(), *_picks(), *_folded(), *_activations(), *_reductions(), *_larger_images(), *_forms(),
]  # fmt: skip


def model_bytes(
    nodes: list[onnx.NodeProto],
    params: dict[str, np.ndarray],
    input_shape: Sequence[int | str],
    *,
    input_type: int = TensorProto.FLOAT,
    outputs: Sequence[tuple[str, int]] = (("y", TensorProto.FLOAT),),
    opsets: Sequence[tuple[str, int]] = (("", 13),),
) -> bytes:
    """An ONNX file with what `Net` leaves out: any input, several outputs, other operator sets."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", input_type, list(input_shape))],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        [numpy_helper.from_array(v, k) for k, v in params.items()],
    )
    imports = [helper.make_opsetid(*o) for o in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
