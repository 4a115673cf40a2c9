"""A server in this process, for notebooks and tests; `tacit serve` is the one for deployments."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from tacit import _tacit
from tacit._arrays import Options
from tacit._client import Client, check_threads
from tacit._dealer import Dealer, pinned
from tacit._errors import one_error, unpicklable
from tacit._lowered import Lowered
from tacit._model import Model
from tacit._tacit import TacitError


@one_error
def make_keys(folder: str | PathLike[str], *, hosts: Iterable[str] = (), clients: Iterable[str] = ("client",)) -> None:
    """Makes a private CA, a server certificate for localhost and `hosts`, and a certificate for each of `clients`.

    The folder then holds `ca.pem`, `ca.key`, and a `.pem` and `.key` for the server and each client. A client needs
    `ca.pem` and its own pair, nothing else.
    """
    for name, given in (("hosts", hosts), ("clients", clients)):
        if isinstance(given, str):
            raise TacitError(f"make_keys: {name} takes a list of names: {name}=[{given!r}]")
    _tacit.make_keys(fspath(folder), list(hosts), list(clients))


class Server:
    """A running server; made by `serve`. Use it in a `with` block, or call `stop`."""

    def __init__(
        self,
        native: _tacit.Server,
        keys: Path,
        scratch: TemporaryDirectory[str],
        dealer: Dealer | tuple[str, str] | None,
    ) -> None:
        self._native = native
        self._keys = keys
        self._scratch = scratch
        self._dealer = dealer
        self._stopped = False

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        return self._native.address

    @property
    def keys(self) -> Path:
        """Folder with the CA, the server's keys and the clients' keys."""
        return self._keys

    @property
    def connections(self) -> int:
        """Connections open now."""
        return self._native.connections

    @property
    def served(self) -> int:
        """Inferences served since the start."""
        return self._native.served

    @one_error
    def client(self, **options: Any) -> Client:
        """A client of this server, over mutual TLS on this machine; options as for `Client`."""
        if self._stopped:
            raise TacitError(f"this server has been stopped and listens on {self.address} no more: start another with tacit.serve")
        return Client(self.address, **({"keys": self.keys, "dealer": self._dealer} | options))

    @one_error
    def stop(self, grace_s: float = 5.0) -> None:
        """Ends the server; running requests get `grace_s` seconds to finish."""
        self._stopped = True
        self._native.stop(grace_s)
        self._scratch.cleanup()

    def __reduce__(self) -> tuple[Any, ...]:
        unpicklable(self, "it runs in this process; others reach it by `address`, with a client's keys")

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else f"{self.connections} connections, {self.served} served"
        return f"<tacit.Server at {self.address}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@one_error
def serve(
    models: Model | Lowered | Mapping[str, Model | Lowered | Sequence[Model | Lowered]],
    *,
    backend: str | Sequence[str] | None = None,
    options: Options | None = None,
    allow_clear: bool = False,
    listen: str = "127.0.0.1:0",
    keys: str | PathLike[str] | None = None,
    store: str | PathLike[str] | None = None,
    seal: str | None = None,
    dealer: Dealer | tuple[str, str] | None = None,
    threads: int = 1,
    accept_clock: bool = False,
) -> Server:
    """Starts a server for one model, or for several by name, on threads of this process.

    Each model is offered with `backend` and its `options` (see `Model.lower`; by default the model's own), or with several back ends, the
    preferred one first: `backend=["cheetah", "clear"]`, or a name with a list of lowered models. Back ends that show the server its
    clients' inputs ("clear") are refused without `allow_clear`.

    Without `keys` it makes its own, for a client called "client", and removes them when it stops; the same goes for `store`,
    the folder of prepared material, which is encrypted if `seal` names a key (a file, `env:VARIABLE` or `cmd:COMMAND`). `dealer` makes
    the material of back ends that take it from a third party ("dealt"): address and fingerprint of its key, or one of this
    process; `keys` must then hold the certificate "orders". The server listens when this returns.

    A folder `store` that was last used more than a week from what the machine's clock shows is refused, for material would expire by
    it; `accept_clock` says that the clock is right.
    """
    check_threads(threads)
    if not isinstance(models, Mapping | Model | Lowered):
        raise TacitError(f"serve: a Model, a Lowered, or a mapping of names to them is needed, got {models!r}")
    by_name = dict(models) if isinstance(models, Mapping) else {_name(models): models}
    if not by_name:
        raise TacitError("serve: at least one model is needed")
    lower = _lowering(backend, options)
    offers = [(name, [native for model in _listed(given) for native in lower(model)]) for name, given in by_name.items()]
    scratch = TemporaryDirectory(prefix="tacit-")
    try:
        folder = Path(scratch.name) / "keys" if keys is None else Path(keys)
        if keys is None:
            make_keys(folder)
        material = Path(scratch.name) / "store" if store is None else Path(store)
        native = _tacit.Server.start(offers, listen, fspath(folder), fspath(material), seal, pinned(dealer), threads, allow_clear, accept_clock)
    except BaseException:
        scratch.cleanup()
        raise
    return Server(native, folder, scratch, dealer)


def _name(model: Model | Lowered) -> str:
    return str(model.spec["name"]) or "model"


def _listed(given: Model | Lowered | Sequence[Model | Lowered]) -> Sequence[Model | Lowered]:
    listed = given if isinstance(given, Sequence) else [given]
    for model in listed:
        if not isinstance(model, Model | Lowered):
            raise TacitError(f"serve: a Model or a Lowered is needed, got {model!r}")
    return listed


def _lowering(
    backend: str | Sequence[str] | None, options: Options | None
) -> Callable[[Model | Lowered], list[_tacit.Lowered]]:
    """How a model is lowered for this server."""
    names = [backend] if backend is None or isinstance(backend, str) else list(backend)
    if options and len(names) > 1:
        raise TacitError("serve: options belong to one back end: give lowered models, {name: [model.lower(...), ...]}")

    def lower(model: Model | Lowered) -> list[_tacit.Lowered]:
        if isinstance(model, Model):
            return [model.lower(name, **(options or {}))._native for name in names]
        if backend is not None or options:
            raise TacitError(f"serve: the model is lowered for {model.backend} already, so backend and options do not apply")
        return [model._native]

    return lower
