"""Prints lines, JSON and errors as the Rust programs do."""

import io
import json
import sys

from tacit._text import lines


def prepare() -> None:
    """Makes both streams UTF-8, whatever the locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


def line(text: str) -> None:
    """A line on standard output, without control codes of a terminal."""
    print(lines(text), flush=True)


def as_json(value: object, sort: bool = True, indent: int | None = 2) -> None:
    """A value as JSON on standard output, keys sorted unless told otherwise."""
    separators = None if indent else (",", ":")
    line(json.dumps(value, indent=indent, sort_keys=sort, ensure_ascii=False, separators=separators))


def error(text: str, in_json: bool) -> None:
    """An error on standard error, as JSON if asked for."""
    said = json.dumps({"error": text}, ensure_ascii=False, separators=(",", ":")) if in_json else f"error: {text}"
    print(lines(said), file=sys.stderr)
