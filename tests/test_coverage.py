"""What practitioners export: each operator and each form of file against onnxruntime, and refusals that say what would help."""

from dataclasses import replace

import nets
import nets_coverage as cover
import numpy as np
import onnx
import onnxruntime
import pytest
from nets import ints, node, weights
from onnx import TensorProto, helper

import tacit


def judged(network: bytes | str, x: np.ndarray, dtype: type = np.float32) -> np.ndarray:
    """onnxruntime's outputs, one input at a time, flattened and joined: `[N, outputs]`."""
    session = onnxruntime.InferenceSession(network)
    name = session.get_inputs()[0].name
    return np.stack([np.concatenate([y.reshape(-1) for y in session.run(None, {name: one.astype(dtype)})]) for one in x])


def check(model: tacit.Model, wanted: np.ndarray, x: np.ndarray) -> None:
    """The float network is that of the file, and the fixed-point one is near."""
    size = max(np.ptp(wanted), 1e-3)
    exact = model.run(x)
    assert exact.shape == wanted.shape
    assert np.abs(exact - wanted).max() < 1e-4 * size, "our float network is that of the file"
    ours = model.reference(x)
    error = np.sqrt(np.mean((ours - wanted) ** 2)) / size
    assert error < 0.02, f"root mean square error is {error:.2%} of the range"


@pytest.mark.parametrize("net", cover.COVERAGE, ids=lambda n: n.name)
def test_each_form_agrees_with_onnxruntime(net):
    network = net.to_bytes()
    model = tacit.import_onnx(network, calibrate=net.samples(12))
    assert model.input_shape == net.shape
    x = net.samples(3, seed=2)
    check(model, judged(network, x[:, None]), x)


@pytest.mark.parametrize("opset", range(24, 27))
def test_the_newest_operator_sets_are_read(opset):
    """Up to the newest that the judge knows, and none beyond."""
    newer = [net for net in cover.COVERAGE if net.opset >= 18]
    assert len(newer) >= 4
    for net in newer:
        network = replace(net, opset=opset).to_bytes()
        x = net.samples(3, seed=2)
        check(tacit.import_onnx(network, calibrate=net.samples(12)), judged(network, x[:, None]), x)
    beyond = onnx.load_from_string(newer[0].to_bytes())
    beyond.opset_import[0].version = 27
    with pytest.raises(tacit.TacitError, match="27"):
        tacit.import_onnx(beyond.SerializeToString())


CONV = node("Conv", "x w", "c", pads=[1, 1, 1, 1])
W = weights(4, 3, 3, 3)


def images(count: int, *shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, *shape)).astype(np.float32)


def test_several_outputs_are_joined():
    nodes = [CONV, node("GlobalAveragePool", "c", "g"), node("Flatten", "g", "f"), node("Gemm", "f v", "y", transB=1)]
    outputs = [("y", TensorProto.FLOAT), ("c", TensorProto.FLOAT), ("f", TensorProto.FLOAT)]
    network = cover.model_bytes(nodes, {"w": W, "v": weights(5, 4)}, ["N", 3, 5, 6], outputs=outputs)
    model = tacit.import_onnx(network, calibrate=images(12, 3, 5, 6))
    assert model.outputs == {"y": (5,), "c": (4, 5, 6), "f": (4,)}
    x = images(3, 3, 5, 6, seed=2)
    check(model, judged(network, x[:, None]), x)
    with pytest.raises(tacit.TacitError, match="one output"):
        tacit.import_onnx(network, output="top1")


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh"])
def test_a_final_activation_is_left_to_the_client(op):
    nodes = [node("Gemm", "x w", "g", transB=1), node(op, "g", "y")]
    network = cover.model_bytes(nodes, {"w": weights(4, 8)}, [1, 8])
    model = tacit.import_onnx(network, calibrate=images(12, 8))
    assert model.spec["final_activation"] == op.lower()
    x = images(3, 8, seed=2)
    check(model, judged(network, x[:, None]), x)
    nodes.append(node("Relu", "y", "z"))
    read = cover.model_bytes(nodes, {"w": weights(4, 8)}, [1, 8], outputs=[("z", 1)])
    assert tacit.import_onnx(read, calibrate=images(12, 8)).spec["final_activation"] is None


def test_an_input_of_one_axis():
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Add", "r b", "y")]
    network = cover.model_bytes(nodes, {"w": weights(7, 5), "b": weights(5)}, [7])
    model = tacit.import_onnx(network, calibrate=images(12, 7))
    assert (model.input_shape, model.output_shape) == ((7,), (5,))
    x = images(3, 7, seed=2)
    check(model, judged(network, x), x)


