"""ONNX import: every operation against onnxruntime, real networks, and files that are wrong."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import nets
import shared_data
import tacit

DIGITS = shared_data.ROOT / "models" / "digits.onnx"
REAL = {
    "mnist.onnx": lambda d: shared_data.mnist(d, "train", 24)[0],
    "mlperftiny_resnet8_cifar10.onnx": lambda d: shared_data.cifar10(d, "data_batch_1", 16)[0],
    "resnet20_cifar10.onnx": lambda d: shared_data.cifar10_normalised(shared_data.cifar10(d, "data_batch_1", 16)[0]),
    "resnet20_cifar10_bnfolded.onnx": lambda d: shared_data.cifar10_normalised(
        shared_data.cifar10(d, "data_batch_1", 16)[0]
    ),
    "squeezenet1.1_fp32.onnx": lambda d: shared_data.photos(d)[:2],
}


@pytest.mark.parametrize("net", nets.NETS, ids=lambda n: n.name)
def test_each_operation_agrees_with_onnxruntime(net, float_answers):
    network = net.to_bytes()
    model = tacit.import_onnx(network, calibrate=net.samples(16))
    assert model.input_shape == net.shape
    fresh = net.samples(4, seed=2)
    ours, floats = model.reference(fresh), float_answers(network, fresh)
    assert ours.shape == floats.shape
    error = np.sqrt(np.mean((ours - floats) ** 2)) / np.ptp(floats)
    assert error < 0.02, f"root mean square error is {error:.2%} of the range"
    exact = model.run(fresh)
    assert np.abs(exact - floats).max() < 1e-4 * np.ptp(floats), "our float network is that of the file"


@pytest.mark.parametrize("name", REAL)
def test_real_networks_agree_with_onnxruntime(name, data, float_answers):
    inputs = REAL[name](data)
    half = len(inputs) // 2
    model = tacit.import_onnx(data / "models" / name, calibrate=inputs[:half])
    ours, floats = model.reference(inputs[half:]), float_answers(data / "models" / name, inputs[half:])
    assert model.normalise(inputs[:1]) == pytest.approx(inputs[:1]), "nothing is left to the client"
    assert np.array_equal(ours.argmax(1), floats.argmax(1))
    assert np.abs(model.run(inputs[half:]) - floats).max() < 1e-3 * np.ptp(floats)
    assert model.report is not None
    # Some of sixteen samples or more are held out; of fewer, nothing is promised.
    kept = model.report["samples"]
    assert (model.report["agreement"] is None) == (kept["held_out"] == 0)
    assert model.report["agreement"] is None or model.report["agreement"] >= 0.99
    assert model.report["overflow"]["certain"] > 0


def test_every_onnx_file_of_the_data_folder_is_covered(data):
    assert {p.name for p in (data / "models").glob("*.onnx")} == set(REAL)


def test_digits_keep_their_accuracy(digits, digit_images, float_answers):
    floats = float_answers(DIGITS, digit_images[:100])
    assert np.mean(digits.reference(digit_images[:100]).argmax(1) == floats.argmax(1)) >= 0.99


def test_raw_pixels_are_normalised(digit_images):
    pixels = np.round(digit_images[:40] * 16).astype(np.uint8)
    model = tacit.import_onnx(DIGITS, calibrate=pixels, pixel_scale=1 / 16)
    assert model.input_range == (0.0, pytest.approx(255 / 16))
    assert np.array_equal(model.reference(pixels), model.reference(pixels.astype(np.float32) / 16))
    shifted = tacit.import_onnx(DIGITS, calibrate=pixels, pixel_scale=1 / 16, mean=[0.25], std=[0.5])
    assert np.array_equal(shifted.normalise(pixels), (pixels.astype(np.float32) / 16 - 0.25) / 0.5)
    floats = pixels.astype(np.float32) / 16
    assert np.array_equal(shifted.normalise(floats), floats), "floats are the network's own input"


def test_top1_reveals_only_a_class(digit_images):
    logits = tacit.import_onnx(DIGITS, calibrate=digit_images[:32])
    top1 = tacit.import_onnx(DIGITS, calibrate=digit_images[:32], output="top1")
    assert (logits.output_mode, top1.output_mode) == ("Logits", "Top1")
    assert top1.output_shape == (1,)
    same = top1.reference(digit_images[:50])[:, 0] == logits.reference(digit_images[:50]).argmax(1)
    assert same.mean() >= 0.98


def test_softmax_is_left_to_the_client(float_answers):
    nodes = [nets.node("Gemm", "x w", "g", transB=1), nets.node("Softmax", "g", "y", axis=1)]
    net = nets.Net("softmax", (8,), nodes, {"w": nets.weights(4, 8)})
    model = tacit.import_onnx(net.to_bytes(), calibrate=net.samples(8))
    assert model.spec["final_activation"] == "softmax"
    x = net.samples(3, seed=3)
    assert np.abs(model.reference(x) - float_answers(net.to_bytes(), x)).max() < 0.02


def test_argmax_at_the_end_is_top1():
    nodes = [nets.node("Gemm", "x w", "g", transB=1), nets.node("ArgMax", "g", "y", axis=1, keepdims=0)]
    net = nets.Net("argmax", (8,), nodes, {"w": nets.weights(4, 8)}, output_type=onnx.TensorProto.INT64)
    model = tacit.import_onnx(net.to_bytes(), calibrate=net.samples(8))
    assert model.output_mode == "Top1"


def test_without_samples_the_headroom_is_a_guess():
    model = tacit.import_onnx(nets.NETS[0].to_bytes(), range=(-1.0, 1.0))
    assert model.input_range == (-1.0, 1.0)
    assert "guess" in model.summary["calibration"]


def test_an_unsupported_operation_is_named():
    net = nets.Net("strange", (4, 6, 6), [nets.node("Relu", "x", "r"), nets.node("Sin", "r", "y")])
    with pytest.raises(tacit.TacitError, match=r"(?s)y_node.*Sin|Sin.*y_node"):
        tacit.import_onnx(net.to_bytes())


@pytest.mark.parametrize("cut", [0, 1, 10, 0.3, 0.9, -1])
def test_truncated_files_are_errors(cut):
    network = nets.NETS[0].to_bytes()
    end = int(len(network) * cut) if isinstance(cut, float) else cut
    with pytest.raises(tacit.TacitError):
        tacit.import_onnx(network[:end])


def test_files_that_are_no_networks_are_errors(tmp_path):
    with pytest.raises(tacit.TacitError, match="ONNX"):
        tacit.import_onnx(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    with pytest.raises(tacit.TacitError, match="missing.onnx"):
        tacit.import_onnx(tmp_path / "missing.onnx")
    with pytest.raises(tacit.TacitError):
        tacit.import_onnx(tmp_path)


def test_a_cycle_is_an_error():
    nodes = [nets.node("Add", "x b", "a"), nets.node("Relu", "a", "b"), nets.node("Relu", "b", "y")]
    graph = helper.make_graph(nodes, "cycle", [helper.make_tensor_value_info("x", 1, [1, 4])],
                              [helper.make_tensor_value_info("y", 1, [1, 4])])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    with pytest.raises(tacit.TacitError, match="cycle|order|makes"):
        tacit.import_onnx(model.SerializeToString())


@pytest.mark.parametrize("shape", [[1, 3, 2**31, 2**31], [1, 2**40], [1, 0, 4, 4], [1, -5, 4, 4]])
def test_huge_and_impossible_shapes_are_errors(shape):
    graph = helper.make_graph([nets.node("Relu", "x", "y")], "huge", [helper.make_tensor_value_info("x", 1, shape)],
                              [helper.make_tensor_value_info("y", 1, shape)])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    with pytest.raises(tacit.TacitError):
        tacit.import_onnx(model.SerializeToString())


def test_weights_that_are_not_finite_are_errors():
    for bad in (np.nan, np.inf):
        w = nets.weights(4, 8)
        w[1, 2] = bad
        net = nets.Net("bad", (8,), [nets.node("Gemm", "x w", "y", transB=1)], {"w": w})
        with pytest.raises(tacit.TacitError):
            tacit.import_onnx(net.to_bytes(), calibrate=net.samples(4))


def test_weights_that_do_not_fit_their_shape_are_errors():
    net = nets.Net("short", (8,), [nets.node("Gemm", "x w", "y", transB=1)], {"w": nets.weights(4, 8)})
    model = onnx.load_from_string(net.to_bytes())
    tensor = numpy_helper.from_array(nets.weights(4, 8), "w")
    tensor.dims[0] = 4000000
    model.graph.initializer[0].CopyFrom(tensor)
    with pytest.raises(tacit.TacitError):
        tacit.import_onnx(model.SerializeToString())


@pytest.mark.parametrize(
    "samples",
    [np.zeros((2, 3)), np.zeros((0, 3, 9, 7)), np.full((2, 3, 9, 7), np.nan), np.full((2, 3, 9, 7), np.inf), "text"],
    ids=["shape", "empty", "nan", "inf", "text"],
)
def test_calibration_samples_that_do_not_fit_are_errors(samples):
    with pytest.raises(tacit.TacitError):
        tacit.import_onnx(nets.NETS[0].to_bytes(), calibrate=samples)
