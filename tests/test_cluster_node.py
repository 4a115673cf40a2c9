"""Nodes with real servers and a front, without Ray: clients are sent to one node, which answers them alone, and to another when it is gone."""

import http.client
import json
import re
import socket
import sqlite3
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from conftest import MODELS
from tacit import TacitError
from tacit.cluster._config import read
from tacit.cluster._front import Front, Refused, Report, client_context
from tacit.cluster._node import Node, Settings, access_rules, dealer_of, expected_wait, fingerprint, rendezvous
from tacit.cluster._place import Trusted
from tacit.cluster._place import place as told_place

LEASE_S = 4.0
PATIENCE_S = 60.0
# As docs/scale.md states them.
MOST_GREETINGS, MOST_OF_ONE = 128, 16


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
def fronted(place, binary):
    """Runs `tacit serve --front`; what comes is the operator's view of it, with its `port`."""

    @contextmanager
    def run(*options, lease_s=LEASE_S):
        command = [binary, "serve", "--front", "--keys", place / "keys", "--listen", "127.0.0.1:0", "--lease", lease_s, "--json", *options]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
            try:
                address = json.loads(process.stdout.readline())["listening"]
                front = reached(place, address)
                front.port, front.address, front.process = int(address.rpartition(":")[2]), address, process
                yield front
                front.close()
            finally:
                process.terminate()

    return run


def reached(place, address, client="ops"):
    return Front(address, client_context(place / "keys", client))


@pytest.fixture
def running(place, binary):
    @contextmanager
    def run(front, name):
        settings = Settings(
            name, "127.0.0.1", place / "keys", "ops", (place / "digits.tacit",), place / name, program=str(binary), lease_s=LEASE_S,
            arguments=("--no-warm-up",),
        )  # fmt: skip
        node = Node(settings, reached(place, front.address))
        thread = threading.Thread(target=node.run)
        thread.start()
        try:
            yield node
        finally:
            node.kill()
            thread.join()

    return run


def asks(place, port, client, body=b'{"model": "digits"}', path="/v1/place"):
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=client_context(place / "keys", client))
    try:
        connection.request("POST", path, body=body, headers={"Content-Type": "application/json"})
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


def test_a_client_is_answered_by_its_node_alone_and_by_another_when_that_is_gone(place, cli, running, fronted):
    with fronted() as front, running(front, "one") as one, running(front, "two") as two:
        until(lambda: len(nodes := front.nodes()["nodes"]) == 2 and all(node["models"] for node in nodes))
        nodes = {"one": one, "two": two}
        code, ticket, _ = asks(place, front.port, "alice")
        assert (code, ticket["address"]) == (200, nodes[ticket["node"]].address)
        assert "class 5" in infers(cli, place, "alice", ticket["address"]).stdout
        other = next(name for name in nodes if name != ticket["node"])
        assert "revoked" in infers(cli, place, "alice", nodes[other].address, ok=False).stderr
        material = ["--server", ticket["address"], "--keys", "keys", "--client", "alice", "--material", "alice-material"]
        cli("prepare", *material, "--count", 2, cwd=place)
        until(lambda: any(node["stock"] == 2 for node in front.nodes()["nodes"]))
        assert asks(place, front.port, "alice")[1] == ticket, "who is somewhere stays"
        # The node's process hangs: its watch ends the server with the lease, and the client is sent elsewhere after that.
        home = nodes[ticket["node"]]
        home._over.set()
        assert home._process.wait(timeout=PATIENCE_S) != 0
        code, moved, _ = until(lambda: (a := asks(place, front.port, "alice"))[1].get("node") == other and a)
        assert (code, moved["address"]) == (200, nodes[other].address)
        assert {"node": ticket["node"], "clients": 1, "stock": 2} in front.nodes()["lost"]
        assert "class 5" in infers(cli, place, "alice", moved["address"]).stdout
        # One that is stopped takes nobody new, and ends.
        nodes[other].stop()
        assert nodes[other]._process.wait(timeout=PATIENCE_S) == 0
        until(lambda: not front.nodes()["nodes"])


