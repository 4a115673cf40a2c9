"""Merging runs of different length ([PM24] 4.3), and reading the records that it merges. Numbers are computed by hand."""

import json

import numpy as np
import pytest

import report_campaigns as made
import tacit
from tacit.report import _record
from tacit.report._merge import Curve, choose_slot, merge, slot_edges


def curve(*points):
    t, total = zip(*points, strict=True)
    return Curve(np.array(t, float), np.array(total, float))


# 1 W, then 3 W, for one second each; 2 W, then 6 W, for two seconds each.
SHORT = curve((0, 0), (1, 1), (2, 4))
LONG = curve((0, 0), (2, 4), (4, 16))


def test_two_runs_merge_as_by_hand():
    merged = merge([SHORT, LONG])
    # t* = 3 s; on that axis both change their power at 1.5 s, in the middle of the second slot.
    assert merged.edges.tolist() == [0, 1, 2, 3]
    assert merged.mean == pytest.approx([1.5, 3.0, 4.5])
    assert merged.sd == pytest.approx([np.sqrt(0.5), np.sqrt(2), np.sqrt(4.5)])
    assert merged.runs == 2
    # Mean power is conserved: (2 W + 4 W) / 2; the energy is t* times that, not the mean of 4 J and 16 J.
    assert merged.overall == pytest.approx(3.0)
    assert merged.overall * merged.duration_s == pytest.approx(9.0)


def test_the_numbers_stay_as_they_were():
    merged = merge([curve((0, 0), (2, 20)), curve((0, 0), (2, 2), (4, 8))])
    assert merged.mean == pytest.approx([5.5, 6.0, 6.5])
    assert merged.sd[0] == pytest.approx(9 / np.sqrt(2))


def test_a_shorter_last_slot_counts_by_its_length():
    merged = merge([LONG], slot_s=1.5)
    assert merged.edges.tolist() == [0, 1.5, 3, 4]
    assert merged.mean == pytest.approx([2.0, (0.5 * 2 + 1.0 * 6) / 1.5, 6.0])
    assert merged.overall == pytest.approx(4.0)
    assert merged.sd is None


def test_mean_power_is_conserved_whatever_the_sampling():
    dice = np.random.default_rng(3)
    for slot in (0.3, 1.0, 7.0, 100.0):
        curves = []
        for n in (2, 17, 400):
            t = np.concatenate([[0.0], np.cumsum(dice.uniform(0.01, 0.5, n))])
            curves.append(Curve(t, np.concatenate([[0.0], np.cumsum(dice.uniform(0, 3, n))])))
        merged = merge(curves, slot)
        assert merged.overall == pytest.approx(np.mean([c.total[-1] / c.t[-1] for c in curves]), rel=1e-9)
        assert merged.duration_s == pytest.approx(np.mean([c.t[-1] for c in curves]))


def test_a_remainder_of_rounding_makes_no_slot():
    assert len(slot_edges(0.1 * 3, 0.1)) == 4
    assert slot_edges(2.5, 1.0).tolist() == [0, 1, 2, 2.5]
    assert slot_edges(0.4, 1.0).tolist() == [0, 0.4]


def test_slots_are_those_of_the_paper_where_the_run_is_long_enough():
    assert choose_slot(60, 0.1) == 1
    assert choose_slot(5, 0.01) == 0.2
    assert choose_slot(5, 1.0) == 1, "finer than the sampling would show steps that nobody measured"
    assert choose_slot(86_400, 1.0) == 87


def test_a_record_is_read_as_columns(tmp_path):
    path = tmp_path / "r.jsonl"
    rails = {"pmic": [{"w": 2.0, "j": 2.0}, {"w": 1.0, "j": 1.0}, {"j": 5.0}]}
    samples = [
        {
            "type": "sample", "t": t, "memory_bytes": 1, "power": {"pmic": [{**r, "j": r["j"] * t} for r in rails["pmic"]]},
            "parties": {"client": made.party(0.5 * t, 0.25 * t)},
            "cores": [{"user_s": 0.3 * t, "system_s": 0.1 * t, "idle_s": 0.6 * t, "mhz": 1500.0}, {"user_s": t}],
            "interfaces": {"eth0": {"rx_bytes": 100 * t, "tx_bytes": 10 * t, "rx_packets": 1, "tx_packets": 1}},
        }
        for t in (0, 1, 2)
    ]  # fmt: skip
    made.write_record(path, samples, [made.source("pmic", counted=(True, False, True))])
    trace = _record.read(path)
    assert trace.t.tolist() == [0, 1, 2]
    assert trace.energy["pmic"].tolist() == [0, 7, 14], "the second rail is part of another one"
    assert trace.cpu["client"].tolist() == [[0, 0], [0.5, 0.25], [1, 0.5]]
    assert trace.cores[2, 0].tolist() == [0.6, 0.2, 1.2]
    assert trace.mhz[1, 0] == 1500 and np.isnan(trace.mhz[1, 1])
    assert trace.traffic["eth0"][2].tolist() == [200, 20]
    assert trace.notes == ()


