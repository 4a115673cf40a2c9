"""Work moved off the client: which back end `--client-work` and budgets choose, at `tacit infer` and `tacit plan`."""

import json
import subprocess
from contextlib import ExitStack

import pytest

from conftest import MODELS


@pytest.fixture
def served(cli, binary, tmp_path):
    """Arguments of a client of a server that offers digits in three ways, and those that name the dealer."""
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=tmp_path)
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    pin = json.loads(cli("keys", "add-dealer", "keys", "--json", cwd=tmp_path).stdout)["dealer"]
    with ExitStack() as programs:

        def start(*arguments):
            process = subprocess.Popen(
                [binary, *arguments, "--listen", "127.0.0.1:0", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
            )
            programs.enter_context(process)
            programs.callback(process.kill)
            assert process.stdout is not None
            return json.loads(process.stdout.readline())["listening"]

        dealing = start("dealer", "--keys", "keys")
        named = ("--dealer", dealing, "--dealer-pin", pin)
        offered = [word for name in ("sci-he", "cheetah", "clear", "dealt") for word in ("--backend", name)]
        serving = start("serve", "digits.tacit", "--keys", "keys", *offered, "--allow-clear", *named)
        yield ("infer", MODELS / "digit.npy", "--keys", "keys", "--client", "alice", "--server", serving, "--json"), named


def asked(cli, folder, *arguments):
    """The answer, and what was chosen."""
    done = cli(*arguments, cwd=folder)
    answer = json.loads(done.stdout)
    return answer, answer.get("chosen"), done.stderr


def test_the_client_chooses_by_its_own_work_and_never_takes_a_dealer_unasked(cli, served, tmp_path):
    infer, dealer = served
    plain, chosen, _ = asked(cli, tmp_path, *infer)
    assert chosen is None
    least, chosen, said = asked(cli, tmp_path, *infer, "--client-work", "min")
    assert least["class"] == plain["class"]
    assert chosen["backend"] in ("cheetah", "sci-he") and chosen["trust"] == "two-party"
    assert chosen["client_j"] > 0 and chosen["client_cpu_s"] > 0
    for words in ("trusts nobody else", "clear (the server would see the input)", "dealt (a dealer would have to be trusted"):
        assert words in said, said
    _, dealt, said = asked(cli, tmp_path, *infer, *dealer, "--client-work", "min")
    assert dealt["backend"] == "dealt" and dealt["trust"] == "dealer" and "trusts the dealer" in said
    assert dealt["client_j"] < chosen["client_j"]
    _, balanced, _ = asked(cli, tmp_path, *infer, "--client-work", "balanced")
    assert balanced["client_j"] <= 2 * chosen["client_j"]


def test_a_budget_that_nothing_is_within_is_an_error_with_figures(cli, served, tmp_path):
    infer, _ = served
    said = cli(*infer, "--client-joules", "0.000001", cwd=tmp_path, ok=False).stderr
    assert "no back end that this client accepts is within" in said and "cheetah (" in said
    said = cli(*infer, "--client-cpu-s", "0.000001", "--plan-device", "pi4b", cwd=tmp_path, ok=False).stderr
    assert "sci-he (" in said
    _, chosen, _ = asked(cli, tmp_path, *infer, "--client-joules", "1000", "--plan-link", "20mbit/40ms")
    assert chosen["backend"] in ("cheetah", "sci-he")
    for wrong, words in (
        (("--client-work", "none"), "min, balanced, any"),
        (("--client-joules", "0"), "above 0"),
        (("--client-work", "min", "--backend", "cheetah"), "leaves nothing to choose"),
        (("--client-work", "min", "--plan-device", "toaster"), "raspberry-pi-4b"),
    ):
        assert words in cli(*infer, *wrong, cwd=tmp_path, ok=False).stderr


def test_plans_try_what_moves_work(cli, tmp_path):
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=tmp_path)
    where = ("plan", "digits.tacit", "--device", "pi4b", "--link", "20mbit/40ms", "--json")

    def plan(*arguments):
        return json.loads(cli(*where, *arguments, cwd=tmp_path).stdout)

    def best(of):
        return next(e for e in of["ranked"] if e["private"] and not e["choice"]["objections"])

    least = plan("--client-work", "min")
    assert least["goal"] == "client-energy"
    assert {"leaves=weighed2", "leaves=direct4"} <= {e["options"] for e in least["ranked"]}
    assert best(least)["trust"] == "two-party"
    balanced = plan("--client-work", "balanced")
    most = balanced["limits"]["client_j"]
    assert most == pytest.approx(2 * best(least)["choice"]["score"])
    assert best(balanced)["choice"]["predicted"]["online"]["client_j"] <= most
    broken = plan("--client-cpu-s", "0.000001")
    private = [e for e in broken["ranked"] if e["private"]]
    assert all(any("of processor time" in o for o in e["choice"]["objections"]) for e in private)
