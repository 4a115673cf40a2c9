"""Networks that went wrong once (`../shared/data/regressions`), with onnxruntime as the judge, and small ones of the same kinds made here."""

import json

import numpy as np
import onnxruntime
import pytest

import nets
import tacit
from test_cli import as_alice, serving

UNSERVABLE = [51, 64, 149, 302, 353, 385, 469, 480]


@pytest.fixture(scope="session")
def regressions(data):
    folder = data / "regressions"
    if not folder.is_dir():
        pytest.skip(f"no {folder}: the networks that went wrong are not here")
    return folder


def floats(network, inputs):
    """onnxruntime's flat outputs, one input at a time."""
    session = onnxruntime.InferenceSession(network)
    name = session.get_inputs()[0].name
    return np.stack([session.run(None, {name: x[None]})[0].reshape(-1) for x in inputs])


def assert_right(got, wanted, share=0.03):
    """`share` of the range of all outputs is the largest error."""
    got = got.reshape(len(wanted), -1)
    assert got.shape == wanted.shape
    scale = np.ptp(wanted) or np.abs(wanted).max() or 1.0
    assert np.abs(got - wanted).max() <= share * scale, np.abs(got - wanted).max() / scale


def privately(model, inputs):
    with tacit.serve(model) as server, server.client() as client:
        return client.infer(inputs)


@pytest.mark.parametrize("number", UNSERVABLE)
def test_what_was_refused_when_served_is_served(regressions, number):
    network, samples = regressions / f"unservable_{number}.onnx", np.load(regressions / f"unservable_{number}_calib.npy")
    model = tacit.import_onnx(network, calibrate=samples)
    wanted = floats(network, samples)
    assert_right(model.reference(samples), wanted)
    assert_right(privately(model, samples[:2]), wanted[:2])
    assert model.report["samples"] == {"searched": 18, "held_out": 6}
    assert np.isfinite(model.report["output_error"])


@pytest.mark.parametrize("name", ["scaler_mlp", "ecg_bn_input"])
def test_floats_are_the_network_s_own_input(regressions, name):
    network, samples = regressions / f"{name}.onnx", np.load(regressions / f"{name}_calib.npy")
    inputs = np.load(regressions / f"{name}_x.npy")
    model = tacit.import_onnx(network, calibrate=samples)
    wanted = floats(network, inputs)
    assert np.abs(model.run(inputs) - wanted).max() < 1e-4 * np.ptp(wanted)
    assert_right(model.reference(inputs), wanted)
    with tacit.serve(model) as server, server.client() as client:
        assert_right(client.infer(inputs[:2]), wanted[:2])
        assert_right(client.infer(model.normalise(inputs[:2]), normalised=True), wanted[:2])


@pytest.mark.parametrize("name", ["scaler_mlp", "ecg_bn_input"])
def test_the_command_line_means_the_same(regressions, cli, binary, tmp_path, name):
    inputs = np.load(regressions / f"{name}_x.npy")
    np.save(tmp_path / "x.npy", inputs)
    calibrate = ["--calibrate", regressions / f"{name}_calib.npy"]
    cli("model", "import", regressions / f"{name}.onnx", *calibrate, "-o", "digits.tacit", cwd=tmp_path)
    wanted = floats(regressions / f"{name}.onnx", inputs)
    run = [json.loads(line) for line in cli("model", "run", "digits.tacit", "x.npy", "--json", cwd=tmp_path).stdout.splitlines()]
    assert_right(np.array([r["values"] for r in run]), wanted, 1e-4)
    model = tacit.Model.load(tmp_path / "digits.tacit")
    np.save(tmp_path / "normalised.npy", model.normalise(inputs))
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    with serving(binary, tmp_path) as address:
        for given in (["x.npy"], ["x.npy", "--raw"], ["normalised.npy", "--normalised"]):
            done = cli("infer", *given, *as_alice(address), "--json", cwd=tmp_path)
            answers = np.array([json.loads(line)["values"] for line in done.stdout.splitlines()])
            assert_right(answers, wanted)


