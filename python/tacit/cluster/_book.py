"""What the front knows: nodes, their leases, and which client is at which node. Pure: times are given, in seconds of one clock.

A client is at one node at a time. A node serves a client only while it holds a lease, which it asks for again and again and
counts from the moment *before* it asked; the book counts the same lease from the later moment when it granted it. So when the
book's count is over, the node has stopped, whatever became of the network between them, and only then may its clients be sent
elsewhere. Nobody's inputs are therefore at two nodes at once, and since inputs and material never pass the front, it cannot
send one twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tacit.cluster._placement import Site, choose

LEASE_S = 5.0
"""How long a node may serve after it asked for its lease, unless a book says otherwise."""
SECONDS_A_DAY = 86_400


class Refused(Exception):
    """A request that is not taken, and whether asking again may help after some seconds."""

    def __init__(self, reason: str, again_s: float | None = None) -> None:
        # Both, so that it can be sent from one process to another.
        super().__init__(reason, again_s)
        self.again_s = again_s

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass
class Report:
    """What a node says of itself with each request for its lease. Names and numbers, no secrets."""

    waiting_s: float = 0.0
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


@dataclass
class Node:
    """A node that has joined."""

    name: str
    address: str
    epoch: int
    lease_until: float
    report: Report
    leaving: bool = False
    version: int = 0
    """Of the list of clients that it should admit."""
    clients: set[str] = field(default_factory=set)
    """That list."""


@dataclass(frozen=True)
class Ticket:
    """Where a client may ask from now on."""

    client: str
    node: str
    address: str
    epoch: int
    version: int
    """The node admits the client once it goes by this version of its list."""
    dealer: str = ""
    """The node's dealer, as in `Report`: material comes from the one that the server orders it of."""


@dataclass(frozen=True)
class Loss:
    """What went with a node."""

    node: str
    clients: tuple[str, ...]
    """Clients that are sent elsewhere when they ask again."""
    stock: Mapping[str, int]
    """Material that is written off: its clients destroy their halves when they connect elsewhere."""


class Book:
    """Nodes, leases, clients."""

    def __init__(self, *, lease_s: float = LEASE_S, daily_quota: int | None = None, key_copies: int = 2) -> None:
        self.lease_s = lease_s
        self.nodes: dict[str, Node] = {}
        self.homes: dict[str, str] = {}
        self.losses: list[Loss] = []
        self._daily_quota = daily_quota
        self._key_copies = key_copies
        self._epochs = 0
        self._day = -1
        self._used: dict[str, int] = {}

    def join(self, name: str, address: str, now: float) -> int:
        """A node that has begun to run; nothing of an earlier run of it counts. Its epoch.

        An earlier run may still hold its lease: it has to be over first.
        """
        self.expire(now)
        if name in self.nodes:
            left = self.nodes[name].lease_until - now
            raise Refused(f"an earlier run of {name} still holds its lease", left)
        self._epochs += 1
        self.nodes[name] = Node(name, address, self._epochs, now + self.lease_s, Report())
        return self._epochs

    def renew(self, name: str, epoch: int, report: Report, now: float, day: int = 0) -> tuple[list[str] | None, int]:
        """Grants a lease from now on; the clients that the node is to admit, `None` if it goes by that list already, and its version."""
        self.expire(now)
        node = self.nodes.get(name)
        if node is None or node.epoch != epoch:
            raise Refused(f"{name} has no lease in this run: its clients may be elsewhere by now")
        self._count(node.report, report, day)
        node.report, node.lease_until = report, now + self.lease_s
        # A list of ten thousand with every lease would be most of what the front does.
        return (None if report.admitted == node.version else sorted(node.clients)), node.version

    def leave(self, name: str, now: float) -> None:
        """A node that takes nobody new; who is there stays until the node ends."""
        self.expire(now)
        if name in self.nodes:
            self.nodes[name].leaving = True

    def ended(self, name: str, epoch: int, now: float) -> None:
        """A node says itself that its server has stopped: its lease is over at once."""
        node = self.nodes.get(name)
        if node is not None and node.epoch == epoch:
            node.lease_until = now
        self.expire(now)

    def expire(self, now: float) -> None:
        """Writes off nodes whose lease is over."""
        for node in [node for node in self.nodes.values() if node.lease_until <= now]:
            del self.nodes[node.name]
            gone = tuple(sorted(node.clients))
            for client in gone:
                del self.homes[client]
            self.losses.append(Loss(node.name, gone, dict(node.report.stock)))

    def place(self, client: str, model: str, now: float, day: int = 0) -> Ticket:
        """Where the client's inputs of the model are answered. It stays at a node that has the model, until that node is gone."""
        self.expire(now)
        self.left(client, day)
        home = self.nodes.get(self.homes.get(client, ""))
        if home is not None and model in home.report.models:
            return Ticket(client, home.name, home.address, home.epoch, home.version, home.report.dealer)
        if home is not None:
            raise Refused(f"the client is at {home.name}, which does not serve {model}")
        node = self._best(client, model)
        self.homes[client] = node.name
        node.clients.add(client)
        node.version += 1
        return Ticket(client, node.name, node.address, node.epoch, node.version, node.report.dealer)

    def admitted(self, ticket: Ticket) -> bool:
        """Whether the ticket's node goes by a list with its client; refused where the ticket is void."""
        node = self.nodes.get(ticket.node)
        if node is None or node.epoch != ticket.epoch or self.homes.get(ticket.client) != ticket.node:
            raise Refused(f"{ticket.node} is gone: ask again", 0.0)
        return node.report.admitted >= ticket.version

    def left(self, client: str, day: int) -> int | None:
        """Answers that the client has left today, over all nodes; refused where there are none."""
        self._turn(day)
        if self._daily_quota is None:
            return None
        left = self._daily_quota - self._used.get(client, 0)
        if left <= 0:
            raise Refused(f"the {self._daily_quota} answers of the day are used up")
        return left

    def _best(self, client: str, model: str) -> Node:
        open_nodes = [node for node in self.nodes.values() if not node.leaving]
        sites = [Site(n.name, n.report.waiting_s, frozenset(n.report.models), n.report.stock) for n in open_nodes]
        keyed = any("ckks" in n.report.models.get(model, ()) for n in open_nodes)
        site = choose(client, model, sites, copies=self._key_copies if keyed else None)
        if site is None:
            raise Refused(f"no node serves {model}", self.lease_s)
        return self.nodes[site.name]

    def _turn(self, day: int) -> None:
        # A clock that goes back gives nobody a new quota.
        if day > self._day:
            self._day = day
            self._used.clear()

    def _count(self, before: Report, after: Report, day: int) -> None:
        self._turn(day)
        for client, answered in after.answered.items():
            new = max(0, answered - before.answered.get(client, 0))
            self._used[client] = self._used.get(client, 0) + new
