"""`tacit.bench`: two processes, the JSON form of the command line."""

import numpy as np
import pytest

import tacit

PARTY = {"cpu_s", "peak_rss_bytes", "sent_bytes"}


def check_report(report, runs):
    """The form that `tacit bench --json` promises, with figures that can be true."""
    assert {"model", "backend", "threads", "link", "machine", "runs"} <= report.keys()
    assert len(report["runs"]) == runs
    for run in report["runs"]:
        assert set(run["phases"]) == {"setup", "offline", "online"}
        for phase in run["phases"].values():
            assert phase["wall_s"] > 0
            assert phase["rounds"] > 0
            for party in ("client", "server"):
                assert phase[party].keys() >= PARTY
                assert phase[party]["cpu_s"] >= 0
                assert phase[party]["peak_rss_bytes"] > 1 << 20
                assert phase[party]["sent_bytes"] > 0
        assert min(run["material_bytes"]["client"], run["material_bytes"]["server"]) > 0
        assert run["output"]["max_ulp_error"] <= run["output"]["ulp_bound"]


def test_bench_reports_both_parties(digits, digit_images):
    report = tacit.bench(digits, digit_images[0], runs=2)
    check_report(report, 2)
    wanted = digits.reference(digit_images[0]).argmax()
    assert all(run["output"]["argmax"] == wanted for run in report["runs"])


def test_bench_refuses_what_it_cannot_measure(digits, digit_images):
    with pytest.raises(tacit.TacitError, match="batch"):
        tacit.bench(digits, digit_images[:2])
    with pytest.raises(tacit.TacitError, match="run"):
        tacit.bench(digits, runs=0)
    with pytest.raises(tacit.TacitError):
        tacit.bench(digits, np.full((1, 8, 8), np.nan))
