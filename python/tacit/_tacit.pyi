"""Types of the native module: flat arrays, JSON strings. `tacit` wraps it."""

import numpy as np
from numpy.typing import NDArray

class TacitError(Exception):
    """What went wrong inside tacit, and where."""

class Model:
    digest: str
    @staticmethod
    def from_bytes(bytes: bytes) -> Model: ...
    @staticmethod
    def import_onnx(
        bytes: bytes,
        samples: tuple[list[int], NDArray[np.float32], bool] | None,
        name: str,
        top1: bool,
        range: list[float] | None,
        pixels: tuple[float, list[float], list[float]],
        bits: tuple[int | None, int | None],
        max_samples: int,
        seed: int,
    ) -> Model: ...
    def to_bytes(self) -> bytes: ...
    def spec_json(self) -> str: ...
    def summary_json(self) -> str: ...
    def report_json(self) -> str | None: ...
    def report_text(self) -> str | None: ...
    def reference(self, input: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.int64]]: ...

class Client:
    digest: str
    @staticmethod
    def connect(
        address: str,
        keys: str,
        identity: str,
        server_name: str | None,
        model: str | None,
        store: str | None,
        threads: int,
        timeout_s: float,
    ) -> Client: ...
    def spec_json(self) -> str: ...
    def setup(self) -> str | None: ...
    def prepare(self) -> str: ...
    def ready(self) -> int: ...
    def infer(self, input: NDArray[np.float32]) -> str: ...
    def close(self) -> None: ...

class Server:
    address: str
    connections: int
    served: int
    @staticmethod
    def start(
        models: list[tuple[str, Model]], listen: str, keys: str, store: str | None, threads: int
    ) -> Server: ...
    def stop(self, grace_s: float) -> None: ...

def make_keys(folder: str, hosts: list[str], clients: list[str]) -> None: ...
