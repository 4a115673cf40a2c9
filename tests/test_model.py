"""The `.tacit` file, the model's public facts, and inputs to the reference."""

import numpy as np
import pytest

import tacit


def test_a_model_survives_its_file(digits, digit_images, tmp_path):
    digits.save(tmp_path / "digits.tacit")
    again = tacit.Model.load(tmp_path / "digits.tacit")
    assert (again.name, again.digest, again.spec) == (digits.name, digits.digest, digits.spec)
    assert np.array_equal(again.reference(digit_images[:5]), digits.reference(digit_images[:5]))
    assert again.report is None, "the owner's report is not in the file"


def test_public_facts(digits):
    assert digits.input_shape == (1, 8, 8)
    assert digits.output_shape == (10,)
    assert digits.output_mode == "Logits"
    assert digits.summary["comparisons"] > 0
    assert "digits" in repr(digits)


def test_two_imports_are_two_models(digits, digit_images):
    again = tacit.import_onnx("models/digits.onnx", calibrate=digit_images[:16])
    assert again.digest != digits.digest


@pytest.mark.parametrize("at", [0, 8, 12, 20, 60, 100, -1])
def test_a_damaged_file_is_an_error(digits, at):
    damaged = bytearray(digits.to_bytes())
    damaged[at] ^= 1
    with pytest.raises(tacit.TacitError):
        tacit.Model.from_bytes(bytes(damaged))


def test_another_version_is_named(digits):
    other = bytearray(digits.to_bytes())
    other[8:12] = (77).to_bytes(4, "little")
    with pytest.raises(tacit.TacitError, match="77"):
        tacit.Model.from_bytes(bytes(other))


@pytest.mark.parametrize("length", [0, 7, 50, 91, 92, 500])
def test_a_truncated_file_is_an_error(digits, length):
    with pytest.raises(tacit.TacitError):
        tacit.Model.from_bytes(digits.to_bytes()[:length])


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(tacit.TacitError, match="nothing.tacit"):
        tacit.Model.load(tmp_path / "nothing.tacit")


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.full((1, 8, 8), np.nan), "NaN"),
        (np.full((1, 8, 8), np.inf), "inf"),
        (np.full((1, 8, 8), 1e30), "accepts"),
        (np.zeros((1, 9, 8)), "shape"),
        (np.zeros((0, 1, 8, 8)), "empty"),
        (np.zeros((1, 8, 8), complex), "numbers"),
        ("seven", "numbers"),
    ],
)
def test_inputs_that_do_not_fit_are_errors(digits, x, says):
    with pytest.raises(tacit.TacitError, match=f"(?i){says}"):
        digits.reference(x)


def test_any_layout_and_number_type_of_an_input_is_taken(digits, digit_images):
    image = digit_images[0]
    wanted = digits.reference(image)
    assert np.array_equal(digits.reference(image.astype(np.float64)), wanted)
    assert np.array_equal(digits.reference(np.asfortranarray(image)), wanted)
    assert np.array_equal(digits.reference(image.tolist()), wanted)
    assert np.array_equal(digits.reference(digit_images[:3])[0], wanted)
