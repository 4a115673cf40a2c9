"""The front: tells clients of the CA which node answers them. HTTPS with certificates of both sides; nothing else passes it."""

import http.server
import json
import socketserver
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tacit import _tacit
from tacit.cluster._book import SECONDS_A_DAY, Book, Refused, Report, Ticket

MOST_BODY = 4096
MOST_CONNECTIONS = 256
PATIENCE_S = 30.0
REMEMBERED = 10_000


class Desk:
    """A book with a clock and a lock, for nodes and for requests; what nodes ask goes to it directly or by way of Ray."""

    def __init__(
        self, book: Book, *, banned: Collection[str] = (), server_name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._book, self._banned, self._clock = book, frozenset(banned), clock
        self.server_name = server_name
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
        self.request.settimeout(self.timeout)
        self.request.do_handshake()
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
            client = self.server.names.of(self.request.getpeercert(binary_form=True))
            ticket = self.server.desk.place(client, model)
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
    """Listens for clients of the CA; each connection has a thread, up to a number."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, desk: Desk, keys: Path, address: tuple[str, int]) -> None:
        self.desk, self.names = desk, _Names()
        self._places = threading.Semaphore(MOST_CONNECTIONS)
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

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            return self.shutdown_request(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a handshake that fails and a client that leaves are theirs."""
