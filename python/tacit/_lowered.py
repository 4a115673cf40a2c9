"""Back ends, and models lowered for one of them."""

import json
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _tacit
from tacit._arrays import each_input, integer_unit, to_integers
from tacit._errors import one_error, unpicklable
from tacit._plan import Planned
from tacit._tacit import TacitError

DEFAULT = _tacit.default_backend()

Trust = Literal["two-party", "dealer", "server-sees-input"]


@dataclass(frozen=True)
class Backend:
    """A way to compute a model's answers."""

    id: str
    """Its name, as `backend=` takes it."""
    about: str
    """One line for people."""
    trust: Trust
    """Whom its users must trust. "two-party": client and server each follow the protocol, nobody else is needed. "dealer": also a
    third party, which works with neither of them. "server-sees-input": the server sees the input, so this is no private inference but
    a lower bound to compare with; `serve` refuses it without `allow_clear=True`, and a client uses it only if it names it."""


def backends() -> tuple[Backend, ...]:
    """The back ends of this version, each with one line about it and whom it asks to trust."""
    return tuple(Backend(**one) for one in json.loads(_tacit.backends_json()))


def check_backend(name: str) -> None:
    """Refuses a name of no back end, before anything is done for it."""
    known = [backend.id for backend in backends()]
    if name not in known:
        raise TacitError(f"there is no back end {name!r}; there are {', '.join(known)}")


class Lowered(Planned):
    """A model lowered for one back end: what a server needs of it, weights included. Keep it at the server.

    Made by `Model.lower` or `Lowered.load`.
    """

    _native: _tacit.Lowered

    def __init__(self, native: _tacit.Lowered) -> None:
        self._native = native
        self._plan: dict[str, Any] = json.loads(native.plan_json())
        self._origin: dict[str, Any] = json.loads(native.origin_json())

    @classmethod
    @one_error
    def load(cls, path: str | PathLike[str], *, seal: str | None = None) -> Self:
        """Reads a file that `save` or `tacit model lower` wrote; `seal` as for `Model.load`."""
        return cls(_tacit.Lowered.load(fspath(path), seal))

    @one_error
    def save(self, path: str | PathLike[str], *, seal: str | None = None) -> None:
        """Writes a file that only its owner may read; `seal` as for `Model.save`.

        `tacit serve MODEL.tacit` takes it instead of lowering again if it lies beside the model as `MODEL.BACKEND.lowered`.
        """
        self._native.save(fspath(path), seal)

    @property
    def options(self) -> dict[str, str]:
        """The options that were given; all others have the back end's defaults."""
        return dict(self._origin["options"])

    @property
    def trust(self) -> Trust:
        """Whom the back end's users trust, see `Backend.trust`."""
        trust: Trust = self._origin["trust"]
        return trust

    @property
    def model_digest(self) -> str:
        """`Model.digest` of the model that it was made from."""
        return self._native.model_digest

    @property
    def costs(self) -> dict[str, Any]:
        """What the plan says it costs: "setup", "offline" and "online", each with bytes both ways, message exchanges, and for each party
        primitive work, peak memory and stored bytes; and "comparisons"."""
        costs: dict[str, Any] = self._plan["costs"]
        return costs

    @property
    def numerics(self) -> Any:
        """How private answers relate to `reference`: "exact", or the kind of error and its parameters."""
        return self._plan["numerics"]

    @property
    def preparation(self) -> Literal["two-party", "dealt", "nothing"]:
        """Where the material for an input comes from: both parties together, a third one, or none is needed."""
        made: Literal["two-party", "dealt", "nothing"] = self._plan["preparation"]
        return made

    @property
    def setup(self) -> Literal["nothing", "before-offline", "before-online"]:
        """Which phase a connection needs keys for, if any."""
        setup: Literal["nothing", "before-offline", "before-online"] = self._plan["setup"]
        return setup

    @property
    def report(self) -> dict[str, Any] | None:
        """What the lowering found out, for the owner; for "cheetah" the agreement with the float model, and for each layer its ring,
        headroom in bits, error and comparisons. `None` after `load`, and for back ends that have nothing to report."""
        report = self._native.report_json()
        return None if report is None else json.loads(report)

    @property
    def report_text(self) -> str | None:
        """The report as a table for people."""
        return self._native.report_text()

    @one_error
    def reference(self, x: ArrayLike, *, normalised: bool = False) -> NDArray[np.float64]:
        """The back end's own reference, in the clear: what a private run computes, within `error_bound`.

        `x` as for `Model.run`. Returns `[outputs]` or
        `[N, outputs]`: real-valued logits, or in top-1 mode the class index.
        """
        return each_input(x, self.spec, lambda flat: self._native.finish(self._native.reference(flat)), normalised)

    @one_error
    def reference_integers(self, x: ArrayLike, *, normalised: bool = False) -> NDArray[np.int64]:
        """As `reference`, but the integers that the real numbers stand for; an error where answers are no integers."""
        unit = integer_unit(self.output_unit, self.backend)
        return to_integers(each_input(x, self.spec, self._native.reference, normalised), unit)

    @one_error
    def error_bound(self, reference: ArrayLike) -> float:
        """Largest difference that an honest answer has from the `reference` of the same input: a worst case, whatever it says. Large
        networks stay far below, and it may exceed the outputs by any factor: `useful_error_bound` is what programs print, and
        `report["errors"]["expected"]` the error to expect. Infinite for top-1, where a small error may be another class."""
        return self._native.error_bound(_one_reference("error_bound", reference))

    @one_error
    def useful_error_bound(self, reference: ArrayLike) -> float | None:
        """The `error_bound` where it says something: where it is less than these outputs are apart (of a single one: than its
        magnitude). `None` where it is not, as in what `tacit bench` and `tacit model check --run` state."""
        return self._native.useful_error_bound(_one_reference("useful_error_bound", reference))

    def __reduce__(self) -> tuple[Any, ...]:
        unpicklable(self, "save it to a file (`save`) and load that, or pickle the Model and lower it again")

    def __repr__(self) -> str:
        return f"<tacit.Lowered {self.spec['name']!r} for {self.backend} {self.digest[:12]}>"


def _one_reference(name: str, reference: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(reference, np.float64)
    if array.ndim != 1:
        raise TacitError(f"{name}: the reference of one input is needed, got shape {array.shape}")
    return np.ascontiguousarray(array)
