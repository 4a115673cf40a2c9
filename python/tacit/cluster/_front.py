"""The front of a cluster, `tacit serve --front`, as nodes and clients speak to it: HTTPS with certificates of both sides."""

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tacit._text import plainly

MOST_ANSWER = 64 << 20
"""Bytes of an answer: a list of some 100,000 clients, with room."""


class Refused(Exception):
    """A request that is not taken, and whether asking again may help after some seconds."""

    def __init__(self, reason: str, again_s: float | None = None) -> None:
        super().__init__(reason)
        self.again_s = again_s


@dataclass
class Report:
    """What a node says of itself with each request for its lease. Names and numbers, no secrets."""

    waiting_s: float = 0.0
    """How long an input that came now would wait there, by the node's own scheduler."""
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Back ends of each model."""
    stock: Mapping[str, int] = field(default_factory=dict)
    """Materials ready, by client."""
    answered: Mapping[str, int] = field(default_factory=dict)
    """Inputs of each client since this run of the node began."""
    admitted: int = 0
    """Version of the list of clients that the node's server goes by."""
    dealer: str = ""
    """Address and pin of the dealer that its server works with, a space between; none: nothing is dealt there."""


def client_context(keys: Path, name: str) -> ssl.SSLContext:
    """TLS as the client `name`, to what the CA has signed."""
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(keys / f"{name}.pem", keys / f"{name}.key")
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Connection(http.client.HTTPSConnection):
    """To an address, of which the certificate may have a name of its own."""

    def __init__(self, address: str, context: ssl.SSLContext, name: str, patience_s: float) -> None:
        host, _, port = address.rpartition(":")
        super().__init__(host.strip("[]"), int(port), timeout=patience_s, context=context)
        self._tls, self._name = context, name or host.strip("[]")

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)


def connected(address: str, context: ssl.SSLContext, name: str = "", patience_s: float = 10.0) -> http.client.HTTPSConnection:
    """A connection that is opened by its first request; `name` is in the certificate, if not the address."""
    return _Connection(address, context, name, patience_s)


def _object(text: bytes) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if len(text) > MOST_ANSWER or not isinstance(told, dict):
        raise http.client.HTTPException("the front's answer is no JSON object, or a very large one")
    return told


def _path(node: str, what: str) -> str:
    return f"/v1/nodes/{quote(node, safe='')}/{what}"


class Front:
    """A front; one connection is kept. What fails on the way is an `OSError` or an `HTTPException`: asking again opens another."""

    def __init__(self, address: str, context: ssl.SSLContext, server_name: str = "", patience_s: float = 10.0) -> None:
        self._connection = connected(address, context, server_name, patience_s)
        self._lock = threading.Lock()

    def place(self, model: str) -> dict[str, Any]:
        """Where this client's inputs of the model are answered: `node`, `run` of it, `address`, and perhaps `server_name`, `dealer`, `dealer_pin`. Not
        checked; `_place.place` does that."""
        return self._ask("POST", "/v1/place", {"model": model})

    def join(self, name: str, address: str) -> int:
        """A node that has begun to run: the number of its run. Refused while an earlier one may hold its lease."""
        return int(self._ask("POST", _path(name, "join"), {"address": address})["run"])

    def renew(self, name: str, run: int, report: Report) -> tuple[list[str] | None, int]:
        """A lease from now on; whom the node is to admit, `None` if it goes by that list already, and its version."""
        told = self._ask("POST", _path(name, "renew"), {"run": run, "report": asdict(report)})
        return told["clients"], int(told["version"])

    def leave(self, name: str, run: int) -> None:
        """Nobody new is sent to the node; who is there stays until it ends."""
        self._ask("POST", _path(name, "leave"), {"run": run})

    def ended(self, name: str, run: int) -> None:
        """The node's server has stopped: its lease is over at once."""
        self._ask("POST", _path(name, "end"), {"run": run})

    def nodes(self) -> dict[str, Any]:
        """`nodes` and what was `lost` with others, for an operator."""
        return self._ask("GET", "/v1/nodes", None)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, path: str, body: Any) -> dict[str, Any]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        with self._lock:
            try:
                self._connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
                answer = self._connection.getresponse()
                status, told = answer.status, plainly(_object(answer.read(MOST_ANSWER + 1)))
            except BaseException:
                self._connection.close()
                raise
        if status in (http.HTTPStatus.FORBIDDEN, http.HTTPStatus.SERVICE_UNAVAILABLE):
            again_s = told.get("again_s", None if status == http.HTTPStatus.FORBIDDEN else 1.0)
            raise Refused(str(told.get("error")), float(again_s) if isinstance(again_s, int | float) else None)
        if status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"{method} {path}: {status} {told.get('error')}")
        return told
