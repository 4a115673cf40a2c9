"""`tacit plan` and `tacit calibrate`: the ranking, its page, and commands that work as they are told."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from conftest import MODELS
from tacit import TacitError
from tacit.report import write_report

WHERE = ("--device", "pi4b", "--server", "16core", "--link", "20mbit/40ms")


@pytest.fixture
def model(cli, tmp_path):
    """The digits network as its owner has it."""
    calibrate = ("--calibrate", MODELS / "digits_samples.npy")
    cli("model", "import", MODELS / "digits.onnx", *calibrate, "-o", "digits.tacit", cwd=tmp_path)
    return tmp_path / "digits.tacit"


def private(plan):
    return [entry for entry in plan["ranked"] if entry["private"]]


def test_a_plan_ranks_back_ends_and_says_why(cli, model):
    done = cli("plan", "digits.tacit", *WHERE, cwd=model.parent)
    for part in ("cheetah", "clear", "local", "server sees input", "client has model", "an answer takes", "what would change it",
                 "link rate 20.0 Mbit/s", "assumed", "server$ tacit serve digits.tacit", "client$ tacit infer"):  # fmt: skip
        assert part in done.stdout, f"{part} is not in\n{done.stdout}"
    plan = json.loads(cli("plan", "digits.tacit", *WHERE, "--json", "-o", "plan.json", cwd=model.parent).stdout)
    assert plan == json.loads((model.parent / "plan.json").read_text())
    assert {"cheetah", "clear", "local"} <= {entry["backend"] for entry in plan["ranked"]}
    scores = [entry["choice"]["score"] for entry in private(plan) if not entry["choice"]["objections"]]
    assert scores == sorted(scores) and scores[0] > 0
    assert all("dealer" in entry["choice"]["objections"][0] for entry in private(plan) if entry["trust"] == "dealer")
    online = private(plan)[0]["choice"]["predicted"]["online"]
    assert online["wall_s"] >= max(online["compute_s"], online["transfer_s"] + online["round_trips_s"])


def test_bytes_are_those_that_a_run_counts(cli, model):
    plan = json.loads(cli("plan", "digits.tacit", *WHERE, "--json", cwd=model.parent).stdout)
    run = json.loads(cli("bench", "--model", "digits.tacit", "--json", cwd=model.parent).stdout)["runs"][0]
    predicted = next(entry for entry in plan["ranked"] if entry["backend"] == "cheetah")["choice"]["predicted"]
    for phase in ("setup", "offline", "online"):
        for party, way in (("client", "up_bytes"), ("server", "down_bytes")):
            assert run["phases"][phase][party]["sent_bytes"] == predicted[phase][way], (phase, party)


def test_goals_and_limits(cli, model):
    def asked(*args):
        return json.loads(cli("plan", "digits.tacit", *WHERE, "--json", *args, cwd=model.parent).stdout)

    trusted = asked("--limit", "trust=dealer", "--goal", "bytes")
    assert all(not entry["choice"]["objections"] for entry in private(trusted))
    impossible = asked("--limit", "online=1us,memory=1kB")
    assert all(len(entry["choice"]["objections"]) >= 2 for entry in private(impossible))
    text = cli("plan", "digits.tacit", *WHERE, "--limit", "online=1us", cwd=model.parent).stdout
    assert "no private back end is within the limits" in text and "0.000001 s allowed" in text
    more = asked("--try", "frac_bits=12")
    assert any(entry["options"] == "frac_bits=12" for entry in more["ranked"])
    money = asked("--goal", "money", "--prices", "core-hour=0.04,gb=0.05")
    assert money["ranked"][0]["choice"]["score"] > 0


def test_how_the_link_is_used_is_planned_and_applied(cli, model):
    folder = model.parent
    asked = ("plan", "digits.tacit", *WHERE, "--limit", "rate=5mbit", "--idle", "22-6", "--requests", "7/day")
    plan = json.loads(cli(*asked, "--apply", "careful", "--json", cwd=folder).stdout)
    assert plan["setting"]["link"]["up_bits"] == 5e6 and plan["ways"] == {"pace": "5mbit", "idle": {"from": 22, "to": 6}}
    assert private(plan)[0]["choice"]["pool"] == 7, "a day's material"
    for script in ("server.sh", "client.sh", "sidecar.sh"):
        text = (folder / "careful" / script).read_text()
        assert "--pace 5mbit" in text, script
        subprocess.run(["sh", "-n", folder / "careful" / script], check=True)
    assert (folder / "careful/prepare.cron").read_text().startswith("0 22 * * * ")
    assert "--ready 7" in (folder / "careful/sidecar.sh").read_text()
    tunnelled = json.loads(cli("plan", "digits.tacit", *WHERE, "--tunnel", "wireguard", "--json", cwd=folder).stdout)
    plain = json.loads(cli("plan", "digits.tacit", *WHERE, "--json", cwd=folder).stdout)
    scores = [private(p)[0]["choice"]["score"] for p in (plain, tunnelled)]
    assert scores[0] < scores[1] and plain["enough_rate"] < 20e6
    text = cli("plan", "digits.tacit", *WHERE, "--idle", "3-3", cwd=folder).stdout
    assert "in the idle hours" in text and "how far off: in " in text and "--limit rate=" in text


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--idle", "25-3"), "22-6"),
        (("--limit", "rate=fast"), "rate"),
        (("--device", "toaster"), "raspberry-pi-4b"),
        (("--link", "fast"), "no such preset"),
        (("--goal", "joy"), "client-energy"),
        (("--goal", "money"), "--prices"),
        (("--limit", "memory=lots"), "400MB"),
        (("--limit", "speed=1"), "there is no limit"),
        (("--requests", "many"), "200/day"),
        (("--try", "frac_bits"), "frac_bits"),
        (("--limit", "agreement=2"), "0 to 1"),
        (("--server-calibration", "none.toml"), "none.toml"),
    ],
)
def test_what_cannot_be_planned_is_said(cli, model, args, what):
    assert what in cli("plan", "digits.tacit", *args, cwd=model.parent, ok=False).stderr


def test_the_page(cli, model, monkeypatch):
    monkeypatch.setenv("TACIT_PYTHON", sys.executable)
    cli("plan", "digits.tacit", *WHERE, "--page", "plan.html", cwd=model.parent)
    page = (model.parent / "plan.html").read_text()
    for word in ("raspberry-pi-4b", "cheetah", "Where the time goes", "What would change it", "assumed", "round trips (s)"):
        assert word in page, word
    assert "<script" not in page and page.count("data:image/svg+xml") == 3
    broken = model.parent / "broken.json"
    broken.write_text('{"format": "tacit-plan", "version": 9}')
    with pytest.raises(TacitError, match="version"):
        write_report(broken)


@contextmanager
def planning(binary, folder):
    """`tacit plan --serve`: its address."""
    command = [binary, "plan", "digits.tacit", *WHERE, "--serve=127.0.0.1:0", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield json.loads(process.stdout.readline())["listening"]
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_the_page_with_sliders_asks_the_same_planner(cli, binary, model):
    def got(path, **headers):
        return urllib.request.urlopen(urllib.request.Request(address + path, headers=headers), timeout=60)

    plan = json.loads(cli("plan", "digits.tacit", *WHERE, "--json", cwd=model.parent).stdout)
    slow = cli("plan", "digits.tacit", *WHERE[:-1], "4mbit/40ms", "--energy-weight", "2", "--json", cwd=model.parent).stdout
    with planning(binary, model.parent) as address:
        with got("/") as page:
            assert "'nonce-" in page.headers["content-security-policy"] and b"{{nonce}}" not in page.read()
        with got("/plan") as answer:
            assert json.load(answer)["ranked"] == plan["ranked"]
        with got("/plan?rate=4&weight=2&memory=4000") as answer:
            assert json.load(answer)["ranked"] == json.loads(slow)["ranked"]
        for code, path, headers in (
            (403, "/plan", {"Host": "evil.example"}),
            (403, "/", {"Origin": "http://evil.example"}),
            (400, "/plan?rate=fast", {}),
            (404, "/plan.html", {}),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                got(path, **headers)
            with refused.value as answer:
                assert (answer.code, "error" in json.load(answer)) == (code, True), path
    outside = cli("plan", "digits.tacit", *WHERE, "--serve=0.0.0.0:0", cwd=model.parent, ok=False)
    assert "loopback" in outside.stderr


def test_the_applied_plan_runs(cli, binary, model):
    folder = model.parent
    cli("plan", "digits.tacit", *WHERE, "--burst", "2", "--apply", "deployment", cwd=folder)
    environment = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}", "LISTEN": "127.0.0.1:0"}
    with subprocess.Popen(["deployment/server.sh"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            assert line.startswith("listening on "), line
            digit = shutil.copy(MODELS / "digit.npy", folder)
            environment |= {"SERVER": line.split()[2], "INPUT": digit}
            done = subprocess.run(["deployment/client.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            assert "class 5" in done.stdout
            assert len(list((folder / "stock").rglob("*"))) > 0, "two were made, one is left"
        finally:
            server.terminate()


def test_a_model_s_name_is_no_command(cli, tmp_path):
    """A stranger's file may have any name inside; here a file's, which becomes the model's."""
    source = tmp_path / "a\n touch owned\n$(touch owned).onnx"
    shutil.copy(MODELS / "digits.onnx", source)
    cli("model", "import", source, "-o", "digits.tacit", cwd=tmp_path)
    cli("plan", "digits.tacit", *WHERE, "--apply", "deployment", cwd=tmp_path)
    for script in ("server.sh", "client.sh"):
        text = (tmp_path / "deployment" / script).read_text()
        known = ("#", "set -eu", "[ -d keys ] || tacit ", "exec tacit", "tacit ")
        assert all(line.startswith(known) for line in text.splitlines()), text


