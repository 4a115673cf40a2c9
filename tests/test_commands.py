"""Commands as a new user types them: what is offered, what refusals name, rows that fail alone, names of clients."""

import json
import re

import numpy as np
import pytest

from conftest import MODELS
from test_cli import as_alice, serving

SAMPLES = MODELS / "digits_samples.npy"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, cli, digit_images):
    folder = tmp_path_factory.mktemp("commands")
    cli("keys", "init", "keys", "--client", "alice", cwd=folder)
    cli("keys", "add-client", "keys", "ops", "--operator", cwd=folder)
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", SAMPLES, "-o", "digits.tacit", cwd=folder)
    np.save(folder / "four.npy", digit_images[:4])
    return folder


def offered(cli, folder, address):
    status = json.loads(cli("status", "--server", address, "--client", "ops", "--json", cwd=folder).stdout)
    return {model["name"]: model["backends"] for model in status["models"]}


def test_a_model_is_served_with_what_lies_beside_it(cli, workplace, binary, tmp_path):
    for name, backend in (("square", "ckks"), ("other", "cheetah")):
        network = MODELS / ("digits_square.onnx" if name == "square" else "digits.onnx")
        cli("model", "import", network, "--calibrate", SAMPLES, "--backend", backend, "-o", tmp_path / f"{name}.tacit", cwd=workplace)
    cli("model", "lower", tmp_path / "other.tacit", "--backend", "sci-he", cwd=workplace)
    with serving(binary, workplace, "--no-warm-up", model=tmp_path) as address:
        assert offered(cli, workplace, address) == {"square": ["ckks"], "other": ["cheetah", "sci-he"]}
    assert "lowered" not in (workplace / "server.log").read_text(), "nothing was lowered anew"
    # What needs more than this server was given is named, with the option.
    cli("model", "lower", tmp_path / "other.tacit", "--backend", "clear", cwd=workplace)
    for beside in ("cheetah", "sci-he"):
        (tmp_path / f"other.{beside}.lowered").unlink()
    done = cli("serve", tmp_path / "other.tacit", "--listen", "127.0.0.1:0", cwd=workplace, ok=False)
    assert "other.clear.lowered" in done.stderr and "--allow-clear" in done.stderr


def test_refusals_name_the_option(cli, workplace, binary):
    done = cli("serve", "digits.tacit", "--backend", "clear", "--listen", "127.0.0.1:0", cwd=workplace, ok=False)
    assert "--allow-clear" in done.stderr
    with serving(binary, workplace, "--no-warm-up") as address:
        done = cli("serve", "digits.tacit", "--no-warm-up", "--listen", address, cwd=workplace, ok=False)
        assert "in use" in done.stderr and "--listen" in done.stderr, done.stderr
        done = cli("serve", "--front", "--keys", "keys", "--listen", address, cwd=workplace, ok=False)
        assert "in use" in done.stderr and "--listen" in done.stderr, done.stderr
        sidecar = ["sidecar", "--server", address, "--client", "alice", "--token-file", "token", "--new-token"]
        done = cli(*sidecar, "--listen", address, cwd=workplace, ok=False)
        assert "in use" in done.stderr and "--listen" in done.stderr, done.stderr
        done = cli(*sidecar, "--listen", "127.0.0.1:0", "--grpc", address, cwd=workplace, ok=False)
        assert "in use" in done.stderr and "--grpc" in done.stderr, done.stderr
        done = cli("plan", "digits.tacit", f"--serve={address}", cwd=workplace, ok=False)
        assert "in use" in done.stderr and "--serve" in done.stderr, done.stderr


def test_a_range_may_begin_below_zero(cli, workplace, tmp_path):
    given = ["model", "import", MODELS / "digits.onnx", "-o", tmp_path / "x.tacit"]
    for spelled in (["--range", "-1,1"], ["--range=-1,1"]):
        cli(*given, *spelled, cwd=workplace)
        told = json.loads(cli("model", "inspect", tmp_path / "x.tacit", "--json", cwd=workplace).stdout)
        assert '"range": [-1.0, 1.0]' in json.dumps(told)
    done = cli(*given, "--range", "-1", cwd=workplace, ok=False)
    assert "two numbers" in done.stderr


