"""GRU, unrolled over its steps: against onnxruntime (and ONNX's own reference where that has no kernel), and what is refused."""

import numpy as np
import onnx
import onnxruntime
import pytest
from nets import node, weights
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tacit

STEPS, FEATURES, HIDDEN = 3, 5, 4
PARAMS = {
    "w": weights(1, 3 * HIDDEN, FEATURES),
    "r": weights(1, 3 * HIDDEN, HIDDEN, seed=9),
    "b": weights(1, 6 * HIDDEN, seed=2) / 4,
    "h0": weights(1, 1, HIDDEN, seed=3),
    "zero": np.zeros((1, 1, HIDDEN), np.float32),
    "short": np.array([STEPS - 1], np.int32),
    "axis": np.array([1], np.int64),
    "last": np.array([-1], np.int64),
    "w2": weights(1, 3 * HIDDEN, HIDDEN, seed=4),
}


def network(*nodes: onnx.NodeProto, shape: tuple[int | str, ...] = (1, STEPS, FEATURES), outputs: tuple[str, ...] = ("y",)) -> bytes:
    used = {name for n in nodes for name in n.input}
    graph = helper.make_graph(
        list(nodes),
        "gru",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(v, k) for k, v in PARAMS.items() if k in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def gru(inputs: str, output: str = "y", **attributes: object) -> onnx.NodeProto:
    return node("GRU", inputs, output, hidden_size=HIDDEN, **attributes)


# A batch of one in front, as PyTorch exports `batch_first=True`.
TURNED = node("Transpose", "x", "t", perm=[1, 0, 2])
FORMS = {
    "all_states": [gru("t w r b", "y")],
    "last_state": [gru("t w r b", "_ y")],
    "no_bias": [gru("t w r", "_ y")],
    "after": [gru("t w r b", "y", linear_before_reset=1)],
    "after_no_bias": [gru("t w r", "_ y", linear_before_reset=1)],
    "state_given": [gru("t w r b _ h0", "y")],
    "state_given_after": [gru("t w r b _ h0", "y", linear_before_reset=1)],
    "state_of_zeros": [gru("t w r b _ zero", "_ y", direction="forward", activations=["Sigmoid", "Tanh"])],
    "two_layers": [gru("t w r b", "s h"), node("Squeeze", "s axis", "q"), gru("q w2 r b _ h", "y", linear_before_reset=1)],
    "second_from_state": [gru("t w r b", "s h"), node("Squeeze", "s axis", "q"), gru("q w2 r b _ h", "_ y")],
}


def samples(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    """Inputs in -1..1, float32, without the batch."""
    return np.random.default_rng(seed).uniform(-1, 1, (6, *shape)).astype(np.float32)


@pytest.mark.parametrize("steps", [1, STEPS])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_agrees_with_onnxruntime(form, steps):
    file = network(TURNED, *FORMS[form], shape=(1, steps, FEATURES))
    session, x = onnxruntime.InferenceSession(file), samples((steps, FEATURES))
    wanted = np.stack([session.run(None, {"x": one[None]})[0].reshape(-1) for one in x])
    assert np.abs(tacit.import_onnx(file, calibrate=x).run(x).reshape(6, -1) - wanted).max() < 1e-5


def test_a_batch_in_front_agrees_with_the_reference():
    file = network(gru("x w r b", "y h", layout=1), outputs=("y", "h"))
    reference, x = ReferenceEvaluator(file), samples((STEPS, FEATURES))
    wanted = np.stack([np.concatenate([y.reshape(-1) for y in reference.run(None, {"x": one[None]})]) for one in x])
    model = tacit.import_onnx(file, calibrate=x)
    assert model.outputs == {"y": (STEPS, 1, HIDDEN), "h": (1, HIDDEN)}
    assert np.abs(model.run(x).reshape(6, -1) - wanted).max() < 1e-5


LAST = [[gru("t w r b", "_ y")], [gru("t w r b", "s", linear_before_reset=1), node("Gather", "s last", "y", axis=0)]]


@pytest.mark.parametrize("nodes", LAST, ids=["last_state", "last_of_all"])
def test_encrypted_slots_compute_it_and_shares_refuse_its_products(nodes):
    x = samples((2, FEATURES))
    model = tacit.import_onnx(network(TURNED, *nodes, shape=(1, 2, FEATURES)), calibrate=x)
    lowered = model.lower("ckks", tolerance=0.001)
    assert np.abs(lowered.reference(x).reshape(6, -1) - model.run(x).reshape(6, -1)).max() < 0.01
    for backend in ("cheetah", "dealt"):
        with pytest.raises(tacit.TacitError, match="_node.*two secret tensors.*`ckks` has it"):
            model.lower(backend)


@pytest.mark.parametrize(
    ("inputs", "attributes", "said"),
    [
        ("t w r b", {"direction": "reverse"}, "Slice with step -1"),
        ("t w r b", {"activations": ["Relu", "Tanh"]}, "sigmoid and tanh"),
        ("t w r b", {"clip": 3.0}, "without `clip`"),
        ("t w r b short", {}, "sequence_lens"),
        ("t r w b", {}, "do not fit 5 features"),
        ("t w r w", {}, "60 biases for 4 hidden units"),
        ("t w r b _ axis", {}, "a first state of 1 numbers"),
        ("t w r t", {}, "must be a constant"),
        ("x w r b", {}, "with the batch first"),
        ("t w r b", {"layout": 1}, "with the batch first"),
    ],
)
def test_a_refusal_names_the_node_and_a_way_out(inputs, attributes, said):
    with pytest.raises(tacit.TacitError, match=rf"(?s)_node.*GRU.*{said}"):
        tacit.import_onnx(network(TURNED, gru(inputs, "_ y", **attributes), shape=("N", STEPS, FEATURES)))
