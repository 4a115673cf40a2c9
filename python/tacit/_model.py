"""Models: import, load, save, look inside, compute the fixed-point reference."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _tacit
from tacit._arrays import each_input
from tacit._tacit import TacitError


def read_bytes(path: str | PathLike[str]) -> bytes:
    """A file's bytes; an unreadable file is a `TacitError` that names it."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TacitError(f"{path}: {error.strerror or error}") from None


class Model:
    """A model as its owner holds it: the public graph and the private weights.

    Made by `import_onnx`, `Model.load` or `Model.from_bytes`.
    """

    def __init__(self, native: _tacit.Model) -> None:
        self._native = native
        self._spec: dict[str, Any] = json.loads(native.spec_json())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Reads a `.tacit` file."""
        return cls.from_bytes(read_bytes(path))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads the bytes of a `.tacit` file."""
        return cls(_tacit.Model.from_bytes(data))

    def to_bytes(self) -> bytes:
        """The bytes of the `.tacit` file: public section and private section."""
        return self._native.to_bytes()

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the `.tacit` file. It contains the weights: keep it at the server."""
        try:
            Path(path).write_bytes(self.to_bytes())
        except OSError as error:
            raise TacitError(f"{path}: {error.strerror or error}") from None

    @property
    def name(self) -> str:
        """The model's name, public."""
        return self._spec["name"]

    @property
    def digest(self) -> str:
        """BLAKE3 of the public section in hexadecimal: the identity that clients and material are bound to."""
        return self._native.digest

    @property
    def input_shape(self) -> tuple[int, ...]:
        """`(C, H, W)` or `(F,)`, without the batch."""
        return tuple(self._spec["nodes"][0]["shape"])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the answer; `(1,)` where only the top class is revealed."""
        return tuple(self._spec["nodes"][self._spec["output"]]["shape"])

    @property
    def output_mode(self) -> Literal["Logits", "Top1"]:
        """What a client learns: all logits, or only the index of the largest."""
        return self._spec["output_mode"]

    @property
    def input_range(self) -> tuple[float, float]:
        """Smallest and largest accepted input value; others are refused."""
        low, high = self._spec["input"]["range"]
        return low, high

    @property
    def spec(self) -> dict[str, Any]:
        """The whole public part: nodes with operation, shape, ring width and fraction bits; input normalisation; output."""
        return self._spec

    @property
    def summary(self) -> dict[str, Any]:
        """What the importer tells clients: calibration, agreement with the float model, comparisons, multiplications."""
        return json.loads(self._native.summary_json())

    def reference(self, x: ArrayLike) -> NDArray[np.float64]:
        """The fixed-point reference, in the clear: what a private run computes, within its declared error.

        `x` has the shape `input_shape`, or `[N, *input_shape]`. Returns `[outputs]` or `[N, outputs]`: real-valued logits, or in
        top-1 mode the class index.
        """
        return each_input(x, self.input_shape, self._native.reference)

    def __repr__(self) -> str:
        return f"<tacit.Model {self.name!r} input={self.input_shape} output={self.output_shape} {self.digest[:12]}>"
