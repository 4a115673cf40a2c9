"""Private runs through the Python API: a real server, mutual TLS, one or many clients."""

import asyncio
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import tacit


@pytest.fixture(scope="module")
def server(digits):
    with tacit.serve(digits) as server:
        yield server


def assert_close(model, answers, images):
    """Private answers equal the fixed-point reference up to truncation errors, and keep the class."""
    wanted = model.reference(images)
    assert answers.shape == wanted.shape
    assert np.abs(answers - wanted).max() <= 0.05 * np.ptp(wanted)
    assert np.array_equal(answers.argmax(1), wanted.argmax(1))


def test_private_answers_follow_the_reference(server, digits, digit_images):
    with server.client() as client:
        assert (client.digest, client.public_digest) == (digits.lower().digest, digits.lower().public_digest)
        assert client.backend == "cheetah"
        assert client.input_shape == (1, 8, 8)
        assert_close(digits, client.infer(digit_images[:4]), digit_images[:4])
        single = client.infer(digit_images[0])
        assert single.shape == (10,)


def test_the_client_gets_no_weights(server, digits):
    with server.client() as client:
        assert client.spec == digits.spec
        public = client.describe()
        assert public == digits.lower().describe()
        assert not {"layers", "weights", "calibration"} & (client.spec.keys() | public.keys())


def test_prepared_material_is_used_once(server, digit_images):
    with server.client() as client:
        client.prepare(2)
        assert client.ready == 2
        client.infer(digit_images[:2])
        assert client.ready == 0
        phases = [cost.phase for cost in client.costs]
        assert phases == ["setup", "offline", "offline", "online", "online"]
        client.infer(digit_images[0])
        assert [cost.phase for cost in client.costs][-2:] == ["offline", "online"]


def test_what_is_not_used_goes_with_a_client_that_has_no_folder(digits, tmp_path):
    store = tmp_path / "store"
    with tacit.serve(digits, store=store) as server:
        with server.client() as client:
            client.prepare(2)
            assert len(list(store.glob("*.material"))) == 2
        assert not list(store.glob("*.material"))
        with server.client(store=tmp_path / "kept") as client:
            client.prepare(1)
        assert len(list(store.glob("*.material"))) == 1, "this one comes back for it"


def test_costs_are_those_of_both_parties(server, digit_images):
    with server.client() as client:
        client.infer(digit_images[0])
        setup, offline, online = client.costs
        assert offline.material_bytes is not None
        assert min(offline.material_bytes) > 0
        for cost in (setup, offline, online):
            assert cost.client.sent_bytes == cost.server.received_bytes > 0
            assert cost.server.sent_bytes == cost.client.received_bytes > 0
            assert cost.client.rounds > 0
            assert cost.client.wall_s > 0
            assert cost.client.peak_rss_bytes > 0
        assert online.client.sent_bytes + online.client.received_bytes < offline.client.sent_bytes


def test_material_survives_a_new_connection(server, digit_images, digits, tmp_path):
    with server.client(store=tmp_path) as client:
        client.prepare(1)
    with server.client(store=tmp_path) as client:
        assert client.ready == 1
        assert_close(digits, client.infer(digit_images[:1]), digit_images[:1])
        assert client.ready == 0
        assert [cost.phase for cost in client.costs] == ["online"]


def test_copied_material_is_refused(server, digit_images, tmp_path):
    with server.client(store=tmp_path / "a") as client:
        client.prepare(1)
        copies = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
        client.infer(digit_images[0])
    # Puts the client's files back as they were: the server has burnt its half and says no.
    for path, content in copies.items():
        path.write_bytes(content)
    with server.client(store=tmp_path / "a") as client:
        assert client.ready == 0
        assert client.infer(digit_images[0]).shape == (10,)
        assert client.costs[-2].phase == "offline", "new material was made"


def test_integers_are_off_by_few_units(server, digits, digit_images):
    with server.client() as client:
        ours, wanted = client.infer_integers(digit_images[0]), digits.reference_integers(digit_images[0])
        assert client.output_unit == digits.lower().output_unit
    assert ours.dtype == np.int64
    assert np.abs(ours - wanted).max() <= digits.lower().error_bound(digits.reference(digit_images[0])) / client.output_unit


def test_several_clients_at_once(server, digits, digit_images):
    def work(number):
        images = digit_images[2 * number : 2 * number + 2]
        with server.client() as client:
            return images, client.infer(images)

    with ThreadPoolExecutor(4) as pool:
        for images, answers in pool.map(work, range(4)):
            assert_close(digits, answers, images)


