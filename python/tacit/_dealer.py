"""A dealer in this process: makes the material of back ends that take it from a third party."""

from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from tacit import _tacit
from tacit._errors import one_error, unpicklable


class Dealer:
    """A running dealer; made by `dealer`. Use it in a `with` block, or call `stop`."""

    def __init__(self, native: _tacit.Dealer, keys: Path, scratch: TemporaryDirectory[str]) -> None:
        self._native = native
        self._keys = keys
        self._scratch = scratch

    @property
    def address(self) -> str:
        """`host:port` to connect to."""
        return self._native.address

    @property
    def pin(self) -> str:
        """Fingerprint of its key, by which servers and clients know it."""
        return self._native.pin

    @property
    def keys(self) -> Path:
        """Folder with the CA, and the keys of the dealer, a server and a client called "client"."""
        return self._keys

    @one_error
    def stop(self) -> None:
        """Ends it: nobody is connected any more, and nothing that it dealt can be fetched."""
        self._native.stop()
        self._scratch.cleanup()

    def __reduce__(self) -> tuple[Any, ...]:
        unpicklable(self, "it runs in this process; others reach it by `address` and `pin`")

    def __repr__(self) -> str:
        return f"<tacit.Dealer at {self.address}, pin {self.pin[:12]}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


@one_error
def dealer(*, listen: str = "127.0.0.1:0", keys: str | PathLike[str] | None = None) -> Dealer:
    """Starts a dealer on threads of this process, to try and to measure: in earnest it works with neither server nor client, and runs
    apart from both (`tacit dealer`).

    `keys` is a folder with keys of a dealer (`tacit keys add-dealer`); without it, one is made with a CA of its own.
    """
    scratch = TemporaryDirectory(prefix="tacit-")
    try:
        folder = Path(scratch.name) / "keys" if keys is None else Path(keys)
        numbers = Path(scratch.name) / "dealer.sqlite"
        native = _tacit.Dealer.start(listen, fspath(folder), fspath(numbers), keys is None)
    except BaseException:
        scratch.cleanup()
        raise
    return Dealer(native, folder, scratch)


def pinned(dealer: Dealer | tuple[str, str] | None) -> tuple[str, str] | None:
    """Address and fingerprint."""
    return (dealer.address, dealer.pin) if isinstance(dealer, Dealer) else dealer
