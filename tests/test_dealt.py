"""The back end with a dealer, as its users meet it: Python, the benchmark, and three programs."""

import json
import subprocess

import numpy as np
import pytest

import tacit
from conftest import MODELS
from test_bench import check_report


def test_a_dealer_a_server_and_a_client_in_one_process(digits, digit_images):
    with (
        tacit.dealer() as dealer,
        tacit.serve(digits, backend="dealt", keys=dealer.keys, dealer=dealer) as server,
        server.client(backend="dealt") as client,
    ):
        reference = digits.lower("dealt").reference
        client.prepare(2)
        for image in digit_images[:3]:
            assert client.infer(image).argmax() == reference(image).argmax()


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


def test_the_benchmark_starts_a_dealer(digits, digit_images):
    report = tacit.bench(digits, digit_images[0], backend="dealt")
    check_report(report, 1, backend="dealt")
    assert report["runs"][0]["material_bytes"]["client"] == 16


def test_the_command_line_with_three_programs(cli, binary, tmp_path):
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=tmp_path)
    cli("model", "lower", "digits.tacit", "--backend", "dealt", cwd=tmp_path)
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    pin = json.loads(cli("keys", "add-dealer", "keys", "--json", cwd=tmp_path).stdout)["dealer"]

    def start(*arguments):
        process = subprocess.Popen(
            [binary, *arguments, "--listen", "127.0.0.1:0", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())["listening"]

    dealer, dealing = start("dealer", "--keys", "keys")
    with dealer:
        serve = ["serve", "digits.tacit", "--keys", "keys", "--material", "server-material", "--backend", "dealt"]
        server, serving = start(*serve, "--dealer", dealing, "--dealer-pin", pin)
        with server:
            ask = ["--keys", "keys", "--client", "alice", "--backend", "dealt", "--server", serving]
            trusting = [*ask, "--dealer", dealing, "--dealer-pin", pin]
            cli("prepare", "--count", 1, *trusting, cwd=tmp_path)
            first = json.loads(cli("infer", MODELS / "digit.npy", *trusting, "--json", cwd=tmp_path).stdout)
            # Stored material needs no dealer; new material does.
            again = cli("infer", MODELS / "digit.npy", *ask, cwd=tmp_path, ok=False)
            assert "--dealer" in again.stderr
            assert np.argmax(json.loads(json.dumps(first))["results"][0]["values"]) >= 0
            server.terminate()
        dealer.terminate()
    # A model that needs a dealer is not served without one.
    refused = cli(*serve, "--listen", "127.0.0.1:0", cwd=tmp_path, ok=False)
    assert "--dealer" in refused.stderr
