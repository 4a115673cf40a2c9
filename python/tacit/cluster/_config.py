"""What `tacit cluster up` reads: a TOML file, the same for all nodes. Paths are of each node's own machine."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tacit._tacit import TacitError
from tacit.cluster._node import Settings


@dataclass(frozen=True)
class Config:
    """A cluster."""

    keys: str
    """Folder with ca.pem, server.pem, server.key and the operator's pair."""
    models: list[str]
    """.tacit files, or folders of them."""
    folder: str
    """Material and lists of clients, in a folder for each node."""
    operator: str = "ops"
    front: str = "127.0.0.1:7900"
    """Where the front listens."""
    program: str = "tacit"
    cores: int = 1
    """Of each node, for jobs."""
    memory_mib: int = 0
    disk_gib: int = 0
    """Ray's resource `tacit_disk`, which `ray start --resources` must declare; 0: not asked for."""
    arguments: tuple[str, ...] = ()
    """More arguments of `tacit serve`."""
    lease_s: float = 5.0
    start_s: float = 120.0
    """What a server may take to start."""
    queries_per_day: int | None = None
    key_copies: int = 2
    """Nodes that a client with a large key set may be sent to."""
    banned: tuple[str, ...] = ()
    """Fingerprints of clients that are not admitted."""
    server_name: str = ""
    """Name in the servers' certificate, where it is not that of their addresses."""
    dealers: tuple[str, ...] = ()
    """Third parties' dealers, each "HOST:PORT PIN": a node takes the first of its own order that it reaches."""

    def settings(self, name: str, host: str) -> Settings:
        """Of one node."""
        memory = ("--job-memory", str(self.memory_mib)) if self.memory_mib else ()
        return Settings(
            name=name,
            host=host,
            keys=Path(self.keys),
            operator=self.operator,
            models=tuple(map(Path, self.models)),
            folder=Path(self.folder) / name,
            cores=self.cores,
            program=self.program,
            arguments=(*memory, *self.arguments),
            lease_s=self.lease_s,
            start_s=self.start_s,
            daily_quota=self.queries_per_day,
            server_name=self.server_name,
            dealers=tuple(self.dealers),
        )

    def front_address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.front.rpartition(":")
        return host.strip("[]"), int(port)


KINDS: dict[str, type | tuple[type, ...]] = {
    "models": list, "arguments": list, "banned": list, "dealers": list, "cores": int, "memory_mib": int, "disk_gib": int, "queries_per_day": int,
    "key_copies": int, "lease_s": (int, float), "start_s": (int, float),
}  # fmt: skip


def read(path: Path) -> Config:
    """The configuration in a file; an error names the key that is wrong."""
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TacitError(f"{path}: {error}") from error
    known = {field.name for field in fields(Config)}
    if unknown := sorted(set(given) - known):
        raise TacitError(f"{path}: {unknown[0]} is not known; there are {', '.join(sorted(known))}")
    for key in ("keys", "models", "folder"):
        if not given.get(key):
            raise TacitError(f"{path}: {key} is missing")
    for key, value in given.items():
        wanted = KINDS.get(key, str)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise TacitError(f"{path}: {key} = {value!r} is of the wrong kind")
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise TacitError(f"{path}: {key} is a list of texts")
        if isinstance(value, (int, float)) and value < (0 if key in ("memory_mib", "disk_gib") else 1):
            raise TacitError(f"{path}: {key} = {value} is too small")
    values: dict[str, Any] = {key: tuple(value) if key in ("arguments", "banned", "dealers") else value for key, value in given.items()}
    config = Config(**values)
    for dealer in config.dealers:
        address, _, pin = dealer.partition(" ")
        if not address.rpartition(":")[2].isdigit() or not pin or " " in pin:
            raise TacitError(f"{path}: a dealer is \"HOST:PORT PIN\", not {dealer!r}")
    try:
        config.front_address()
    except ValueError as error:
        raise TacitError(f"{path}: front is HOST:PORT, not {config.front!r}") from error
    return config
