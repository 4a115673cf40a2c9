"""Programs are killed (SIGKILL) at work, after so many bytes of it: what the parties have then, and what they use.

Every back end, on the smallest network: client, server and sidecar, and the dealer where there is one.
"""

import signal
import subprocess
from collections.abc import Iterator

import pytest

import abused
from abuse_kills import Sidecar, in_step, settle
from abused import BACKENDS, BATCHING, DEALT, Dealer, Place, Server
from abused_relay import Relay

# Inputs of a call: those that are run as one, where the back end does that.
INPUTS = {backend: 3 if backend in BATCHING else 1 for backend in BACKENDS}
# Parts of the bytes of a call at which somebody is killed: in the setup, offline, between the phases, online, at the end.
MOMENTS = [0.02, 0.2, 0.5, 0.8, 0.93, 0.97, 0.995]
# A server that was killed before it had written down what it learned would warm up again each time.
COLD = ("--no-warm-up",)


class Client:
    """A `tacit infer` of the inputs of a call."""

    def __init__(self, place: Place, address: str):
        command = [abused.TACIT, "infer", *[str(place.digit)] * INPUTS[place.backend], *place.asking(address)]
        self.process = subprocess.Popen(command, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def finish(self) -> bool:
        """Whether it was answered."""
        self.error = self.process.communicate(timeout=abused.PATIENCE_S)[1].decode()
        assert "panicked" not in self.error, self.error
        return self.process.returncode == 0


class Asked(Sidecar):
    """A `tacit sidecar` with one request of as many."""

    def finish(self) -> bool:
        while self.process.poll() is None and not self.answers:
            self.ask(INPUTS[self.place.backend])
        self.end(signal.SIGTERM if self.process.poll() is None else signal.SIGKILL)
        self.error = (self.place.folder / "sidecar.log").read_text()
        return self.answers > 0


class Stage:
    """The programs of one back end, and a relay in front of its dealer."""

    def __init__(self, place: Place):
        self.place, self.whole = place, {}
        self.dealer = self.to_dealer = None
        if place.backend in DEALT:
            self.dealer = Dealer(place)
            self.to_dealer = Relay(self.dealer.peer)
            place.trust(self.to_dealer.address)
        place.client_of_operator()
        self.server = Server(place, extra=COLD)

    def stock(self, stored: bool) -> None:
        if stored:
            self.place.client(self.server, "prepare", "--batch", INPUTS[self.place.backend])

    def call(self, who: str, victim: str | None, most: int | None) -> tuple[int, bool]:
        """Somebody asks, and the victim is killed after so many bytes; how many there were, and whether it was killed."""
        relay = self.to_dealer if who == "dealer" else Relay(self.server.peer)

        def kill() -> None:
            killed = {"server": self.server, "dealer": self.dealer}.get(victim, worker).process
            killed.send_signal(signal.SIGKILL)
            killed.wait()

        relay.after(most, kill)
        with relay.lock:
            # Nothing is carried before it is known whom to kill.
            if who == "sidecar":
                worker = Asked(self.place, relay.address, ready=0, workers=1)
            else:
                worker = Client(self.place, self.server.address if who == "dealer" else relay.address)
        answered = worker.finish()
        # Runs differ by some bytes, and who is killed at the very end may have answered already.
        count, was_killed = relay.count, victim is not None and relay.most is None
        assert answered or was_killed, f"{who}, {victim}, {most} bytes: {worker.error}"
        if who == "dealer":
            relay.after(None, kill)
        else:
            relay.close()
        return count, was_killed

    def count(self, who: str, stored: bool) -> int:
        """Bytes of a whole call."""
        self.stock(stored)
        return self.call(who, None, None)[0]

    def killed(self, victim: str, stored: bool, moment: float) -> bool:
        """Kills the victim at this moment of a call, and starts it again; whether the call came so far."""
        who = "client" if victim == "server" else victim
        if (who, stored) not in self.whole:
            # The first may register the model at a dealer.
            self.whole[who, stored] = min(self.count(who, stored) for _ in range(2))
        self.stock(stored)
        _, was_killed = self.call(who, victim, int(self.whole[who, stored] * moment))
        self.place.check_ledgers()
        if victim == "server":
            self.server.kill()
            self.server = Server(self.place, extra=COLD)
        if victim == "dealer":
            self.dealer.kill()
            self.dealer = Dealer(self.place)
            self.to_dealer.peer = self.dealer.peer
        return was_killed

    def reconcile(self) -> None:
        settle(self.place, self.server)
        # Connecting is what brings the parties together.
        self.place.ask(self.server, "material", "--material", "client-material", "list", "--json")
        settle(self.place, self.server)

    def stop(self) -> None:
        self.server.stop()
        if self.dealer is not None:
            self.dealer.kill()
            self.to_dealer.close()
        self.place.check_ledgers()


@pytest.fixture
def stage(request, binary, tmp_path, monkeypatch) -> Iterator[Stage]:
    monkeypatch.setattr(abused, "TACIT", str(binary))
    stage = Stage(Place.small(tmp_path / "place", [request.param]))
    yield stage
    for program in (stage.server, stage.dealer):
        if program is not None:
            program.process.kill()
            program.process.wait()
            program.process.stdout.close()


@pytest.mark.parametrize("stage", BACKENDS, indirect=True)
def test_killed_at_work_both_parties_have_the_same_and_use_nothing_twice(stage):
    place = stage.place
    victims = ["client", "server", "sidecar", *(["dealer"] if stage.dealer else [])]
    for number, victim in enumerate(victims):
        moments, killed = MOMENTS if place.backend == "cheetah" else MOMENTS[number % 3 :: 3], 0
        for place_of, moment in enumerate(moments):
            # Without stored material and with it, in turns; a dealer has no part in using it.
            stored = place.backend != "ckks" and victim != "dealer" and place_of % 2 == 1
            killed += stage.killed(victim, stored, moment)
            before = place.ready("client")
            stage.reconcile()
            in_step(place, f"the {victim} was killed after {moment} of the bytes of a call")
            assert place.ready("client") <= before, "nothing that was half made is ready"
            place.infer(stage.server)
            place.ask(stage.server, "material", "--material", "client-material", "discard", "--all")
        # A sidecar's calls differ: it announces what waits.
        assert killed >= (1 if victim == "sidecar" else len(moments) - 1), f"{victim}: {killed} of {len(moments)}"
    stage.stop()
