"""Answers that a client does not take: an error for whoever asked, and nothing that the server sees."""

import json
import re

import numpy as np
import pytest
from conftest import MODELS
from test_cli import serving

import tacit

WILD = 500.0


@pytest.fixture(scope="module")
def wide() -> tacit.Model:
    """Squares of digits, calibrated on digits, which accepts values that no digit has."""
    samples = np.load(MODELS / "digits_samples.npy")
    return tacit.import_onnx(MODELS / "digits_square.onnx", calibrate=samples, range=(-WILD, WILD), backend="ckks")


def test_the_client_goes_on_after_an_answer_that_it_refuses(wide, digit_images):
    tame = digit_images[:2].astype(np.float32)
    wild = np.full_like(tame[0], WILD)
    lowered = wide.lower()
    expected = lowered.reference(tame)
    stated = np.array([[lowered.error_bound(one)] for one in expected])
    assert np.all(stated < 0.1 * np.ptp(expected)), "the stated error says something"
    with tacit.serve(wide) as server, server.client() as client:
        with pytest.raises(tacit.AnswerRefused, match="recalibrate.*margin.*cheetah"):
            client.infer(wild)
        before = client.infer(tame)
        assert np.all(abs(before - expected) <= stated)
        assert np.array_equal(before.argmax(1), wide.run(tame).argmax(1))
        asked = len(client.costs)
        with pytest.raises(tacit.AnswerRefused, match="1 of 3 inputs have none, that at index 1 first"):
            client.infer(np.stack([tame[0], wild, tame[1]]))
        assert len(client.costs) == asked + 2, "the inputs behind it are asked for all the same"
        after = client.infer(tame)
        assert np.all(abs(after - expected) <= stated), "each encryption draws errors of its own: equal within what is stated"


def test_the_program_prints_no_such_answer_and_says_goodbye(wide, digit_images, cli, binary, tmp_path):
    wide.save(tmp_path / "wide.tacit")
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    inputs = np.stack([digit_images[0], np.full_like(digit_images[0], WILD), digit_images[1]]).astype(np.float32)
    np.save(tmp_path / "three.npy", inputs)
    np.save(tmp_path / "one.npy", inputs[1])
    log, options = tmp_path / "server.log", ("--backend", "ckks")
    with serving(binary, tmp_path, *options, model="wide.tacit") as address:
        who = ("--server", address, "--client", "alice")
        for file, answered in (("one.npy", 0), ("three.npy", 2)):
            done = cli("infer", file, *who, "--json", cwd=tmp_path, ok=False)
            assert "the answer was refused" in done.stderr and "margin" in done.stderr
            assert len([line for line in done.stdout.splitlines() if "class" in json.loads(line)]) == answered
    assert not re.search(r"ERROR|refused|connection", log.read_text()), "all three were answered, and each client left in order"


def test_a_benchmark_of_such_an_input_is_an_error(wide, digit_images, cli, tmp_path):
    wide.save(tmp_path / "wide.tacit")
    np.save(tmp_path / "tame.npy", digit_images[:1].astype(np.float32))
    np.save(tmp_path / "wild.npy", np.full((1, *digit_images[0].shape), WILD, np.float32))
    asked = ("bench", "--model", "wide.tacit", "--backend", "ckks", "--runs", "1")
    report = json.loads(cli(*asked, "--input", "tame.npy", "--json", cwd=tmp_path).stdout)
    assert report["runs"][0]["output"]["max_error"] <= report["runs"][0]["output"]["error_bound"]
    # Seeded values fill the accepted range, which is far wider than digits.
    for given in (("--input", "wild.npy"), ()):
        done = cli(*asked, *given, "-o", "report.json", cwd=tmp_path, ok=False)
        assert "the answer was refused" in done.stderr and "off by" not in done.stdout
        assert not (tmp_path / "report.json").exists(), "figures of such a run mean nothing"


def test_a_check_counts_what_a_client_refuses(wide, digit_images, cli, tmp_path):
    wide.save(tmp_path / "wide.tacit")
    np.save(tmp_path / "two.npy", np.stack([digit_images[0], np.full_like(digit_images[0], WILD)]).astype(np.float32))
    asked = ("model", "check", "wide.tacit", "--backend", "ckks", "--data", "two.npy", "--run", "2")
    told = json.loads(cli(*asked, "--json", cwd=tmp_path).stdout)
    assert (told["inputs"], told["answers_refused"], told["agreement"]) == (2, 1, 0.5)
    assert (told["run"]["inputs"], told["run"]["answers_refused"], told["run"]["same_class"]) == (1, 1, 1)
    text = cli(*asked, cwd=tmp_path).stdout
    assert "the answers of 1 inputs, which count as another class" in text and "50.00 % same class" in text
    assert "1 of 1 same class as float, 1 as in the clear" in text and "the answers of 1 inputs\n" in text
    np.save(tmp_path / "two.npy", np.full_like(digit_images[:1], WILD, dtype=np.float32))
    alone = json.loads(cli(*asked, "--json", cwd=tmp_path).stdout)
    assert (alone["answers_refused"], alone["agreement"], alone["output_error"]) == (1, 0.0, None), "never an error of 0"
    assert (alone["run"]["inputs"], alone["run"]["answers_refused"], alone["run"]["off"]) == (0, 1, None)
