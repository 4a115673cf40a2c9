"""Whatever goes wrong is a `TacitError`, with a message that says what and where."""

import numpy as np
import pytest

import tacit
from conftest import MODELS

DIGITS = MODELS / "digits.onnx"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda _: tacit.import_onnx(DIGITS, range=(1,)), r"range takes two numbers"),
        (lambda _: tacit.import_onnx(DIGITS, range=("low", "high")), "import_onnx"),
        (lambda _: tacit.import_onnx(DIGITS, mean="grey"), "import_onnx"),
        (lambda _: tacit.import_onnx(DIGITS, max_samples=-1), "import_onnx"),
        (lambda _: tacit.import_onnx(DIGITS, seed="one"), "import_onnx"),
        (lambda _: tacit.import_onnx(7), "import_onnx"),
        (lambda _: tacit.import_onnx(None), "import_onnx"),
        (lambda _: tacit.Model.load(3), "Model.load"),
        (lambda _: tacit.Model.from_bytes("text"), "Model.from_bytes"),
        (lambda _: tacit.Lowered.load(None), "Lowered.load"),
        (lambda model: model.lower(5), "Model.lower"),
        (lambda model: model.run({"x": 1}), "array of numbers"),
        (lambda model: model.save(None), "Model.save"),
        (lambda model: model.lower().error_bound("high"), "Lowered.error_bound"),
        (lambda _: tacit.serve({"a": 3}), "a Model or a Lowered is needed, got 3"),
        (lambda _: tacit.serve({"a": [3]}), "a Model or a Lowered is needed, got 3"),
        (lambda _: tacit.serve(3), "a mapping of names"),
        (lambda model: tacit.serve({3: model}), "serve"),
        (lambda model: tacit.serve(model, threads="two"), "serve"),
        (lambda model: tacit.serve(model, backend=4), "serve"),
        (lambda model: tacit.serve(model, listen=80), "serve"),
        (lambda model: tacit.serve(model, keys=5), "serve"),
        (lambda _: tacit.make_keys("keys", clients="bob"), r"clients takes a list of names: clients=\['bob'\]"),
        (lambda _: tacit.make_keys("keys", hosts="server.example"), "hosts takes a list"),
        (lambda _: tacit.make_keys("keys", clients=[7]), "make_keys"),
        (lambda _: tacit.make_keys(None), "make_keys"),
        (lambda _: tacit.Client(7, keys="keys"), "Client"),
        (lambda _: tacit.Client("127.0.0.1:1", keys="keys", timeout_s="long"), "Client"),
        (lambda _: tacit.Client("127.0.0.1:1", keys="keys", timeout_s=-1), "."),
        (lambda _: tacit.Client("127.0.0.1:1", keys="keys", threads=None), "Client"),
        (lambda model: tacit.bench(model, runs="many"), "bench"),
        (lambda _: tacit.bench(DIGITS), "bench"),
    ],
)
def test_arguments_of_the_wrong_kind_are_tacit_errors(digits, call, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tacit.TacitError, match=says):
        call(digits)
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_client_reports_wrong_arguments_and_stays_usable(digits, digit_images):
    with tacit.serve(digits) as server, server.client() as client:
        for count in ("two", 1.5, None):
            with pytest.raises(tacit.TacitError, match=r"Client\.prepare"):
                client.prepare(count)
        with pytest.raises(tacit.TacitError, match="numbers"):
            client.infer("a digit")
        with pytest.raises(tacit.TacitError, match=r"Server\.stop"):
            server.stop("soon")
        assert np.shape(client.infer(digit_images[0])) == (10,)
