"""The page of simulated runs: `python -m tacit.report FILE`, `tacit simulate report FILE`."""

import json
import sys

import pytest

from tacit import TacitError
from tacit.report import _gantt as gantt
from tacit.report import write_report

PHASE = {"wall_s": 2.0, "peak_rss_bytes": 1 << 30}
PROFILE = {
    "backend": "test",
    "link": "loopback",
    "models": {
        name: {"pre": PHASE, "on": PHASE | {"wall_s": 1.0}, "key_bytes_server": 10, "key_bytes_client": 10}
        for name in ("m1", "m2", "hinet", "alexnet", "vgg16")
    },
}


@pytest.fixture
def runs(cli, tmp_path):
    """Two policies, sixty requests."""
    (tmp_path / "profile.json").write_text(json.dumps(PROFILE))
    where = ("--profile", "profile.json", "--requests", "60", "--cores", "4", "--rate", "2")
    cli("simulate", "run", *where, "--policy", "fcfs,adaptive", "-o", "runs.json", cwd=tmp_path)
    return tmp_path / "runs.json"


def test_the_page_and_its_plots(cli, runs, monkeypatch):
    monkeypatch.setenv("TACIT_PYTHON", sys.executable)
    done = cli("simulate", "report", "runs.json", "-o", "page.html", cwd=runs.parent)
    assert "page.html" in done.stdout
    page = (runs.parent / "page.html").read_text()
    for word in ("swiftsnni-mixed", "fcfs", "adaptive", "4 cores, 256 GiB", "makespan (s)", "How inputs ended", "vgg16"):
        assert word in page, word
    assert "<script" not in page and page.count("data:image/svg+xml") == 3
    plots = {path.name for path in (runs.parent / "page-plots").iterdir()}
    assert plots == {".tacit-folder"} | {f"{name}.{kind}" for name in ("figures", "timeline-1", "timeline-2") for kind in ("png", "svg")}


def test_one_run_goes_beside_its_file(runs, tmp_path):
    first = json.loads(runs.read_text())[0]
    assert len(first["jobs"]) == 120 and len(first["samples"]) == first["events"]
    (tmp_path / "one.json").write_text(json.dumps(first | {"workload": "<b>bold</b>"}))
    assert write_report(tmp_path / "one.json") == tmp_path / "one.html"
    page = (tmp_path / "one.html").read_text()
    assert "&lt;b&gt;bold" in page and "<b>bold" not in page


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", "empty list"),
        ("{}", "no simulated run"),
        ('{"format": "tacit-simulation", "version": 2}', "version 2"),
        ('{"format": "tacit-simulation", "version": 1, "cores": 1e9}', "cores"),
        ('{"format": "tacit-simulation", "version": 1, "cores": 2, "jobs": [{"model": 3}]}', "not listed"),
    ],
)
def test_other_files_are_refused(tmp_path, content, says):
    path = tmp_path / "wrong.json"
    path.write_text(content)
    with pytest.raises(TacitError, match=says):
        write_report(path)


def test_no_two_jobs_share_a_core():
    job = lambda threads, begin, end: gantt.Job(0, True, threads, begin, end)  # noqa: E731
    jobs = [job(2, 0, 5), job(1, 0, 9), job(1, 0, 2), job(1, 2, 9), job(2, 5, 9)]
    assert gantt.lanes(jobs, 5) == [[(0, 2)], [(2, 1)], [(3, 1)], [(3, 1)], [(0, 2)]]
    assert gantt.lanes([job(1, 0, 1), job(1, 0, 9), job(1, 0, 1), job(2, 1, 2)], 3)[3] == [(0, 1), (2, 1)]
