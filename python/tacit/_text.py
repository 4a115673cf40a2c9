"""Text of others, as a terminal may show it: what `tacit_foreign::text` is to the programs."""

import unicodedata
from typing import Any, TypeVar, cast

T = TypeVar("T")

MOST = 2000
"""Most characters that a text of others keeps."""
HIDDEN = "\ufffd"
"""What stands for a character that a terminal would obey."""
# Control characters, characters without a look of their own (marks of direction, too), line and paragraph separators.
_OBEYED = {"Cc", "Cf", "Zl", "Zp"}


def plain(text: str) -> str:
    """The text in one line of `MOST` characters at most."""
    shown = [" " if c in "\n\t" else HIDDEN if unicodedata.category(c) in _OBEYED else c for c in text[: MOST + 1]]
    return "".join(shown) if len(shown) <= MOST else "".join(shown[:MOST]) + "..."


def plainly(told: T) -> T:
    """What was decoded from JSON, with every text of it plain."""
    return cast(T, _plainly(told))


def _plainly(told: Any) -> Any:
    match told:
        case str():
            return plain(told)
        case list():
            return [_plainly(one) for one in told]
        case dict():
            return {plain(key): _plainly(value) for key, value in told.items()}
        case _:
            return told


def lines(text: str) -> str:
    """Own output that may contain text of others: what a terminal would obey, but line ends and tabs, as JSON escapes."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _OBEYED else _escape(c) for c in text)


def _escape(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
