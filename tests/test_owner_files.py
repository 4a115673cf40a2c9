"""The owner's files on the command line: models, lowerings made ahead of time, and sealing."""

import json
import os
import struct
import subprocess

import numpy as np
import pytest

from conftest import MODELS
from test_cli import serving

IMPORT = ["model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit"]


@pytest.fixture
def workplace(tmp_path, cli, digit_images):
    """A folder with keys and one input."""
    cli("keys", "init", "keys", cwd=tmp_path)
    np.save(tmp_path / "one.npy", digit_images[:1])
    return tmp_path


def log_of_serving(binary, folder, *options):
    """What a server says beside its address, from its start to its end."""
    with serving(binary, folder, *options):
        pass
    return (folder / "server.log").read_text()


def test_a_lowering_that_fits_is_taken_and_a_stale_one_is_made_again(cli, binary, workplace):
    cli(*IMPORT, "--backend", "none", cwd=workplace)
    assert not list(workplace.glob("*.lowered")), "import leaves it to lower"
    assert "there is no digits.cheetah.lowered" in log_of_serving(binary, workplace)
    cli("model", "lower", "digits.tacit", "-O", "frac_bits=12", cwd=workplace)
    stored = (workplace / "digits.cheetah.lowered").read_bytes()
    assert "lowered" not in log_of_serving(binary, workplace, "-O", "frac_bits=12"), "it fits"
    assert "lowered" not in log_of_serving(binary, workplace), "without options, any lowering of this model does"
    assert "other options" in log_of_serving(binary, workplace, "-O", "frac_bits=11")
    cli(*IMPORT, "--backend", "none", cwd=workplace)
    assert "another model" in log_of_serving(binary, workplace)
    assert (workplace / "digits.cheetah.lowered").read_bytes() == stored, "a server writes no models"
    assert stored[8:12] == struct.pack("<I", 1)
    (workplace / "digits.cheetah.lowered").write_bytes(stored[:8] + struct.pack("<I", 2) + stored[12:])
    assert "digits.cheetah.lowered was made by another version" in log_of_serving(binary, workplace)


def test_a_lowering_needs_no_more_of_the_model_than_its_header(cli, binary, workplace):
    cli(*IMPORT, cwd=workplace)
    file = workplace / "digits.tacit"
    file.write_bytes(file.read_bytes()[:200])
    with serving(binary, workplace) as address:
        done = cli("infer", "one.npy", "--server", address, "--json", cwd=workplace)
    assert len(json.loads(done.stdout)["values"]) == 10


def test_a_damaged_lowering_is_an_error(cli, workplace):
    cli(*IMPORT, cwd=workplace)
    file = workplace / "digits.cheetah.lowered"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    refused = cli("serve", "digits.tacit", cwd=workplace, ok=False).stderr
    assert "damaged" in refused and "digits.cheetah.lowered" in refused
    assert "damaged" in cli("model", "inspect", file, cwd=workplace, ok=False).stderr


def test_inspect_shows_what_each_file_says(cli, workplace):
    cli(*IMPORT, cwd=workplace)
    model = json.loads(cli("model", "inspect", "digits.tacit", "--json", cwd=workplace).stdout)
    lowered = json.loads(cli("model", "inspect", "digits.cheetah.lowered", "--json", cwd=workplace).stdout)
    assert model["interface"] == lowered["interface"]
    assert lowered["backend"] == "cheetah"
    assert lowered["costs"]["online"]["up_bytes"] > 0
    assert len(lowered["public"]["nodes"]) >= len(model["nodes"])
    assert "weights" not in lowered["public"]
    text = cli("model", "inspect", "digits.cheetah.lowered", cwd=workplace).stdout
    assert f"--require public={lowered['public_digest']}" in text and len(lowered["public_digest"]) == 64


def test_options_that_are_wrong_name_those_there_are(cli, workplace):
    done = cli(*IMPORT, "-O", "frac=12", cwd=workplace, ok=False)
    assert "frac_bits" in done.stderr
    assert "weight_bits" in done.stderr
    assert "cheetah" in cli(*IMPORT, "--backend", "gazelle", cwd=workplace, ok=False).stderr
    assert not list(workplace.glob("digits.*")), "nothing was written"


