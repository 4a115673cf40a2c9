"""The front's bookkeeping without a cluster: placement, leases, nodes that come, go, die and are cut off."""

import random
from collections import Counter

import pytest

from tacit.cluster._book import LEASE_S, Book, Refused, Report
from tacit.cluster._placement import Site, choose, rendezvous

MODELS = {"net": ("cheetah",)}


def site(name, waiting_s=0.0, models=("net",), **stock):
    return Site(name, waiting_s, frozenset(models), stock)


def test_a_node_that_goes_moves_its_own_keys_only():
    nodes = [f"node-{i}" for i in range(8)]
    before = {f"client-{i}": rendezvous(f"client-{i}", nodes)[0] for i in range(4000)}
    shares = Counter(before.values())
    assert all(400 < shares[node] < 600 for node in nodes), shares
    left = [node for node in nodes if node != "node-3"]
    for client, home in before.items():
        assert (rendezvous(client, left)[0] == home) == (home != "node-3")
    assert rendezvous("ab", ["c"]) == ["c"] and rendezvous("x", []) == []


def test_material_comes_before_the_wait_and_the_wait_before_the_name():
    assert choose("alice", "net", [site("a", 0.0), site("b", 9.0, alice=1)]).name == "b"
    assert choose("alice", "net", [site("a", 5.0, alice=1), site("b", 9.0, alice=2)]).name == "b"
    assert choose("alice", "net", [site("a", 0.0, bob=3), site("b", 9.0)]).name == "a"
    equal = [site(f"n{i}") for i in range(5)]
    assert choose("alice", "net", equal).name == rendezvous("alice", [s.name for s in equal])[0]
    assert choose("alice", "other", equal) is None and choose("alice", "net", []) is None


def test_large_key_sets_stay_on_few_nodes():
    nodes = [f"n{i}" for i in range(16)]
    own = rendezvous("alice", nodes)[:2]
    for seed in range(50):
        waits = random.Random(seed)
        sites = [site(name, waits.uniform(0, 10)) for name in nodes]
        assert choose("alice", "net", sites, copies=2).name in own


