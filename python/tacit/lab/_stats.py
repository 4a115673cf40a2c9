"""Means with confidence intervals, and the ratio of two means with its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

CONFIDENCE = 0.95
"""Confidence of an interval, two-sided."""
NORMAL = 1.959963984540054
"""The bound for infinitely many degrees of freedom; with fewer, the bound is larger."""
Interval = tuple[float, float]
"""Two ends, the lower one first."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


@dataclass(frozen=True)
class Summary:
    """A sample's size, mean and standard deviation (n - 1 in the denominator; 0 for a single value)."""

    n: int
    mean: float
    sd: float

    @staticmethod
    def of(values: Sequence[float]) -> "Summary | None":
        """The summary of `values`; nothing if there is none or one is not finite. Two passes, so a large mean costs no digits."""
        if not values or not all(map(math.isfinite, values)):
            return None
        # Exact for equal values; a sum divided by n is often one ulp off and would add a spread.
        mean = values[0] + sum(v - values[0] for v in values) / len(values)
        squares = sum((v - mean) * (v - mean) for v in values)
        sd = math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0
        return Summary(len(values), mean, sd) if math.isfinite(mean) and math.isfinite(sd) else None

    def with_shared(self, shared: Sequence[float]) -> "Summary":
        """Adds standard uncertainties that the values have in common: more values do not make their mean square smaller."""
        square = sum(u * u for u in shared) / max(len(shared), 1)
        return replace(self, sd=math.sqrt(self.sd * self.sd + self.n * square))

    @property
    def mean_variance(self) -> float:
        """Variance of the mean."""
        return self.sd * self.sd / self.n


def t_quantile(freedom: float) -> float:
    """The bound that |t| stays below with probability `CONFIDENCE`, for `freedom` degrees of freedom (at least 1).

    With t = sqrt(f) tan(a), the probability is an integral of cos^(f-1) from 0 to a. It rises ever slower with a, so Newton's steps
    from below never pass the root.
    """
    f = max(freedom, 1.0)
    scale = 2 / math.sqrt(math.pi) * math.exp(math.lgamma((f + 1) / 2) - math.lgamma(f / 2))
    angle = math.atan(NORMAL / math.sqrt(f))
    for _ in range(100):
        covered = scale * angle / 2 * float(_WEIGHTS @ np.cos(angle / 2 * (1 + _NODES)) ** (f - 1))
        step = (CONFIDENCE - covered) / (scale * math.cos(angle) ** (f - 1))
        angle += step
        if abs(step) < 1e-14 * angle:
            break
    return math.sqrt(f) * math.tan(angle)


def ratio(a: Summary, b: Summary) -> float | None:
    """`a`'s mean over `b`'s; nothing if `b`'s mean is zero."""
    made = a.mean / b.mean if b.mean else math.inf
    return made if math.isfinite(made) else None


def fieller(a: Summary, b: Summary) -> Interval | None:
    """Fieller's interval of `a`'s mean over `b`'s, which is not zero; nothing if the values are too few or too noisy.

    It has all r for which a Student test on mean(a) - r mean(b) finds no difference from zero. The samples are independent with
    variances of their own (degrees of freedom by Welch and Satterthwaite). The interval needs no seeds, is exact for normal values of
    known variance ratio, and is unbounded, hence absent, if `b` may be zero.
    """
    if a.n < 2 or b.n < 2:
        return None
    made = a.mean / b.mean
    va, vb = a.mean_variance, b.mean_variance
    spread = va + made * made * vb
    if spread == 0:
        return made, made
    share = va / spread
    t2 = t_quantile(1 / (share * share / (a.n - 1) + (1 - share) * (1 - share) / (b.n - 1))) ** 2
    # (ma - r mb)^2 <= t^2 (va + r^2 vb), a quadratic in r.
    square = b.mean * b.mean - t2 * vb
    if square <= 0:
        return None
    half = a.mean * b.mean
    root = math.sqrt(max(half * half - square * (a.mean * a.mean - t2 * va), 0.0))
    low, high = (half - root) / square, (half + root) / square
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None
