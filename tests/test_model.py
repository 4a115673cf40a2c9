"""The `.tacit` file, the model's public facts, inputs, and lowering for a back end."""

import numpy as np
import pytest

import tacit


def test_a_model_survives_its_file(digits, digit_images, tmp_path):
    digits.save(tmp_path / "digits.tacit")
    again = tacit.Model.load(tmp_path / "digits.tacit")
    assert (again.name, again.digest, again.spec) == (digits.name, digits.digest, digits.spec)
    assert np.array_equal(again.run(digit_images[:5]), digits.run(digit_images[:5]))
    assert np.array_equal(again.reference(digit_images[:5]), digits.reference(digit_images[:5]))
    assert again.lower().digest == digits.lower().digest
    assert again.report == digits.report, "weights and calibration are in the file, so it can be lowered again"
    assert (tmp_path / "digits.tacit").stat().st_mode & 0o777 == 0o600
    (tmp_path / "digits.tacit").chmod(0o644)
    digits.save(tmp_path / "digits.tacit")
    assert (tmp_path / "digits.tacit").stat().st_mode & 0o777 == 0o600, "a file that others could read is theirs no more"


def test_a_lowered_model_survives_its_file(digits, digit_images, tmp_path):
    lowered = digits.lower()
    lowered.save(tmp_path / "digits.cheetah.lowered")
    again = tacit.Lowered.load(tmp_path / "digits.cheetah.lowered")
    facts = (
        "backend",
        "options",
        "trust",
        "digest",
        "public_digest",
        "model_digest",
        "spec",
        "costs",
        "numerics",
        "output_unit",
    )
    for fact in facts:
        assert getattr(again, fact) == getattr(lowered, fact), fact
    assert again.model_digest == digits.digest
    assert again.describe() == lowered.describe()
    assert np.array_equal(again.reference(digit_images[:5]), lowered.reference(digit_images[:5]))
    assert lowered.report is not None
    assert again.report is None, "the owner's report is not in the file"
    assert (tmp_path / "digits.cheetah.lowered").stat().st_mode & 0o077 == 0
    damaged = bytearray((tmp_path / "digits.cheetah.lowered").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.lowered").write_bytes(damaged)
    with pytest.raises(tacit.TacitError, match="damaged"):
        tacit.Lowered.load(tmp_path / "damaged.lowered")
    with pytest.raises(tacit.TacitError, match="nothing.lowered"):
        tacit.Lowered.load(tmp_path / "nothing.lowered")


def test_public_facts(digits):
    assert digits.input_shape == (1, 8, 8)
    assert digits.output_shape == (10,)
    assert digits.output_mode == "Logits"
    assert digits.lower().costs["comparisons"] > 0
    assert digits.summary["macs"] > 0
    assert not digits.summary["guessed"]
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


@pytest.mark.parametrize("length", [0, 7, 50, 91, 92, 131, 132, 500, -1])
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
    for compute in (digits.reference, digits.run):
        with pytest.raises(tacit.TacitError, match=f"(?i){says}"):
            compute(x)


def test_any_layout_and_number_type_of_an_input_is_taken(digits, digit_images):
    image = digit_images[0]
    wanted = digits.reference(image)
    assert np.array_equal(digits.reference(image.astype(np.float64)), wanted)
    assert np.array_equal(digits.reference(np.asfortranarray(image)), wanted)
    assert np.array_equal(digits.reference(image.tolist()), wanted)
    assert np.array_equal(digits.reference(digit_images[:3])[0], wanted)


def test_the_same_lowering_is_made_once(digits):
    assert digits.lower() is digits.lower("cheetah")
    twelve = digits.lower("cheetah", frac_bits=12)
    assert twelve is digits.lower(frac_bits="12")
    assert twelve is not digits.lower()
    assert twelve.options == {"frac_bits": "12"}
    assert twelve.digest != digits.lower().digest, "options are in the digest"


def test_import_options_are_those_of_the_default_lowering(digit_images):
    model = tacit.import_onnx("models/digits.onnx", calibrate=digit_images[:16], frac_bits=10, options={"round_facts": 2})
    assert model.lower().options == {"frac_bits": "10", "round_facts": "2"}
    assert model.lower("cheetah", frac_bits=9).options == {"frac_bits": "9", "round_facts": "2"}
    assert model.lower("clear").options == {}, "options of one back end are not those of another"
    nodes = model.lower().describe()["nodes"]
    assert nodes[0]["fixed"]["frac_bits"] == 10


def test_the_reference_follows_the_float_network(digits, digit_images):
    floats, fixed = digits.run(digit_images[:20]), digits.reference(digit_images[:20])
    assert np.array_equal(floats.argmax(1), fixed.argmax(1))
    assert 0 < np.abs(floats - fixed).max() < 0.05 * np.ptp(floats)
    assert np.array_equal(digits.lower("clear").reference(digit_images[:20]), floats), "clear is the float network"


def test_integers_are_the_answer_in_units_of_its_last_place(digits, digit_images):
    lowered = digits.lower()
    integers = digits.reference_integers(digit_images[:5])
    assert integers.dtype == np.int64
    assert np.array_equal(integers * lowered.output_unit, lowered.reference(digit_images[:5]))
    with pytest.raises(tacit.TacitError, match="clear.*integers"):
        digits.lower("clear").reference_integers(digit_images[0])


def test_the_declared_error_is_that_of_the_numerics(digits, digit_images):
    for name in ("cheetah", "clear"):
        lowered = digits.lower(name)
        assert lowered.error_bound(lowered.reference(digit_images[0])) >= 0
        with pytest.raises(tacit.TacitError, match="one input"):
            lowered.error_bound(lowered.reference(digit_images[:2]))


def test_an_error_bound_is_given_where_it_says_something(digits, digit_images):
    fine = digits.lower("cheetah", frac_bits=12)
    reference = fine.reference(digit_images[0])
    assert fine.useful_error_bound(reference) == fine.error_bound(reference) < np.ptp(reference)
    coarse = digits.lower("cheetah", frac_bits=4, error_bound=1, agreement=0)
    reference = coarse.reference(digit_images[0])
    assert coarse.error_bound(reference) > np.ptp(reference) and coarse.useful_error_bound(reference) is None
    assert 0 < coarse.report["errors"]["expected"] < np.ptp(reference) and coarse.report["errors"]["bound"] is None
    with pytest.raises(tacit.TacitError, match=r"useful_error_bound.*one input"):
        fine.useful_error_bound(np.zeros((2, 10)))
