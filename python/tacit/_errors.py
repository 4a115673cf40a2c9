"""One type for everything that goes wrong: `TacitError`."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from tacit._tacit import TacitError

P = ParamSpec("P")
R = TypeVar("R")

WRONG_ARGUMENTS = (TypeError, ValueError, OverflowError, AttributeError, KeyError, OSError)


class WrongCall(TypeError):
    """Arguments that a function does not have, or lacks: a mistake in the program that calls, as for any Python function."""


def one_error(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a `TacitError` of what Python itself says of arguments of the wrong kind. Every public function has it. A call that does not fit
    the function's signature stays a `TypeError`."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except WrongCall:
            raise
        except WRONG_ARGUMENTS as error:
            if isinstance(error, TypeError) and not _fits(function, args, kwargs):
                raise WrongCall(str(error)) from None
            raise TacitError(f"{function.__qualname__.removesuffix('.__init__')}: {error}") from error

    return guarded


def _fits(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def unpicklable(thing: object, instead: str) -> NoReturn:
    """Why something is not pickled, and what to do."""
    raise TypeError(f"a tacit.{type(thing).__name__} cannot be pickled: {instead}")