def test_a_calibration_of_this_machine_can_be_planned_with(cli, model):
    networks = ("--networks", "tiny-mlp,tiny-cnn", "--backends", "cheetah,clear", "--runs", "1")
    done = cli("calibrate", "-o", "here.toml", *networks, cwd=model.parent)
    assert "cheetah" in done.stdout and "online" in done.stdout
    both = ("--device-calibration", "here.toml", "--server-calibration", "here.toml")
    plan = json.loads(cli("plan", "digits.tacit", *WHERE, *both, "--json", cwd=model.parent).stdout)
    assert [entry["backend"] for entry in private(plan)] == ["cheetah"]
    assert any("say nothing of it" in text for text in plan["refused"])
    assert "calibrated on" in plan["setting"]["client"]["sources"][0]
    # Runs that were kept are fitted again without measuring.
    kept = json.loads(cli("calibrate", "-o", "kept.toml", "--networks", "tiny-square", "--backends", "ckks", "--runs", "1", "--json", cwd=model.parent).stdout)
    (model.parent / "kept.json").write_text(json.dumps(kept))
    cli("calibrate", "-o", "again.toml", "--no-measure", "--with", "kept.json", "--runs", "1", cwd=model.parent)
    again, made = (tomllib.loads((model.parent / f"{name}.toml").read_text())["backends"]["ckks"] for name in ("again", "kept"))
    assert again["networks"] == ["tiny-square"] and set(again["phases"]) == set(made["phases"]) == {"setup", "online"}
    assert {run["threads"] for run in kept["runs"]["ckks"]} == {1, 2}
