"""Several back ends on one server, the back end that shows its input, and options."""

import numpy as np
import pytest

import tacit


@pytest.fixture(scope="module")
def server(digits):
    with tacit.serve(digits, backend=["cheetah", "clear"], allow_clear=True) as server:
        yield server


def test_every_back_end_says_what_it_is_and_whom_to_trust():
    known = {backend.id: backend for backend in tacit.backends()}
    assert known["cheetah"].trust == "two-party"
    assert known["clear"].trust == "server-sees-input"
    assert all(backend.about and "\n" not in backend.about for backend in known.values())


def test_two_back_ends_answer_on_one_server(server, digits, digit_images):
    images = digit_images[:2]
    with server.client(backend="cheetah") as private, server.client(backend="clear") as clear:
        assert (private.backend, clear.backend) == ("cheetah", "clear")
        assert private.spec == clear.spec == digits.spec
        assert private.digest == digits.lower("cheetah").digest
        assert clear.digest == digits.lower("clear").digest
        answers = private.infer(images)
        assert np.array_equal(answers.argmax(1), digits.run(images).argmax(1))
        assert np.abs(clear.infer(images) - digits.run(images)).max() <= digits.lower("clear").error_bound(
            digits.run(images[0])
        )
        assert [cost.phase for cost in clear.costs] == ["online", "online"]
        assert {cost.phase for cost in private.costs} == {"setup", "offline", "online"}


def test_a_client_that_names_none_keeps_its_input(digits, server):
    with tacit.serve(digits, backend=["clear", "cheetah"], allow_clear=True) as other, other.client() as client:
        assert client.backend == "cheetah", "although the server prefers the other one"
    with tacit.serve(digits, backend="clear", allow_clear=True) as only, pytest.raises(tacit.TacitError, match="clear"):
        only.client()


def test_what_is_required_must_be_what_it_was_lowered_with(digits, digit_images):
    model = digits.lower("cheetah", relu_drop=0)
    with tacit.serve(model) as server:
        with server.client(require={"relu_drop": 0, "public": None}) as client:
            digest = client.public_digest
        with server.client(require={"public": digest}) as client:
            assert client.infer(digit_images[0]).shape == (10,)
        for required in ({"relu_drop": 3}, {"public": "0" * 64}, {"no_such": True}):
            with pytest.raises(tacit.TacitError, match=next(iter(required))):
                server.client(require=required)


def test_clear_is_served_only_where_that_is_allowed(digits):
    for backend in ("clear", ["cheetah", "clear"]):
        with pytest.raises(tacit.TacitError, match="clear"):
            tacit.serve(digits, backend=backend)


def test_what_the_other_back_end_has_is_an_error(server, digit_images):
    with server.client(backend="clear") as client:
        with pytest.raises(tacit.TacitError, match="clear.*nothing to prepare"):
            client.prepare()
        with pytest.raises(tacit.TacitError, match="clear.*integers"):
            client.infer_integers(digit_images[0])
        assert client.infer(digit_images[0]).shape == (10,), "the connection is as good as before"
    with pytest.raises(tacit.TacitError, match="cheetah.*clear"):
        server.client(backend="ckks")


def test_material_of_two_lowerings_is_kept_apart(digits, digit_images, tmp_path):
    twelve = digits.lower("cheetah", frac_bits=12)
    with tacit.serve({"usual": digits, "twelve": twelve}) as server:
        with server.client(model="twelve", store=tmp_path) as client:
            client.prepare(1)
        with server.client(model="usual", store=tmp_path) as client:
            assert client.ready == 0
        with server.client(model="twelve", store=tmp_path) as client:
            assert client.ready == 1
            wanted = twelve.reference(digit_images[0])
            assert np.abs(client.infer(digit_images[0]) - wanted).max() <= 0.05 * np.ptp(wanted)


def test_options_that_are_wrong_are_named_with_those_there_are(digits):
    with pytest.raises(tacit.TacitError, match=r"frac.*frac_bits.*weight_bits"):
        digits.lower("cheetah", frac=12)
    with pytest.raises(tacit.TacitError, match=r"frac_bits.*99"):
        digits.lower("cheetah", frac_bits=99)
    with pytest.raises(tacit.TacitError, match="frac_bits"):
        digits.lower("clear", frac_bits=12)
    with pytest.raises(tacit.TacitError, match="cheetah.*clear"):
        digits.lower("nonsense")
    with pytest.raises(tacit.TacitError, match="frac_bits"):
        tacit.serve(digits, options={"frac": 12})


def test_sealed_files_and_material_open_with_their_key_only(digits, digit_images, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_TEST_KEY", "0123456789abcdef0123456789abcdef")
    monkeypatch.setenv("TACIT_OTHER_KEY", "fedcba9876543210fedcba9876543210")
    key, other = "env:TACIT_TEST_KEY", "env:TACIT_OTHER_KEY"
    model, lowered = tmp_path / "digits.tacit", tmp_path / "digits.cheetah.lowered"
    digits.save(model, seal=key)
    digits.lower().save(lowered, seal=key)
    assert tacit.Model.load(model, seal=key).digest == digits.digest
    assert tacit.Lowered.load(lowered, seal=key).digest == digits.lower().digest
    for load, path in ((tacit.Model.load, model), (tacit.Lowered.load, lowered)):
        with pytest.raises(tacit.TacitError, match=f"{path.name}.*another key"):
            load(path, seal=other)
        with pytest.raises(tacit.TacitError, match=f"{path.name}"):
            load(path)
    with pytest.raises(tacit.TacitError, match="TACIT_NO_KEY"):
        tacit.Model.load(model, seal="env:TACIT_NO_KEY")
    with tacit.serve(digits, seal=key) as server:
        with server.client(store=tmp_path / "material", seal=key) as client:
            client.prepare(1)
        files = [path for path in (tmp_path / "material").rglob("*") if path.is_file()]
        assert any(path.read_bytes().startswith(b"TACITSEA") for path in files)
        with server.client(store=tmp_path / "material", seal=key) as client:
            assert client.infer(digit_images[0]).shape == (10,)
            assert [cost.phase for cost in client.costs] == ["online"], "what was sealed is used"
