"""What a front tells a client, checked. A front may choose among what the client trusts; it adds nothing to that.

Whoever holds an operator's certificate can pass for a node, and so fill in what the front says of dealers and of names in certificates.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tacit._tacit import TacitError

MOST_TEXT = 1024
PIN_DIGITS = 64


@dataclass(frozen=True)
class Trusted:
    """What a client accepts, from its own command line."""

    pins: frozenset[str] = frozenset()
    """Fingerprints of the keys of dealers that it trusts, in lower case."""
    server_name: str | None = None
    """Name in the certificate of the front and its nodes; else that of their addresses."""


@dataclass(frozen=True)
class Place:
    """Where a client is answered."""

    node: str
    run: str
    address: str
    dealer: tuple[str, str] | None
    """Address and pin of a dealer that the client trusts."""
    note: str | None
    """Why there is no dealer, though the front names one."""

    def as_json(self, model: str) -> dict[str, str]:
        told = {"node": self.node, "run": self.run, "address": self.address, "model": model}
        return told | (dict(zip(("dealer", "dealer_pin"), self.dealer, strict=True)) if self.dealer else {})


def pins(texts: Collection[str]) -> frozenset[str]:
    """Fingerprints of the command line."""
    for text in texts:
        if len(text) != PIN_DIGITS or not all(c in "0123456789abcdefABCDEF" for c in text):
            raise TacitError(f"--dealer-pin is the fingerprint that `tacit dealer` tells, {PIN_DIGITS} hexadecimal digits, not {text[:80]!r}")
    return frozenset(text.lower() for text in texts)


def place(told: Any, trusted: Trusted) -> Place:
    """The front's answer, of which the dealer is kept where its pin is trusted."""
    if not isinstance(told, dict):
        raise TacitError("the front's answer is no place: not a JSON object")
    node, run, address = (_text(told, key) for key in ("node", "run", "address"))
    _host_and_port(address)
    name = _text(told, "server_name") if "server_name" in told else None
    if name is not None and name != trusted.server_name:
        raise TacitError(
            f"the front says that its nodes have certificates for {name!r}, and that is not for the front to say: "
            f"give --server-name {name} if you know that it is right"
        )
    dealer, note = _dealer(told, trusted)
    return Place(node, run, address, dealer, note)


def _dealer(told: dict[str, Any], trusted: Trusted) -> tuple[tuple[str, str] | None, str | None]:
    if "dealer" not in told:
        return None, None
    address, pin = _text(told, "dealer"), _text(told, "dealer_pin")
    if pin.lower() in trusted.pins:
        _host_and_port(address)
        return (address, pin.lower()), None
    of = "no dealer is trusted" if not trusted.pins else "that is none of the dealers that you trust"
    note = f"the front names the dealer at {address} with the pin {pin}; {of} (--dealer-pin), so none is used"
    return None, note


def _text(told: dict[str, Any], key: str) -> str:
    text = told.get(key)
    if not isinstance(text, str) or not 0 < len(text) <= MOST_TEXT or not text.isprintable():
        raise TacitError(f"the front's answer is no place: `{key}` is missing, or is no text of one line")
    return text


def _host_and_port(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or host.startswith("-") or not (port.isascii() and port.isdigit()) or any(c.isspace() for c in address):
        raise TacitError(f"the front's answer is no place: {address!r} is not HOST:PORT")


def shown(text: str) -> str:
    """A text of somebody else, in one line that a terminal obeys in nothing."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:MOST_TEXT])