def test_a_row_out_of_range_fails_alone(cli, workplace, binary, digit_images, float_answers):
    rows = digit_images[:4].copy()
    rows[1, 0, 2, 5] = 99
    np.save(workplace / "one_bad.npy", rows)
    wanted = float_answers(MODELS / "digits.onnx", digit_images[:4]).argmax(1)
    with serving(binary, workplace, "--no-warm-up", "--material", "server-material") as address:
        done = cli("infer", "one_bad.npy", *as_alice(address), "--json", cwd=workplace, ok=False)
        told = [json.loads(line) for line in done.stdout.splitlines()]
        refused = [line for line in told if "error" in line]
        assert [line["input"] for line in refused] == ["one_bad.npy[1]"]
        assert all(part in refused[0]["error"] for part in ("value 21 is 99", "(at [0, 2, 5])", "--range")), refused
        answered = {line["input"]: line["class"] for line in told if "class" in line}
        names = ["one_bad.npy", "one_bad.npy[2]", "one_bad.npy[3]"]
        assert answered == dict(zip(names, wanted[[0, 2, 3]].tolist(), strict=True))
        assert "1 of 4 inputs were refused" in json.loads(done.stderr)["error"]
        done = cli("infer", "one_bad.npy", *as_alice(address), cwd=workplace, ok=False)
        assert "error: one_bad.npy[1]: " in done.stderr and done.stdout.count("class") >= 3
        np.save(workplace / "all_bad.npy", rows[[1, 1]])
        done = cli("infer", "all_bad.npy", *as_alice(address), cwd=workplace, ok=False)
        assert "all_bad.npy: " in done.stderr and "1 more inputs" in done.stderr and not done.stdout


def test_names_of_clients_stand_beside_their_fingerprints(cli, workplace, binary):
    prints = {
        who: json.loads(cli("keys", "fingerprint", "keys", who, "--json", cwd=workplace).stdout)["fingerprint"] for who in ("alice", "ops")
    }
    rules = workplace / "access.toml"
    rules.write_text("")
    look = ["--client", "ops", "--server"]
    env_log = ["--access", "access.toml", "--no-warm-up", "--material", "server-material"]
    with serving(binary, workplace, *env_log) as address:
        cli("infer", "four.npy", *as_alice(address), cwd=workplace)
        told = json.loads(cli("status", *look, address, "--json", cwd=workplace).stdout)
        assert {(row["client"], row["client_name"]) for row in told["clients"]} == {(prints["alice"], "alice")}
        assert {(row["client"], row["client_name"]) for row in told["jobs"]} == {(prints["alice"], "alice")}
        shown = cli("status", *look, address, cwd=workplace).stdout
        assert f"alice {prints['alice'][:8]}" in shown
        own = cli("status", "--client", "alice", "--server", address, cwd=workplace).stdout
        assert f"alice {prints['alice'][:8]}" in own
        rules.write_text(f"[client.{prints['alice']}]\nname = 'ward three'\n")
        cli("reload", *look, address, cwd=workplace)
        assert f"ward three {prints['alice'][:8]}" in cli("status", *look, address, cwd=workplace).stdout


def test_the_plans_scripts_share_no_folder_and_its_advice_can_be_followed(cli, workplace):
    where = ("--device", "pi4b", "--server", "16core", "--link", "20mbit/40ms")
    cli("plan", "digits.tacit", *where, "--apply", "deployment", cwd=workplace)
    server = (workplace / "deployment/server.sh").read_text()
    assert "--material server-material" in server, "`tacit infer` has `material` by default"
    said = cli("plan", "digits.tacit", *where, "--client-work", "min", cwd=workplace).stdout
    rates = re.findall(r"--limit rate=(\S+)", said)
    assert all(not rate.startswith("0") for rate in rates), said
    for rate in rates:
        cli("plan", "digits.tacit", *where, "--limit", f"rate={rate}", cwd=workplace)
    assert "raspberry-pi-4b (pi4b, pi4)" in cli("plan", "--help", cwd=workplace).stdout
