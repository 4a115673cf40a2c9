"""Nodes with real servers and a front, without Ray: clients are sent to one node, which answers them alone, and to another when it is gone."""

import http.client
import json
import socket
import ssl
import sys
import textwrap
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from conftest import MODELS
from tacit import TacitError
from tacit.cluster._book import Book, Refused
from tacit.cluster._config import read
from tacit.cluster._front import MOST_GREETINGS, MOST_OF_ONE, Desk, FrontServer
from tacit.cluster._node import Node, Settings, access_rules, client_context, dealer_of, expected_wait, fingerprint
from tacit.cluster._placement import rendezvous

LEASE_S = 4.0
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def place(tmp_path_factory, cli):
    """A folder with keys for two clients and an operator, and the digits network."""
    folder = tmp_path_factory.mktemp("cluster")
    cli("keys", "init", "keys", "--client", "alice", "--client", "bob", cwd=folder)
    cli("keys", "add-client", "keys", "ops", "--operator", cwd=folder)
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit", cwd=folder)
    cli("model", "lower", "digits.tacit", cwd=folder)
    return folder


@pytest.fixture
def running(place, binary):
    @contextmanager
    def run(place, desk, name):
        with node_of(place, desk, name, binary) as node:
            yield node

    return run


@contextmanager
def node_of(place, desk, name, binary):
    settings = Settings(
        name, "127.0.0.1", place / "keys", "ops", (place / "digits.tacit",), place / name, program=str(binary), lease_s=LEASE_S,
        arguments=("--no-warm-up",),
    )  # fmt: skip
    node = Node(settings, desk)
    thread = threading.Thread(target=node.run)
    thread.start()
    try:
        yield node
    finally:
        node.kill()
        thread.join()


@contextmanager
def fronted(place, desk):
    front = FrontServer(desk, place / "keys", ("127.0.0.1", 0))
    thread = threading.Thread(target=front.serve_forever)
    thread.start()
    try:
        yield front.server_address[1]
    finally:
        front.shutdown()
        thread.join()
        front.server_close()


def asks(place, port, client, body=b'{"model": "digits"}', path="/v1/place"):
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=client_context(place / "keys", client))
    try:
        connection.request("POST", path, body=body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        connection.close()


def infers(cli, place, client, address, ok=True):
    options = ["--server", address, "--keys", "keys", "--client", client, "--material", f"{client}-material"]
    return cli("infer", MODELS / "digit.npy", *options, cwd=place, ok=ok)


def until(what):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_client_is_answered_by_its_node_alone_and_by_another_when_that_is_gone(place, cli, running):
    desk = Desk(Book(lease_s=LEASE_S))
    with fronted(place, desk) as port, running(place, desk, "one") as one, running(place, desk, "two") as two:
        until(lambda: all(node["models"] for node in desk.shown()["nodes"]))
        nodes = {"one": one, "two": two}
        code, ticket, _ = asks(place, port, "alice")
        assert (code, ticket["address"]) == (200, nodes[ticket["node"]].address)
        assert "class 5" in infers(cli, place, "alice", ticket["address"]).stdout
        other = next(name for name in nodes if name != ticket["node"])
        assert "revoked" in infers(cli, place, "alice", nodes[other].address, ok=False).stderr
        material = ["--server", ticket["address"], "--keys", "keys", "--client", "alice", "--material", "alice-material"]
        cli("prepare", *material, "--count", 2, cwd=place)
        until(lambda: any(node["stock"] == 2 for node in desk.shown()["nodes"]))
        assert asks(place, port, "alice")[1] == ticket, "who is somewhere stays"
        # The node's process hangs: its watch ends the server with the lease, and the client is sent elsewhere after that.
        home = nodes[ticket["node"]]
        home._over.set()
        assert home._process.wait(timeout=PATIENCE_S) != 0
        code, moved, _ = until(lambda: (a := asks(place, port, "alice"))[1].get("node") == other and a)
        assert (code, moved["address"]) == (200, nodes[other].address)
        assert {"node": ticket["node"], "clients": 1, "stock": 2} in desk.shown()["lost"]
        assert "class 5" in infers(cli, place, "alice", moved["address"]).stdout


def test_a_server_goes_with_its_watch(place, running):
    desk = Desk(Book(lease_s=LEASE_S))
    with running(place, desk, "three") as node:
        node._over.set()
        node._process.kill()
        host, _, port = node.address.rpartition(":")

        def refused():
            with suppress(ConnectionRefusedError), socket.create_connection((host, int(port)), timeout=5):
                return False
            return True

        until(refused)


def test_what_the_front_refuses(place):
    desk = Desk(Book(lease_s=LEASE_S), banned=[fingerprint(place / "keys" / "bob.pem")])
    with fronted(place, desk) as port:
        code, said, headers = asks(place, port, "alice")
        assert (code, headers["Retry-After"]) == (503, "4") and "no node serves digits" in said["error"]
        assert asks(place, port, "bob")[0] == 403
        for body in (b"", b"[]", b"{}", b'{"model": 1}', b'{"model": ""}', b"{", b"\xff"):
            assert asks(place, port, "alice", body)[0] == 400, body
        assert asks(place, port, "alice", b"x" * 5000)[0] == 413
        assert asks(place, port, "alice", path="/v1/status")[0] == 404
        stranger = ssl.create_default_context(cafile=str(place / "keys" / "ca.pem"))
        with closing(http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=stranger)) as connection:
            with pytest.raises((OSError, http.client.HTTPException)):
                connection.request("POST", "/v1/place", body=b'{"model": "digits"}')
                connection.getresponse()


