"""Arithmetic on encrypted vectors of real or complex numbers: RNS-CKKS, from parameters to bootstrapping.

    context = ckks.Context("B")
    square = ckks.Polynomial([0, 0, 1])
    secret = context.secret()                                   # the client's
    keys = secret.keys(context.relinearisation_keys(level=6))   # what a server computes with
    sent = secret.encrypt(x, level=6)
    answer = secret.decrypt(keys.polynomial(sent, square))

A circuit says which keys it needs before anything is encrypted: `Transform.keys`, `Bootstrapper.keys`, `Context.rotation_key`.
A key that is missing, or made for a lower level, is a `TacitError` that names it. A client that shows decrypted results to whoever
computed them shows its noise, too: round them first (docs/threat-model.md).

Ctrl-C comes through at once; what was being computed goes on in the background until it is done, and is dropped.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit import _tacit
from tacit._errors import one_error
from tacit._tacit import TacitError

__all__ = [
    "Bootstrapper",
    "Ciphertext",
    "Context",
    "Key",
    "KeySet",
    "Polynomial",
    "SecretKey",
    "SecurityCheck",
    "Transform",
]


@dataclass(frozen=True, order=True)
class Key:
    """A switching key, by what it does."""

    kind: Literal["relinearise", "galois", "to-sparse", "from-sparse"]
    element: int
    """The Galois element; 0 for the other kinds."""
    level: int
    """The highest level that it serves."""
    alpha: int
    """Its special primes."""

    def _native(self) -> tuple[str, int, int, int]:
        return self.kind, self.element, self.level, self.alpha


@dataclass(frozen=True)
class SecurityCheck:
    """A modulus that is used, and the most that 128 bits of security allow at this degree."""

    what: str
    modulus_bits: float
    most_bits: int


def _keys(native: Iterable[tuple[Any, int, int, int]]) -> list[Key]:
    return [Key(*key) for key in native]


def _pairs(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """One-dimensional numbers, as pairs of floats."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiubc" or array.ndim != 1:
        raise TacitError(f"{what}: a vector of numbers is needed, got {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array, dtype=np.complex128).view(np.float64)


class Polynomial:
    """A polynomial with real coefficients, from the constant; of Chebyshev polynomials with `chebyshev=True` (slots in [-1, 1])."""

    @one_error
    def __init__(self, coefficients: ArrayLike, *, chebyshev: bool = False) -> None:
        self._native = _tacit.CkksPolynomial(np.ascontiguousarray(coefficients, dtype=np.float64), chebyshev)

    @property
    def depth(self) -> int:
        """Levels that it takes."""
        return self._native.depth

    @one_error
    def __call__(self, x: ArrayLike) -> NDArray[np.float64]:
        """Its values at real numbers."""
        array = np.asarray(x, dtype=np.float64)
        return np.array([self._native.at(float(one)) for one in array.ravel()]).reshape(array.shape)


class Ciphertext:
    """Encrypted slots. Made by `SecretKey.encrypt`, `Context.read` and the methods of `KeySet`."""

    def __init__(self, native: _tacit.CkksCiphertext) -> None:
        self._native = native

    @property
    def level(self) -> int:
        """Products take a level each; at level 1 only a bootstrap goes on."""
        return self._native.level

    @property
    def slots(self) -> int:
        """Numbers that it holds."""
        return self._native.slots

    @property
    def scale_bits(self) -> float:
        """log2 of its scale."""
        return self._native.scale_bits

    @property
    def precision_bits(self) -> float:
        """Bits that the error leaves of values of size 1, as estimated from what was done to it."""
        return self._native.precision_bits

    @one_error
    def to_bytes(self) -> bytes:
        """Both halves, packed; `Context.read` reads them."""
        return self._native.to_bytes()

    @one_error
    def drop_to(self, level: int) -> "Ciphertext":
        """The same slots at a lower level."""
        return Ciphertext(self._native.drop_to(level))

    def __repr__(self) -> str:
        return f"Ciphertext(slots={self.slots}, level={self.level}, precision_bits={self.precision_bits:.1f})"


class Context:
    """Parameters, checked for 128 bits of security, with their tables."""

    @one_error
    def __init__(self, parameters: str | Mapping[str, Any]) -> None:
        """`parameters` is the name of a set, "A", "B" or "C" (`tacit keyset params` shows them), or a description without
        bootstrapping, for example

            {"log_degree": 13, "base_bits": 50, "segments": [{"count": 2, "bits": 35}], "special_bits": 50,
             "groups": [{"up_to_level": 3, "alpha": 1}], "encapsulated": False}

        with primes of `segments` above the first one, from the lowest, and special primes by level in `groups`.
        """
        native = _tacit.CkksContext
        self._native = native.named(parameters) if isinstance(parameters, str) else native.described(json.dumps(dict(parameters)))
        self._about: dict[str, Any] = json.loads(self._native.describe_json())

    @property
    def degree(self) -> int:
        """Ring degree N."""
        return int(self._about["degree"])

    @property
    def slots(self) -> int:
        """The most slots of a ciphertext, N / 2."""
        return self.degree // 2

    @property
    def levels(self) -> int:
        """The highest level."""
        return int(self._about["levels"])

    @property
    def security(self) -> list[SecurityCheck]:
        """What was checked."""
        return [SecurityCheck(**check) for check in self._about["security"]]

    @one_error
    def secret(self) -> "SecretKey":
        """A fresh secret key."""
        return SecretKey(self._native.secret())

    @one_error
    def read(self, data: bytes, *, magnitude: float = 1.0, deviation: float | None = None) -> Ciphertext:
        """A ciphertext from its bytes. Estimates start from what you expect of it: the root mean square of its slots, and for one that
        is not fresh the deviation of its coefficients' errors.
        """
        return Ciphertext(self._native.read(data, deviation, magnitude))

    @one_error
    def rotation_key(self, steps: int, level: int, *, slots: int | None = None) -> Key | None:
        """The key that rotates by `steps` at `level`; `None` if that moves nothing."""
        key = self._native.rotation_key(self.slots if slots is None else slots, steps, level)
        return None if key is None else _keys([key])[0]

    @one_error
    def conjugation_key(self, level: int) -> Key:
        """The key that conjugates at `level`."""
        return _keys([self._native.conjugation_key(level)])[0]

    @one_error
    def relinearisation_keys(self, level: int, *, down_to: int = 1) -> list[Key]:
        """The keys for products at `level` and at those below, until a result is at `down_to`."""
        return _keys(self._native.relinearisation_keys(level, down_to))


class Transform:
    """A linear transform of the slots at one level; its result is one level lower."""

    @one_error
    def __init__(
        self,
        context: Context,
        diagonals: Mapping[int, ArrayLike],
        *,
        level: int,
        chained: bool = False,
    ) -> None:
        """Slot i of the result is the sum over the offsets k of `diagonals[k][i] * x[i + k]`, round about. Every diagonal has as many
        values as the ciphertext has slots. `chained` needs three keys, and more time.
        """
        values = {int(offset): _pairs(values, f"diagonal {offset}") for offset, values in diagonals.items()}
        self._native = _tacit.CkksTransform(context._native, values, level, chained)

    @property
    def keys(self) -> list[Key]:
        """The keys that it needs."""
        return _keys(self._native.keys())


class Bootstrapper:
    """Takes real slots from the lowest levels back to high ones. Needs parameters with a sparse secret (sets A and B)."""

    @one_error
    def __init__(
        self,
        context: Context,
        *,
        slots: int | None = None,
        stages: tuple[int, int] = (2, 3),
        message_ratio_bits: int | None = None,
        arcsine: bool = False,
        chained: bool = False,
    ) -> None:
        """`stages` are the levels that its two linear transforms take (3, 3 for set A, 2, 3 for set B). One bit more of
        `message_ratio_bits` (8) makes the sine straighter by two bits, and the noise larger by one. `arcsine` corrects the sine for two
        levels more, from 6 bits (7 are best for set A). `chained` needs few keys, and more time.
        """
        many = context.slots if slots is None else slots
        self._native = _tacit.CkksBootstrapper(context._native, many, stages, message_ratio_bits, arcsine, chained)
        self._about: dict[str, Any] = json.loads(self._native.describe_json())

    @property
    def keys(self) -> list[Key]:
        """The keys that it needs."""
        return _keys(self._native.keys())

    @property
    def level_in(self) -> int:
        """The level that it starts from; a ciphertext above it is dropped."""
        return int(self._about["level_in"])

    @property
    def level_out(self) -> int:
        """The level of its result."""
        return int(self._about["level_out"])

    @property
    def failure_log2(self) -> float:
        """log2 of the probability that a bootstrap gives nonsense."""
        return float(self._about["failure_log2"])


class KeySet:
    """The switching keys of one client, and what a server can do with them. Keys hold nothing secret."""

    def __init__(self, native: _tacit.CkksKeys) -> None:
        self._native = native

    @property
    def ids(self) -> list[Key]:
        """The keys that are there."""
        return _keys(self._native.ids())

    @property
    def memory_bytes(self) -> int:
        """Memory that they take."""
        return self._native.memory_bytes

    @one_error
    def add(self, a: Ciphertext, b: Ciphertext | float) -> Ciphertext:
        """Slots of `a` plus those of `b`, or plus one number."""
        if isinstance(b, Ciphertext):
            return Ciphertext(self._native.add(a._native, b._native))
        return Ciphertext(self._native.add_number(a._native, b))

    @one_error
    def sub(self, a: Ciphertext, b: Ciphertext) -> Ciphertext:
        """Slots of `a` less those of `b`."""
        return Ciphertext(self._native.sub(a._native, b._native))

    @one_error
    def multiply(self, a: Ciphertext, b: Ciphertext) -> Ciphertext:
        """Slots of `a` times those of `b`, one level lower."""
        return Ciphertext(self._native.multiply(a._native, b._native))

    @one_error
    def rotate(self, a: Ciphertext, steps: int) -> Ciphertext:
        """Slots moved to the left by `steps`, round about, as `numpy.roll(x, -steps)`."""
        return Ciphertext(self._native.rotate(a._native, steps))

    @one_error
    def conjugate(self, a: Ciphertext) -> Ciphertext:
        """Complex conjugates of the slots."""
        return Ciphertext(self._native.conjugate(a._native))

    @one_error
    def transform(self, a: Ciphertext, transform: Transform) -> Ciphertext:
        """A linear transform of the slots, one level lower."""
        return Ciphertext(self._native.transform(a._native, transform._native))

    @one_error
    def polynomial(self, a: Ciphertext, polynomial: Polynomial) -> Ciphertext:
        """A polynomial of every slot, lower by its depth."""
        return Ciphertext(self._native.polynomial(a._native, polynomial._native))

    @one_error
    def bootstrap(self, a: Ciphertext, bootstrapper: Bootstrapper) -> Ciphertext:
        """The same real slots at a high level."""
        return Ciphertext(self._native.bootstrap(a._native, bootstrapper._native))


class SecretKey:
    """The client's key. It neither leaves this process nor can be printed."""

    def __init__(self, native: _tacit.CkksSecret) -> None:
        self._native = native

    @one_error
    def keys(self, *needs: Key | Sequence[Key] | None) -> KeySet:
        """Switching keys for what a circuit needs; `None` among them needs nothing."""
        all_of = [key for need in needs for key in ([need] if isinstance(need, Key) else need or ())]
        return KeySet(self._native.keys([key._native() for key in all_of]))

    @one_error
    def encrypt(self, slots: ArrayLike, *, level: int) -> Ciphertext:
        """Encrypts a power of two of real or complex numbers, N / 2 at most."""
        return Ciphertext(self._native.encrypt(_pairs(slots, "slots"), level))

    @one_error
    def encrypt_to_bytes(self, slots: ArrayLike, *, level: int) -> bytes:
        """The same to be sent, in half the bytes: a seed stands for one half."""
        return self._native.encrypt_to_bytes(_pairs(slots, "slots"), level)

    @one_error
    def decrypt(self, ciphertext: Ciphertext) -> NDArray[np.complex128]:
        """The slots."""
        return self._native.decrypt(ciphertext._native).view(np.complex128)
