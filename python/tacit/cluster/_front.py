"""The front: tells clients of the CA which node answers them. HTTPS with certificates of both sides; nothing else passes it."""

import http.server
import json
import socket
import socketserver
import ssl
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tacit import _tacit
from tacit.cluster._book import SECONDS_A_DAY, Book, Refused, Report, Ticket

MOST_BODY = 4096
MOST_CONNECTIONS = 256
MOST_OF_ONE = 16
"""Connections of one client at a time."""
MOST_GREETINGS = 128
"""Handshakes under way; beyond that the oldest gives way, so that strangers keep nobody out."""
GREETING_S = 5.0
PATIENCE_S = 30.0
REMEMBERED = 10_000


class Desk:
    """A book with a clock and a lock, for nodes and for requests; what nodes ask goes to it directly or by way of Ray."""

    def __init__(
        self, book: Book, *, banned: Collection[str] = (), server_name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._book, self._banned, self._clock = book, frozenset(banned), clock
        self.server_name = server_name
        # Until then a node of an earlier front may still serve clients by its lease.
        self._opens = clock() + book.lease_s
        self._changed = threading.Condition()

    def _day(self) -> int:
        return int(time.time() // SECONDS_A_DAY)

    def join(self, name: str, address: str) -> int:
        """See `Book.join`."""
        with self._changed:
            return self._book.join(name, address, self._clock())

    def renew(self, name: str, epoch: int, report: Report) -> tuple[list[str] | None, int]:
        """See `Book.renew`."""
        with self._changed:
            granted = self._book.renew(name, epoch, report, self._clock(), self._day())
            self._changed.notify_all()
            return granted

    def ended(self, name: str, epoch: int) -> None:
        """See `Book.ended`."""
        with self._changed:
            self._book.ended(name, epoch, self._clock())
            self._changed.notify_all()

    def leave(self, name: str) -> None:
        """See `Book.leave`."""
        with self._changed:
            self._book.leave(name, self._clock())

    def place(self, client: str, model: str, patience_s: float = PATIENCE_S) -> Ticket:
        """A ticket whose node admits the client already."""
        if client in self._banned:
            raise Refused("this client is not admitted")
        deadline = time.monotonic() + patience_s
        with self._changed:
            while (early := self._opens - self._clock()) > 0:
                if time.monotonic() > deadline:
                    raise Refused("the front has just been started", early)
                self._changed.wait(min(early, 0.2))
            while True:
                ticket = self._book.place(client, model, self._clock(), self._day())
                try:
                    if self._book.admitted(ticket):
                        return ticket
                except Refused:
                    # The node went meanwhile; another is chosen.
                    continue
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Refused(f"{ticket.node} has not admitted the client yet", self._book.lease_s)
                self._changed.wait(min(left, 1.0))

    def shown(self) -> dict[str, Any]:
        """What an administrator wants to see."""
        with self._changed:
            now = self._clock()
            self._book.expire(now)
            nodes = [
                {
                    "name": node.name,
                    "address": node.address,
                    "lease_s": round(node.lease_until - now, 3),
                    "leaving": node.leaving,
                    "waiting_s": node.report.waiting_s,
                    "models": sorted(node.report.models),
                    "clients": len(node.clients),
                    "stock": sum(node.report.stock.values()),
                    "dealer": node.report.dealer.partition(" ")[0],
                }
                for node in self._book.nodes.values()
            ]
            lost = [{"node": x.node, "clients": len(x.clients), "stock": sum(x.stock.values())} for x in self._book.losses]
            return {"nodes": nodes, "lost": lost}


class _Names:
    """Fingerprints of certificates that were seen, the latest kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, certificate: bytes) -> str:
        with self._lock:
            if certificate not in self._known:
                self._known[certificate] = _tacit.client_fingerprint(certificate)
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
            return self._known[certificate]


class _Request(http.server.BaseHTTPRequestHandler):
    """`POST /v1/place` with `{"model": "name"}`."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    # An answer goes out in one piece.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    server: "FrontServer"

    def setup(self) -> None:
        # The handshake is this thread's: a slow one keeps nobody else waiting.
        self.request.settimeout(GREETING_S)
        self.request.do_handshake()
        self.client = self.server.greeted(self.request)
        self.request.settimeout(self.timeout)
        super().setup()

    def do_POST(self) -> None:  # noqa: N802, the name that the library calls
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if not 0 <= length <= MOST_BODY:
            self.close_connection = True
            return self._tell(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"a body has a length, of {MOST_BODY} bytes at most"})
        body = self.rfile.read(length)
        if self.path != "/v1/place":
            return self._tell(HTTPStatus.NOT_FOUND, {"error": "there is POST /v1/place"})
        try:
            model = json.loads(body)["model"]
            if not isinstance(model, str) or not 0 < len(model) <= 256:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            return self._tell(HTTPStatus.BAD_REQUEST, {"error": 'the body is {"model": "name"}'})
        try:
            ticket = self.server.desk.place(self.client, model)
        except Refused as refused:
            code = HTTPStatus.FORBIDDEN if refused.again_s is None else HTTPStatus.SERVICE_UNAVAILABLE
            return self._tell(code, {"error": str(refused)}, refused.again_s)
        told = {"node": ticket.node, "run": str(ticket.epoch), "address": ticket.address, "model": model}
        if self.server.desk.server_name:
            told["server_name"] = self.server.desk.server_name
        if ticket.dealer:
            told["dealer"], _, told["dealer_pin"] = ticket.dealer.partition(" ")
        self._tell(HTTPStatus.OK, told)

    def _tell(self, code: HTTPStatus, value: dict[str, str], again_s: float | None = None) -> None:
        text = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if again_s is not None:
            self.send_header("Retry-After", str(max(1, round(again_s))))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: who asks for what is nobody's business here."""


class FrontServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Listens for clients of the CA; each connection has a thread. Who has not shown a certificate has a place among
    `MOST_GREETINGS`, clients among `MOST_CONNECTIONS`, `MOST_OF_ONE` of these each."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, desk: Desk, keys: Path, address: tuple[str, int]) -> None:
        self.desk, self._names = desk, _Names()
        self._lock = threading.Lock()
        self._greetings: OrderedDict[ssl.SSLSocket, None] = OrderedDict()
        self._clients: dict[ssl.SSLSocket, str] = {}
        self._of: Counter[str] = Counter()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(keys / "ca.pem")
        self._context.load_cert_chain(keys / "server.pem", keys / "server.key")
        # A client that comes again goes on with its session: one ticket is enough, and making it is not free.
        self._context.num_tickets = 1
        super().__init__(address, _Request)

    def get_request(self) -> tuple[Any, Any]:
        plain, address = super().get_request()
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

    def greeted(self, request: ssl.SSLSocket) -> str:
        """The client behind a connection, which has a place among clients from now on; `OSError` where there is none for it."""
        certificate = request.getpeercert(binary_form=True)
        assert certificate is not None, "the handshake asked for one"
        client = self._names.of(certificate)
        with self._lock:
            self._greetings.pop(request, None)
            if len(self._clients) >= MOST_CONNECTIONS or self._of[client] >= MOST_OF_ONE:
                raise OSError("no place is left")
            self._clients[request] = client
            self._of[client] += 1
        return client

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._greetings) >= MOST_GREETINGS:
                oldest, _ = self._greetings.popitem(last=False)
                with suppress(OSError):
                    # As a plain socket: its TLS state is its thread's.
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._greetings[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._greetings.pop(request, None)
                client = self._clients.pop(request, None)
                if client is not None:
                    self._of -= Counter([client])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a handshake that fails and a client that leaves are theirs."""