def test_a_scaler_inside_keeps_the_classes(regressions):
    network, samples = regressions / "breast_cancer_scaler_inside.onnx", np.load(regressions / "breast_cancer_calib.npy")
    inputs = np.load(regressions / "breast_cancer_test.npy")
    model = tacit.import_onnx(network, calibrate=samples)
    wanted = floats(network, inputs)[:, 0] > 0

    def answers(x):
        try:
            return model.reference(x)[0] > 0
        except tacit.TacitError as error:
            assert "accepts" in str(error)
            return None

    same = sum(answers(x) == w for x, w in zip(inputs, wanted, strict=True))
    assert same >= 283, f"{same} of {len(inputs)}"
    assert np.array_equal(privately(model, inputs[:3])[:, 0] > 0, wanted[:3])


@pytest.mark.parametrize("name", ["shape_start_slice", "shape_start_end", "shape_slice_chain"])
def test_a_shape_has_its_start_and_end(regressions, name):
    network = regressions / f"{name}.onnx"
    session = onnxruntime.InferenceSession(network)
    shape = [n if isinstance(n, int) else 1 for n in session.get_inputs()[0].shape[1:]]
    samples = np.random.default_rng(3).uniform(-1, 1, (20, *shape)).astype(np.float32)
    model = tacit.import_onnx(network, calibrate=samples)
    wanted = session.run(None, {"x": samples[:1]})[0]
    assert model.output_shape == wanted.shape[1:]
    assert_right(model.run(samples), floats(network, samples), 1e-5)
    assert_right(privately(model, samples[:2]), floats(network, samples[:2]))


@pytest.mark.parametrize(("name", "high"), [("tiny_weights", 1.0), ("tiny_input_range", 1e-5)])
def test_tiny_weights_and_inputs_are_rescaled(regressions, name, high):
    network = regressions / f"{name}.onnx"
    shape = onnxruntime.InferenceSession(network).get_inputs()[0].shape[1:]
    samples = (np.random.default_rng(3).uniform(-high, high, (32, *shape))).astype(np.float32)
    wanted = floats(network, samples)
    for given in ({"calibrate": samples}, {"range": (-high, high)}):
        model = tacit.import_onnx(network, **given)
        assert np.abs(model.run(samples) - wanted).max() < 1e-4 * np.ptp(wanted)
        assert_right(model.reference(samples), wanted)
    assert_right(privately(model, samples[:2]), wanted[:2])


def test_the_client_applies_a_final_log_softmax(regressions):
    network = regressions / "logsoftmax_end.onnx"
    samples = np.random.default_rng(3).uniform(-1, 1, (32, 5)).astype(np.float32)
    model = tacit.import_onnx(network, calibrate=samples)
    assert model.spec["final_activation"] == "log-softmax"
    wanted = floats(network, samples)
    assert np.abs(model.run(samples) - wanted).max() < 1e-4
    assert_right(model.reference(samples), wanted)
    assert_right(privately(model, samples[:3]), wanted[:3])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_what_ends_a_network_made_here_is_applied(op):
    nodes = [nets.node("Gemm", "x w", "g", transB=1), nets.node(op, "g", "y", axis=1)]
    net = nets.Net("end", (8,), nodes, {"w": nets.weights(4, 8)})
    model = tacit.import_onnx(net.to_bytes(), calibrate=net.samples(32))
    x = net.samples(3, seed=3)
    wanted = floats(net.to_bytes(), x)
    with tacit.serve(model) as server, server.client() as client:
        answers, integers = client.infer(x), client.infer_integers(x)
    assert_right(answers, wanted)
    logits = floats(nets.Net("logits", (8,), [nets.node("Gemm", "x w", "y", transB=1)], net.params).to_bytes(), x)
    assert_right(integers * model.lower().output_unit, logits)
    assert np.abs(integers - model.reference_integers(x)).max() <= 8


