"""One type for everything that goes wrong: `TacitError`."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tacit._tacit import TacitError

P = ParamSpec("P")
R = TypeVar("R")

WRONG_ARGUMENTS = (TypeError, ValueError, OverflowError, AttributeError, KeyError, OSError)


def one_error(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a `TacitError` of what Python itself says of arguments of the wrong kind. Every public function has it."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except WRONG_ARGUMENTS as error:
            raise TacitError(f"{function.__qualname__.removesuffix('.__init__')}: {error}") from error

    return guarded
