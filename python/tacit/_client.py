"""The client: prepares material ahead of time, asks for private answers, tells what each phase cost."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _tacit
from tacit._arrays import Options, as_rows, integer_unit, is_batch, options_text, refusals, to_integers
from tacit._dealer import Dealer, pinned
from tacit._errors import one_error, unpicklable
from tacit._plan import Planned
from tacit._tacit import AnswerRefused, TacitError


@dataclass(frozen=True)
class Figures:
    """What a phase cost one party."""

    wall_s: float
    cpu_s: float
    """Processor time of the whole process."""
    peak_rss_bytes: int
    sent_bytes: int
    received_bytes: int
    rounds: int


@dataclass(frozen=True)
class PhaseCost:
    """What one run of a phase ("setup", "offline" or "online") cost both parties."""

    phase: str
    client: Figures
    server: Figures
    material_bytes: tuple[int, int] | None = None
    """Size of the client's and of the server's half, for "offline"."""
    inputs: int = 1
    """Inputs that it was run for as one; 1 for "setup"."""


Deadline = Literal["interactive", "normal", "batch"]
"""How soon an answer is needed: somebody waits for it; the usual; when there is room."""

Link = Literal["lan", "broadband", "slow"]
"""What a link is like: at least 100 Mbit/s and some milliseconds; tens of either; less than that."""


Progress = Callable[[str, float], object]
"""Is told how far a call is: the phase that runs ("setup", "offline" or "online") and how much of it is done, 0.0 when it begins and 1.0 when
it has ended, each of them once; in between as bytes move, at most 20 times a second, never less than before. A call may run a phase more
than once. Called in the thread of the call; what it raises ends the connection, as Ctrl-C does, and is raised by the call."""


class RowsRefused(TacitError):
    """Inputs of a batch that the model refuses, as outside of the range that it accepts. All others were answered."""

    refused: dict[int, str]
    """Why, by row: which feature has which value, and what to do."""
    answers: NDArray[np.float64]
    """Of all rows, `[N, outputs]`; those of refused rows are NaN."""

    def __init__(self, refused: dict[int, str], answers: NDArray[np.float64]) -> None:
        row, why = next(iter(refused.items()))
        super().__init__(
            f"infer: {len(refused)} of {len(answers)} inputs were refused, the others answered (`answers` of this error); row {row}: {why}"
        )
        self.refused, self.answers = refused, answers


class Notice:
    """An input, or several that will be asked for as one, announced with `Client.notify` or `tacit.notify`."""

    def __init__(self, native: _tacit.Notice) -> None:
        self._native = native

    @property
    def name(self) -> str | None:
        """The name that the server gave it, sixteen hexadecimal digits, as `tacit infer --notice` takes it. None unless it was announced
        over HTTP."""
        return self._native.name

    @property
    def inputs(self) -> int:
        """For how many inputs it is: as many as were announced, or as the server runs as one."""
        return self._native.inputs

    def __reduce__(self) -> tuple[Any, ...]:
        unpicklable(self, "it belongs to a connection of this process; `name` is what another one needs")

    def __repr__(self) -> str:
        return f"<tacit.Notice {self.name or 'on an open connection'} for {self.inputs}>"

    @property
    def settled(self) -> bool:
        """Whether its material is made, or will not be before it is asked for."""
        return self._native.is_settled()

    @one_error
    def wait_for_turn(self, timeout_s: float = 60.0) -> bool:
        """Waits until the server would start it at once, `timeout_s` at most; whether it would. Only for one that was announced over HTTP:
        on an open session the connection waits by itself."""
        return self._native.wait_for_turn(timeout_s)

    @one_error
    def withdraw(self) -> None:
        """Takes it back: what was made for it is burnt at both parties. Nothing if it was used."""
        self._native.withdraw()


@dataclass(frozen=True)
class _Terms:
    """How an input is asked for."""

    notice: Notice | None = None
    timeout_s: float | None = None
    deadline: Deadline = "normal"
    max_batch: int | None = None
    progress: Progress | None = None


class Client(Planned):
    """A connection to a server, authenticated on both sides, with one model open.

    A client works on one thing at a time; several threads may share it, several clients may run side by side. Ctrl-C during a call ends the
    connection: material that the call had claimed is gone at both parties, all other prepared material stays for the next client.
    """

    _native: _tacit.Client

    @one_error
    def __init__(
        self,
        address: str,
        *,
        keys: str | PathLike[str],
        identity: str = "client",
        server_name: str | None = None,
        model: str | None = None,
        backend: str | None = None,
        store: str | PathLike[str] | None = None,
        seal: str | None = None,
        dealer: Dealer | tuple[str, str] | None = None,
        threads: int = 1,
        memory_mib: int | None = None,
        link: Link = "lan",
        timeout_s: float = 300.0,
        require: Options | None = None,
    ) -> None:
        """Connects to `address` (`host:port`).

        `keys` is the folder with `ca.pem`, `IDENTITY.pem` and `IDENTITY.key` (see `make_keys`); `server_name` the name in the
        server's certificate if it differs from the host; `model` may be left out where the server offers only one. Without a
        `backend` the client takes the first on offer that it knows and whose server does not see the input; one that shows the
        input to the server ("clear") must be named. Prepared material is kept in the folder `store`, encrypted if `seal` names a
        key (a file, `env:VARIABLE` or `cmd:COMMAND`), or without a folder until the client is closed. `dealer` is whom this client trusts
        to make material where a back end takes it from a third party ("dealt"): address and fingerprint of its key, or one of
        this process. `memory_mib` is what the server is told of this device's memory, for its estimates and the size of batches (all that
        the machine has, if it is left out). `link` is what the link is like, for the server's estimates; over a "slow" one connecting may take
        150 seconds in place of 10. `timeout_s` bounds how long the server may make no progress. `require` is what the model must
        have been lowered with, such as `{"level": "l2"}` of "fss", or `{"public": DIGEST}` for the digest of what clients get of it:
        another one is not opened, and nothing is sent.
        """
        check_threads(threads)
        check_memory(memory_mib)
        check_link(link)
        self._address = address
        folder, self._scratch = _store(store)
        try:
            self._native = _tacit.Client.connect(
                address,
                fspath(keys),
                identity,
                server_name,
                model,
                backend,
                folder,
                seal,
                pinned(dealer),
                threads,
                memory_mib,
                link,
                timeout_s,
                options_text(require or {}),
            )
        except BaseException:
            self._clean()
            raise
        self._plan = json.loads(self._native.plan_json())
        self._costs: list[PhaseCost] = []

    @property
    def input_shape(self) -> tuple[int, ...]:
        """`(C, H, W)` or `(F,)`, without the batch."""
        return tuple(self.spec["input_shape"])

    @property
    def costs(self) -> tuple[PhaseCost, ...]:
        """What every phase so far cost, in order."""
        return tuple(self._costs)

    @property
    def ready(self) -> int:
        """Number of prepared materials: as many inputs can be answered without offline work."""
        return self._native.ready()

    @one_error
    def setup(self) -> None:
        """Makes the keys that the back end needs, once per connection; `prepare` and `infer` do it when it was not done."""
        self._note_setup(json.loads(self._native.setup() or "null"))

    @one_error
    def prepare(self, count: int = 1, *, batch: int = 1, progress: Progress | None = None) -> None:
        """Does the offline work for `count` inputs, or for `count` times `batch` that will be answered as one. Nothing about any input is
        needed or revealed. An error where the back end has none, or where it or the server runs fewer than `batch` as one. `progress` is
        told how far it is; the setup, where there is one, comes first and is not told."""
        if min(count, batch) < 1:
            raise TacitError(f"prepare: a count and a batch of at least 1 are needed, got {count} and {batch}")
        self.setup()
        for _ in range(count):
            self._note_prepared(json.loads(self._native.prepare(batch, progress)), batch)

    @one_error
    def notify(self, expected_s: float | None = None, *, inputs: int = 1) -> Notice:
        """Tells the server that an input will come, `expected_s` seconds from now if that is known; or several that will be asked for as
        one (`Notice.inputs` says how many the server takes so).

        While this client is open its offline phase runs on a connection of its own as soon as the server has room; `infer(x, notice=...)`
        uses what that made. A notice that is never used is withdrawn when it is dropped, or by `Notice.withdraw`.

        When this client is closed, it is announced over HTTP, as `tacit.notify` does: no connection is held, and the client that is opened
        for it later makes material and answer under its name.
        """
        check_inputs(inputs)
        return Notice(self._native.announce(expected_s, inputs))

    @one_error
    def infer(
        self,
        x: ArrayLike,
        *,
        normalised: bool = False,
        notice: Notice | None = None,
        timeout_s: float | None = None,
        deadline: Deadline = "normal",
        max_batch: int | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float64]:
        """The private answer for `x`, of `input_shape` or `[N, *input_shape]`: `[outputs]` or `[N, outputs]`.

        Floats are inputs of the ONNX network as it was exported, unsigned bytes raw pixels; the client applies what `spec["input"]`
        says to them, unless they are `normalised` already (`Model.normalise`), and a final softmax to the answer. Uses prepared
        material first and makes what is missing. In top-1 mode the output is the class index.

        Several inputs are run as one where the back end gains by it, as many as the server grants and `max_batch` at most (1: each on its
        own): one offline and one online phase, in the exchanges of one input. If the day's quota is not enough for all of them, none is
        begun.

        Rows that are outside of the range that the model accepts fail alone: the others are answered, and then `RowsRefused` is raised, which has
        the answers and says of each refused row which feature has which value. Where no row is accepted, nothing is sent.

        A busy server lets inputs wait for their turn: `timeout_s` is how long each answer may take, or the answers that are run as one,
        `deadline` how soon it is needed. A `notice` (of `notify`) is for its number of inputs: for fewer, the
        rest of its material is burnt. `progress` is told how far it is.

        An answer outside of the range that the model states is an `AnswerRefused`, after all inputs were asked for; the client can be used
        on.
        """
        rows = as_rows(x, self.spec, normalised)
        refused = refusals(rows, self.spec)
        if len(refused) == len(rows):
            raise _none_accepted(refused, len(rows))
        taken = [row for row in range(len(rows)) if row not in refused]
        values, _ = self._run(rows[taken], _Terms(notice, timeout_s, deadline, max_batch, progress))
        if refused:
            answers = np.full((len(rows), values.shape[1]), np.nan)
            answers[taken] = values
            raise RowsRefused(refused, answers)
        return values if is_batch(x, self.spec) else values[0]

    async def infer_async(
        self,
        x: ArrayLike,
        *,
        normalised: bool = False,
        notice: Notice | None = None,
        timeout_s: float | None = None,
        deadline: Deadline = "normal",
        max_batch: int | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float64]:
        """As `infer`, without blocking the event loop. Cancelling it ends the connection: material that it had claimed is gone.
        `progress` is called in another thread than the loop's."""
        work = asyncio.get_running_loop().run_in_executor(
            None,
            lambda: self.infer(
                x,
                normalised=normalised,
                notice=notice,
                timeout_s=timeout_s,
                deadline=deadline,
                max_batch=max_batch,
                progress=progress,
            ),
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._native.interrupt()
            with suppress(TacitError):
                await work
            raise

    @one_error
    def infer_integers(self, x: ArrayLike, *, normalised: bool = False) -> NDArray[np.int64]:
        """As `infer`, but the integers that the back end answers with, before a final softmax; compare with
        `Lowered.reference_integers`. An error where answers are no integers."""
        unit = integer_unit(self.output_unit, self.backend)
        rows = as_rows(x, self.spec, normalised)
        refused = refusals(rows, self.spec)
        if refused:
            raise _none_accepted(refused, len(rows))
        _, revealed = self._run(rows, _Terms())
        return to_integers(revealed if is_batch(x, self.spec) else revealed[0], unit)

    @one_error
    def close(self) -> None:
        """Ends the connection. Material that was kept only for this client is destroyed, at the server too."""
        try:
            if self._scratch:
                # The server's halves would be of no use to anybody. Nothing is asked where none is left, and whoever is gone needs no word.
                with suppress(TacitError):
                    self._native.discard_stored()
            self._native.close()
        finally:
            self._clean()

    def __reduce__(self) -> tuple[Any, ...]:
        unpicklable(self, "it is a connection of this process; another one opens its own, with the same arguments")

    def __repr__(self) -> str:
        return f"<tacit.Client of {self.spec['name']!r} at {self._address} with {self.backend}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, rows: NDArray[np.float32], terms: _Terms) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The outputs, and what the back end answered; a row for each of the inputs."""
        if terms.max_batch is not None and terms.max_batch < 1:
            raise TacitError(f"infer: a max_batch of at least 1 is needed, got {terms.max_batch}")
        notice = None if terms.notice is None else terms.notice._native
        self._native.begin_call(len(rows), terms.max_batch)
        values, revealed, refused, done = [], [], [], 0
        while done < len(rows):
            try:
                given = self._native.infer(rows[done:], notice, terms.timeout_s, terms.deadline, terms.progress)
            except AnswerRefused as error:
                # The others are asked for all the same: where this stops is not for the server to see.
                refused.append((done, error))
                done += 1
                continue
            costs: dict[str, Any] = json.loads(given[2])
            inputs = costs["inputs"]
            self._note_setup(costs["setup"])
            if costs["prepared"]:
                self._note_prepared(costs["prepared"], inputs)
            self._costs.append(_cost("online", costs["online"], inputs=inputs))
            values.append(given[0])
            revealed.append(given[1])
            done += len(given[0])
        if refused:
            index, first = refused[0]
            raise first if len(rows) == 1 else AnswerRefused(
                f"{len(refused)} of {len(rows)} inputs have none, that at index {index} first: {first}"
            )
        return np.concatenate(values), np.concatenate(revealed)

    def _note_setup(self, report: dict[str, Any] | None) -> None:
        if report:
            self._costs.append(_cost("setup", report))

    def _note_prepared(self, made: dict[str, Any], inputs: int) -> None:
        size = made["material_bytes"]
        self._costs.append(_cost("offline", made["offline"], (size["client"], size["server"]), inputs))

    def _clean(self) -> None:
        if self._scratch:
            self._scratch.cleanup()


@one_error
def notify(
    address: str,
    *,
    keys: str | PathLike[str],
    identity: str = "client",
    server_name: str | None = None,
    model: str | None = None,
    backend: str | None = None,
    threads: int = 1,
    memory_mib: int | None = None,
    inputs: int = 1,
    expected_s: float | None = None,
    ttl_s: float | None = None,
) -> Notice:
    """Tells a server over HTTP that an input will come, or several that will be asked for as one, before there is a connection to it.

    Arguments are those of `Client`; `inputs` is how many (`Notice.inputs` says how many the server takes as one), `expected_s` is in how many seconds it will be asked for, `ttl_s` how long after that the server may
    forget it (at most what the server allows, which is what holds without it). Nothing is made meanwhile: `Notice.wait_for_turn` tells when
    the server has room, and `Client.infer(x, notice=...)` of a client of the same identity, model and back end makes material and answer
    under its name. One that is dropped stays announced; `Notice.withdraw` takes it back.
    """
    check_threads(threads)
    check_memory(memory_mib)
    check_inputs(inputs)
    return Notice(
        _tacit.notify(address, fspath(keys), identity, server_name, model, backend, threads, memory_mib, inputs, expected_s, ttl_s)
    )


def _none_accepted(refused: dict[int, str], rows: int) -> TacitError:
    row, why = next(iter(refused.items()))
    which = "" if rows == 1 else f"{len(refused)} of {rows} inputs are refused, and nothing was sent; row {row}: "
    return TacitError(f"infer: {which}{why}")


def _store(store: str | PathLike[str] | None) -> tuple[str, TemporaryDirectory[str] | None]:
    """The folder of prepared material, and what removes it where it is only for one client."""
    if store is not None:
        return fspath(store), None
    scratch = TemporaryDirectory(prefix="tacit-", ignore_cleanup_errors=True)
    return scratch.name, scratch


def _cost(phase: str, report: dict[str, Any], material_bytes: tuple[int, int] | None = None, inputs: int = 1) -> PhaseCost:
    return PhaseCost(phase, Figures(**report["client"]), Figures(**report["server"]), material_bytes, inputs)


def check_memory(memory_mib: int | None) -> None:
    if memory_mib is not None and not 1 <= memory_mib < 2**32:
        raise TacitError(f"memory_mib: from 1 to {2**32 - 1} is needed, got {memory_mib}")


def check_link(link: str) -> None:
    if link not in get_args(Link):
        raise TacitError(f"link: {' or '.join(get_args(Link))} is needed, got {link!r}")


def check_inputs(inputs: int) -> None:
    if not 1 <= inputs <= 1024:
        raise TacitError(f"inputs: from 1 to 1024 are needed, got {inputs}")


def check_threads(threads: int) -> None:
    if threads < 1:
        raise TacitError(f"threads: at least 1 is needed, got {threads}")