class Cluster:
    """A book, and nodes as they would be: each serves whom its last answer admits, while its own count of the lease runs."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.book, self.now = Book(), 0.0
        self.running = {}  # name -> [epoch, own end of the lease, clients, version]
        self.cut = set()

    def start(self, name):
        asked = self.now
        self.pass_time(0.01)
        try:
            epoch = self.book.join(name, f"{name}:1", self.now)
        except Refused:
            return
        self.running[name] = [epoch, asked + LEASE_S, [], 0]

    def beat(self, name):
        """The question and the answer each take a while, and either may be lost."""
        epoch, _, _, version = self.running[name]
        asked = self.now
        self.pass_time(self.random.uniform(0, 0.3))
        if name in self.cut:
            return
        try:
            clients, new = self.book.renew(name, epoch, Report(models=MODELS, admitted=version), self.now)
        except Refused:
            self.running.pop(name, None)
            return
        lost = self.random.random() < 0.2
        self.pass_time(self.random.uniform(0, 0.3))
        if not lost and name in self.running:
            admitted = self.running[name][2] if clients is None else clients
            self.running[name] = [epoch, asked + LEASE_S, admitted, new]

    def pass_time(self, seconds):
        self.now += seconds
        for name in [name for name, run in self.running.items() if run[1] <= self.now]:
            del self.running[name]  # its watch ends its server
        self.check()

    def check(self):
        serving = Counter(client for run in self.running.values() for client in run[2])
        assert all(count == 1 for count in serving.values()), f"a client is served at two nodes: {serving}"

    def step(self):
        names = [f"n{i}" for i in range(4)]
        name, client = self.random.choice(names), f"c{self.random.randrange(6)}"
        what = self.random.random()
        if what < 0.15 and name not in self.running:
            self.start(name)
        elif what < 0.2:
            self.running.pop(name, None)  # its machine dies: nobody is told
        elif what < 0.25:
            self.cut ^= {name}  # the network parts, or comes together
        elif what < 0.28:
            self.book.leave(name, self.now)
        elif what < 0.6 and name in self.running:
            self.beat(name)
        elif what < 0.8:
            try:
                ticket = self.book.place(client, "net", self.now)
                assert ticket.node in self.book.nodes
                self.book.admitted(ticket)
            except Refused:
                pass
        else:
            self.pass_time(self.random.uniform(0, 2.0))


@pytest.mark.parametrize("seed", range(40))
def test_no_client_is_served_at_two_nodes_whatever_fails(seed):
    cluster = Cluster(seed)
    for _ in range(600):
        cluster.step()
        cluster.check()


def joined(book, *names, now=0.0):
    return {name: book.join(name, f"{name}:1", now) for name in names}


def beat(book, epochs, now, **reports):
    for name, epoch in epochs.items():
        book.renew(name, epoch, reports.get(name, Report(models=MODELS)), now)


def test_clients_of_a_dead_node_move_when_its_lease_is_over_and_not_before():
    book = Book()
    epochs = joined(book, "a", "b")
    beat(book, epochs, 0.0, a=Report(models=MODELS, stock={"alice": 3}))
    assert book.place("alice", "net", 0.1).node == "a"
    survivor = {"b": epochs["b"]}
    beat(book, survivor, 4.9)
    assert book.place("alice", "net", 4.9).node == "a", "it may still serve"
    ticket = book.place("alice", "net", 5.0)
    assert (ticket.node, ticket.address) == ("b", "b:1")
    [loss] = book.losses
    assert (loss.node, loss.clients, loss.stock) == ("a", ("alice",), {"alice": 3})
    with pytest.raises(Refused, match="no lease in this run"):
        book.renew("a", epochs["a"], Report(), 5.1)
    assert book.join("a", "a:1", 5.2) > epochs["b"]
    assert book.place("alice", "net", 5.3).node == "b", "who moved stays"


def test_a_node_that_ends_by_itself_is_gone_at_once_and_one_that_leaves_keeps_who_is_there():
    book = Book()
    epochs = joined(book, "a", "b")
    beat(book, epochs, 0.0, a=Report(models=MODELS, stock={"alice": 1}))
    book.place("alice", "net", 0.0)
    book.leave("a", 0.1)
    assert book.place("alice", "net", 0.2).node == "a"
    assert all(book.place(f"client-{i}", "net", 0.2).node == "b" for i in range(20))
    with pytest.raises(Refused, match="still holds its lease") as refused:
        book.join("a", "a:2", 0.3)
    assert 0 < refused.value.again_s <= LEASE_S
    book.ended("a", epochs["a"] + 7, 0.3)
    assert "a" in book.nodes, "another run's word"
    book.ended("a", epochs["a"], 0.3)
    assert book.place("alice", "net", 0.4).node == "b"


def test_a_ticket_counts_once_its_node_admits_the_client():
    book = Book()
    epochs = joined(book, "a")
    beat(book, epochs, 0.0)
    ticket = book.place("alice", "net", 0.1)
    assert not book.admitted(ticket)
    clients, version = book.renew("a", epochs["a"], Report(models=MODELS), 0.2)
    assert (clients, version) == (["alice"], ticket.version)
    book.renew("a", epochs["a"], Report(models=MODELS, admitted=version), 0.3)
    assert book.admitted(ticket)
    assert book.renew("a", epochs["a"], Report(models=MODELS, admitted=version), 0.3) == (None, version), "nothing new, so no list"
    book.ended("a", epochs["a"], 0.4)
    with pytest.raises(Refused, match="ask again"):
        book.admitted(ticket)
    with pytest.raises(Refused, match="no node serves net"):
        book.place("alice", "net", 0.5)


def test_quotas_hold_over_all_nodes():
    book = Book(daily_quota=10)
    epochs = joined(book, "a", "b")
    beat(book, epochs, 0.0, a=Report(models=MODELS, stock={"alice": 1}))
    book.place("alice", "net", 0.0, day=1)
    book.renew("a", epochs["a"], Report(models=MODELS, answered={"alice": 6}), 1.0, day=1)
    book.renew("a", epochs["a"], Report(models=MODELS, answered={"alice": 7}), 2.0, day=1)
    assert book.left("alice", 1) == 3 and book.left("bob", 1) == 10
    book.ended("a", epochs["a"], 3.0)
    again = book.join("a", "a:1", 3.1)
    book.renew("a", again, Report(models=MODELS, answered={"alice": 3}), 3.2, day=1)
    with pytest.raises(Refused, match="used up"):
        book.place("alice", "net", 3.3, day=1)
    with pytest.raises(Refused, match="used up"):
        book.place("alice", "net", 3.3, day=0)
    assert book.left("alice", 2) == 10, "a new day"


def test_a_client_is_not_sent_to_a_node_without_its_model():
    book = Book()
    epochs = joined(book, "a", "b")
    beat(book, epochs, 0.0, b=Report(models={"net": ("cheetah",), "other": ("dealt",)}))
    assert book.place("bob", "other", 0.1).node == "b"
    book.homes["alice"] = "a"
    with pytest.raises(Refused, match="does not serve other"):
        book.place("alice", "other", 0.1)
