"""The sections of `tacit lab run ss26-live` in a campaign's report."""

import json

import pytest

import report_campaigns as made
from tacit.report import _load, write_report
from tacit.report._build import make_sections
from tacit.report._cells import grid

TITLE = "Policies, live and simulated"


def run(policy, notices, **figures):
    """A cell as the command writes it."""
    cell = {"workload": "light", "notices": notices, "policy": policy}
    figures = {"delay_s": 2.0, "waiting_s": 1.5, "makespan_s": 30.0, "simulated.delay_s": 1.9, "slots.delay_s": 0.5} | figures
    return made.run(cell, results=figures)


def timeline(policy):
    """A live run with two jobs, as lab/sim/src/output.rs has it."""
    jobs = [
        {"model": 0, "phase": "pre", "threads": 1, "from": 0.0, "to": 2.0},
        {"model": 0, "phase": "on", "threads": 1, "from": 2.0, "to": 2.5},
    ]
    about = {"format": "tacit-simulation", "version": 1, "policy": policy, "workload": "light", "rate": 1.0, "seed": 1}
    return about | {"cores": 2, "memory": 0, "models": [{"name": "digits"}], "summary": {}, "jobs": jobs, "samples": []}


def sections(folder):
    """Title -> section, and the warnings."""
    campaign = _load.load(folder)
    warnings = list(campaign.warnings)
    return {s.title: s for s in make_sections(campaign, grid(campaign.runs), warnings)}, warnings


@pytest.fixture
def campaign(tmp_path):
    """Two policies, with and without notices, and a timeline of the first two cells."""
    runs = [run("sequential", "0 %", delay_s=4.0), run("fcfs", "0 %")]
    runs += [run("sequential", "25 %"), run("fcfs", "25 %", delay_s=1.25)]
    made.write_campaign(tmp_path, runs, experiment="ss26-live")
    (tmp_path / "timelines").mkdir()
    for i, policy in enumerate(("sequential", "fcfs")):
        runs = [timeline(f"{policy}, live"), timeline(f"{policy}, simulated")]
        (tmp_path / f"timelines/c00{i}.json").write_text(json.dumps(runs))
    return tmp_path


def test_each_workload_has_its_bars_with_the_numbers_beside(campaign):
    found, warnings = sections(campaign)
    assert not warnings
    items = found[TITLE].items
    assert [item.title for item in items] == ["light, 0 % announced", "light, 25 % announced"]
    content = items[1].tables[0]
    rows = {row[0]: dict(zip(content.columns, row, strict=True)) for row in content.rows}
    assert rows["fcfs"]["D (s)"] == "1.25" and rows["sequential"]["D simulated (s)"] == "1.90"
    assert len(items[0].figure.axes) == 5 and len({item.name for item in items}) == 2


def test_live_timelines_are_drawn_on_one_scale(campaign):
    found, _ = sections(campaign)
    items = found["Timelines"].items
    assert [item.group for item in items] == ["c000: light, sequential, live", "c001: light, fcfs, live"]
    assert {item.figure.axes[0].get_xlim() for item in items} == {(0.0, 2.5)}
    page = write_report(campaign).read_text()
    assert TITLE in page and "c001: light, fcfs, live" in page
    assert (campaign / "plots/timeline-c000.png").exists()


def test_a_broken_timeline_is_left_out_and_a_foreign_folder_not_read(campaign, tmp_path_factory):
    (campaign / "timelines/c001.json").write_text("{")
    found, warnings = sections(campaign)
    assert len(found["Timelines"].items) == 1 and len(warnings) == 1 and "not valid JSON" in warnings[0]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (campaign / "timelines").rename(elsewhere / "timelines")
    (campaign / "timelines").symlink_to(elsewhere / "timelines")
    assert "Timelines" not in sections(campaign)[0]


def test_other_campaigns_have_no_such_sections(tmp_path):
    made.write_campaign(tmp_path, made.two_links())
    assert not {TITLE, "Timelines"} & set(sections(tmp_path)[0])
