"""A few private runs of real networks on real data; `make accuracy` does all of them."""

import numpy as np
import pytest

import shared_data
import tacit


def with_checkerboard(data):
    """Images, and one that no data set holds: its tensors are larger than calibration shows."""
    images = shared_data.cifar10(data, "test_batch", 2)[0]
    board = np.load(data / "regressions" / "overflow_checkerboard.npy")
    return np.concatenate([images, board[None].astype(images.dtype)])


@pytest.mark.parametrize(
    ("name", "inputs", "samples"),
    [
        ("mnist.onnx", lambda d: shared_data.mnist(d, "t10k", 5)[0], lambda d: shared_data.mnist(d, "train", 32)[0]),
        (
            "mlperftiny_resnet8_cifar10.onnx",
            with_checkerboard,
            lambda d: shared_data.cifar10(d, "data_batch_1", 32)[0],
        ),
        (
            "resnet20_cifar10.onnx",
            lambda d: shared_data.cifar10_normalised(shared_data.cifar10(d, "test_batch", 2)[0]),
            lambda d: shared_data.cifar10_normalised(shared_data.cifar10(d, "data_batch_1", 32)[0]),
        ),
        ("squeezenet1.1_fp32.onnx", lambda d: shared_data.photos(d)[:1], shared_data.photos),
    ],
    ids=["mnist", "resnet8", "resnet20", "squeezenet"],
)
def test_private_answers_keep_the_float_class(data, float_answers, name, inputs, samples):
    images = inputs(data)
    model = tacit.import_onnx(data / "models" / name, calibrate=samples(data))
    with tacit.serve(model) as server, server.client() as client:
        answers = client.infer(images)
    assert np.array_equal(answers.argmax(1), float_answers(data / "models" / name, images).argmax(1))
    error = np.sqrt(np.mean((answers - model.reference(images)) ** 2)) / np.ptp(answers)
    assert error < 0.05, f"root mean square distance from the reference is {error:.2%} of the range"