def test_a_server_goes_with_its_watch_and_with_its_front(place, running, fronted):
    def refused(node):
        host, _, port = node.address.rpartition(":")
        with suppress(ConnectionRefusedError), socket.create_connection((host, int(port)), timeout=5):
            return False
        return True

    with fronted() as front, running(front, "three") as node:
        node._over.set()
        node._process.kill()
        until(lambda: refused(node))
    with fronted() as front, running(front, "four") as node:
        # Before its first lease a node has that for starting, and admits nobody.
        until(lambda: [node for node in front.nodes()["nodes"] if node["models"]])
        front.process.kill()
        until(lambda: refused(node))
        assert node._process.wait(timeout=PATIENCE_S) != 0


def test_what_the_front_refuses(place, fronted):
    with fronted("--ban", fingerprint(place / "keys" / "bob.pem")) as front:
        code, said, headers = until(lambda: (a := asks(place, front.port, "alice"))[1]["error"] != "the front has just been started" and a)
        assert (code, headers["Retry-After"]) == (503, "4") and "no node serves digits" in said["error"]
        assert asks(place, front.port, "bob")[0] == 403
        for body in (b"", b"[]", b"{}", b'{"model": 1}', b'{"model": ""}', b"{", b"\xff", b'{"model": "a", "more": 1}', b'{"model": "a\\nb"}'):
            assert asks(place, front.port, "alice", body)[0] == 400, body
        assert asks(place, front.port, "alice", b"x" * 5000)[0] == 413
        assert asks(place, front.port, "alice", path="/v1/status")[0] == 404
        # What nodes say, operators alone may say.
        for what, body in (("join", b'{"address": "here:1"}'), ("leave", b'{"run": 1}'), ("end", b'{"run": 1}')):
            code, said, _ = asks(place, front.port, "alice", body, f"/v1/nodes/one/{what}")
            assert code == 403 and "operator" in said["error"]
        assert asks(place, front.port, "ops", b'{"address": ""}', "/v1/nodes/one/join")[0] == 400
        assert asks(place, front.port, "ops", b'{"run": 1, "report": {}}', "/v1/nodes/one/renew")[0] == 400
        stranger = ssl.create_default_context(cafile=str(place / "keys" / "ca.pem"))
        with closing(http.client.HTTPSConnection("localhost", front.port, timeout=PATIENCE_S, context=stranger)) as connection:
            with pytest.raises((OSError, http.client.HTTPException)):
                connection.request("POST", "/v1/place", body=b'{"model": "digits"}')
                connection.getresponse()


def test_a_front_that_is_started_anew_gives_nobody_a_new_quota(place, fronted, tmp_path):
    alice = fingerprint(place / "keys" / "alice.pem")
    options = ("--queries-per-day", 3, "--state", tmp_path / "state")
    with fronted(*options, lease_s=0.5) as front:
        run = front.join("one", "here:1")
        front.renew("one", run, Report(models={"digits": ("cheetah",)}, answered={alice: 2}))
    with fronted(*options, lease_s=0.5) as front:
        run = front.join("one", "here:1")
        front.renew("one", run, Report(models={"digits": ("cheetah",)}, answered={alice: 1}))
        # Nobody is placed for a lease after a start.
        time.sleep(0.6)
        code, said, _ = asks(place, front.port, "alice")
        assert code == 403 and "the 3 answers of the day are used up" in said["error"]


def test_a_front_whose_clock_has_jumped_does_not_start(place, fronted, binary, tmp_path):
    state = tmp_path / "state"
    options = ("--queries-per-day", 3, "--state", state)
    with fronted(*options):
        assert "party: front\n" in (state / ".tacit-folder").read_text()
    with sqlite3.connect(state / "front.sqlite") as counts:
        counts.execute("UPDATE clock SET seen = seen + 400 * 86400")
    counts.close()
    command = [binary, "serve", "--front", "--keys", "keys", "--listen", "127.0.0.1:0", *map(str, options)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60)
    # A day that is cut counts as none.
    assert done.returncode == 1 and re.search("(399|400) days before", done.stderr) and "--accept-clock" in done.stderr
    with fronted(*options, "--accept-clock"):
        pass
    with fronted(*options):
        pass