class Listening:
    """Somebody at a port of this machine."""

    def __enter__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        return f"127.0.0.1:{self.socket.getsockname()[1]}"

    def __exit__(self, *_):
        self.socket.close()


def test_a_node_takes_the_first_dealer_of_its_order_that_it_reaches():
    with Listening() as one, Listening() as two:
        dealers = [f"{one} pin-one", f"{two} pin-two"]
        for name in ("a", "b", "c", "d"):
            assert dealer_of(name, dealers) == rendezvous(name, dealers)[0], "each node has an order of its own"
    assert len({rendezvous(f"n{k}", dealers)[0] for k in range(20)}) == 2
    with Listening() as three:
        gone = [*dealers, f"{three} pin-three"]
        assert all(dealer_of(f"n{k}", gone) == gone[2] for k in range(6)), "two of three are gone"
    assert dealer_of("a", []) == "" and dealer_of("a", gone) == rendezvous("a", gone)[0]


def test_rules_admit_those_who_were_sent_and_nobody_else():
    rules = access_rules("0p", ["b", "a"], 7)
    assert rules.index("[client.0p]") < rules.index("[client.a]") < rules.index("[client.b]")
    assert rules.startswith("[default]\nrevoked = true\nqueries_per_day = 7\n") and rules.count("revoked = false") == 3


def test_the_expected_wait_is_the_work_over_the_cores():
    profile = [{"model": "m", "backend": "cheetah", "phase": phase, "expected_s": s} for phase, s in (("offline", 4.0), ("online", 1.0))]
    status = {
        "profile": profile,
        "queues": {"pre": 2, "waiting": 1, "ready": 1},
        "jobs": [{"phase": "offline", "started_s": 8.0}, {"phase": "online", "started_s": 1.0, "ended_s": 2.0}],
        "uptime_s": 10.0,
        "capacity": {"cores": 2},
    }
    assert expected_wait(status) == (2 * 5.0 + 2 * 1.0 + 2.0) / 2
    assert expected_wait(status | {"profile": [], "queues": {"pre": 0, "waiting": 0, "ready": 0}, "jobs": []}) == 0.0