def test_the_interpreter_runs_on_during_a_phase(server, digit_images):
    ticks = []
    during = 0
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    with server.client() as client:
        # On a busy machine the other thread may miss its turn for a while.
        for _ in range(50):
            start = time.monotonic()
            client.infer(digit_images[0])
            end = time.monotonic()
            during = max(during, sum(start < t < end for t in ticks))
            if during >= 3:
                break
    stop.set()
    thread.join()
    assert during >= 3


def test_top1_mode_gives_the_class_only(digit_images):
    model = tacit.import_onnx("models/digits.onnx", calibrate=digit_images[:32], output="top1")
    with tacit.serve(model) as server, server.client() as client:
        answers = client.infer(digit_images[:3])
        assert answers.shape == (3, 1)
        assert np.array_equal(answers[:, 0], model.reference(digit_images[:3])[:, 0])


def test_several_models_by_name(digits, digit_images):
    other = tacit.import_onnx("models/digits.onnx", calibrate=digit_images[:32], name="other")
    with tacit.serve({"first": digits, "second": other}) as server:
        with server.client(model="second") as client:
            assert client.digest == other.lower().digest
        with pytest.raises(tacit.TacitError, match=r"(?s)first.*second|second.*first"):
            server.client()
        with pytest.raises(tacit.TacitError, match="third"):
            server.client(model="third")
        with server.client(model="first") as client:
            assert client.infer(digit_images[0]).shape == (10,)


@pytest.mark.parametrize(
    "x",
    [np.full((1, 8, 8), np.nan), np.full((1, 8, 8), -np.inf), np.full((1, 8, 8), 1e9), np.zeros((1, 800, 800)), "x"],
    ids=["nan", "inf", "range", "oversized", "text"],
)
def test_a_bad_input_costs_no_material_and_no_connection(server, digit_images, x):
    with server.client() as client:
        client.prepare(1)
        with pytest.raises(tacit.TacitError):
            client.infer(x)
        assert client.ready == 1
        assert client.infer(digit_images[0]).shape == (10,)


def test_a_stranger_is_refused(server, tmp_path):
    tacit.make_keys(tmp_path / "other")
    with pytest.raises(tacit.TacitError):
        tacit.Client(server.address, keys=tmp_path / "other")


def test_missing_keys_and_servers_are_named(server, tmp_path):
    with pytest.raises(tacit.TacitError, match="nokeys"):
        tacit.Client(server.address, keys=tmp_path / "nokeys")
    with pytest.raises(tacit.TacitError, match="127.0.0.1:1"):
        tacit.Client("127.0.0.1:1", keys=server.keys)
    with pytest.raises(tacit.TacitError, match="threads"):
        tacit.Client(server.address, keys=server.keys, threads=0)


def test_a_closed_client_says_so(server, digit_images):
    client = server.client()
    client.close()
    client.close()
    with pytest.raises(tacit.TacitError, match="closed"):
        client.infer(digit_images[0])


def test_a_server_that_goes_away_is_an_error(digits, digit_images):
    server = tacit.serve(digits)
    client = server.client()
    client.infer(digit_images[0])
    server.stop(0.1)
    server.stop()
    with pytest.raises(tacit.TacitError):
        client.infer(digit_images[0])
    client.close()


def test_server_options_that_are_wrong_are_errors(digits, tmp_path):
    with pytest.raises(tacit.TacitError, match="nonsense"):
        tacit.serve(digits, listen="nonsense")
    with pytest.raises(tacit.TacitError, match="model"):
        tacit.serve({})
    with pytest.raises(tacit.TacitError, match="empty"):
        tacit.serve(digits, keys=tmp_path / "empty")
    with pytest.raises(tacit.TacitError, match="lowered"):
        tacit.serve(digits.lower(), backend="clear", allow_clear=True)
    with pytest.raises(tacit.TacitError, match="options"):
        tacit.serve(digits, backend=["cheetah", "clear"], options={"frac_bits": 12}, allow_clear=True)
    with pytest.raises(tacit.TacitError):
        tacit.make_keys(tmp_path / "keys", clients=["../evil"])


def test_garbage_and_silence_leave_the_others_alone(server, digits, digit_images):
    host, port = server.address.rsplit(":", 1)
    silent = socket.create_connection((host, int(port)))
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40, b"\x16\x03\x01\xff\xff" + b"\0" * 1000):
        with socket.create_connection((host, int(port))) as noise:
            noise.sendall(garbage)
    with server.client() as client:
        assert_close(digits, client.infer(digit_images[:1]), digit_images[:1])
    silent.close()


