"""Ctrl-C ends every native call, and the ledger is right afterwards.

Each call here would take minutes, or never end: that `KeyboardInterrupt` comes at all is what shows that it was interrupted.
"""

import os
import signal
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tacit
from nets import Net, node, weights
from tacit import ckks
from test_ckks import SMALL
from test_cli import serving


@pytest.fixture(autouse=True)
def heard():
    """Ctrl-C is heard, also where whoever started the tests has it ignored (a shell's background jobs)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted(after_s=0.5):
    """Sends this process what Ctrl-C sends, a moment after the block begins; the block must end by it."""
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        yield


@pytest.fixture(scope="module")
def slow() -> Net:
    """10^10 multiplications."""
    return Net("slow", (512, 64, 64), [node("Conv", "x w", "y", pads=[1, 1, 1, 1])], {"w": weights(512, 512, 3, 3)})


@pytest.fixture(scope="module")
def slow_model(slow) -> tacit.Model:
    return tacit.import_onnx(slow.to_bytes(), calibrate=slow.samples(1))


def children():
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def test_import_is_interrupted(slow):
    samples = slow.samples(16)
    with interrupted():
        tacit.import_onnx(slow.to_bytes(), calibrate=samples)


def test_lowering_is_interrupted_wherever_it_happens(slow_model):
    with interrupted():
        slow_model.lower()
    with interrupted():
        tacit.serve(slow_model)


def test_connecting_to_a_silent_server_is_interrupted(tmp_path):
    tacit.make_keys(tmp_path / "keys")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with interrupted():
            tacit.Client(f"127.0.0.1:{silent.getsockname()[1]}", keys=tmp_path / "keys", store=tmp_path / "store")
        with interrupted():
            tacit.notify(f"127.0.0.1:{silent.getsockname()[1]}", keys=tmp_path / "keys")
        assert not list((tmp_path / "store").glob("*.material"))


def test_waiting_for_a_turn_is_interrupted(binary, digits, tmp_path):
    digits.save(tmp_path / "digits.tacit")
    tacit.make_keys(tmp_path / "keys")
    with serving(binary, tmp_path) as address:
        notice = tacit.notify(address, keys=tmp_path / "keys")
        assert notice.wait_for_turn(3600)
        [server] = map(int, children())
        # It hears nothing any more, and no turn is told.
        os.kill(server, signal.SIGSTOP)
        try:
            with interrupted():
                notice.wait_for_turn(3600)
        finally:
            os.kill(server, signal.SIGCONT)


def test_making_keys_is_interrupted():
    context = ckks.Context(SMALL)
    rotations = [context.rotation_key(steps, 4) for steps in range(1, 300)]
    with interrupted(0.05):
        context.secret().keys(*rotations)


def test_bench_is_interrupted_and_leaves_no_process(digits, digit_images):
    with interrupted(2):
        tacit.bench(digits, digit_images[0], runs=1_000_000)
    assert not children()


@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.5, 0.7])
def test_the_ledger_is_right_after_an_interruption(digits, digit_images, tmp_path, after_s):
    with tacit.serve(digits, store=tmp_path / "server") as server:
        client = server.client(store=tmp_path / "client")
        client.prepare(1)
        with interrupted(after_s):
            client.prepare(1_000_000)
        client.close()
        with server.client(store=tmp_path / "client") as client:
            ready = client.ready
            assert ready >= 1
        client = server.client(store=tmp_path / "client")
        with interrupted(after_s):
            while True:
                client.infer(digit_images[0])
        client.close()
        # What is listed as ready can all be used, once.
        with server.client(store=tmp_path / "client") as client:
            left = client.ready
            assert left < ready
            for index in range(left):
                answer = client.infer(digit_images[index])
                assert answer.argmax() == digits.reference(digit_images[index]).argmax()
            assert [cost.phase for cost in client.costs] == ["online"] * left
            assert client.ready == 0


def test_an_interrupted_client_says_so_and_a_new_one_goes_on(tmp_path):
    """One offline phase takes long enough here to be interrupted within."""
    shapes = {"a": (32, 3, 3, 3), "b": (32, 32, 3, 3), "c": (32, 32, 3, 3), "d": (2, 32, 1, 1)}
    nodes = [
        node("Conv", "x a", "a1", pads=[1, 1, 1, 1]),
        node("Relu", "a1", "a2"),
        node("Conv", "a2 b", "b1", pads=[1, 1, 1, 1]),
        node("Relu", "b1", "b2"),
        node("Conv", "b2 c", "c1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "c2"),
        node("Conv", "c2 d", "d1"),
        node("GlobalAveragePool", "d1", "e"),
        node("Flatten", "e", "y"),
    ]
    wide = Net("wide", (3, 64, 64), nodes, {name: weights(*shape) for name, shape in shapes.items()})
    model = tacit.import_onnx(wide.to_bytes(), calibrate=wide.samples(2))
    with tacit.serve(model, store=tmp_path / "server") as server:
        client = server.client(store=tmp_path / "client")
        client.setup()
        with interrupted(0.1):
            client.prepare()
        for call in (client.prepare, lambda: client.infer(wide.samples(1)[0]), lambda: client.ready):
            with pytest.raises(tacit.TacitError, match="interrupted; open a new one"):
                call()
        client.close()
        client.close()
        with server.client(store=tmp_path / "client") as client:
            assert client.ready == 0
            answer = client.infer(wide.samples(1)[0])
            assert [cost.phase for cost in client.costs] == ["setup", "offline", "online"]
        assert np.abs(answer - model.reference(wide.samples(1)[0])).max() < 0.05


def test_threads_other_than_the_main_one_finish_their_calls(digits, digit_images):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(digits.lower(frac_bits=11).reference(digit_images[0])))
    thread.start()
    thread.join()
    assert np.shape(answers[0]) == (10,)
