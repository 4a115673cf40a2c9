"""`tacit lab compare`: two campaigns, cell by cell."""

import json
import math
import os
import subprocess
import sys

import pytest

import report_campaigns as made
from tacit.lab._compare import compare, describe, number

SPEC = """name = "loop"
repetitions = 2
warm_up = 1
links = ["none"]
cool_down_s = 0.0
idle_s = 0.5
interval_s = 0.05
measure_s = 0.5
sources = []
device = "generic-x86-server"
[[workloads]]
name = "ping-pong"
client = "tacit lab workload ping-pong --server {server}:{port} --transport {transport} --keys {keys} --messages 50 --size 1000"
server = "tacit lab workload serve --listen {server}:{port} --clients 1 --transport {transport} --keys {keys}"
ready = "listening"
"""


def energy(net_j, provenance="modelled"):
    return made.energy(net_j + 10.0, 10.0, 0.01, provenance=provenance)


def run(link, repetition, latency_s, cpu_s):
    return made.run(
        {"link": link, "workload": "bulk"}, repetition, latency_s + 0.1, energy={"client": energy(2 * cpu_s)},
        parties={"client": made.party(cpu_s, 0.0)}, results={"latency_s": latency_s, "messages": 7.0},
    )  # fmt: skip


def five(link, latency_s, cpu_s):
    """Five runs around the two means."""
    wobble = (-0.01, 0.005, 0.0, -0.005, 0.01)
    return [run(link, i, latency_s * (1 + wobble[i]), cpu_s * (1 + wobble[4 - i])) for i in range(5)]


def row(compared, link, metric):
    return next(r for r in compared["rows"] if r["cell"]["link"] == link and r["metric"] == metric)


def test_ratios_are_of_b_over_a_with_a_verdict():
    a = five("lan", 2.0, 1.0) + five("lte", 8.0, 1.0)
    b = five("lan", 1.0, 1.002) + five("lte", 9.0, 1.5)
    c = compare(a, b)
    latency = row(c, "lan", "latency_s")
    assert abs(latency["ratio"]["ratio"] - 0.5) < 1e-12
    assert latency["ratio"]["interval"]["low"] > 0.49 and latency["ratio"]["interval"]["high"] < 0.51
    assert latency["verdict"] == "smaller"
    assert row(c, "lte", "latency_s")["verdict"] == "larger"
    assert row(c, "lan", "client_cpu_s")["verdict"] == "no_difference_seen"
    joules = row(c, "lte", "client_net_j")
    assert (joules["verdict"], joules["provenance"]) == ("larger", "modelled")
    assert not {"messages", "duration_s", "client_gross_j"} & {r["metric"] for r in c["rows"]}
    assert (c["only_a"], c["only_b"], c["notes"]) == ([], [], [])
    messages = row(compare(a, b, whole=True), "lan", "messages")
    assert (messages["ratio"]["ratio"], messages["verdict"]) == (1.0, "no_difference_seen")


def test_failed_runs_and_unmatched_cells_are_told():
    a = [*five("lan", 2.0, 1.0), {**run("lan", 9, 900.0, 1.0), "failure": "timed out"}, *five("3g", 1.0, 1.0)]
    b = five("lan", 2.0, 1.0) + five("lte", 1.0, 1.0)
    c = compare(a, b)
    assert row(c, "lan", "latency_s")["a"]["n"] == 5
    assert c["notes"] == ["A: 1 failed runs left out"]
    assert (c["only_a"][0]["link"], c["only_b"][0]["link"]) == ("3g", "lte")
    ignoring = compare(a, b, {"link"})
    assert not ignoring["only_a"] and ignoring["rows"]
    assert all(r["a"]["n"] == 10 and len(r["cell"]) == 1 for r in ignoring["rows"])


def test_joules_of_different_kinds_are_not_compared_and_noise_is_told():
    a, b = five("lan", 2.0, 1.0), [{**r, "energy": {"client": energy(1.0, "measured")}} for r in five("lan", 2.0, 1.0)]
    c = compare(a, b)
    assert c["rows"] and not any(r["metric"].endswith("_j") for r in c["rows"])
    assert any("measured and modelled" in note for note in c["notes"])
    b = five("lan", 2.0, 1.0)
    b[0]["energy"]["client"]["below_noise"] = True
    assert "client_net_j: 1 of 10 runs are below the noise" in compare(a, b)["notes"][0]