@pytest.mark.parametrize("shape", [(6,), (3, 10), (3, 5, 4)], ids=["flat", "signal", "image"])
def test_a_scaler_made_here_is_applied_by_channel(shape):
    """Sub and Div in front: the importer leaves them to the client, for every channel of any shape."""
    channels = shape[0]
    rng = np.random.default_rng(7)
    wide = lambda low, high: rng.uniform(low, high, (channels, *(1,) * (len(shape) - 1))).astype(np.float32)  # noqa: E731
    params = {"mu": wide(-50, 50), "sd": wide(0.1, 30), "w": nets.weights(4, int(np.prod(shape)))}
    nodes = [
        nets.node("Sub", "x mu", "a"),
        nets.node("Div", "a sd", "n"),
        nets.node("Flatten", "n", "f"),
        nets.node("Gemm", "f w", "y", transB=1),
    ]
    network = nets.Net("scaled", shape, nodes, params).to_bytes()
    samples = (params["mu"] + params["sd"] * rng.standard_normal((40, *shape))).astype(np.float32)
    model = tacit.import_onnx(network, calibrate=samples)
    wanted = floats(network, samples)
    assert np.abs(model.run(samples) - wanted).max() < 1e-3 * np.ptp(wanted)
    assert_right(privately(model, samples[:2]), wanted[:2])
    with pytest.raises(tacit.TacitError, match="accepts"):
        model.run(samples[0] + 1e4)


def test_constant_outputs_have_a_finite_error():
    nodes = [nets.node("Gemm", "x w b", "g", transB=1), nets.node("Relu", "g", "y")]
    params = {"w": np.zeros((3, 4), np.float32), "b": np.array([-1, 0.5, -2], np.float32)}
    net = nets.Net("constant", (4,), nodes, params)
    model = tacit.import_onnx(net.to_bytes(), calibrate=net.samples(20))
    assert model.report["output_error"] < 0.01
    assert_right(privately(model, net.samples(2)), floats(net.to_bytes(), net.samples(2)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mlperftiny_kws_int8_dequantised_end", r"`Identity_quantize` \(QuantizeLinear\).*remove this node.*ends with the Softmax"),
        ("mlperftiny_kws_int8_qdq", r"\(DequantizeLinear\).*takes integers.*remove it, so that the network begins behind it"),
    ],
)
def test_an_int8_file_is_told_where_to_cut_it(regressions, name, says):
    path = regressions / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"no {path.name}: the quantised networks are not here")
    with pytest.raises(tacit.TacitError, match=f"(?s){says}") as error:
        tacit.import_onnx(path)
    assert "export" not in str(error.value), "it is what they would get"


def test_a_scikit_learn_classifier_of_two_classes_is_cut_at_its_logit():
    """The graph of skl2onnx 1.20 for an MLPClassifier: probabilities joined from a sigmoid, and a label nobody computes."""
    nodes = [
        nets.node("MatMul", "x w", "m"),
        nets.node("Add", "m b", "a"),
        nets.node("Relu", "a", "r"),
        nets.node("MatMul", "r v", "o"),
        nets.node("Add", "o c", "logit"),
        nets.node("Sigmoid", "logit", "p"),
        nets.node("Sub", "one p", "q"),
        nets.node("Concat", "q p", "y", axis=1),
    ]
    params = {"w": nets.weights(8, 16), "b": nets.weights(16), "v": nets.weights(16, 1), "c": nets.weights(1), "one": np.ones(1, np.float32)}
    net = nets.Net("mlp", (8,), nodes, params)
    model = tacit.import_onnx(net.to_bytes(), calibrate=net.samples(32), backend="clear")
    with pytest.raises(tacit.TacitError, match=r"`p` \(Sigmoid\).*cut the network in front of it, at the logit.*extract_model"):
        model.lower("cheetah")
    cut = nets.Net("logit", (8,), [*nodes[:4], nets.node("Add", "o c", "y")], params)
    assert_right(tacit.import_onnx(cut.to_bytes(), calibrate=net.samples(32)).reference(net.samples(4)), floats(cut.to_bytes(), net.samples(4)))
