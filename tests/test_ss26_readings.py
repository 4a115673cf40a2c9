"""Algorithm 1 of [SS26] in Python (docs/scripts/ss26_readings.py) against the scheduler's: the same requests, the same mean delay."""

import json

import pytest

import ss26_readings as readings

POLICIES = ["ss26:fcfs", "ss26:fcfs:entry", "ss26:priority:0.5", "ss26:priority:0", "ss26:fcfs+exclusive", "ss26:priority+exclusive"]


def test_two_programs_play_algorithm_1_alike(cli, tmp_path):
    cli("simulate", "run", "--cores", "16", "--requests", "200", "--policy", ",".join(POLICIES), "-o", "runs.json", cwd=tmp_path)
    runs = json.loads((tmp_path / "runs.json").read_text())
    assert len(runs) == len(POLICIES)
    found = []
    for run in runs:
        readings.check(run)
        found.append(readings.mean_delay(run, readings.built(run["policy"])))
        assert found[-1] == pytest.approx(run["summary"]["all"]["input_delay"], rel=1e-9), run["policy"]
    assert len(set(found)) == len(found), "no two policies give the same delay"
    other = readings.delays(runs[0])
    assert other["as built"] == found[0] and other["Q_ready by entry"] == pytest.approx(found[1], rel=1e-9)


def test_other_runs_are_refused(cli, tmp_path):
    cli("simulate", "run", "--requests", "20", "--notices", "0.5", "--policy", "ss26:fcfs,fcfs", "-o", "runs.json", cwd=tmp_path)
    announced, own = json.loads((tmp_path / "runs.json").read_text())
    with pytest.raises(SystemExit, match="without notices"):
        readings.check(announced)
    with pytest.raises(SystemExit, match="none of the policies"):
        readings.built(own["policy"])