def test_an_uncertain_idle_baseline_makes_no_difference():
    a, b = five("lan", 2.0, 1.0), five("lan", 2.0, 1.1)
    assert row(compare(a, b), "lan", "client_net_j")["verdict"] == "larger"
    for r in b:
        r["energy"]["client"]["net_sd_j"] = 0.5
    joules = row(compare(a, b), "lan", "client_net_j")
    assert joules["verdict"] == "no_difference_seen"
    assert joules["b"]["sd"] < 0.1, "what the runs scatter is told as it is"


def test_one_run_each_gives_a_ratio_and_no_verdict():
    found = row(compare([run("lan", 0, 2.0, 1.0)], [run("lan", 0, 3.0, 1.0)]), "lan", "latency_s")
    assert (found["ratio"], found["verdict"]) == ({"ratio": 1.5}, "unknown")


def test_cells_in_words():
    assert describe({"link": "lan", "role": "send", "workload": "bulk"}) == "lan, bulk, role send"
    assert describe({}) == "all"
    assert describe({"link": "lan\x1b]0;title\x07\r\n"}).isprintable()


def test_numbers_have_four_digits():
    assert [number(x) for x in (0.0, 12.34567, -1e6, 1.5e-7)] == ["0.0000", "12.3457", "-1.000e6", "1.500e-7"]


def test_a_campaign_beside_itself(cli, tmp_path):
    """A real one, of two runs."""
    (tmp_path / "loop.toml").write_text(SPEC)
    cli("lab", "run", "loop.toml", "-o", "a", cwd=tmp_path)
    table = cli("lab", "compare", "a", "a", "--all", cwd=tmp_path).stdout
    assert "none, plain, ping-pong" in table and "no difference seen" in table
    told = json.loads(cli("lab", "compare", "a", "a", "--all", "--json", cwd=tmp_path).stdout)
    # Two runs leave latency too noisy to tell, but bytes are what they are.
    sent = next(r for r in told["rows"] if r["metric"] == "sent_bytes")
    assert (sent["ratio"]["ratio"], sent["verdict"]) == (1.0, "no_difference_seen")
    assert "holds no campaign" in cli("lab", "compare", "a", "nothing", cwd=tmp_path, ok=False).stderr


def test_what_is_printed_of_made_up_campaigns(cli, tmp_path):
    made.write_campaign(tmp_path / "a", five("lan", 2.0, 1.0) + five("a\x1b[2J", 8.0, 1.0))
    made.write_campaign(tmp_path / "b", five("lan", 1.0, 1.0))
    table = cli("lab", "compare", "a", "b", cwd=tmp_path).stdout
    assert "lan, bulk\n" in table and "x 0.500 [" in table and "smaller, n = 5, 5" in table and "(modelled)" in table
    assert "only in A: a\ufffd[2J, bulk" in table and "95 % interval by Fieller" in table
    told = json.loads(cli("lab", "compare", "a", "b", "--json", cwd=tmp_path).stdout)
    latency = next(r for r in told["rows"] if r["metric"] == "latency_s")
    assert latency["cell"] == {"link": "lan", "workload": "bulk"} and math.isclose(latency["a"]["mean"], 2.0)
    assert "provenance" not in latency and latency["ratio"]["interval"]["low"] < 0.5


def test_a_reader_that_goes_away_is_no_crash(binary, tmp_path):
    made.write_campaign(tmp_path / "a", five("lan", 2.0, 1.0))
    reader, writer = os.pipe()
    os.close(reader)
    env = {"TACIT_PYTHON": sys.executable} | os.environ
    done = subprocess.run([binary, "lab", "compare", "a", "a"], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, env=env)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_campaigns_without_a_common_cell_are_refused(cli, tmp_path, options):
    made.write_campaign(tmp_path / "a", five("lan", 2.0, 1.0))
    made.write_campaign(tmp_path / "b", five("lte", 2.0, 1.0))
    done = cli("lab", "compare", "a", "b", *options, cwd=tmp_path, ok=bool(options))
    if options:
        assert json.loads(done.stdout)["only_a"] == [{"link": "lan", "workload": "bulk"}]
    else:
        assert done.stderr.startswith('error: the campaigns have no cell in common; --ignore LABEL') and not done.stdout
        assert '(of 1 such as "lan, bulk" and 1 such as "lte, bulk")' in done.stderr
        assert "\n" not in done.stderr.strip()
    assert cli("lab", "compare", "a", "b", "--ignore", "link", cwd=tmp_path).stdout.startswith("bulk\n")
