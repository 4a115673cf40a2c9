"""Shapes and types of inputs, outputs and options at the border to the native module."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit._tacit import TacitError
from tacit._tacit import normalise as normalise_flat
from tacit._tacit import refusals as refusals_flat

T = TypeVar("T", bound=np.generic)

Options = Mapping[str, object]
"""Options of a back end by name; values are numbers, truth values or texts."""


def options_text(options: Options) -> dict[str, str]:
    """Options as the native module takes them; `None` stands for an option that is not given."""
    text = {key: str(value) for key, value in options.items() if value is not None}
    return {key: value.lower() if isinstance(options[key], bool) else value for key, value in text.items()}


def as_float32(values: ArrayLike, what: str) -> NDArray[np.float32]:
    """A contiguous float32 array; integers and other floats are converted, anything else is refused."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # ragged nested lists
        raise TacitError(f"{what}: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TacitError(f"{what}: an array of numbers is needed, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float32)


def is_pixels(values: ArrayLike) -> bool:
    """Unsigned bytes are raw pixels."""
    return getattr(values, "dtype", None) == np.uint8


def normalise(values: NDArray[np.float32], spec: dict[str, Any], pixels: bool) -> NDArray[np.float32]:
    """What the model computes on: of `pixels` first `(value * pixel_scale - mean) / std`, then what the importer moved out of the
    network, each per channel as the model's interface states it. `values` is one input, or a batch with one more axis in front.
    """
    shape = tuple(spec["input_shape"])
    if values.shape not in (shape, values.shape[:1] + shape):
        raise TacitError(f"input: shape {values.shape} is neither {shape} nor {('N', *shape)}")
    return normalise_flat(json.dumps(spec), values.reshape(-1), pixels).reshape(values.shape)


def each_input(
    values: ArrayLike,
    spec: dict[str, Any],
    run: Callable[[NDArray[np.float32]], NDArray[T]],
    normalised: bool = False,
) -> NDArray[T]:
    """Applies `run` to the one input that the model takes, or to each input of a batch `[N, *input]`.

    Unsigned bytes are raw pixels, other numbers inputs of the ONNX network, or what the model computes on if they are `normalised`;
    `run` takes that as a flat array and returns a one-dimensional one. The result has a leading axis of N for a batch.
    """
    rows = as_rows(values, spec, normalised)
    answers = np.stack([run(row) for row in rows])
    return answers if is_batch(values, spec) else answers[0]


def refusals(rows: NDArray[np.float32], spec: dict[str, Any]) -> dict[int, str]:
    """Of rows `[N, values]` (see `as_rows`) those that the model refuses, each with feature, value and what to do."""
    return dict(refusals_flat(json.dumps(spec), rows.reshape(-1)))


def is_batch(values: ArrayLike, spec: dict[str, Any]) -> bool:
    """Whether these are inputs `[N, *input]`, not one."""
    return np.ndim(values) > len(spec["input_shape"])


def as_rows(values: ArrayLike, spec: dict[str, Any], normalised: bool = False) -> NDArray[np.float32]:
    """What the model computes on, `[N, values]`, for one input or several; see `each_input`."""
    shape = tuple(spec["input_shape"])
    array = as_float32(values, "input")
    if array.shape not in (shape, array.shape[:1] + shape):
        batch = ", ".join(str(n) for n in ("N", *shape))
        raise TacitError(f"input: shape {array.shape} is neither {shape} nor ({batch})")
    if not normalised:
        array = normalise(array, spec, is_pixels(values))
    if array.shape == shape:
        return array.reshape(1, -1)
    if len(array) == 0:
        raise TacitError("input: the batch is empty")
    return array.reshape(len(array), -1)


def integer_unit(unit: float | None, backend: str) -> float:
    """The output's unit in the last place, for a caller who wants integers."""
    if unit is None:
        raise TacitError(f"answers of the back end {backend} are real numbers, not integers: use infer and reference")
    return unit


def to_integers(values: NDArray[np.float64], unit: float) -> NDArray[np.int64]:
    """The integers that real answers stand for, in units of the output's last place; a NaN is refused, since no integer is one."""
    if not np.isfinite(values).all():
        raise TacitError("the answer is no number: the input takes the model beyond the numbers that it computes with")
    return np.rint(values / unit).astype(np.int64)
