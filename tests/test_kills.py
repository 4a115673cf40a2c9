"""Client and server are killed (SIGKILL) in the middle of a batch, after so many bytes of it: what they have then, and what they use."""

import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

import abused
from abuse_kills import in_step, settle
from abused import Place, Server

INPUTS = 3
# Parts of the bytes of a call at which somebody is killed: in the setup, offline, between the phases, online, at the end.
MOMENTS = [0.02, 0.2, 0.5, 0.8, 0.93, 0.97, 0.995]


class Relay:
    """Carries connections to a server and counts their bytes; when there are `most`, `act` is called, once."""

    def __init__(self, peer: tuple[str, int], most: int | None, act: Callable[[], None]):
        self.peer, self.most, self.act, self.count = peer, most, act, 0
        self.lock, self.sockets, self.threads = threading.Lock(), [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start(self.accept)

    def start(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        self.threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self.threads[-1].start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                self.sockets.append(near)
                far = socket.create_connection(self.peer)
                self.sockets.append(far)
                self.start(self.carry, near, far)
                self.start(self.carry, far, near)

    def close(self) -> None:
        """When the client has ended."""
        with suppress(OSError):
            # Closing it alone does not wake who waits for a connection.
            self.listener.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for one in [*self.sockets, self.listener]:
            one.close()

    def carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1024):
                with self.lock:
                    self.count += len(piece)
                    if self.most is not None and self.count >= self.most:
                        self.most = None
                        self.act()
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def asking(place: Place, server: Server, most: int | None, victim: str | None) -> Iterator[Relay]:
    """A client that has a batch answered, until it has ended, and what carries its bytes."""
    processes = []

    def act() -> None:
        process = server.process if victim == "server" else processes[0]
        process.send_signal(signal.SIGKILL)
        process.wait()

    relay = Relay(server.peer, most, act)
    command = [abused.TACIT, "infer", *[place.digit] * INPUTS, "--server", relay.address, "--keys", "keys", "--material", "client-material"]
    with relay.lock:
        client = subprocess.Popen(command, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        processes.append(client)
    error = client.communicate(timeout=abused.PATIENCE_S)[1]
    assert b"panicked" not in error, error
    relay.close()
    # Runs differ by some bytes, and a server that is killed at the very end may have answered already.
    was_killed = victim is not None and relay.most is None
    assert client.returncode == 0 or was_killed, f"{victim}, {most} bytes: {error!r}"
    assert client.returncode != 0 or not (was_killed and victim == "client"), f"{victim}, {most} bytes: it went on"
    yield relay


@pytest.mark.parametrize("stored", [False, True], ids=["anew", "stored"])
def test_killed_in_a_batch_both_parties_have_the_same_and_use_nothing_twice(binary, tmp_path, monkeypatch, stored):
    monkeypatch.setattr(abused, "TACIT", str(binary))
    place = Place.make(tmp_path / "place")
    place.client_of_operator()
    server = Server(place)

    def stock() -> None:
        if stored:
            place.client(server, "prepare", "--batch", INPUTS)

    stock()
    with asking(place, server, None, None) as relay:
        whole = relay.count
    for victim in ("client", "server"):
        killed = 0
        for moment in MOMENTS:
            stock()
            before = place.ready("client")
            with asking(place, server, int(whole * moment), victim) as relay:
                killed += relay.most is None
                place.check_ledgers()
            if victim == "server":
                server.kill()
                server = Server(place)
            settle(place, server)
            # Connecting is what brings the parties together.
            place.ask(server, "material", "--material", "client-material", "list", "--json")
            settle(place, server)
            in_step(place, f"the {victim} was killed after {moment} of the bytes of a batch")
            assert place.ready("client") <= before, "nothing that was half made is ready"
            place.infer(server)
            place.ask(server, "material", "--material", "client-material", "discard", "--all")
        assert killed >= len(MOMENTS) - 1
    server.stop()
    place.check_ledgers()