def test_an_input_of_bytes():
    nodes = [node("Cast", "x", "f", to=TensorProto.FLOAT), node("Mul", "f k", "s"), node("Conv", "s w", "y")]
    params = {"k": cover.scalar(1 / 255), "w": W}
    network = cover.model_bytes(nodes, params, ["N", 3, 5, 6], input_type=TensorProto.UINT8)
    pixels = np.random.default_rng(1).integers(0, 256, (12, 3, 5, 6), dtype=np.uint8)
    model = tacit.import_onnx(network, calibrate=pixels)
    x = pixels[:3]
    check(model, judged(network, x[:, None], np.uint8), x)
    in_integers = cover.model_bytes([node("Add", "x x", "y")], {}, [1, 4], input_type=TensorProto.UINT8)
    with pytest.raises(tacit.TacitError, match="y_node.*Cast to float"):
        tacit.import_onnx(in_integers)


def test_a_static_batch_is_read_as_one():
    nodes = [CONV, node("Reshape", "c s", "f"), node("Gemm", "f v", "g", transB=1), node("Reshape", "g t", "y")]
    params = {"w": W, "s": ints(4, -1), "v": weights(6, 120), "t": ints(4, 2, 3)}
    network = cover.model_bytes(nodes, params, [4, 3, 5, 6])
    model = tacit.import_onnx(network, calibrate=images(12, 3, 5, 6))
    assert (model.input_shape, model.output_shape) == ((3, 5, 6), (2, 3))
    x = images(4, 3, 5, 6, seed=2)
    whole = onnxruntime.InferenceSession(network).run(None, {"x": x})[0]
    check(model, whole.reshape(4, -1), x)


MIXING = {
    "mean": node("ReduceMean", "c", "y", axes=[0]),
    "concat": node("Concat", "c c", "y", axis=0),
    "pad": node("Pad", "c pads", "y"),
    "one_of_it": node("Slice", "c one two zero", "y"),
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [*((name, [4, 3, 5, 6]) for name in MIXING), *((name, ["N", 3, 5, 6]) for name in ("mean", "concat", "pad"))],
)
def test_what_mixes_a_batch_is_refused(name, shape):
    params = {"w": W, "zero": ints(0), "one": ints(1), "two": ints(2), "pads": ints(1, 0, 0, 0, 0, 0, 0, 0)}
    with pytest.raises(tacit.TacitError, match="y_node.*the batch"):
        tacit.import_onnx(cover.model_bytes([CONV, MIXING[name]], params, shape))


def test_external_data_lies_beside_the_file(tmp_path):
    net = nets.Net("conv", (3, 5, 6), [CONV, node("Relu", "c", "y")], {"w": W})
    model = onnx.load_from_string(net.to_bytes())
    path = tmp_path / "net.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
    x = net.samples(3, seed=2)
    check(tacit.import_onnx(path, calibrate=net.samples(12)), judged(str(path), x[:, None]), x)
    with pytest.raises(tacit.TacitError, match="external data"):
        tacit.import_onnx(path.read_bytes())
    (tmp_path / "net.data").unlink()
    with pytest.raises(tacit.TacitError, match=r"net\.data"):
        tacit.import_onnx(path)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16], ids=["fp16", "bf16"])
def test_weights_of_16_bits(kind):
    """Stored narrow, computed in float32: exporters put a Cast behind each."""
    bits = helper.make_tensor("w16", kind, W.shape, W.reshape(-1).tolist())
    nodes = [node("Cast", "w16", "w", to=TensorProto.FLOAT), CONV, node("Relu", "c", "y")]
    network = onnx.load_from_string(cover.model_bytes(nodes, {}, [1, 3, 5, 6]))
    network.graph.initializer.append(bits)
    model = tacit.import_onnx(network.SerializeToString(), calibrate=images(12, 3, 5, 6))
    x = images(3, 3, 5, 6, seed=2)
    check(model, judged(network.SerializeToString(), x[:, None]), x)


def test_a_network_in_half_precision():
    half = W.astype(np.float16)
    nodes = [CONV, node("Relu", "c", "y")]
    network = cover.model_bytes(
        nodes, {"w": half}, [1, 3, 5, 6], input_type=TensorProto.FLOAT16, outputs=[("y", TensorProto.FLOAT16)]
    )
    model = tacit.import_onnx(network, calibrate=images(12, 3, 5, 6))
    x = images(3, 3, 5, 6, seed=2)
    theirs = judged(network, x[:, None], np.float16)
    assert np.abs(model.run(x) - theirs).max() < 2e-3 * np.ptp(theirs), "onnxruntime rounds each value to 11 bits"


def test_an_unused_node_may_be_anything():
    nodes = [CONV, node("Relu", "c", "y"), node("Sin", "c", "unused"), node("NonZero", "unused", "unused_too")]
    network = cover.model_bytes(nodes, {"w": W}, [1, 3, 5, 6])
    model = tacit.import_onnx(network, calibrate=images(12, 3, 5, 6))
    x = images(3, 3, 5, 6, seed=2)
    check(model, judged(network, x[:, None]), x)


