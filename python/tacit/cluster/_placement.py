"""Which node a client is sent to. Pure: no clock, no network."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True)
class Site:
    """A node as its last report has it."""

    name: str
    waiting_s: float
    """How long an input that came now would wait there, by the node's own scheduler."""
    models: frozenset[str]
    stock: Mapping[str, int]
    """Materials that are ready there, by client."""


def rendezvous(key: str, nodes: Iterable[str]) -> list[str]:
    """`nodes`, the one that `key` belongs to first. A node that comes or goes moves only the keys that are its own."""

    def weight(node: str) -> bytes:
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        return sha256(f"{len(key)}:{key}{node}".encode()).digest()

    return sorted(nodes, key=weight, reverse=True)


def choose(client: str, model: str, sites: Collection[Site], *, copies: int | None = None) -> Site | None:
    """The site for a client's inputs of a model; `None` where none has the model.

    Where material of the client lies comes first, most of it before the rest. Then the shortest expected wait, and among
    equals the one that the client's name belongs to. `copies` is for clients with large key sets: these go to the first
    that many nodes that their name belongs to and to no other, so that their keys lie on few nodes.
    """
    able = {site.name: site for site in sites if model in site.models}
    order = rendezvous(client, able)[:copies]

    def rank(name: str) -> tuple[int, float, int]:
        site = able[name]
        return (-site.stock.get(client, 0), site.waiting_s, order.index(name))

    best = min(order, key=rank, default=None)
    return able[best] if best is not None else None
