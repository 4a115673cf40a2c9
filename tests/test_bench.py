"""`tacit.bench`: two processes, the JSON form of the command line."""

import json

import numpy as np
import pytest

import tacit
from conftest import MODELS

PARTY = {"cpu_s", "peak_rss_bytes", "sent_bytes"}


def check_run(run, phases, one_way=frozenset()):
    """A run of a back end that has these phases, with figures that can be true; in those `one_way` only the client speaks."""
    assert set(run["phases"]) == phases
    for name, phase in run["phases"].items():
        assert phase["wall_s"] > 0
        assert (phase["rounds"] > 0) == (name not in one_way)
        for party in ("client", "server"):
            assert phase[party].keys() >= PARTY
            assert phase[party]["cpu_s"] >= 0
            assert phase[party]["peak_rss_bytes"] > 1 << 20
            assert (phase[party]["sent_bytes"] > 0) == (party == "client" or name not in one_way)
    material = run["material_bytes"]
    prepared = "offline" in phases
    assert (min(material["client"], material["server"]) > 0) == prepared
    assert prepared or max(material.values()) == 0
    bound = run["output"]["error_bound"]
    assert bound is None or run["output"]["max_error"] <= bound
    if run["output"]["max_ulp_error"] is not None:
        bound = run["output"]["ulp_bound"]
        assert bound is None or run["output"]["max_ulp_error"] <= bound


def check_report(report, runs, backend="cheetah", phases=frozenset({"setup", "offline", "online"}), one_way=frozenset()):
    """The form that `tacit bench --json` promises."""
    assert {"model", "backend", "threads", "link", "machine", "runs", "lower_bounds"} <= report.keys()
    assert report["backend"] == backend
    assert len(report["runs"]) == runs
    for run in report["runs"]:
        check_run(run, phases, one_way)
    bounds = report["lower_bounds"]
    assert set(bounds) == {"clear", "local"}
    check_run(bounds["clear"], {"online"})
    assert bounds["local"]["wall_s"] > 0
    assert bounds["local"]["cpu_s"] >= 0
    assert bounds["local"]["peak_rss_bytes"] > 1 << 20


def test_bench_reports_both_parties(digits, digit_images):
    report = tacit.bench(digits, digit_images[0], runs=2)
    check_report(report, 2)
    wanted = digits.reference(digit_images[0]).argmax()
    assert all(run["output"]["argmax"] == wanted for run in report["runs"])
    assert all(run["output"]["max_ulp_error"] is not None for run in report["runs"])


def test_bench_measures_the_back_end_that_is_named(digits, digit_images):
    report = tacit.bench(digits, digit_images[0], backend="clear")
    check_report(report, 1, "clear", {"online"})
    assert report["runs"][0]["output"]["argmax"] == digits.run(digit_images[0]).argmax()
    assert report["runs"][0]["output"]["max_ulp_error"] is None, "answers are real numbers"


def test_a_bound_that_no_back_end_declares_is_none(digit_images):
    model = tacit.import_onnx(MODELS / "digits.onnx", calibrate=np.load(MODELS / "digits_samples.npy"), output="top1")
    report = tacit.bench(model, digit_images[0])
    output = report["runs"][0]["output"]
    assert (output["error_bound"], output["ulp_bound"]) == (None, None), "a small error may be another class"
    assert output["max_ulp_error"] == 0
    json.dumps(report, allow_nan=False)


def test_bench_refuses_what_it_cannot_measure(digits, digit_images):
    with pytest.raises(tacit.TacitError, match="batch"):
        tacit.bench(digits, digit_images[:2])
    with pytest.raises(tacit.TacitError, match="run"):
        tacit.bench(digits, runs=0)
    with pytest.raises(tacit.TacitError):
        tacit.bench(digits, np.full((1, 8, 8), np.nan))
    with pytest.raises(tacit.TacitError, match="cheetah.*clear"):
        tacit.bench(digits, backend="gazelle")
    with pytest.raises(tacit.TacitError, match="frac_bits"):
        tacit.bench(digits, options={"frac": 12})