def test_a_record_without_a_first_sample_at_zero_starts_there(tmp_path):
    made.write_record(tmp_path / "r.jsonl", [made.powered(1.0, 3.0), made.powered(2.0, 6.0)], [made.source()])
    trace = _record.read(tmp_path / "r.jsonl")
    assert trace.t.tolist() == [0, 1, 2] and trace.energy["meter"].tolist() == [0, 3, 6]


def test_a_rail_that_fails_stands_still(tmp_path):
    lines = [
        made.powered(0, 0.0),
        made.powered(1, 3.0),
        {"type": "sample", "t": 2.0},
        made.powered(3, None),
        made.powered(4, 9.0),
    ]
    made.write_record(tmp_path / "r.jsonl", lines, [made.source()])
    assert _record.read(tmp_path / "r.jsonl").energy["meter"].tolist() == [0, 3, 3, 3, 9]


def test_a_source_without_any_value_is_absent_and_not_zero(tmp_path):
    made.write_record(tmp_path / "r.jsonl", [made.powered(0, 0), made.powered(1, 2)], [made.source(), made.source("dead")])
    trace = _record.read(tmp_path / "r.jsonl")
    assert list(trace.energy) == ["meter"] and "the source dead gave no value" in trace.notes


def test_a_record_that_was_cut_off_is_read_to_its_last_whole_line(tmp_path):
    path = tmp_path / "r.jsonl"
    made.write_record(path, [made.powered(t, t) for t in range(5)], [made.source()])
    whole = path.read_text()
    path.write_text(whole[: whole.index('"t":4') + 3])
    trace = _record.read(path)
    assert trace.t.tolist() == [0, 1, 2, 3]
    assert "the record ends early: it has no summary" in trace.notes


def test_broken_lines_and_times_that_go_back_are_left_out(tmp_path):
    lines = [
        made.powered(0, 0),
        '{"type":"sample","t":1',
        made.powered(2, 4),
        made.powered(1.5, 9),
        "[1]",
        made.powered(3, 6),
    ]
    made.write_record(tmp_path / "r.jsonl", lines, [made.source()])
    trace = _record.read(tmp_path / "r.jsonl")
    assert trace.t.tolist() == [0, 2, 3]
    assert "2 broken lines left out" in trace.notes


def test_a_long_record_is_thinned_without_losing_energy(tmp_path):
    path = tmp_path / "r.jsonl"
    count = 30_011
    made.write_record(path, [made.powered(i / 1000, i * 0.002) for i in range(count)], [made.source()], interval_s=0.001)
    trace = _record.read(path)
    assert 1000 < len(trace.t) <= 2 * _record.MAX_SAMPLES + 1
    assert trace.t[-1] == (count - 1) / 1000, "the end stays"
    assert trace.energy["meter"][-1] == pytest.approx((count - 1) * 0.002)
    assert merge([Curve(trace.t, trace.energy["meter"])]).mean == pytest.approx(np.full(31, 2.0))
    assert trace.interval_s > 0.001, "the interval is that of what was kept"


def test_phases_are_matched_by_party_and_nesting(tmp_path):
    marks = [
        made.mark(1, "online", "begin"), made.mark(2, "online", "end"), made.mark(3, "online", "begin"), made.mark(4, "online", "end"),
        made.mark(0.5, "online", "begin", "server"), made.mark(9, "stray", "end"),
    ]  # fmt: skip
    made.write_record(tmp_path / "r.jsonl", [made.powered(0, 0), made.powered(5, 5), *marks], [made.source()])
    phases = [(p.party, p.begin, p.end) for p in _record.read(tmp_path / "r.jsonl").phases]
    assert phases == [("server", 0.5, 5.0), ("client", 1, 2), ("client", 3, 4)], "what never ended lasts to the end"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("{}\n", "not a record"),
        ('{"type":"header","format":"tacit-record","version":2}\n', "version 2.*version 1"),
        ('{"type":"header","format":"tacit-record","version":true}\n', "version true"),
        (json.dumps(made.HEADER) + "\n", "no two samples"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path, text, says):
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(tacit.TacitError, match=says):
        _record.read(tmp_path / "r.jsonl")


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.report._fields.MAX_LINE", 1 << 16)
    (tmp_path / "r.jsonl").write_text(json.dumps(made.HEADER) + "\n" + "x" * (1 << 17))
    with pytest.raises(tacit.TacitError, match="line 2: longer than"):
        _record.read(tmp_path / "r.jsonl")
