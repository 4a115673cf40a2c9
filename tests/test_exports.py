"""What exporters write around the layers: quantised files, norms and softmaxes at the end, labels, activations in parts."""

import numpy as np
import nets_coverage as cover
import onnxruntime
import pytest
from nets import ints, node, weights
from onnx import TensorProto
from test_coverage import CONV, LINEAR, W, check, classical, images, judged, ml

import tacit

IMAGE = [1, 3, 5, 6]


def table_back_end_agrees(network: bytes, x: np.ndarray) -> None:
    """The float network is onnxruntime's; `dealt` lowers it and stays near."""
    model = tacit.import_onnx(network, calibrate=x[:12])
    wanted = judged(network, x[12:, None])
    size = np.ptp(wanted)
    assert np.abs(model.run(x[12:]) - wanted).max() < 1e-4 * size
    near = model.lower("dealt").reference(x[12:])
    assert np.sqrt(np.mean((near - wanted) ** 2)) < 0.02 * size
    with pytest.raises(tacit.TacitError, match="no look-up tables"):
        model.lower("cheetah")


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Sigmoid", "c", "s"), node("Mul", "c s", "y")],
        [node("Sigmoid", "c", "s"), node("Mul", "s c", "y")],
        [node("HardSwish", "c", "y")],
        [node("Elu", "c", "y", alpha=0.5)],
        [node("Softplus", "c", "y")],
        [node("Mish", "c", "y")],
    ],
    ids=["silu", "silu_turned", "hard_swish", "elu", "softplus", "mish"],
)
def test_activations_of_one_table(nodes):
    network = cover.model_bytes([CONV, *nodes], {"w": 3 * W}, IMAGE, opsets=(("", 18),))
    table_back_end_agrees(network, images(15, *IMAGE[1:]))


FLAT = [node("Flatten", "c", "f"), node("Gemm", "f v", "g", transB=1)]
NORMS = {
    "pytorch": [node("ReduceL2", "g a", "n"), node("Clip", "n tiny", "m"), node("Expand", "m s", "e"), node("Div", "g e", "y")],
    "keras": [node("ReduceL2", "g a", "n"), node("Max", "n tiny", "m"), node("Div", "g m", "y")],
    "of_order_1": [node("ReduceL1", "g a", "n"), node("Add", "n tiny", "m"), node("Div", "g m", "y")],
    "one_node": [node("LpNormalization", "g", "y", axis=1)],
}


@pytest.mark.parametrize("name", NORMS)
def test_a_division_by_its_norm_at_the_end_is_left_to_the_client(name):
    params = {"w": W, "v": weights(5, 120), "a": ints(1), "s": ints(1, 5), "tiny": cover.scalar(1e-12)}
    network = cover.model_bytes([CONV, *FLAT, *NORMS[name]], params, IMAGE, opsets=(("", 18),))
    model = tacit.import_onnx(network, calibrate=images(12, *IMAGE[1:]))
    assert model.spec["final_activation"] == ("l1" if name == "of_order_1" else "l2")
    x = images(3, *IMAGE[1:], seed=2)
    check(model, judged(network, x[:, None]), x)


def test_the_norm_of_another_tensor_is_refused():
    nodes = [CONV, *FLAT, node("ReduceL2", "g a", "n"), node("Relu", "g", "r"), node("Div", "r n", "y")]
    network = cover.model_bytes(nodes, {"w": W, "v": weights(5, 120), "a": ints(1)}, IMAGE, opsets=(("", 18),))
    with pytest.raises(tacit.TacitError, match=r"y_node.*Div.*its own norm"):
        tacit.import_onnx(network)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    "last",
    [
        [("axis", 1)],
        [("axis", -1)],
        [("axis", 1), ("perm", [0, 2, 3, 1])],
        [("perm", [0, 2, 3, 1]), ("axis", -1), ("perm", [0, 3, 1, 2])],
    ],
    ids=["channels", "columns", "then_channels_last", "channels_last_and_back"],
)
def test_a_softmax_for_each_position_is_left_to_the_client(op, last):
    nodes, name = [CONV], "c"
    for i, (kind, value) in enumerate(last):
        made = "y" if i == len(last) - 1 else f"t{i}"
        nodes.append(node(op, name, made, axis=value) if kind == "axis" else node("Transpose", name, made, perm=value))
        name = made
    network = cover.model_bytes(nodes, {"w": W}, IMAGE)
    model = tacit.import_onnx(network, calibrate=images(12, *IMAGE[1:]))
    assert "softmax-along" in model.spec["final_activation"]
    x = images(3, *IMAGE[1:], seed=2)
    check(model, judged(network, x[:, None]), x)


