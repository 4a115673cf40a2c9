"""Models: import, load, save, look inside, lower for a back end, compute in the clear."""

import json
import warnings
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _tacit
from tacit._arrays import Options, as_float32, as_rows, each_input, is_pixels, normalise, options_text
from tacit._errors import one_error
from tacit._lowered import DEFAULT, Lowered, check_backend
from tacit._tacit import TacitError


NO_SAMPLES = (
    "no calibration samples: ranges come from seeded random inputs, and headroom is a guess; give typical inputs as import_onnx(..., calibrate=samples)"
)


def read_bytes(path: str | PathLike[str]) -> bytes:
    """A file's bytes; an unreadable file is a `TacitError` that names it."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TacitError(f"{path}: {error.strerror or error}") from None


class Model:
    """A model as its owner holds it: the network with its weights and calibration, in real numbers. Private.

    Made by `import_onnx`, `Model.load` or `Model.from_bytes`. It knows no protocol; `lower` makes what a back end computes with.
    `backend` and `options`, wherever a model is made, say what `lower()` and everything that needs a lowering take by default.
    """

    def __init__(self, native: _tacit.Model, backend: str = DEFAULT, options: Options | None = None) -> None:
        check_backend(backend)
        self._native = native
        self._spec: dict[str, Any] = json.loads(native.interface_json())
        self._default = (backend, options_text(options or {}))
        self._lowered: dict[tuple[str, tuple[tuple[str, str], ...]], Lowered] = {}

    @classmethod
    @one_error
    def load(
        cls,
        path: str | PathLike[str],
        *,
        seal: str | None = None,
        backend: str = DEFAULT,
        options: Options | None = None,
    ) -> Self:
        """Reads a `.tacit` file. A sealed one needs `seal`: the name of a key file, `env:VARIABLE` or `cmd:COMMAND`."""
        return cls(_tacit.Model.load(fspath(path), seal), backend, options)

    @classmethod
    @one_error
    def from_bytes(cls, data: bytes, *, backend: str = DEFAULT, options: Options | None = None) -> Self:
        """Reads the bytes of a `.tacit` file."""
        return cls(_tacit.Model.from_bytes(data), backend, options)

    @one_error
    def to_bytes(self) -> bytes:
        """The bytes of the `.tacit` file, weights and calibration included; not sealed."""
        return self._native.to_bytes()

    @one_error
    def save(self, path: str | PathLike[str], *, seal: str | None = None) -> None:
        """Writes the `.tacit` file, which only its owner may read. It contains the weights: keep it at the server.

        With `seal` (see `load`) its content is encrypted.
        """
        self._native.save(fspath(path), seal)

    @property
    def name(self) -> str:
        """The model's name, public."""
        return str(self._spec["name"])

    @property
    def digest(self) -> str:
        """BLAKE3 over everything in the model, in hexadecimal. What a client can compare is `lower().digest`."""
        return self._native.digest

    @property
    def input_shape(self) -> tuple[int, ...]:
        """`(C, H, W)` or `(F,)`, without the batch."""
        return tuple(self._spec["input_shape"])

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the answer; `(1,)` where only the top class is revealed."""
        return tuple(self._spec["output_shape"])

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the ONNX network's outputs, where there are several: the answer joins them, flattened, in this order."""
        return {o["name"]: tuple(o["shape"]) for o in self._spec["outputs"]}

    @property
    def output_mode(self) -> Literal["Logits", "Top1"]:
        """What a client learns: all logits, or only the index of the largest."""
        return "Top1" if self._spec["output_mode"] == "Top1" else "Logits"

    @property
    def input_range(self) -> tuple[float, float]:
        """Smallest and largest accepted value of a normalised input (see `normalise`), over all channels; others are refused.

        What was declared (`range=`, or pixels 0 to 255) holds channel by channel: `spec["input"]["declared"]`, as the network takes it.
        """
        low, high = self._spec["input"]["range"]
        return low, high

    @property
    def spec(self) -> dict[str, Any]:
        """What a client needs to know, whatever back end it uses: name, shapes, input normalisation and range, what is revealed.

        How a back end computes is in `lower(backend).describe()`.
        """
        return self._spec

    @property
    def summary(self) -> dict[str, Any]:
        """What the import found out, before any lowering: "calibration", "guessed" (no samples were given), "macs" (multiplications of
        one inference), "rewrites", and the "nodes" of the float network (name, operation, shape)."""
        summary: dict[str, Any] = json.loads(self._native.summary_json())
        return summary

    @one_error
    def lower(self, backend: str | None = None, **options: object) -> Lowered:
        """The model lowered for `backend` with `options` (an unknown name is an error that lists those there are).

        The same lowering is made once. Without arguments it is the model's default, see the class; that one's options also hold for
        the same back end named here, unless given again.
        """
        own, own_options = self._default
        chosen = own if backend is None else backend
        given = (own_options if chosen == own else {}) | options_text(options)
        key = (chosen, tuple(sorted(given.items())))
        if key not in self._lowered:
            self._lowered[key] = Lowered(self._native.lower(chosen, given))
        return self._lowered[key]

    @one_error
    def check(
        self,
        x: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        backend: str | None = None,
        normalised: bool = False,
        **options: object,
    ) -> dict[str, Any]:
        """The lowered model beside the float network on inputs `[N, *input_shape]`, in the clear: what `tacit model check` says.

        A dictionary: "inputs" compared, "refused" as out of range, "agreement" (same class) with its 95 % "interval", "output_error", how many
        inputs "overflowed", "strained" tensors, and with `labels` (the right class of each input) the "accuracy" of both. `backend` and
        `options` as for `lower`.
        """
        rows = as_rows(x, self._spec, normalised)
        right = None
        if labels is not None:
            array = np.asarray(labels)
            if array.shape != (len(rows),) or array.dtype.kind not in "iu" or (array < 0).any():
                raise TacitError(f"check: labels are {len(rows)} whole numbers from 0, one for each input")
            right = [int(label) for label in array]
        lowered = self.lower(backend, **options)._native
        found: dict[str, Any] = json.loads(self._native.check_json(lowered, rows.reshape(-1), right))
        return found

    @property
    def report(self) -> dict[str, Any] | None:
        """What lowering for the default back end found out, for the owner; see `Lowered.report`. `print(model.report_text)` shows it."""
        return self.lower().report

    @property
    def report_text(self) -> str | None:
        """The report as a table for people."""
        return self.lower().report_text

    @one_error
    def normalise(self, x: ArrayLike) -> NDArray[np.float32]:
        """What the model computes on, from inputs of the ONNX network (floats) or raw pixels (unsigned bytes).

        The client does this by itself: pixels are normalised as was said to `import_onnx`, then comes what the importer moved out of
        the network (subtractions, divisions or a batch norm right at its input), per channel from `spec["input"]`.
        """
        return normalise(as_float32(x, "input"), self._spec, is_pixels(x))

    @one_error
    def run(self, x: ArrayLike, *, normalised: bool = False) -> NDArray[np.float64]:
        """The float network in the clear: the truth that every back end is compared with.

        `x` has the shape `input_shape`, or `[N, *input_shape]`: inputs of the ONNX network (floats) or raw pixels (unsigned bytes),
        unless they are `normalised` already (see `normalise`). Returns `[outputs]` or `[N, outputs]`: the outputs of the ONNX network,
        or in top-1 mode the class index.
        """
        return each_input(x, self._spec, self._native.run, normalised)

    @one_error
    def reference(self, x: ArrayLike, *, normalised: bool = False) -> NDArray[np.float64]:
        """The default back end's own reference, in the clear: what a private run computes, within its declared error.

        Inputs and results as for `run`. For "cheetah" it is the network in fixed point.
        """
        return self.lower().reference(x, normalised=normalised)

    @one_error
    def reference_integers(self, x: ArrayLike, *, normalised: bool = False) -> NDArray[np.int64]:
        """As `reference`, but the integers that the real numbers stand for: what an answer's error is counted in. An error where a
        back end's answers are no integers."""
        return self.lower().reference_integers(x, normalised=normalised)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the bytes of its `.tacit` file, weights included."""
        backend, options = self._default
        return _unpickled, (self.to_bytes(), backend, options)

    def __repr__(self) -> str:
        return f"<tacit.Model {self.name!r} input={self.input_shape} output={self.output_shape} {self.digest[:12]}>"


def _unpickled(data: bytes, backend: str, options: dict[str, str]) -> Model:
    return Model.from_bytes(data, backend=backend, options=options)


@runtime_checkable
class Serialises(Protocol):
    """An ONNX network in memory: `onnx.ModelProto`."""

    def SerializeToString(self) -> bytes:
        """Its bytes."""


@one_error
def import_onnx(
    source: str | PathLike[str] | bytes | Serialises,
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
    backend: str = DEFAULT,
    options: Options | None = None,
) -> Model:
    """Imports an ONNX network: a path, its bytes or an `onnx.ModelProto`; with external data only a path, the data being beside the file.

    `calibrate` are typical inputs, `[N, *input]`: floats as the network takes them, or unsigned bytes (raw pixels), which are
    normalised first as `(pixel * pixel_scale - mean) / std` per channel. Without samples the importer uses seeded inputs in
    `range`, and headroom is a guess: a warning says so. `output` is what clients learn: all logits, or only the top-1 class.

    The model is not lowered yet; `backend` and `options` are its default lowering, see `Model.lower`. `frac_bits` and
    `weight_bits` are short for the options of these names, which back ends that compute in fixed point have: ring widths and
    fraction bits are chosen from the samples unless they fix them.
    """
    check_backend(backend)
    if output not in ("logits", "top1"):
        raise TacitError(f'output: "logits" or "top1" is needed, got {output!r}')
    if range is not None and len(range) != 2:
        raise TacitError(f"import_onnx: range takes two numbers, (low, high), got {range!r}")
    folder: str | None = None
    if isinstance(source, bytes | bytearray | memoryview):
        data = bytes(source)
    elif isinstance(source, Serialises):
        data = source.SerializeToString()
    else:
        data, folder = read_bytes(source), str(Path(source).parent)
    samples = None
    if calibrate is not None:
        raw = getattr(calibrate, "dtype", None) == np.uint8
        array = as_float32(calibrate, "calibrate")
        samples = (list(array.shape), array.reshape(-1), raw)
    native = _tacit.Model.import_onnx(
        data,
        samples,
        name,
        output == "top1",
        None if range is None else list(range),
        (pixel_scale, list(mean), list(std)),
        max_samples,
        seed,
        folder,
    )
    model = Model(native, backend, {"frac_bits": frac_bits, "weight_bits": weight_bits} | dict(options or {}))
    if model.summary["guessed"]:
        warnings.warn(NO_SAMPLES, UserWarning, stacklevel=3)
    return model