def test_a_place_is_not_waited_for_without_end(place):
    book = Book(lease_s=LEASE_S)
    now = [0.0]
    desk = Desk(book, clock=lambda: now[0])
    desk.join("silent", "nowhere:1")
    book.nodes["silent"].report.models = {"digits": ("cheetah",)}
    with pytest.raises(Refused, match="just been started"):
        desk.place("alice", "digits", patience_s=0.1)
    assert not book.homes, "nodes of an earlier front may still serve"
    now[0] = LEASE_S
    desk.join("silent", "nowhere:1")
    book.nodes["silent"].report.models = {"digits": ("cheetah",)}
    with pytest.raises(Refused, match="has not admitted"):
        desk.place("alice", "digits", patience_s=0.1)


def test_strangers_keep_no_client_out_and_no_client_another(place):
    desk = Desk(Book(lease_s=0.1))
    with fronted(place, desk) as port, ExitStack() as open_ones:
        for _ in range(MOST_GREETINGS + 20):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
        assert asks(place, port, "alice")[0] == 503, "she has got through"
        context = client_context(place / "keys", "alice")
        for _ in range(MOST_OF_ONE):
            connection = open_ones.enter_context(closing(http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=context)))
            connection.request("POST", "/v1/place", body=b'{"model": "digits"}')
            assert connection.getresponse().read()
        with pytest.raises((OSError, http.client.HTTPException)):
            asks(place, port, "alice")
        assert asks(place, port, "bob")[0] == 503, "he has got through"
    until(lambda: threading.active_count() < MOST_OF_ONE)


NEEDED = 'keys = "k"\nmodels = ["m"]\nfolder = "f"\n'


def test_the_configuration_is_read(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(NEEDED + 'memory_mib = 500\nfront = "[::1]:7900"\narguments = ["--no-warm-up"]\n')
    config = read(file)
    assert config.front_address() == ("::1", 7900)
    settings = config.settings("two", "10.0.0.2")
    assert settings.folder == Path("f/two") and settings.arguments == ("--job-memory", "500", "--no-warm-up")
    file.write_text(NEEDED + 'server_name = "tacit-node"\ndealers = ["a:1 p", "b:2 q"]\n')
    settings = read(file).settings("two", "10.0.0.2")
    assert (settings.server_name, settings.dealers) == ("tacit-node", ("a:1 p", "b:2 q"))


def test_the_example_for_kubernetes_has_a_configuration_that_is_read(tmp_path):
    text = (MODELS.parent / "examples/kuberay/tacit.yaml").read_text()
    block = text.split("cluster.toml: |\n", 1)[1].split("\n---", 1)[0]
    file = tmp_path / "cluster.toml"
    file.write_text(textwrap.dedent(block))
    config = read(file)
    # What it names is what the manifest mounts.
    for path in (config.keys, *config.models, config.folder):
        assert f"mountPath: {path}" in text or f"mountPath: {Path(path).parent}" in text, path
    assert f"containerPort: {config.front_address()[1]}" in text and f'num-cpus: "{config.cores}"' in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "keys is missing"),
        (NEEDED + "speed = 1\n", "speed is not known"),
        (NEEDED + "cores = 0\n", "cores = 0 is too small"),
        (NEEDED + "cores = true\n", "of the wrong kind"),
        (NEEDED + 'lease_s = "5"\n', "of the wrong kind"),
        (NEEDED + "banned = [1]\n", "a list of texts"),
        (NEEDED + 'front = "here"\n', "HOST:PORT"),
        (NEEDED + 'dealers = ["a:1"]\n', "a dealer is"),
        (NEEDED + 'dealers = ["a p"]\n', "a dealer is"),
        ("keys = ", "cluster.toml"),
    ],
)
def test_a_wrong_configuration_is_said(tmp_path, text, what):
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    with pytest.raises(TacitError, match=what):
        read(file)


def test_the_command_says_what_it_lacks(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_PYTHON", sys.executable)
    (tmp_path / "cluster.toml").write_text("cores = 1\n")
    assert "keys is missing" in cli("cluster", "up", "cluster.toml", cwd=tmp_path, ok=False).stderr
    assert "HOST:PORT" in cli("cluster", "place", "net", "--front", "here", "--keys", "keys", cwd=tmp_path, ok=False).stderr
    assert "Not built" in cli("cluster", "--help", cwd=tmp_path).stdout