def test_image_scaler():
    """An operator of the oldest files: no runtime has it any more, so its definition judges."""
    bias = [0.5, -0.25, 1.0]
    nodes = [node("ImageScaler", "x", "i", scale=2.0, bias=bias), node("Conv", "i w", "y")]
    model = tacit.import_onnx(cover.model_bytes(nodes, {"w": W}, [1, 3, 5, 6]), calibrate=images(12, 3, 5, 6))
    x = images(3, 3, 5, 6, seed=2)
    plain = cover.model_bytes([node("Conv", "x w", "y")], {"w": W}, [1, 3, 5, 6])
    scaled = (2 * x + np.array(bias, np.float32).reshape(3, 1, 1)).astype(np.float32)
    check(model, judged(plain, scaled[:, None]), x)


def classical(*nodes: onnx.NodeProto, features: int = 6, outputs: tuple[tuple[str, int], ...] = (("y", 1),)) -> bytes:
    opsets = (("", 13), ("ai.onnx.ml", 3))
    return cover.model_bytes(list(nodes), {}, ["N", features], outputs=outputs, opsets=opsets)


def ml(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    made = node(op, inputs, output, **attributes)
    made.domain = "ai.onnx.ml"
    return made


COEFFICIENTS = weights(3, 6)
LINEAR = {"coefficients": COEFFICIENTS.reshape(-1).tolist(), "intercepts": [0.1, -0.2, 0.3]}
SCALER = ml("Scaler", "x", "s", offset=[1.0, 2, 3, 4, 5, 6], scale=[2.0, 1, 0.5, 1, 3, 1])


def test_a_scaled_linear_regressor():
    network = classical(SCALER, ml("LinearRegressor", "s", "y", targets=3, **LINEAR))
    x = (images(15, 6) + np.arange(1, 7)).astype(np.float32)
    check(tacit.import_onnx(network, calibrate=x[:12]), judged(network, x[12:, None]), x[12:])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_a_linear_classifier(transform):
    """The scores; class labels are the client's to look up."""
    last = ml("LinearClassifier", "x", "label y", classlabels_ints=[0, 1, 2], post_transform=transform, **LINEAR)
    network = classical(last)
    both = classical(last, outputs=(("label", TensorProto.INT64), ("y", 1)))
    x = images(15, 6)
    left = {"NONE": None, "SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}[transform]
    for file in (network, both):
        model = tacit.import_onnx(file, calibrate=x[:12])
        assert model.spec["final_activation"] == left
        check(model, judged(network, x[12:, None]), x[12:])
    with pytest.raises(tacit.TacitError, match="class labels"):
        tacit.import_onnx(classical(last, outputs=(("label", TensorProto.INT64),)))


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ([ml("LinearClassifier", "x", "label p", classlabels_ints=[0, 1, 2], post_transform="LOGISTIC", **LINEAR),
          ml("Normalizer", "p", "n", norm="L1"), node("Cast", "n", "y", to=1)], "sigmoid-l1"),
        ([ml("LinearRegressor", "x", "p", targets=3, **LINEAR), ml("Normalizer", "p", "y", norm="L2")], "l2"),
        ([ml("LinearRegressor", "x", "p", targets=3, **LINEAR), ml("Normalizer", "p", "y", norm="MAX")], "largest"),
    ],
    ids=["one_against_the_rest", "l2", "max"],
)  # fmt: skip
def test_a_normalizer_at_the_end_is_left_to_the_client(nodes, left):
    network, x = classical(*nodes), images(15, 6)
    model = tacit.import_onnx(network, calibrate=x[:12])
    assert model.spec["final_activation"] == left
    check(model, judged(network, x[12:, None]), x[12:])


def test_a_normalizer_in_front_is_refused():
    network = classical(ml("Normalizer", "x", "n", norm="L2"), ml("LinearRegressor", "n", "y", targets=3, **LINEAR))
    with pytest.raises(tacit.TacitError, match="y_node.*Normalizer.*end of the network"):
        tacit.import_onnx(network)


