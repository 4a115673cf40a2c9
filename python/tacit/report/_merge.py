"""Merging k runs of different length, as [PM24] section 4.3 does.

The time stamps of run i are multiplied by t*/t_i, where t_i is its length and t* the mean length; then time is cut into slots (1 s in
the paper), and each slot has the mean and the standard deviation over the runs of the run's mean power in it.

Power itself is not rescaled. So the merged curve keeps the mean of the runs' mean powers exactly: its energy is t* times that mean, which
is the mean energy of the runs where they are equally long. Values here come from cumulative counters (joules, processor
seconds, bytes), so a slot's mean is the counter's difference over the slot's length, weighted by time whatever the sampling was.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_SLOTS = 1000
MIN_SLOTS = 20


@dataclass(frozen=True)
class Curve:
    """A counter over the time of one run: `t` in seconds, rising from 0; `total` since `t = 0`."""

    t: Floats
    total: Floats


@dataclass(frozen=True)
class Merged:
    """Per slot: the mean rate over the runs, and its sample standard deviation (absent for one run). `edges` has one entry more."""

    edges: Floats
    mean: Floats
    sd: Floats | None
    runs: int

    @property
    def duration_s(self) -> float:
        """t*, the mean length of the runs."""
        return float(self.edges[-1])

    @property
    def overall(self) -> float:
        """The mean rate over all slots, weighted by their length."""
        return float(np.average(self.mean, weights=np.diff(self.edges)))


def slot_edges(duration_s: float, slot_s: float) -> Floats:
    """Slots of `slot_s` from 0 to `duration_s`; the last one is shorter where it does not divide."""
    whole = int(duration_s / slot_s * (1 + 1e-9))
    edges: Floats = np.arange(whole + 1, dtype=np.float64) * slot_s
    if duration_s - edges[-1] > 1e-9 * duration_s:
        return np.append(edges, duration_s)
    edges[-1] = duration_s
    return edges


def merge(curves: Sequence[Curve], slot_s: float = 1.0) -> Merged:
    """Merges one or more curves of positive length."""
    lengths = np.array([c.t[-1] for c in curves])
    mean_length = float(lengths.mean())
    edges = slot_edges(mean_length, slot_s)
    rates = np.stack([_rates(c, edges * (length / mean_length)) for c, length in zip(curves, lengths, strict=True)])
    sd: Floats | None = rates.std(axis=0, ddof=1) if len(curves) > 1 else None
    return Merged(edges, rates.mean(axis=0), sd, len(curves))


def _rates(curve: Curve, edges: Floats) -> Floats:
    made: Floats = np.diff(np.interp(edges, curve.t, curve.total)) / np.diff(edges)
    return made


def choose_slot(duration_s: float, interval_s: float) -> float:
    """1 s as in the paper; finer for runs that would have less than 20 slots, as far as the sampling allows; coarser beyond 1000 slots."""
    if duration_s > MAX_SLOTS:
        return float(np.ceil(duration_s / MAX_SLOTS))
    if duration_s >= MIN_SLOTS:
        return 1.0
    fine = [s for s in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001) if s >= interval_s * 0.999]
    return next((s for s in fine if duration_s / s >= MIN_SLOTS), min([1.0, *fine]))
