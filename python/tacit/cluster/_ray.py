"""Nodes as actors of Ray, and the front beside them. Through Ray go names, addresses and paths of files that each node reads itself."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tacit._tacit import TacitError
from tacit.cluster._config import Config
from tacit.cluster._front import Front, client_context
from tacit.cluster._node import Node, Settings
from tacit.cluster._watch import die_with_parent

LOOK_S = 1.0
AGAIN_S = 5.0
"""Between two attempts to start a node."""
ANYWHERE = ("", "0.0.0.0", "::")
"""Addresses to listen on that are nobody's."""


class FrontProgram:
    """`tacit serve --front`, a process of this machine that ends with this one."""

    def __init__(self, config: Config) -> None:
        program = shutil.which(config.program)
        if program is None:
            raise TacitError(f"{config.program} is not a program of this machine")
        host, port = config.front_address()
        command = [program, "serve", "--front", "--keys", config.keys, "--listen", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
        command += ["--lease", str(config.lease_s), "--key-copies", str(config.key_copies), "--json"]
        if config.queries_per_day is not None:
            command += ["--queries-per-day", str(config.queries_per_day), "--state", str(Path(config.folder) / "front-state")]
        for client in config.banned:
            command += ["--ban", client]
        if config.server_name:
            command += ["--server-name", config.server_name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        assert self._process.stdout is not None, "it was asked for"
        line = self._process.stdout.readline()
        if not line:
            raise TacitError("the front did not start")
        self.listening = str(json.loads(line)["listening"])

    def lives(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()


class Runner:
    """A node, in a process of its own on its machine."""

    def __init__(self, settings: Settings, front: str) -> None:
        context = client_context(settings.keys, settings.operator)
        self._node = Node(settings, Front(front, context, settings.server_name, settings.lease_s))
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
        self._front = FrontProgram(config)
        host, port = config.front_address()[0], self._front.listening.rpartition(":")[2]
        # As nodes reach it.
        self._front_address = f"{ray.util.get_node_ip_address() if host in ANYWHERE else host}:{port}"
        say({"front": self._front.listening})

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
        if not self._front.lives():
            raise TacitError("the front has ended, so the cluster ends")

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
        return make.remote(c.settings(name, node["NodeManagerAddress"]), self._front_address)

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
        try:
            while not over.wait(LOOK_S):
                self.step()
        finally:
            self._end()

    def _end(self) -> None:
        for runner in self._runners.values():
            runner.stop.remote()
        until = time.monotonic() + self._config.lease_s
        while self._runners and time.monotonic() < until:
            for name, runner in list(self._runners.items()):
                if self._is_over(runner):
                    del self._runners[name]
            time.sleep(0.1)
        self._front.end()
