"""Reading values that come from files: whatever is there, the result has the type that was asked for, or there is a clear error."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tacit._tacit import TacitError

# A record's longest honest line (a thousand cores) has some 100 kB.
MAX_LINE = 16 << 20
MAX_TEXT = 20_000
# No figure of the lab is larger (bytes, nanoseconds, hertz), and what is smaller is 0. Beyond, arithmetic and plots overflow.
LARGEST = 1e30
SMALLEST = 1e-30

Object = Mapping[str, Any]


def parse(line: bytes | str, where: str) -> dict[str, Any]:
    """One JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TacitError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise TacitError(f"{where}: a JSON object is needed, this is {type(value).__name__}")
    return value


def lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """The lines of a file, one at a time: number from 1, text, and whether the line is whole (ends with a newline)."""
    try:
        with path.open("rb") as file:
            yield from _each_line(file, path)
    except OSError as error:
        raise TacitError(f"{path}: {error.strerror or error}") from None


def _each_line(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes, bool]]:
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        whole = line.endswith(b"\n")
        if not whole and len(line) == MAX_LINE:
            raise TacitError(f"{path}, line {number}: longer than {MAX_LINE >> 20} MiB; this is not a file of the lab")
        if line.strip():
            yield number, line, whole


def clean(value: object) -> str:
    """Text that every output format can hold: no control characters, no lone surrogates, not endless."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def text(source: Object, key: str, default: str = "") -> str:
    """A text, cleaned."""
    return clean(source.get(key, default))


def texts(source: Object, key: str) -> dict[str, str]:
    """A map of texts."""
    return {clean(k): clean(v) for k, v in objects(source, key).items()}


def number(source: Object, key: str) -> float | None:
    """A number of a possible size, or nothing."""
    return as_number(source.get(key))


def as_number(value: object) -> float | None:
    """A number of a possible size, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        made = float(value)
    except OverflowError:
        return None
    if not math.isfinite(made) or abs(made) > LARGEST:
        return None
    return made if abs(made) >= SMALLEST else 0.0


def amount(source: Object, key: str) -> float:
    """A finite number; 0 where it is missing."""
    return number(source, key) or 0.0


def numbers(source: Object, key: str) -> dict[str, float]:
    """A map of finite numbers; others are left out."""
    found = {clean(k): as_number(v) for k, v in objects(source, key).items()}
    return {k: v for k, v in found.items() if v is not None}


def objects(source: Object, key: str) -> dict[str, Any]:
    """An object; empty where it is missing."""
    value = source.get(key)
    return value if isinstance(value, dict) else {}


def items(source: Object, key: str) -> list[Any]:
    """A list; empty where it is missing."""
    value = source.get(key)
    return value if isinstance(value, list) else []


def check_version(source: Object, known: int, where: str) -> None:
    """Refuses what a later tacit has written."""
    version = source.get("version")
    if version != known or isinstance(version, bool):
        raise TacitError(
            f"{where}: version {clean(version)} of the format; this tacit reads version {known}: use the tacit that wrote it"
        )
