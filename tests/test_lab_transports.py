"""The end of `tacit lab transport`: runs with known figures, and their evaluation."""

import json
import tomllib

import pytest

import report_campaigns as made
from tacit.lab import _transports
from tacit.lab._transports import beside_paper, figures, rows, significant, verdict

VALUE = {"table": 3, "device": "Nano", "power_mode": "", "transport": "tls", "role": "send", "value": 25.0, "unit": "MB/s"}


def run(transport, role, repetition, seconds, cpu, joules):
    """A run that moved 100 MB in `seconds`, the client using `cpu` CPU seconds and `joules` net."""
    return made.run(
        {"link": "lan", "transport": transport, "workload": role}, repetition, seconds + 0.5,
        energy={"client": made.energy(joules + seconds, seconds, seconds=seconds)},
        parties={"client": made.party(cpu / 4, cpu * 0.75, 5e6)}, results={"sent_bytes": 1e8, "seconds": seconds, "messages": 9.0},
    )  # fmt: skip


@pytest.fixture
def runs():
    return [
        run("plain", "send", 0, 1.0, 0.2, 2.0),
        run("plain", "send", 1, 1.0, 0.2, 2.0),
        run("tls", "send", 0, 2.0, 0.5, 3.0),
        run("tls", "send", 1, 2.0, 0.7, 5.0),
        {**run("tls", "send", 2, 1e-3, 1e3, 1e3), "failure": "no"},
        run("tls", "receive", 0, 4.0, 0.4, 1.0),
    ]


def test_figures_are_per_byte_and_ratios_are_to_plain_in_the_same_role(runs):
    found = rows(runs)
    assert [(r["role"], r["transport"], r["runs"]) for r in found] == [("receive", "tls", 1), ("send", "plain", 2), ("send", "tls", 2)]
    tls = found[2]
    client = tls["parties"]["client"]
    assert (tls["mb_per_s"]["mean"], tls["mb_per_s"]["ratio"]) == (50.0, 0.5)
    expected = {"cpu_s_per_gb": (6.0, 3.0), "user_s_per_gb": (1.5, 3.0), "system_s_per_gb": (4.5, 3.0), "net_j_per_mb": (0.04, 2.0)}
    for name, (mean, ratio) in expected.items():
        figure = client[name]
        assert figure["mean"] == pytest.approx(mean, rel=1e-9) and figure["ratio"] == pytest.approx(ratio, rel=0, abs=1e-9)
    low, high = client["cpu_s_per_gb"]["interval"]
    assert low < 3.0 < high
    assert tls["parties"]["server"]["cpu_s_per_gb"] is None
    assert "ratio" not in found[0]["mb_per_s"], "nothing plain was received"


def test_tables_show_every_row_and_do_without_what_is_missing(runs):
    found = rows(runs)
    ratios = verdict(found)
    assert len(ratios.rows) == 2
    assert ratios.rows[1][:4] == ["lan", "send", "tls", "0.50 [0.50, 0.50]"]
    assert ratios.rows[0][3] == "-"
    shown = figures(found)
    assert len(shown.rows) == 6 and all(len(row) == len(shown.head) for row in shown.rows)
    text = str(shown)
    assert "modelled" in text and "none" in text
    assert all(line.index("lan") == 2 for line in text.splitlines()[1:] if "client" in line and "lan" in line)


def test_three_digits_are_shown():
    shown = [significant(x) for x in (0.0, 1234.5, 99.96, 1.234, 0.012_34, 1e-12)]
    assert shown == ["0", "1234", "100.0", "1.23", "0.0123", "0.000000000"]


def test_the_papers_values_stand_beside_ours(runs):
    values = [VALUE, VALUE | {"unit": "minutes"}, VALUE | {"unit": "mW/MB"}]
    table = beside_paper(rows(runs), {"source": "it", "values": values})
    assert len(table.rows) == 3
    assert table.rows[0][6:] == ["25.0", "-", "lan", "50.0", "0.50 [0.50, 0.50]"]
    assert table.rows[1][8:] == ["-", "-", "-"]
    assert table.rows[2][9] == "40.0", "0.04 J/MB"


def test_the_papers_values_have_ratios_of_their_own():
    plain = VALUE | {"transport": "plain", "value": 50.0}
    paper = {"source": "it", "values": [VALUE, plain, plain | {"power_mode": "5W", "value": 1.0}]}
    assert _transports.ratio_to_plain(paper, VALUE) == 0.5
    assert _transports.ratio_to_plain(paper, VALUE | {"power_mode": "MAXN"}) is None


def test_the_tables_of_the_paper_have_ratios_of_their_own(data):
    paper = {"source": "it", "values": [{"power_mode": ""} | value for value in tomllib.loads((data / "vpn24" / "vpn24.toml").read_text())["values"]]}
    assert all(_transports.ratio_to_plain(paper, value) is not None for value in paper["values"])
    wanted = {"table": 3, "device": "AGX0 - TX2", "role": "send", "transport": "tls+wireguard"}
    most = next(value for value in paper["values"] if value | wanted == value)
    # "2029.76 %" more than plain, section IV.
    assert _transports.ratio_to_plain(paper, most) == pytest.approx(21.32, rel=0, abs=0.01)


def test_joules_of_different_kinds_have_no_ratio_and_the_weakest_names_them(runs):
    # A sensor measured the plain runs and one of the others.
    for measured in runs[:3]:
        measured["energy"]["client"]["provenance"] = "attributed"
    plain, tls = (row["parties"]["client"] for row in rows(runs)[1:])
    assert (plain["provenance"], tls["provenance"]) == ("attributed", "modelled")
    assert "ratio" not in tls["net_j_per_mb"] and "ratio" in tls["cpu_s_per_gb"]


def test_the_verdict_is_printed_as_text_and_as_json(runs, capsys):
    paper = {"source": "it", "values": [VALUE]}
    _transports.run({"runs": runs, "paper": paper, "json": False})
    text = capsys.readouterr().out
    assert text.startswith("Ratios to plain TCP") and "\nFigures (means;" in text and "\nBeside it\n" in text
    _transports.run({"runs": runs, "paper": paper, "json": True})
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert told["paper"] == {"source": "it", "values": 1}
    receive = told["rows"][0]
    assert receive["parties"]["server"]["net_j_per_mb"] is None and set(receive["mb_per_s"]) == {"mean", "sd"}