def test_an_announced_input_has_its_material_made_before(server, digits, digit_images):
    with server.client() as client:
        notice = client.notify(expected_s=1.0)
        for _ in range(600):
            if notice.settled:
                break
            time.sleep(0.05)
        assert notice.settled
        assert_close(digits, client.infer(digit_images[:1], notice=notice, deadline="interactive"), digit_images[:1])
        assert [cost.phase for cost in client.costs][-2:] == ["offline", "online"]
        with pytest.raises(tacit.TacitError, match="used or withdrawn"):
            client.infer(digit_images[0], notice=notice)
        unused = client.notify()
        unused.withdraw()
        with pytest.raises(tacit.TacitError, match="used or withdrawn"):
            client.infer(digit_images[0], notice=unused)
        for wrong in ({"deadline": "soon"}, {"timeout_s": -1.0}, {"timeout_s": float("nan")}):
            with pytest.raises(tacit.TacitError):
                client.infer(digit_images[0], **wrong)
        assert_close(digits, client.infer(digit_images[:1], timeout_s=600.0), digit_images[:1])


def test_an_input_is_announced_without_a_connection(server, digits, digit_images):
    notice = tacit.notify(server.address, keys=server.keys, model="digits", backend="cheetah", expected_s=1.0, ttl_s=600.0)
    assert len(notice.name) == 16 and notice.settled
    assert notice.wait_for_turn(600.0)
    with server.client() as client:
        assert_close(digits, client.infer(digit_images[:1], notice=notice), digit_images[:1])
        assert [cost.phase for cost in client.costs][-2:] == ["offline", "online"]
        with pytest.raises(tacit.TacitError, match="used or withdrawn"):
            notice.wait_for_turn(0.0)
    # A client that is closed announces in the same way, for the next one.
    again = client.notify(expected_s=1.0)
    assert again.name not in (None, notice.name)
    with server.client() as client:
        assert_close(digits, client.infer(digit_images[:1], notice=again), digit_images[:1])
        assert client.notify().name is None, "an open one has its own connection for it"
    unused = client.notify()
    unused.withdraw()
    for gone in (lambda: unused.wait_for_turn(), lambda: tacit.notify(server.address, keys=server.keys, model="none")):
        with pytest.raises(tacit.TacitError, match="used or withdrawn|no model `none`"):
            gone()


def runs(client):
    """Phases of a client with the inputs that each was run for, setups apart."""
    return [(cost.phase, cost.inputs) for cost in client.costs if cost.phase != "setup"]


def test_a_batch_is_announced_with_a_connection_and_without(server, digits, digit_images):
    over_http = tacit.notify(server.address, keys=server.keys, model="digits", backend="cheetah", inputs=3)
    assert over_http.inputs == 3
    with server.client() as client:
        assert_close(digits, client.infer(digit_images[:3], notice=over_http), digit_images[:3])
        # What is left of a batch is burnt with it.
        assert_close(digits, client.infer(digit_images[:2], notice=client.notify(inputs=3)), digit_images[:2])
        assert runs(client) == [("offline", 3), ("online", 3)] * 2
        with pytest.raises(tacit.TacitError, match="2 inputs, and 1 were announced"):
            client.infer(digit_images[:2], notice=client.notify())
        for wrong in (0, 1025):
            with pytest.raises(tacit.TacitError, match="inputs"):
                client.notify(inputs=wrong)


def test_a_small_device_takes_no_batches(server, digits, digit_images):
    with server.client(memory_mib=1) as client:
        assert_close(digits, client.infer(digit_images[:3]), digit_images[:3])
        assert [cost.inputs for cost in client.costs if cost.phase == "online"] == [1, 1, 1]
        assert client.notify(inputs=3).inputs == 1
    with pytest.raises(tacit.TacitError, match="memory_mib"):
        server.client(memory_mib=0)


def test_a_slow_link_has_more_time_to_connect(server, digits, digit_images):
    """A way to the server that says nothing for longer than a client on a fast link waits."""

    def late(listener: socket.socket) -> None:
        with listener.accept()[0] as near:
            time.sleep(11)
            host, port = server.address.rsplit(":", 1)
            with socket.create_connection((host, int(port))) as far:
                back = threading.Thread(target=passed_on, args=(far, near))
                back.start()
                passed_on(near, far)
                back.join()

    def passed_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = threading.Thread(target=late, args=(listener,))
        relay.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with tacit.Client(address, keys=server.keys, link="slow") as client:
            assert_close(digits, client.infer(digit_images[:1]), digit_images[:1])
        relay.join()
    with pytest.raises(tacit.TacitError, match="lan or broadband or slow"):
        server.client(link="moon")