def test_leases_and_quotas_over_the_wire(place, fronted):
    alice = fingerprint(place / "keys" / "alice.pem")
    with fronted("--queries-per-day", 3, lease_s=2.0) as front:
        run = front.join("one/two", "here:1")
        with pytest.raises(Refused, match="still holds its lease") as refused:
            front.join("one/two", "here:2")
        assert 0 < refused.value.again_s <= 2.0
        report = Report(models={"digits": ("cheetah",)}, dealer="there:2 pin")
        assert front.renew("one/two", run, report) == (None, 0), "it goes by the empty list already"
        with pytest.raises(Refused, match="no lease in this run") as refused:
            front.renew("one/two", run + 1, report)
        assert refused.value.again_s is None
        admitted, told = 0, []
        asking = threading.Thread(target=lambda: told.append(asks(place, front.port, "alice")[1]))
        asking.start()
        # The client's answer comes when the node goes by a list with it.
        while asking.is_alive():
            report.admitted = admitted
            clients, admitted = front.renew("one/two", run, report)
            assert clients in (None, [], [alice])
            time.sleep(0.02)
        [ticket] = told
        assert ticket == {"node": "one/two", "run": str(run), "address": "here:1", "model": "digits", "dealer": "there:2", "dealer_pin": "pin"}
        report.answered = {alice: 3}
        front.renew("one/two", run, report)
        code, said, _ = asks(place, front.port, "alice")
        assert code == 403 and "used up" in said["error"]
        front.ended("one/two", run)
        assert front.nodes() == {"nodes": [], "lost": [{"node": "one/two", "clients": 1, "stock": 0}]}


RECORDS = """\
#!{python}
import json, pathlib, sys
pathlib.Path({file!r}).write_text(json.dumps(sys.argv[1:]))
"""


def words(command, option):
    return [word.partition("=")[2] for word in command if word.startswith(f"{option}=")]


@pytest.fixture
def asked(place, cli, fronted, tmp_path, monkeypatch):
    """Runs `tacit cluster infer` at a front whose only node says this of its dealer; the arguments that `tacit infer` gets, and what was said."""
    monkeypatch.setenv("TACIT_PYTHON", sys.executable)
    program, file = tmp_path / "program", tmp_path / "arguments"
    program.write_text(RECORDS.format(python=sys.executable, file=str(file)))
    program.chmod(0o755)

    def run(dealer, *options, serve=(), ok=True, before=()):
        file.unlink(missing_ok=True)
        # A lease of a front before this one, which places nobody, is over soon.
        with fronted(*serve, lease_s=1.0) as front:
            over = threading.Event()
            node = threading.Thread(target=stays, args=(front, dealer, over))
            node.start()
            try:
                call = [*before, "cluster", "infer", "digits", MODELS / "digit.npy", "--front", front.address, "--keys", "keys", "--client", "alice"]
                done = cli(*call, "--program", program, *options, cwd=place, ok=ok)
            finally:
                over.set()
                node.join()
        return json.loads(file.read_text()) if file.exists() else None, done.stderr

    return run


def stays(front, dealer, over):
    """A node that keeps its lease and admits everybody."""
    run, report = until(lambda: joined(front)), Report(models={"digits": ("cheetah", "dealt")}, dealer=dealer)
    while not over.wait(0.02):
        _, report.admitted = front.renew("one", run, report)


def joined(front):
    with suppress(Refused):
        return front.join("one", "127.0.0.1:1")


