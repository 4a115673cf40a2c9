"""What a Python programmer expects of any package: wrong keywords, versions, what objects print, pickling, warnings, and rows that fail alone."""

import copy
import pickle
import warnings

import numpy as np
import onnx
import pytest

import tacit
from conftest import MODELS

DIGITS = MODELS / "digits.onnx"


@pytest.fixture(scope="module")
def server(digits):
    with tacit.serve(digits) as server:
        yield server


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda _: tacit.import_onnx(DIGITS, calibration=None), "calibration"),
        (lambda model: model.run(), "x"),
        (lambda model: model.save(), "path"),
        (lambda model: model.run(1, normalized=True), "normalized"),
        (lambda model: tacit.serve(model, thread=2), "thread"),
        (lambda _: tacit.Client("127.0.0.1:1", keys="keys", modell="digits"), "modell"),
        (lambda _: tacit.make_keys(), "folder"),
    ],
)
def test_a_call_that_does_not_fit_is_a_type_error(digits, call, says):
    with pytest.raises(TypeError, match=says):
        call(digits)


def test_a_wrong_keyword_of_a_call_within_is_a_type_error_too(server):
    with pytest.raises(TypeError, match="modell"):
        server.client(modell="digits")


@pytest.mark.parametrize(
    "make",
    [
        lambda backend, _: tacit.import_onnx(DIGITS.parent / "not there.onnx", backend=backend),
        lambda backend, data: tacit.Model.from_bytes(data, backend=backend),
        lambda backend, _: tacit.import_onnx(b"", backend=backend),
    ],
)
def test_a_back_end_that_is_none_is_refused_at_once(digits, make):
    with pytest.raises(tacit.TacitError, match=r"no back end 'foo'; there are cheetah, .*ckks"):
        make("foo", digits.to_bytes())


def test_the_version_is_told():
    assert tacit.__version__ == "0.2.0"


def test_objects_say_what_they_are(digits, server):
    assert repr(digits).startswith("<tacit.Model 'digits'")
    with server.client() as client:
        assert repr(client) == f"<tacit.Client of 'digits' at {server.address} with cheetah>"
        assert repr(client.notify()) == "<tacit.Notice on an open connection for 1>"
    assert server.address in repr(server) and "connections" in repr(server)
    with tacit.dealer() as dealer:
        assert dealer.address in repr(dealer) and dealer.pin[:12] in repr(dealer)


def test_a_server_that_was_stopped_says_so(digits):
    with tacit.serve(digits) as server:
        pass
    with pytest.raises(tacit.TacitError, match="has been stopped"):
        server.client()
    assert "stopped" in repr(server)


def test_a_model_in_memory_is_imported(digits, digit_images):
    made = tacit.import_onnx(onnx.load(DIGITS), calibrate=np.load(MODELS / "digits_samples.npy"))
    assert made.spec == digits.spec and (made.run(digit_images[:5]) == digits.run(digit_images[:5])).all()


def test_without_samples_there_is_a_warning():
    with pytest.warns(UserWarning, match=r"no calibration samples.*calibrate=") as caught:
        tacit.import_onnx(DIGITS)
    assert caught[0].filename == __file__, "where it was called"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tacit.import_onnx(DIGITS, calibrate=np.load(MODELS / "digits_samples.npy"))


def test_models_are_pickled_and_what_is_not_says_why(digits, digit_images, server):
    model = tacit.Model.from_bytes(digits.to_bytes(), backend="clear", options={})
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert (again.digest, again.lower().backend) == (digits.digest, "clear")
    assert (pickle.loads(pickle.dumps(digits)).run(digit_images[0]) == digits.run(digit_images[0])).all()
    with server.client() as client, tacit.dealer() as dealer:
        for thing, instead in ((digits.lower(), "`save`"), (server, "`address`"), (client, "its own"), (dealer, "`pin`"), (client.notify(), "`name`")):
            with pytest.raises(TypeError, match=f"cannot be pickled: .*{instead}"):
                pickle.dumps(thing)


def test_a_model_is_checked_against_the_float_network(digits, digit_images):
    labels = digits.run(digit_images[:40]).argmax(1)
    found = digits.check(digit_images[:40], labels=labels)
    assert found["inputs"] == 40 and found["refused"] == 0 and found["overflowed"] == 0
    assert found["agreement"] > 0.9 and found["accuracy"]["float"] == 1.0
    far = digit_images[:4].copy()
    far[1] = 99
    assert digits.check(far, backend="clear")["refused"] == 1
    for labels in ([1, 2], [-1] * 40, ["a"] * 40):
        with pytest.raises(tacit.TacitError, match="40 whole numbers"):
            digits.check(digit_images[:40], labels=labels)


def test_a_row_out_of_range_fails_alone(digits, digit_images, server):
    rows = digit_images[:4].copy()
    rows[2, 0, 1, 3] = 99
    with server.client() as client:
        with pytest.raises(tacit.RowsRefused, match=r"1 of 4 inputs were refused.*row 2: .*value 11 is 99") as raised:
            client.infer(rows)
        error = raised.value
        assert list(error.refused) == [2] and "(at [0, 1, 3])" in error.refused[2] and "--range" in error.refused[2]
        assert error.answers.shape == (4, 10) and np.isnan(error.answers[2]).all()
        assert (error.answers[[0, 1, 3]].argmax(1) == digits.run(rows[[0, 1, 3]]).argmax(1)).all()
        # Where none is accepted, and for one input, nothing is sent.
        before = len(client.costs)
        with pytest.raises(tacit.TacitError, match="nothing was sent; row 0") as raised:
            client.infer(rows[[2, 2]])
        assert not isinstance(raised.value, tacit.RowsRefused)
        with pytest.raises(tacit.TacitError, match="value 11 is 99"):
            client.infer(rows[2])
        with pytest.raises(tacit.TacitError, match="row 2"):
            client.infer_integers(rows)
        assert len(client.costs) == before
        assert client.infer(rows[0]).shape == (10,)
