"""Models: import, load, save, look inside, compute the fixed-point reference."""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _tacit
from tacit._arrays import as_float32, each_input, normalise
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
        return str(self._spec["name"])

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
        return "Top1" if self._spec["output_mode"] == "Top1" else "Logits"

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
        summary: dict[str, Any] = json.loads(self._native.summary_json())
        return summary

    @property
    def report(self) -> dict[str, Any] | None:
        """What the import found out, for the owner: agreement with the float model, and for each layer its shape, ring,
        headroom in bits, error and comparisons. `None` for a model from a file. `print(model.report_text)` shows it.
        """
        report = self._native.report_json()
        return None if report is None else json.loads(report)

    @property
    def report_text(self) -> str | None:
        """The report as a table for people."""
        return self._native.report_text()

    def normalise(self, x: ArrayLike) -> NDArray[np.float32]:
        """What the client does to raw values first: `(x * pixel_scale - mean) / std` per channel, from `spec["input"]`.

        That is the normalisation given to `import_onnx`, together with any that the importer moved out of the network (a batch norm
        right at its input). Arrays of unsigned bytes are normalised by themselves; floats are taken as normalised already.
        """
        return normalise(as_float32(x, "input"), self._spec)

    def reference(self, x: ArrayLike) -> NDArray[np.float64]:
        """The fixed-point reference, in the clear: what a private run computes, within its declared error.

        `x` has the shape `input_shape`, or `[N, *input_shape]`, and is normalised (see `normalise`). Returns
        `[outputs]` or `[N, outputs]`: real-valued logits, or in top-1 mode the class index.
        """
        return each_input(x, self._spec, lambda flat: self._native.reference(flat)[0])

    def reference_integers(self, x: ArrayLike) -> NDArray[np.int64]:
        """As `reference`, but the integers that the real numbers stand for: what an answer's error is counted in."""
        return each_input(x, self._spec, lambda flat: self._native.reference(flat)[1])

    def __repr__(self) -> str:
        return f"<tacit.Model {self.name!r} input={self.input_shape} output={self.output_shape} {self.digest[:12]}>"


def import_onnx(
    source: str | PathLike[str] | bytes,
    *,
    calibrate: ArrayLike | None = None,
    name: str = "",
    output: Literal["logits", "top1"] = "logits",
    range: tuple[float, float] | None = None,
    pixel_scale: float = 1.0,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    frac_bits: int | None = None,
    weight_bits: int | None = None,
    max_samples: int = 64,
    seed: int = 1,
) -> Model:
    """Imports an ONNX file (a path or its bytes) as a fixed-point model.

    `calibrate` are typical inputs, `[N, *input]`: floats as the network takes them, or unsigned bytes (raw pixels), which are
    normalised first as `(pixel * pixel_scale - mean) / std` per channel. Without samples the importer uses seeded inputs in
    `range`, and headroom is a guess. Ring widths and fraction bits are chosen from the samples unless `frac_bits` (and
    `weight_bits`) fix them. `output` is what clients learn: all logits, or only the top-1 class.
    """
    if output not in ("logits", "top1"):
        raise TacitError(f'output: "logits" or "top1" is needed, got {output!r}')
    data = bytes(source) if isinstance(source, bytes | bytearray | memoryview) else read_bytes(source)
    samples = None
    if calibrate is not None:
        raw = getattr(calibrate, "dtype", None) == np.uint8
        array = as_float32(calibrate, "calibrate")
        samples = (list(array.shape), array.reshape(-1), raw)
    try:
        native = _tacit.Model.import_onnx(
            data,
            samples,
            name,
            output == "top1",
            None if range is None else list(range),
            (pixel_scale, list(mean), list(std)),
            (frac_bits, weight_bits),
            max_samples,
            seed,
        )
    except OverflowError as error:
        raise TacitError(f"import_onnx: {error}") from None
    return Model(native)
