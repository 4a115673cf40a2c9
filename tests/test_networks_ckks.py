"""The networks of `models/` that are meant for encrypted slots, in the clear: the float network is the file's, polynomials answer as it does."""

import numpy as np
import onnxruntime
import pytest
from conftest import MODELS

import ecg
import nsl_kdd
import shared_data
import tacit

RECORDS = 400


def answers(name: str, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(MODELS / f"{name}.onnx")
    return session.run(None, {session.get_inputs()[0].name: x})[0].reshape(len(x), -1)


def test_the_detector_keeps_its_accuracy(data):
    lines = nsl_kdd.lines(data)
    encoding = nsl_kdd.Encoding.read(MODELS / "detector.json")
    calibration, _ = encoding.records(lines["train"][:64])
    x, labels = encoding.records(lines["held_out"][:RECORDS])
    x = x[:, None]
    model = tacit.import_onnx(MODELS / "detector.onnx", calibrate=calibration[:, None])
    assert model.spec["final_activation"] == "sigmoid"
    floats = model.run(x)
    assert np.abs(floats - answers("detector", x)).max() < 1e-5
    assert np.mean(floats.argmax(1) == labels) >= 0.99
    lowered = model.lower("ckks", tolerance=0.02)
    assert lowered.report["certain"]
    assert np.mean(lowered.reference(x).argmax(1) == floats.argmax(1)) >= 0.98


def test_the_test_records_of_another_time_are_harder(data):
    encoding = nsl_kdd.Encoding.read(MODELS / "detector.json")
    x, labels = encoding.records(nsl_kdd.lines(data)["test"][:RECORDS])
    assert x.shape == (RECORDS, nsl_kdd.FEATURES) and x.min() >= 0 and x.max() <= 1
    assert 0.7 <= np.mean(answers("detector", x[:, None]).argmax(1) == labels) <= 0.9


def test_early_beats_are_found(data):
    beats, labels = ecg.beats(data)
    assert (len(labels), labels.sum()) == (2271, 34)
    first = int(0.6 * len(beats))
    wild = np.argsort(np.abs(beats[:first]).max((1, 2)))[-24:]
    model = tacit.import_onnx(MODELS / "ecg.onnx", calibrate=beats[np.append(np.flatnonzero(labels[:first]), wild)])
    # A few beats are hidden under what is larger than any heart beat, which a client refuses to send.
    low, high = model.input_range
    sane = (beats.min((1, 2)) >= low) & (beats.max((1, 2)) <= high) & (np.arange(len(beats)) >= first)
    assert sane.sum() >= 880
    x, labels = beats[sane], labels[sane]
    floats = model.run(x)
    assert np.abs(floats - answers("ecg", x)).max() < 1e-4
    assert np.mean(floats.argmax(1) == labels) >= 0.99 and (floats.argmax(1) & labels).sum() >= 15
    near = model.lower("ckks", margin=2).reference(x)
    assert np.mean(near.argmax(1) == floats.argmax(1)) >= 0.995


@pytest.mark.parametrize("name", ["squeezenet_square", "squeezenet_relu"])
def test_squeezenets_know_their_images(name, data):
    images, labels = shared_data.cifar10(data, "test_batch", 64)
    x = shared_data.cifar10_normalised(images)
    model = tacit.import_onnx(MODELS / f"{name}.onnx", calibrate=x[:8])
    floats = model.run(x[:16])
    wanted = answers(name, x)
    assert np.abs(floats - wanted[:16]).max() < 1e-3 * np.ptp(wanted)
    assert np.mean(wanted.argmax(1) == labels) >= 0.75
