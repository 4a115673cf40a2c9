"""A party of a cluster in a network of its own, for tests/test_cluster_split.py: `front KEYS HOST LEASE` or `node NAME KEYS MODEL FOLDER HOST LEASE PROGRAM FRONT`."""

import json
import sys
import threading
from multiprocessing.managers import BaseManager
from pathlib import Path

from tacit.cluster._book import Book
from tacit.cluster._front import Desk, FrontServer
from tacit.cluster._node import Node, Settings

NAME = b"only for this test"


class Desks(BaseManager):
    """What Ray does elsewhere: nodes reach the front's desk from other machines."""


def front(keys, host, lease):
    desk = Desk(Book(lease_s=float(lease)))
    Desks.register("desk", callable=lambda: desk)
    server = FrontServer(desk, Path(keys), ("0.0.0.0", 0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    nodes = Desks(address=(host, 0), authkey=NAME).get_server()
    print(json.dumps({"clients": server.server_address[1], "nodes": nodes.address[1]}), flush=True)
    nodes.serve_forever()


def node(name, keys, model, folder, host, lease, program, at):
    Desks.register("desk")
    address, _, port = at.rpartition(":")
    desks = Desks(address=(address, int(port)), authkey=NAME)
    desks.connect()
    settings = Settings(
        name, host, Path(keys), "ops", (Path(model),), Path(folder), program=program, lease_s=float(lease), arguments=("--no-warm-up",)
    )
    made = Node(settings, desks.desk())
    print(json.dumps({"address": made.address}), flush=True)
    made.run()


if __name__ == "__main__":
    {"front": front, "node": node}[sys.argv[1]](*sys.argv[2:])
