"""Figures of the documents, each bound to the commands that compute it and to keys of their JSON output.

`lab/experiments/figures.toml` holds texts as they stand in a document, with an expression in braces for each number.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit._tacit import TacitError

_BRACES = re.compile(r"\{([^}]*)\}")
# A sign, digits, and `.` or `,` between digits; without a second try, so that no number is found in part.
_NUMBER = r"-?+[0-9]++(?:[.,][0-9]++)*+"
_FORM = re.compile(r"(,|kB|MB|GB|MiB|%|)(?:\.(\d+))?")
_UNITS = {"": 1.0, ",": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "MiB": float(1 << 20), "%": 0.01}


@dataclass(frozen=True)
class Figures:
    """Commands, and the texts of one document (below the clone) with their numbers.

    commands: what prints the numbers as JSON; several give an array of their outputs. after: what creates their input files, in an
    empty folder that all commands share. needs: a required file of the shared data. heavy: whether it takes more than some seconds.
    """

    document: str
    commands: list[str]
    texts: list[str]
    after: list[str] = field(default_factory=list)
    needs: str | None = None
    heavy: bool = False


def refuse(text: str, detail: str) -> TacitError:
    """An error in `figures.toml`, or between it and the output of a command."""
    return TacitError(f"figures.toml, {json.dumps(text, ensure_ascii=False)}: {detail}")


@dataclass(frozen=True)
class Number:
    """Sums of pointers, `above` over `below` if there are any, and their form."""

    above: Sequence[str]
    below: Sequence[str]
    unit: str
    decimals: int

    def write(self, value: object) -> str:
        """The number as the document has it."""
        made = _sum(self.above, value) / (_sum(self.below, value) if self.below else 1.0) / _UNITS[self.unit]
        return f"{made:{',' if self.unit == ',' else ''}.{self.decimals}f}"


class Template:
    """A text with `{expression:form}` in place of its numbers.

    An expression is one or more pointers (RFC 6901) joined by ` + `, or two such sums joined by ` over `. A step `key=value` chooses
    the element of an array in which `key` is that text. A form is a unit (`kB`, `MB`, `GB`, `MiB`, `%`) and `.` with the number of
    decimals; `,` separates thousands; without one it is whole.
    """

    def __init__(self, text: str) -> None:
        """Raises `TacitError` for an unmatched brace, an invalid form, or a text that begins with a number."""
        parts = _BRACES.split(text)
        self.texts, self.numbers = parts[::2], [_parse(text, inside) for inside in parts[1::2]]
        if any("{" in literal for literal in self.texts):
            raise refuse(text, "a brace is not closed")
        if not self.numbers or not self.texts[0]:
            raise refuse(text, "it begins with a number, or has none")

    def filled(self, value: object) -> str:
        """The text with the numbers of `value`; raises `TacitError` if it lacks one."""
        numbers = [*(number.write(value) for number in self.numbers), ""]
        return "".join(literal + number for literal, number in zip(self.texts, numbers, strict=True))

    def places(self, document: str) -> list[tuple[int, int]]:
        """Where `document` has the text with any numbers: characters from and to."""
        pattern = _NUMBER.join(map(re.escape, self.texts))
        return [found.span(1) for found in re.finditer(f"(?=({pattern}))", document)]


def _parse(text: str, inside: str) -> Number:
    expression, _, form = inside.rpartition(":") if ":" in inside else (inside, "", "")
    above, over, below = expression.partition(" over ")
    sums = above.split(" + "), below.split(" + ") if over else []
    written = _FORM.fullmatch(form)
    if not written or not all(pointer.startswith("/") for pointers in sums for pointer in pointers):
        raise refuse(text, f"{{{inside}}} is no expression")
    return Number(*sums, written[1], int(written[2] or 0))


def _sum(pointers: Sequence[str], value: object) -> float:
    return sum(_look_up(pointer, value) for pointer in pointers)


def _look_up(pointer: str, value: object) -> float:
    """The number at a pointer."""
    at = value
    for escaped in pointer.split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        try:
            at = _choose(at, step)
        except (LookupError, TypeError, ValueError, StopIteration):
            raise refuse(pointer, f"the command prints no `{step}` there") from None
    if isinstance(at, bool) or not isinstance(at, int | float):
        printed = json.dumps(at, ensure_ascii=False, separators=(",", ":"))
        raise refuse(pointer, f"the command prints {printed}, which is no number")
    return float(at)


def _choose(at: Any, step: str) -> Any:
    key, chooses, wanted = step.partition("=")
    if isinstance(at, Mapping):
        return at[step]
    if chooses:
        return next(one for one in at if one.get(key) == wanted)
    return at[int(step)] if step.isdigit() else at[step]
