"""Numbers as people read them, and tables of them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NONE = "\u2013"


@dataclass(frozen=True)
class Stat:
    """Mean and sample standard deviation (absent for a single value) of `n` values."""

    n: int
    mean: float
    sd: float | None

    def scaled(self, factor: float) -> "Stat":
        """In another unit."""
        return Stat(self.n, self.mean * factor, None if self.sd is None else self.sd * abs(factor))


def stat(values: Sequence[float | None]) -> Stat | None:
    """Over the values that are there; nothing if there are none."""
    present = [v for v in values if v is not None]
    if not present:
        return None
    mean = float(np.mean(present))
    if len(present) == 1:
        return Stat(1, mean, None)
    sd = float(np.std(present, ddof=1))
    # What is left of equal values is rounding.
    return Stat(len(present), mean, sd if sd > abs(mean) * 1e-9 else 0.0)


def decimals(value: float, digits: int = 3) -> int:
    """Decimal places that show `digits` significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    return min(max(0, digits - 1 - math.floor(math.log10(abs(value)))), 9)


def plain(value: float | None, digits: int = 3) -> str:
    """Three significant digits, thousands grouped, without an exponent where one can do without."""
    if value is None:
        return NONE
    if value != 0 and abs(value) < 1e-6:
        return f"{value:.2g}"
    return f"{value:,.{decimals(value, digits)}f}".replace("-", "\u2212")


def brief(value: float) -> str:
    """Four significant digits at most, without trailing zeros."""
    text = plain(value, 4)
    return text.rstrip("0").rstrip(".") if "." in text else text


def spread(value: Stat | None) -> str:
    """`mean ± SD`, the mean alone where there is one value."""
    if value is None:
        return NONE
    if value.sd is None:
        return plain(value.mean)
    if value.sd == 0:
        return f"{plain(value.mean)} \u00b1 0"
    places = decimals(value.mean)
    if 0 < value.sd < value.mean:
        # As many digits as the SD makes meaningful: two of its own, but not beyond four of the mean's.
        places = min(decimals(value.sd, 2), decimals(value.mean, 4))
    return f"{value.mean:,.{places}f} \u00b1 {value.sd:,.{places}f}".replace("-", "\u2212")


def percent(value: float) -> str:
    """A signed deviation in percent."""
    return f"{value * 100:+.1f} %".replace("-", "\u2212")


@dataclass(frozen=True)
class Table:
    """Rows of text under column titles (with units); `note` says what a reader must know."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""

    def right_aligned(self, column: int) -> bool:
        """Whether the column holds numbers."""
        cells = [row[column] for row in self.rows]
        return any(_NUMBER.match(c) for c in cells) and all(c in ("", NONE, BELOW_NOISE) or _NUMBER.match(c) for c in cells)

    def without_empty_columns(self) -> "Table":
        """Leaves out columns that say nothing in any row."""
        keep = [i for i in range(len(self.columns)) if any(row[i] not in ("", NONE) for row in self.rows)]
        rows = tuple(tuple(row[i] for i in keep) for row in self.rows)
        return Table(tuple(self.columns[i] for i in keep), rows, self.title, self.note)


BELOW_NOISE = "below noise"
_NUMBER = re.compile(r"[+\u2212]?[\d,.]+(e-\d+)?( \u00b1 [\d,.]+)?( %|\u00d7)?$")


def slug(text: str) -> str:
    """A file name made of text that came from a file."""
    made = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return made[:60].strip("-") or "all"
