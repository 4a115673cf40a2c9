"""Encrypted answers by the programs, as the README says, with keys that stay over restarts of both parties."""

import json
import re

import numpy as np
import pytest
from test_cli import MODELS, serving

README = MODELS.parent / "README.md"


@pytest.fixture(scope="module")
def place(tmp_path_factory, cli):
    folder = tmp_path_factory.mktemp("ckks")
    cli("keys", "init", "keys", "--client", "alice", cwd=folder)
    (folder / "models").symlink_to(MODELS)
    # The first of the three commands of the README, as it is written.
    commands = re.findall(r"^tacit model import .*digits_square.*$", README.read_text(), re.MULTILINE)
    assert len(commands) == 1
    cli(*commands[0].split()[1:], cwd=folder)
    return folder


def asked(cli, place, address, *options):
    done = cli("infer", "models/digit.npy", "--server", address, "--client", "alice", "--json", *options, cwd=place)
    return json.loads(done.stdout)


def test_keys_are_sent_once_and_again_after_they_are_deleted(cli, binary, place, float_answers):
    options = ("--backend", "ckks", "--material", "server-material")
    floats = float_answers(MODELS / "digits_square.onnx", np.load(MODELS / "digit.npy"))[0]
    with serving(binary, place, *options, model="square.tacit") as address:
        first = asked(cli, place, address)
        assert first["class"] == floats.argmax()
        assert np.abs(np.array(first["values"]) - floats).max() < 0.02 * np.abs(floats).max()
        sent = first["phases"]["setup"]["client"]["sent_bytes"]
        assert sent > 1_000_000
        assert asked(cli, place, address)["phases"]["setup"]["client"]["sent_bytes"] < 1000
    secrets = place / "material" / "secrets"
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in secrets.glob("*.secret")] == [0o600]
    with serving(binary, place, *options, model="square.tacit") as address:
        assert asked(cli, place, address)["phases"]["setup"]["client"]["sent_bytes"] < 1000, "over a restart"
        who = ("--server", address, "--client", "alice")
        kept = json.loads(cli("keyset", "list", *who, "--json", cwd=place).stdout)
        assert (kept["state"], kept["model"]) == ("whole", "square")
        assert "square" in cli("keyset", "list", *who, cwd=place).stdout
        refused = cli("keyset", "delete", "00ff00ff", *who, cwd=place, ok=False).stderr
        assert "0 key sets" in refused
        assert "deleted 1" in cli("keyset", "delete", kept["name"][:12], *who, cwd=place).stdout
        assert not list(secrets.glob("*.secret"))
        assert "no keys" in cli("keyset", "list", *who, cwd=place).stdout
        assert asked(cli, place, address)["phases"]["setup"]["client"]["sent_bytes"] > 1_000_000
    with serving(binary, place, *options, "--key-quota", "1", model="square.tacit") as address:
        # What is there is used; nothing more is taken.
        assert asked(cli, place, address)["phases"]["setup"]["client"]["sent_bytes"] < 1000
        other = ("--server", address, "--client", "alice", "--material", "other")
        refused = cli("infer", "models/digit.npy", *other, cwd=place, ok=False).stderr
        assert "tacit keyset delete" in refused
    assert len(list(secrets.glob("*.secret"))) == 1
    refused = cli("keyset", "delete", "--all", "--server", "127.0.0.1:1", "--client", "alice", cwd=place, ok=False).stderr
    assert "secrets deleted here: 1" in refused and not list(secrets.glob("*.secret")), "a server that is gone"


def test_a_key_set_is_designed_within_budgets_or_the_error_says_what_would_fit(cli, place):
    def designed(*options):
        # Measured rates would differ from run to run.
        return json.loads(cli("keyset", "design", "square.tacit", "--fixed-rates", *options, "--json", cwd=place).stdout)

    found = designed("--goal", "upload")
    runs = [choice for choice in found["choices"] if choice["options"]]
    best = found["choices"][found["chosen"]]
    assert best["bytes"] == min(choice["bytes"] for choice in runs) and all(c["memory"] > c["bytes"] for c in runs)
    within = designed("--memory", str(best["memory"]), "--goal", "memory")
    small = within["choices"][within["chosen"]]
    assert small["memory"] <= best["memory"]
    least = min(choice["memory"] for choice in designed()["choices"] if choice["options"])
    for budget in ("--memory", "--upload"):
        refused = cli("keyset", "design", "square.tacit", "--fixed-rates", budget, "10kB", cwd=place, ok=False).stderr
        assert f"to send are {best['bytes']};" in refused and f"takes {least} bytes of memory" in refused
