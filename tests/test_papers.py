"""`tacit lab papers`: the list, and its quick commands, whose output must hold what the list says."""

import json
import re
import shutil
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import reproduction
from tacit import TacitError
from tacit.lab._figures import Figures, Template
from tacit.lab._papers import VERDICTS, Runner, quick, read_claims, split, tell_counts
from tacit.report._study_verdicts import TABLE_2

ROOT = Path(__file__).resolve().parent.parent
CLAIMS = ROOT / "lab" / "experiments" / "papers.toml"
FIGURES = ROOT / "lab" / "experiments" / "figures.toml"


def test_the_document_is_what_the_file_says():
    assert reproduction.PAGE.read_text() == reproduction.page(), "run python docs/scripts/reproduction.py"


def test_every_claim_is_whole():
    claims = read_claims(CLAIMS.read_text())
    assert {claim.paper for claim in claims} == {"KDS25", "PM24", "SS26", "VPN24"}
    for c in claims:
        for text in (c.place, c.claim, c.theirs, c.ours, c.ratio, c.command, c.why):
            # A cell of a table.
            assert text and text.strip() == text and not set("|\n") & set(text), f"{c.claim}: {text!r}"
        assert c.verdict in VERDICTS and (c.verdict == "not measured") == c.ours.startswith("not measured"), c.claim
        assert not (c.holds and "{data}" in c.command), f"{c.claim}: quick commands read no shared data"
    assert sum(int(count) for count in re.findall(r"\d+", tell_counts(claims))) == len(claims)


def test_quick_commands_run_once():
    claims = read_claims(CLAIMS.read_text())
    found = quick(claims, "there")
    assert sum(map(len, found.values())) == sum(bool(c.holds) for c in claims)
    simulated = {words[1]: bound for words, bound in found.items() if words[0] == "simulate"}
    assert list(simulated) == ["paper-table2", "paper-sweeps"]
    assert len(simulated["paper-table2"]) > 14, "the table's rows and what is claimed of it"
    (words,) = quick([replace(claims[0], command="tacit zoo {data}/x", holds=["ok"])], "there")
    assert words == ("zoo", "there/x")
    with pytest.raises(TacitError, match="no command of tacit"):
        quick([replace(claims[0], command="cargo test", holds=["ok"])], "there")
    with pytest.raises(TacitError, match="quotes do not end"):
        split("tacit 'x", {})


def test_every_figure_has_one_place_and_commands_of_ours():
    figures = [Figures(**bound) for bound in tomllib.loads(FIGURES.read_text())["figures"]]
    assert not all(bound.heavy for bound in figures) and sum(len(bound.texts) for bound in figures) > 40
    for bound in figures:
        document = (ROOT / bound.document).read_text()
        for text in bound.texts:
            assert len(Template(text).places(document)) == 1, f"{bound.document}: {text}"
        for command in (*bound.commands, *bound.after):
            split(command, {})
        assert all("--json" in command for command in bound.commands), bound.commands


def test_the_list_names_command_and_verdict(cli, tmp_path):
    claims = json.loads(cli("lab", "papers", "--json", cwd=tmp_path).stdout)["claims"]
    assert set(Counter(claim["paper"] for claim in claims)) == {"PM24", "SS26", "KDS25", "VPN24"}
    assert all(claim["command"] and claim["verdict"] for claim in claims)
    text = cli("lab", "papers", "kds25", cwd=tmp_path).stdout
    assert "Table 5" in text and "tacit keyset tables" in text and "[PM24]" not in text
    refused = cli("lab", "papers", "XY99", cwd=tmp_path, ok=False)
    assert "there are PM24, SS26, KDS25, VPN24" in refused.stderr


def test_quick_commands_hold_without_shared_data(cli, tmp_path):
    said = json.loads(cli("lab", "papers", "--run", "--data", "nowhere", "--clone", ROOT, "--json", cwd=tmp_path).stdout)
    ran, figures = said["commands"], said["figures"]
    assert len(figures) > 10 and all(figure["old"] and figure["old"] == figure["new"] for figure in figures)
    assert not [claim for command in ran for claim in command["claims"] if not claim["holds"]]
    assert sum(len(command["claims"]) for command in ran) > 20
    assert {("SS26", "networks"), ("SS26", "Table 2")} <= {(c["paper"], c["place"]) for command in ran for c in command["claims"]}


def test_a_figure_that_drifts_is_shown_as_it_is_and_as_it_was(cli, tmp_path):
    """A clone whose documents say something else, and what its commands say."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "docs", clone / "docs")
    (clone / "models").symlink_to(ROOT / "models")
    document = clone / "docs" / "keysets.md"
    right = document.read_text()
    wrong = right.replace("| 16 | 30.870 |", "| 16 | 31.870 |")
    assert wrong != right
    document.write_text(wrong)
    run = ("lab", "papers", "--run", "--clone", clone, "--json")
    refused = cli(*run, cwd=tmp_path, ok=False)
    (drifted,) = [figure for figure in json.loads(refused.stdout)["figures"] if figure["old"] != figure["new"]]
    assert drifted["old"].startswith("| 16 | 31.870 |") and drifted["new"].startswith("| 16 | 30.870 |")
    assert "1 figures of the documents are not what their commands say" in refused.stderr
    cli(*run, "--update", cwd=tmp_path)
    assert document.read_text() == right
    document.write_text(right.replace("| 16 | 30.870 |", "| sixteen | 30.870 |"))
    (lost,) = [figure for figure in json.loads(cli(*run, cwd=tmp_path, ok=False).stdout)["figures"] if figure["problem"]]
    assert lost["problem"].startswith("0 texts are like")


def test_figures_that_lack_their_data_are_skipped(tmp_path):
    figures = Figures(document="docs/keysets.md", commands=["tacit zoo --list --json"], texts=["x"], needs="models/no.onnx")
    (skipped,) = Runner("tacit", "nowhere", str(ROOT), str(tmp_path)).check(figures, False)
    assert skipped.skipped == "nowhere/models/no.onnx is not there (--clone, --data)"


def test_what_holds_is_told(cli, tmp_path):
    ran = cli("lab", "papers", "--run", "pm24", cwd=tmp_path).stdout
    assert "holds: [PM24] sec. 4" in ran and "DIFFERS" not in ran
    assert "none of these commands is quick" in cli("lab", "papers", "vpn24", "--run", cwd=tmp_path).stdout


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def test_energies_of_pm24_are_those_of_its_table(data):
    """Table 2 of the paper as its digest has it, in the list of claims and in the study's page."""
    rows = [line.split("|")[1:-1] for line in (data / "papers" / "pm24.md").read_text().splitlines() if line.startswith("|")]
    paper = {
        (net.strip().lower().replace("-", ""), way.strip().lower()): [x for cell in cells for x in numbers(cell)]
        for net, way, *cells in rows[2:]
    }
    assert {(net, way): list(figures) for net, way, *figures in TABLE_2} == paper
    known = {x for figures in paper.values() for x in figures}
    claims = [c for c in tomllib.loads(CLAIMS.read_text())["claims"] if c["paper"] == "PM24" and c["place"] == "results on one link"]
    stated = [x for claim in claims for x in numbers(claim["theirs"])]
    assert len(stated) > 10 and set(stated) <= known
