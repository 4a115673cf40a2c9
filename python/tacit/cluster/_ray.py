"""Nodes and front as actors of Ray. What passes between them is names, addresses and counts, and paths of files that each reads itself."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tacit.cluster._book import Book, Refused, Report
from tacit.cluster._config import Config
from tacit.cluster._front import Desk, FrontServer
from tacit.cluster._node import Node, Settings

LOOK_S = 1.0
AGAIN_S = 5.0
"""Between two attempts to start a node."""


class Front:
    """The front, in a process of its own."""

    def __init__(self, config: Config) -> None:
        book = Book(lease_s=config.lease_s, daily_quota=config.queries_per_day, key_copies=config.key_copies)
        self._desk = Desk(book, banned=config.banned, server_name=config.server_name)
        self._server = FrontServer(self._desk, Path(config.keys), config.front_address())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def join(self, name: str, address: str) -> int:
        return self._desk.join(name, address)

    def renew(self, name: str, epoch: int, report: Report) -> tuple[list[str] | None, int]:
        return self._desk.renew(name, epoch, report)

    def ended(self, name: str, epoch: int) -> None:
        self._desk.ended(name, epoch)

    def leave(self, name: str) -> None:
        self._desk.leave(name)

    def shown(self) -> dict[str, Any]:
        return self._desk.shown()


class FarFront:
    """The front as a node reaches it. That it cannot be reached is an `OSError`: the node goes on while its lease lasts."""

    def __init__(self, front: Any, patience_s: float) -> None:
        self._front, self._patience_s = front, patience_s

    def _asked(self, what: Any) -> Any:
        try:
            return ray.get(what, timeout=self._patience_s)
        except Refused as refused:
            # Ray raises one of a class of its own, with the front's inside.
            told = getattr(refused, "cause", refused)
            raise Refused(str(told), told.again_s) from None
        except (GetTimeoutError, RayError) as error:
            raise OSError(f"the front cannot be reached: {type(error).__name__}") from None

    def join(self, name: str, address: str) -> int:
        return int(self._asked(self._front.join.remote(name, address)))

    def renew(self, name: str, epoch: int, report: Report) -> tuple[list[str] | None, int]:
        clients, version = self._asked(self._front.renew.remote(name, epoch, report))
        return (None if clients is None else list(clients)), int(version)

    def ended(self, name: str, epoch: int) -> None:
        # Where the front is gone, the lease tells it.
        try:
            self._asked(self._front.ended.remote(name, epoch))
        except OSError:
            return


class Runner:
    """A node, in a process of its own on its machine."""

    def __init__(self, settings: Settings, front: Any) -> None:
        self._node = Node(settings, FarFront(front, settings.lease_s))
        self._thread = threading.Thread(target=self._node.run, daemon=True)
        self._thread.start()

    def address(self) -> str:
        return self._node.address

    def over(self) -> bool:
        """Whether its server has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends it as a signal does."""
        self._node.stop()


class Cluster:
    """Keeps a runner on every node of Ray that has what a runner needs."""

    def __init__(self, config: Config, say: Callable[[dict[str, Any]], None]) -> None:
        self._config, self._say = config, say
        self._runners: dict[str, Any] = {}
        self._tried: dict[str, float] = {}
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        make = ray.remote(Front).options(num_cpus=0, max_concurrency=64, scheduling_strategy=here)
        self.front: Any = make.remote(config)
        say({"front": ray.get(self.front.address.remote())})

    def step(self) -> None:
        """Starts runners on nodes that have none, and forgets those that are over. Fails if the front is gone."""
        present = {node["NodeName"]: node for node in ray.nodes() if node["Alive"] and self._fits(node)}
        for name, runner in list(self._runners.items()):
            if name not in present or self._is_over(runner):
                del self._runners[name]
                self._tried[name] = time.monotonic()
                self._say({"gone": name})
        for name, node in present.items():
            if name not in self._runners and time.monotonic() - self._tried.get(name, -AGAIN_S) >= AGAIN_S:
                self._runners[name] = self._start(name, node)
                self._tried[name] = time.monotonic()
        ray.get(self.front.shown.remote(), timeout=60)

    def _fits(self, node: dict[str, Any]) -> bool:
        has: dict[str, float] = node["Resources"]
        c = self._config
        return has.get("CPU", 0) >= c.cores and has.get("memory", 0) >= c.memory_mib << 20 and has.get("tacit_disk", 0) >= c.disk_gib

    def _start(self, name: str, node: dict[str, Any]) -> Any:
        c = self._config
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        resources = {"tacit_disk": c.disk_gib} if c.disk_gib else {}
        make = ray.remote(Runner).options(
            num_cpus=c.cores, memory=c.memory_mib << 20, resources=resources, max_concurrency=4, scheduling_strategy=there
        )
        self._say({"starting": name})
        return make.remote(c.settings(name, node["NodeManagerAddress"]), self.front)

    def _is_over(self, runner: Any) -> bool:
        try:
            return bool(ray.get(runner.over.remote(), timeout=LOOK_S))
        except GetTimeoutError:
            # It starts, or its machine is slow.
            return False
        except RayActorError as error:
            self._say({"failed": str(error).strip().splitlines()[-1]})
            return True

    def run(self, over: threading.Event) -> None:
        """Until `over`; then all servers are asked to end, and have the rest of a lease for it."""
        while not over.wait(LOOK_S):
            self.step()
        for runner in self._runners.values():
            runner.stop.remote()
        until = time.monotonic() + self._config.lease_s
        while self._runners and time.monotonic() < until:
            for name, runner in list(self._runners.items()):
                if self._is_over(runner):
                    del self._runners[name]
            time.sleep(0.1)
