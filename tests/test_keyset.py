"""`tacit keyset design` and `tables`: what they print and write."""

import json
import re

from conftest import MODELS


def test_a_design_is_printed_and_written(cli, tmp_path):
    done = cli("keyset", "design", MODELS / "digits_square.onnx", "--fixed-rates", "--goal", "latency", cwd=tmp_path)
    assert "chosen: " in done.stdout and "level-aware" in done.stdout and "no machine" in done.stdout
    design = json.loads((tmp_path / "digits_square.keyset.json").read_text())
    chosen = design["choices"][design["chosen"]]
    assert chosen["options"] in done.stdout and len(design["keys"]) == chosen["keys"]
    assert all(key["reason"] and key["state"] for key in design["keys"])
    assert all(plan["needs"] for cls in design["problem"]["classes"] for plan in cls["plans"])
    page = (tmp_path / "digits_square.keyset.html").read_text()
    assert not re.search(r"""(src|href)="(?!data:)|@import|\{\{""", page), "it needs nothing else"
    shown = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
    assert shown["keys"] == design["keys"] and "problem" not in shown


def test_a_strategy_of_the_paper_is_looked_at_and_a_budget_holds(cli, tmp_path):
    model = MODELS / "digits_square.onnx"
    paper = cli("keyset", "design", model, "--fixed-rates", "--strategy", "dynamic", "-o", "paper", "--json", cwd=tmp_path)
    design = json.loads(paper.stdout)
    assert design["choices"][design["chosen"]]["options"] is None and design["keys"] == []
    assert (tmp_path / "paper.json").exists() and (tmp_path / "paper.html").exists()
    refused = cli("keyset", "design", model, "--fixed-rates", "--upload", "100kB", cwd=tmp_path, ok=False)
    assert "the fewest bytes to send" in refused.stderr


def test_tables_stand_beside_the_papers(cli, tmp_path):
    tables = json.loads(cli("keyset", "tables", "--json", cwd=tmp_path).stdout)
    assert all(abs(line["bytes"] - line["paper_bytes"]) < 10**6 for line in tables["tables_6_and_7"])
    assert len(tables["not_given"]) == 5 and tables["measured"] == []
    assert "no file was given for GRU + MLP" in cli("keyset", "tables", cwd=tmp_path).stdout


def test_a_network_is_run_by_key_sets(cli, tmp_path):
    model = MODELS / "digits_square.onnx"
    asked = ("keyset", "tables", model, "-O", "margin=3", "--measure", "networks")
    told = json.loads(cli(*asked, "--json", cwd=tmp_path).stdout)
    (network,) = told["table_4"]
    sets = {row["set"]: row for row in network["sets"]}
    assert {"power-of-two", "all-required", "default", "chosen by `design`"} <= set(sets)
    assert all(row["options"].startswith("margin=3") for row in sets.values())
    assert sets["power-of-two"]["key_bytes"] < sets["all-required"]["key_bytes"]
    for row in sets.values():
        assert row["ran"]["inputs"] == 2 and row["ran"]["off"] <= row["ran"]["stated"]
        assert 0 < row["layers_s"] <= row["online_s"] and row["bootstraps_s"] == 0
    refused = cli("keyset", "tables", "--measure", "networks", cwd=tmp_path, ok=False)
    assert "name at least one" in refused.stderr


def test_a_run_of_both_parties_says_where_time_goes(cli, tmp_path):
    model, data = MODELS / "digits_square.onnx", MODELS / "digits_samples.npy"
    cli("model", "import", model, "--calibrate", data, "--backend", "ckks", "-o", "digits.tacit", cwd=tmp_path)
    asked = ("model", "check", "digits.tacit", "--backend", "ckks", "--data", data, "--limit", "2", "--run", "1")
    steps = json.loads(cli(*asked, "--json", cwd=tmp_path).stdout)["run"]["steps"]
    assert steps["linear"] > 0 and "bootstrap" not in steps
    assert "server   " in cli(*asked, cwd=tmp_path).stdout