def test_the_front_chooses_among_the_dealers_of_the_client_and_adds_none(asked):
    trusted, other = "ab" * 32, "cd" * 32
    for pins in ([], ["--dealer-pin", trusted], ["--dealer-pin", trusted, "--dealer-pin", "ef" * 32]):
        command, said = asked(f"there:2 {other}", *pins, "--", "--client-work", "min")
        assert not [word for word in command if word.startswith("--dealer")], "a front's own dealer would read every input"
        assert "there:2" in said and other in said and "--dealer-pin" in said and "none is used" in said
    command, said = asked(f"there:2 {other}", "--dealer-pin", trusted, "--dealer-pin", other.upper(), "--dealer-keys", "mine")
    assert (words(command, "--dealer"), words(command, "--dealer-pin"), words(command, "--dealer-keys")) == (["there:2"], [other], ["mine"])
    assert "note" not in said
    command, said = asked("", "--dealer-pin", trusted)
    assert not [word for word in command if word.startswith("--dealer")] and "note" not in said


def test_a_server_name_is_the_clients_to_give(asked):
    command, said = asked("", serve=("--server-name", "elsewhere"), ok=False)
    assert command is None and "--server-name elsewhere" in said
    command, said = asked("", "--server-name", "localhost", serve=("--server-name", "localhost"))
    assert words(command, "--server-name") == ["localhost"]


def test_more_arguments_follow_two_dashes(asked, cli, place):
    more = ["--backend", "cheetah", "--phases"]
    command, _ = asked("", "--", *more)
    assert command[-3:] == more and str(MODELS / "digit.npy") in command and "--json" not in command
    command, _ = asked("", "--", *more, before=["--json"])
    assert command[-3:] == more and command.count("--json") == 1
    call = ["cluster", "infer", "digits", "x.npy", "--front", "localhost:1", "--keys", "keys"]
    for word in ("--dealer", "--dealer-pin=ab", "--server", "--dealer-keys"):
        assert "cannot follow --" in cli(*call, "--", word, "x", cwd=place, ok=False).stderr
    assert "64 hexadecimal digits" in cli(*call, "--dealer-pin", "ab", cwd=place, ok=False).stderr
    assert "--dealer-pin" in cli(*call, "--dealer-keys", "k", cwd=place, ok=False).stderr


TOLD = {"node": "one", "run": "1", "address": "here:1", "model": "m"}


@pytest.mark.parametrize(
    "told",
    [
        [], TOLD | {"address": 1}, TOLD | {"address": "--seal:1"}, TOLD | {"address": "here"}, TOLD | {"address": "a b:1"}, TOLD | {"node": "a\x1b[2J"},
        TOLD | {"run": None}, TOLD | {"node": "x" * 2000}, TOLD | {"dealer": "there:2"}, TOLD | {"dealer": "--there:2", "dealer_pin": "ab" * 32},
        TOLD | {"dealer": {}, "dealer_pin": "ab" * 32}, TOLD | {"dealer": "there:2", "dealer_pin": ["ab" * 32]}, TOLD | {"server_name": 1},
    ],
)  # fmt: skip
def test_a_fronts_nonsense_is_refused(told):
    with pytest.raises(TacitError, match="the front"):
        told_place(told, Trusted(frozenset({"ab" * 32}), "1"))


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


def test_strangers_keep_no_client_out_and_no_client_another(place, fronted):
    with fronted(lease_s=0.1) as front, ExitStack() as open_ones:
        for _ in range(MOST_GREETINGS + 20):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", front.port), timeout=PATIENCE_S))
        assert asks(place, front.port, "alice")[0] == 503, "she has got through"
        kept = [open_ones.enter_context(closing(reached(place, front.address, "alice"))) for _ in range(MOST_OF_ONE)]
        for connection in kept:
            with pytest.raises(Refused, match="no node"):
                connection.place("digits")
        code, said, _ = asks(place, front.port, "alice")
        assert code == 503 and "as many connections" in said["error"]
        assert "no node" in asks(place, front.port, "bob")[1]["error"], "he has got through"
        kept[0].close()
        until(lambda: "no node" in asks(place, front.port, "alice")[1]["error"])


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