@pytest.mark.parametrize("parts", ["k c", "c k", "k c k2", "c k c"])
def test_constants_are_joined_to_tensors(parts):
    nodes = [CONV, node("Concat", parts, "j", axis=1), node("Conv", "j v", "y")]
    channels = sum({"k": 2, "k2": 1, "c": 4}[p] for p in parts.split())
    params = {"w": W, "k": weights(1, 2, 5, 6), "k2": weights(1, 1, 5, 6), "v": weights(3, channels, 1, 1)}
    network = cover.model_bytes(nodes, params, IMAGE)
    x = images(15, *IMAGE[1:])
    check(tacit.import_onnx(network, calibrate=x[:12]), judged(network, x[12:, None]), x[12:])


def test_bounds_of_shapes_are_folded():
    """The padding of TensorFlow's SAME, as PyTorch networks compute it."""
    nodes = [
        node("Shape", "x", "s"), node("Slice", "s two four", "hw"), node("Sub", "hw five", "d"), node("Clip", "d zero _", "p"),
        node("Concat", "front p", "pads", axis=0), node("Pad", "x pads", "q"), node("Conv", "q w", "y"),
    ]  # fmt: skip
    params = {"two": ints(2), "four": ints(4), "five": ints(6, 5), "zero": np.array(0, np.int64), "front": ints(0, 0, 1, 0, 0, 0), "w": W}
    network = cover.model_bytes(nodes, params, IMAGE)
    x = images(15, *IMAGE[1:])
    check(tacit.import_onnx(network, calibrate=x[:12]), judged(network, x[12:, None]), x[12:])