A = {"a": np.ones((1, 4), np.float32)}
REFUSED = {
    "attention": ([node("MatMul", "x x", "y")], "two secret tensors", (1, 4, 4)),
    "quotient": ([node("Relu", "x", "s"), node("Div", "x s", "y")], "division by a secret", (1, 4)),
    "inner_softmax": ([node("Softmax", "x", "s", axis=1), node("Relu", "s", "y")], "end of the network", (1, 4)),
    "erf": ([node("Erf", "x", "y")], "fine-tune", (1, 4)),
    "layer_norm": ([node("LayerNormalization", "x a", "y")], "BatchNormalization", (1, 4)),
    "lstm": ([node("LSTM", "x a a", "y")], "convolution over time", (1, 4, 4)),
    "constant_mask": ([node("Where", "mask x a", "y")], r"x \* mask", (1, 4)),
    "secret_mask": ([node("Where", "x a a", "y")], "compares secret values, or chooses by them", (1, 4)),
    "embedding": ([node("Gather", "a x", "y")], "embedding", (1, 4)),
    "norm_of_each_row": ([node("ReduceL2", "x", "y", axes=[2])], "its own norm at the end", (1, 4, 4)),
    "norm_as_answer": ([node("ReduceL2", "x", "n", axes=[1]), node("Relu", "n", "y")], "its own norm at the end", (1, 4)),
    "quantised": ([node("DequantizeLinear", "x a", "y")], "float32 model", (1, 4)),
    "other_steps": ([node("QuantizeLinear", "x one zero", "q"), node("DequantizeLinear", "q two zero", "y")],
                    "not that of the QuantizeLinear", (1, 4)),
    "read_as_integers": ([node("QuantizeLinear", "x one zero", "q"), node("Relu", "q", "y")], "put one in front of it", (1, 4)),
    "quantised_end": ([node("Softmax", "x", "s", axis=1), node("QuantizeLinear", "s one zero", "y")],
                      "remove this node.*which the client applies", (1, 4)),
    "tree": ([ml("TreeEnsembleClassifier", "x", "y")], "decision trees", (1, 4)),
    "cubic": ([node("Resize", "x _ scales", "y", mode="cubic")], "nearest and linear", (1, 1, 4, 4)),
    "volume": ([node("MaxPool", "x", "y", kernel_shape=[2, 2, 2])], "three spatial axes", (1, 2, 4, 4, 4)),
    "batch_of_matrices": ([node("MatMul", "x m", "y")], "one matrix", (1, 4, 4)),
}


def test_products_of_tensors_are_read_and_back_ends_on_shares_refuse_them():
    network = cover.model_bytes([node("Relu", "x", "s"), node("Mul", "x s", "y")], {}, (1, 4))
    model = tacit.import_onnx(network)
    x = np.array([0.5, -0.5, 0.25, 0.0], np.float32)
    assert np.allclose(model.run(x), x * np.maximum(x, 0))
    with pytest.raises(tacit.TacitError, match="y_node.*Mul.*two secret tensors.*`ckks` has it"):
        model.lower("cheetah")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_node_and_a_way_out(name):
    nodes, said, shape = REFUSED[name]
    params = A | {"scales": np.array([1, 1, 2, 2], np.float32), "m": np.ones((2, 4, 4), np.float32),
                  "mask": np.array([[True, False, True, False]]), "one": np.array(1, np.float32), "two": np.array(2, np.float32),
                  "zero": np.array(0, np.int8)}
    network = cover.model_bytes(nodes, params, shape, opsets=(("", 20), ("ai.onnx.ml", 3)))
    with pytest.raises(tacit.TacitError, match=rf"(?s)y_node.*{nodes[-1].op_type}.*{said}") as error:
        tacit.import_onnx(network)
    # Nobody is told to export what the file is already, or that it is not supported because it is not.
    assert "QuantizeLinear and DequantizeLinear around" not in str(error.value)
    assert str(error.value).count("not supported") == 1 or nodes[-1].op_type not in ("LSTM", "Where")
    assert "inputs-as-nchw" not in str(error.value)
    assert "Flatten in front" not in str(error.value)


REGRESSIONS = ["dead_branch", "prelu_single", "scalar_out", "static_batch4_reshape", "tf_inputs_as_nchw_flatten"]


@pytest.mark.parametrize("name", REGRESSIONS)
def test_networks_that_were_refused(name, data):
    path = data / "regressions" / f"{name}.onnx"
    session = onnxruntime.InferenceSession(path)
    given = session.get_inputs()[0]
    batch = given.shape[0] if isinstance(given.shape[0], int) else 1
    x = images(12, *given.shape[1:])
    model = tacit.import_onnx(path, calibrate=x)
    wanted = np.concatenate([session.run(None, {given.name: x[i : i + batch]})[0].reshape(batch, -1) for i in range(0, 12, batch)])
    check(model, wanted, x)
    with tacit.serve(model) as server, server.client() as client:
        private = client.infer(x[:2]).reshape(2, -1)
    assert np.abs(private - wanted[:2]).max() <= 0.03 * max(np.ptp(wanted), 1e-3)
    with tacit.serve(model) as server, server.client() as client:
        private = client.infer(x[:2]).reshape(2, -1)
    assert np.abs(private - wanted[:2].reshape(2, -1)).max() <= 0.03 * max(np.ptp(wanted), 1e-3)
