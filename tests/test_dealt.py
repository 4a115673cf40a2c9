"""The back ends with a dealer, as their users meet them: Python, the benchmark, and three programs."""

import json
import subprocess
from contextlib import ExitStack

import numpy as np
import pytest

import tacit
from conftest import MODELS
from test_bench import check_report


@pytest.mark.parametrize("backend", ["dealt", "fss"])
def test_a_dealer_a_server_and_a_client_in_one_process(digits, digit_images, backend):
    with (
        tacit.dealer() as dealer,
        tacit.serve(digits, backend=backend, keys=dealer.keys, dealer=dealer) as server,
        server.client(backend=backend) as client,
    ):
        reference = digits.lower(backend).reference
        client.prepare(2)
        for image in digit_images[:3]:
            assert client.infer(image).argmax() == reference(image).argmax()


@pytest.mark.parametrize("backend", ["dealt", "fss"])
def test_inputs_of_a_call_are_run_as_one(digits, digit_images, backend):
    with (
        tacit.dealer() as dealer,
        tacit.serve(digits, backend=backend, keys=dealer.keys, dealer=dealer) as server,
        server.client(backend=backend) as client,
    ):
        answers = client.infer(digit_images[:3])
        assert np.array_equal(answers.argmax(1), digits.lower(backend).reference(digit_images[:3]).argmax(1))
        assert [cost.inputs for cost in client.costs if cost.phase == "online"] == [3]


def test_a_dealer_is_never_taken_unasked_or_unpinned(digits, digit_images):
    with (
        tacit.dealer() as dealer,
        tacit.serve(digits, backend="dealt", keys=dealer.keys, dealer=dealer) as server,
    ):
        with pytest.raises(tacit.TacitError, match="trusts a dealer"):
            server.client()
        with server.client(backend="dealt", dealer=None) as client, pytest.raises(tacit.TacitError, match="--dealer"):
            client.infer(digit_images[0])
        with (
            server.client(backend="dealt", dealer=(dealer.address, "00" * 32)) as client,
            pytest.raises(tacit.TacitError, match="agreed on"),
        ):
            client.infer(digit_images[0])


@pytest.mark.parametrize("backend", ["dealt", "fss"])
def test_the_benchmark_starts_a_dealer(digits, digit_images, backend):
    report = tacit.bench(digits, digit_images[0], backend=backend)
    check_report(report, 1, backend=backend)
    # A seed, or correction words too.
    client = report["runs"][0]["material_bytes"]["client"]
    assert client == 16 if backend == "dealt" else client > 1000


def test_the_command_line_with_three_programs(cli, binary, digits, tmp_path):
    wanted = digits.run(np.load(MODELS / "digit.npy")).argmax()
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=tmp_path)
    cli("model", "lower", "digits.tacit", "--backend", "dealt", cwd=tmp_path)
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    # The dealer has a CA of its own.
    cli("keys", "init", "dealing", "--client", "alice", cwd=tmp_path)
    pin = json.loads(cli("keys", "add-dealer", "dealing", "--json", cwd=tmp_path).stdout)["dealer"]

    with ExitStack() as programs:

        def start(*arguments):
            process = subprocess.Popen(
                [binary, *arguments, "--listen", "127.0.0.1:0", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
            )
            programs.enter_context(process)
            programs.callback(process.kill)
            assert process.stdout is not None
            return json.loads(process.stdout.readline())["listening"]

        dealing = start("dealer", "--keys", "dealing")
        serve = ["serve", "digits.tacit", "--keys", "keys", "--material", "server-material", "--backend", "dealt"]
        serving = start(*serve, "--dealer", dealing, "--dealer-pin", pin, "--dealer-keys", "dealing")
        ask = ["--keys", "keys", "--client", "alice", "--backend", "dealt", "--server", serving]
        trusting = [*ask, "--dealer", dealing, "--dealer-pin", pin, "--dealer-keys", "dealing"]
        cli("prepare", "--count", 1, *trusting, cwd=tmp_path)
        # Stored material is there, but whom the client trusts is asked first.
        again = cli("infer", MODELS / "digit.npy", *ask, cwd=tmp_path, ok=False)
        assert "--dealer" in again.stderr
        for _ in range(2):
            answer = json.loads(cli("infer", MODELS / "digit.npy", *trusting, "--json", cwd=tmp_path).stdout)
            assert answer["class"] == wanted
    # A model that needs a dealer is not served without one.
    refused = cli(*serve, "--listen", "127.0.0.1:0", cwd=tmp_path, ok=False)
    assert "--dealer" in refused.stderr