def quantised(zero: np.ndarray) -> bytes:
    """A convolution with weights of 8 bits for each channel, whose answer is quantised with this zero point."""
    whole = np.clip(np.round(W * 100), -127, 127).astype(np.int8)
    nodes = [
        node("QuantizeLinear", "x xs xz", "q"), node("DequantizeLinear", "q xs xz", "d"),
        node("DequantizeLinear", "w ws wz", "wf", axis=0), node("Conv", "d wf", "c", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", "c cs cz", "cq"), node("DequantizeLinear", "cq cs cz", "y"),
    ]  # fmt: skip
    params = {
        "xs": cover.scalar(2 / 255), "xz": np.array(128, np.uint8), "w": whole, "ws": np.full(4, 0.01, np.float32),
        "wz": np.zeros(4, np.int8), "cs": cover.scalar(0.03), "cz": zero,
    }  # fmt: skip
    return cover.model_bytes(nodes, params, IMAGE)


@pytest.mark.parametrize(
    ("zero", "relus"),
    [(np.array(0, np.uint8), 2), (np.array(-128, np.int8), 2), (np.array(3, np.int8), 0)],
    ids=["unsigned_activation", "signed_activation", "signed"],
)
def test_a_quantised_network_is_read_in_real_numbers(zero, relus):
    network, x = quantised(zero), images(15, *IMAGE[1:])
    model = tacit.import_onnx(network, calibrate=x[:12])
    wanted = judged(network, x[12:, None])
    assert np.abs(model.run(x[12:]) - wanted).max() < 2 * 0.03, "one step of rounding, and those of the input"
    assert any("QuantizeLinear" in note for note in model.summary["rewrites"])
    assert (np.abs(model.run(x[12:]).min()) < 1e-6) == (relus == 2)


def test_weights_that_the_file_quantises_itself():
    nodes = [node("QuantizeLinear", "w s z", "q"), node("DequantizeLinear", "q s z", "v"), node("Conv", "x v", "y")]
    network = cover.model_bytes(nodes, {"w": W, "s": cover.scalar(0.01), "z": np.array(0, np.int8)}, IMAGE)
    x = images(15, *IMAGE[1:])
    check(tacit.import_onnx(network, calibrate=x[:12]), judged(network, x[12:, None]), x[12:])


def test_labels_of_a_classifier_are_left_out():
    """As scikit-learn's exporter writes a network: the class is looked up in a list, reshaped and cast."""
    nodes = [
        ml("Scaler", "x", "s", offset=[0.5], scale=[2.0]), node("MatMul", "s w", "m"), node("Softmax", "m", "y", axis=1),
        node("ArgMax", "y", "a", axis=1), ml("ArrayFeatureExtractor", "names a", "picked"), node("Reshape", "picked one", "r"),
        node("Cast", "r", "label", to=TensorProto.INT64),
    ]  # fmt: skip
    outputs = (("label", TensorProto.INT64), ("y", 1))
    params = {"w": weights(6, 4), "names": np.arange(4, dtype=np.int32), "one": ints(-1)}
    opsets = (("", 13), ("ai.onnx.ml", 1))
    network = cover.model_bytes(nodes, params, ["N", 6], outputs=outputs, opsets=opsets)
    alone = cover.model_bytes(nodes[:3], params, ["N", 6], opsets=opsets)
    x = images(15, 6)
    model = tacit.import_onnx(network, calibrate=x[:12])
    assert model.spec["final_activation"] == "softmax"
    check(model, judged(alone, x[12:, None]), x[12:])
    assert any("label" in note for note in model.summary["rewrites"])


def test_labels_that_are_cast():
    last = ml("LinearClassifier", "x", "l y", classlabels_ints=[0, 1, 2], **LINEAR)
    network = classical(last, node("Cast", "l", "label", to=TensorProto.INT64), outputs=(("label", TensorProto.INT64), ("y", 1)))
    x = images(15, 6)
    check(tacit.import_onnx(network, calibrate=x[:12]), judged(classical(last), x[12:, None]), x[12:])


def test_features_are_picked():
    nodes = [ml("ArrayFeatureExtractor", "x i", "p"), ml("LinearRegressor", "p", "y", targets=1, coefficients=[1.0, 2, 3])]
    network = cover.model_bytes(nodes, {"i": ints(4, 0, 2)}, ["N", 6], opsets=(("", 13), ("ai.onnx.ml", 1)))
    x = images(15, 6)
    check(tacit.import_onnx(network, calibrate=x[:12]), judged(network, x[12:, None]), x[12:])


def test_a_batch_of_length_minus_one():
    """PaddlePaddle's way to say that an axis has any length."""
    network = cover.model_bytes([CONV], {"w": W}, [-1, 3, 5, 6], outputs=(("c", 1),))
    plain = cover.model_bytes([CONV], {"w": W}, ["N", 3, 5, 6], outputs=(("c", 1),))
    x = images(15, *IMAGE[1:])
    check(tacit.import_onnx(network, calibrate=x[:12]), judged(plain, x[12:, None]), x[12:])
    with pytest.raises(tacit.TacitError, match="make_dynamic_shape_fixed"):
        tacit.import_onnx(cover.model_bytes([CONV], {"w": W}, [-1, 3, -1, 6]))


def test_coefficients_that_do_not_fit():
    last = ml("LinearClassifier", "x", "l y", classlabels_ints=[0, 1, 2], coefficients=[1.0] * 12, intercepts=[0.0] * 3)
    with pytest.raises(tacit.TacitError, match="12 coefficients and 3 intercepts for inputs of 6 features"):
        tacit.import_onnx(classical(last))
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        judged(classical(last), images(1, 6)[:, None])