def test_several_inputs_of_a_call_are_run_as_one(server, digits, digit_images):
    with server.client() as client:
        before = server.served
        assert_close(digits, client.infer(digit_images[:5]), digit_images[:5])
        assert runs(client) == [("offline", 5), ("online", 5)], "one T_pre and one T_on, which both parties measured"
        assert server.served == before + 5
        assert client.costs[-1].server.rounds > 0
    with server.client() as client:
        images = digit_images[:3]
        assert_close(digits, client.infer(images, max_batch=2), images)
        assert runs(client) == [("offline", 2), ("online", 2), ("offline", 1), ("online", 1)]
        assert_close(digits, client.infer(images, max_batch=1), images)
        assert runs(client)[4:] == [("offline", 1), ("online", 1)] * 3
        assert client.infer_integers(images).shape == (3, 10)
        assert runs(client)[10:] == [("offline", 3), ("online", 3)]
        assert_close(digits, asyncio.run(client.infer_async(images)), images)
        assert runs(client)[12:] == [("offline", 3), ("online", 3)]
        with pytest.raises(tacit.TacitError, match="max_batch"):
            client.infer(images, max_batch=0)


def test_material_of_a_batch_is_made_ahead(server, digits, digit_images):
    with server.client() as client:
        client.prepare(1)
        client.prepare(1, batch=3)
        assert_close(digits, client.infer(digit_images[:4]), digit_images[:4])
        assert runs(client) == [("offline", 1), ("offline", 3), ("online", 1), ("online", 3)], "single inputs first"
        with pytest.raises(tacit.TacitError, match="at least 1"):
            client.prepare(1, batch=0)


def test_progress_is_told_by_phase_from_begin_to_end(server, digit_images):
    told = []
    with server.client() as client:
        client.infer(digit_images[:2], progress=lambda phase, fraction: told.append((phase, fraction)))
        client.prepare(2, progress=lambda phase, fraction: told.append((phase, fraction)))
    ends = [step for step in told if step[1] in (0.0, 1.0)]
    phases = ["setup", "offline", "online", "offline", "offline"]
    assert ends == [(phase, end) for phase in phases for end in (0.0, 1.0)]
    for (phase, before), (after_phase, after) in zip(told, told[1:], strict=False):
        assert before == 1.0 or (phase == after_phase and before <= after <= 1.0)


def test_what_progress_raises_ends_the_call(server, digit_images):
    def enough(phase, fraction):
        raise KeyboardInterrupt

    with server.client() as client:
        with pytest.raises(KeyboardInterrupt):
            client.infer(np.repeat(digit_images[:1], 400, axis=0), progress=enough)
        with pytest.raises(tacit.TacitError, match="closed"):
            client.infer(digit_images[0])


def test_answers_can_be_awaited_and_given_up(server, digits, digit_images):
    async def several():
        with server.client() as one, server.client() as two:
            return await asyncio.gather(one.infer_async(digit_images[:2]), two.infer_async(digit_images[2:4]))

    first, second = asyncio.run(several())
    assert_close(digits, np.concatenate([first, second]), digit_images[:4])

    async def given_up(client):
        task = asyncio.create_task(client.infer_async(np.repeat(digit_images[:1], 400, axis=0)))
        await asyncio.sleep(0.2)
        task.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - start

    with server.client() as client:
        assert asyncio.run(given_up(client)) < 10, "it waited for all of them"
        with pytest.raises(tacit.TacitError, match="interrupted"):
            client.infer(digit_images[0])
    with server.client() as client:
        assert_close(digits, client.infer(digit_images[:1]), digit_images[:1])


def test_a_store_that_was_last_used_at_another_time_is_refused_unless_the_clock_is_said_to_be_right(digits, tmp_path):
    store = tmp_path / "store"
    with tacit.serve(digits, store=store):
        pass
    with sqlite3.connect(store / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE clock SET seen = seen - 31 * 86400")
    ledger.close()
    with pytest.raises(tacit.TacitError, match="31 days after"):
        tacit.serve(digits, store=store)
    with tacit.serve(digits, store=store, accept_clock=True) as server, server.client() as client:
        assert client.infer(np.zeros((1, 8, 8), np.float32)).shape == (10,)
    with tacit.serve(digits, store=store):
        pass
