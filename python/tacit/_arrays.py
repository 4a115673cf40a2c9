"""Shapes and types of inputs and outputs at the border to the native module."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit._tacit import TacitError


def as_float32(values: ArrayLike, what: str) -> NDArray[np.float32]:
    """A contiguous float32 array; integers and other floats are converted, anything else is refused."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # ragged nested lists
        raise TacitError(f"{what}: {error}") from None
    if array.dtype.kind not in "fiub":
        raise TacitError(f"{what}: an array of numbers is needed, got {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float32)


def each_input(
    values: ArrayLike,
    shape: tuple[int, ...],
    run: Callable[[NDArray[np.float32]], NDArray],
) -> NDArray:
    """Applies `run` to the one input of `shape`, or to each input of a batch `[N, *shape]`.

    `run` takes a flat array and returns a one-dimensional one. The result has a leading axis of N for a batch.
    """
    array = as_float32(values, "input")
    if array.shape == shape:
        return run(array.reshape(-1))
    if array.shape[1:] == shape:
        if len(array) == 0:
            raise TacitError("input: the batch is empty")
        return np.stack([run(one.reshape(-1)) for one in array])
    batch = ", ".join(str(n) for n in ("N", *shape))
    raise TacitError(f"input: shape {array.shape} is neither {shape} nor [{batch}]")