def test_clear_is_served_only_where_that_is_allowed(cli, binary, workplace, digit_images, float_answers):
    cli(*IMPORT, cwd=workplace)
    both = ["--backend", "cheetah", "--backend", "clear"]
    refused = cli("serve", "digits.tacit", *both, cwd=workplace, ok=False)
    assert "sees every input" in refused.stderr
    floats = float_answers(MODELS / "digits.onnx", digit_images[:1])
    with serving(binary, workplace, *both, "--allow-clear") as address:
        for options, phases in (
            ([], {"setup", "offline", "online"}),
            (["--backend", "cheetah"], {"setup", "offline", "online"}),
            (["--backend", "clear"], {"online"}),
        ):
            done = cli("infer", "one.npy", "--server", address, *options, "--json", cwd=workplace)
            answer = json.loads(done.stdout)
            assert answer["class"] == floats[0].argmax()
            assert set(answer["phases"]) == phases


def test_sealed_files_open_with_their_key_only(cli, binary, workplace, monkeypatch):
    monkeypatch.setenv("TACIT_TEST_KEY", "0123456789abcdef0123456789abcdef")
    monkeypatch.setenv("TACIT_OTHER_KEY", "fedcba9876543210fedcba9876543210")
    key, other = ["--seal", "env:TACIT_TEST_KEY"], ["--seal", "env:TACIT_OTHER_KEY"]
    cli(*IMPORT, *key, cwd=workplace)
    cli("model", "lower", "digits.tacit", *key, cwd=workplace)
    for name in ("digits.tacit", "digits.cheetah.lowered"):
        assert (workplace / name).read_bytes().startswith(b"TACITSEA")
        assert json.loads(cli("model", "inspect", name, "--json", *key, cwd=workplace).stdout)["interface"]["name"]
        assert "another key" in cli("model", "inspect", name, *other, cwd=workplace, ok=False).stderr
        assert name in cli("model", "inspect", name, cwd=workplace, ok=False).stderr
    for wrong in (other, [], ["--seal", "env:TACIT_NO_KEY"]):
        cli("serve", "digits.tacit", *wrong, cwd=workplace, ok=False)
    with serving(binary, workplace, *key, "--material", "server-material") as address:
        me = ["--server", address, "--material", "material"]
        cli("prepare", *me, *key, "--count", 2, cwd=workplace)
        for side in ("material", "server-material"):
            sealed = [p for p in (workplace / side).rglob("*") if p.is_file() and p.read_bytes().startswith(b"TACITSEA")]
            assert len(sealed) == 2, side
        answer = json.loads(cli("infer", "one.npy", *me, *key, "--json", cwd=workplace).stdout)
        assert set(answer["phases"]) == {"online"}, "sealed material was used"
        refused = cli("infer", "one.npy", *me, *other, "--json", cwd=workplace, ok=False)
        assert "another key" in refused.stderr
        answer = json.loads(cli("infer", "one.npy", *me, *key, "--json", cwd=workplace).stdout)
        assert set(answer["phases"]) == {"online"}, "the wrong key has burnt nothing"
    assert "lowered" not in (workplace / "server.log").read_text(), "the sealed lowering was taken"


def test_a_key_that_is_none_is_named(cli, workplace):
    (workplace / "short").write_text("few bytes")
    os.chmod(workplace / "short", 0o600)
    (workplace / "open").write_text("0123456789abcdef")
    os.chmod(workplace / "open", 0o644)
    for key, says in (
        ("env:TACIT_NO_KEY", "TACIT_NO_KEY"),
        ("short", "16"),
        ("open", "chmod"),
        ("missing", "missing"),
        ("cmd:false", "false"),
    ):
        done = cli(*IMPORT, "--seal", key, cwd=workplace, ok=False)
        assert says in done.stderr, key
    assert not (workplace / "digits.tacit").exists()


def test_the_server_takes_the_place_of_the_command(binary, cli, workplace):
    cli(*IMPORT, cwd=workplace)
    command = [binary, "serve", "digits.tacit", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=workplace, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().startswith("listening on ")
            running = os.readlink(f"/proc/{process.pid}/exe")
            assert os.path.basename(running) == "tacit-server"
        finally:
            process.terminate()
