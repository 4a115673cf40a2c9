"""Energy of a cell's party over the repetitions: gross, net, uncertainty, provenance."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tacit.report._cells import Group, megabytes
from tacit.report._format import BELOW_NOISE, Stat, spread, stat
from tacit.report._load import PROVENANCES, Run


@dataclass(frozen=True)
class Account:
    """Means over the runs. `net_error_j` is the larger of the SD over the runs and the root mean square of each run's own
    uncertainty (of its idle baseline). `noisy`: most runs call their net energy smaller than twice its uncertainty, or the mean over
    the runs is smaller than twice its own."""

    provenance: str
    gross_j: Stat
    mean_w: Stat
    net_j: Stat | None
    net_error_j: float
    noisy: bool
    net_j_per_mb: Stat | None
    gross_j_per_mb: Stat | None

    @property
    def net_text(self) -> str:
        """Net joules with their error, or the words that they mean nothing."""
        if self.net_j is None or not self.noisy:
            error = self.net_error_j if self.net_j and self.net_error_j > 0 else None
            return spread(Stat(self.net_j.n, self.net_j.mean, error) if self.net_j else None)
        return BELOW_NOISE


def account(group: Group, party: str) -> Account | None:
    """The party's energy; nothing where no run of the cell has joules."""
    pairs = [(run, run.energy[party]) for run in group.runs if party in run.energy]
    gross, power = stat([e.gross_j for _, e in pairs]), stat([e.mean_w for _, e in pairs])
    if gross is None or power is None:
        return None
    net = stat([e.net_j for _, e in pairs])
    own = [e.net_sd_j for _, e in pairs if e.net_sd_j is not None]
    uncertainty = math.sqrt(sum(x * x for x in own) / len(own)) if own else 0.0
    return Account(
        provenance=worst(e.provenance for _, e in pairs),
        gross_j=gross,
        mean_w=power,
        net_j=net,
        net_error_j=max((net.sd or 0.0) if net else 0.0, uncertainty),
        noisy=sum(e.below_noise for _, e in pairs) * 2 > len(pairs) or _lost(net, uncertainty),
        net_j_per_mb=stat([_per_mb(run, e.net_j) for run, e in pairs]),
        gross_j_per_mb=stat([_per_mb(run, e.gross_j) for run, e in pairs]),
    )


def _lost(net: Stat | None, uncertainty: float) -> bool:
    """Whether a mean cannot be told from nothing. The runs share their idle baseline, so more runs do not make its part smaller."""
    if net is None:
        return False
    return abs(net.mean) < 2 * max(uncertainty, (net.sd or 0.0) / math.sqrt(net.n))


def worst(provenances: Iterable[str]) -> str:
    """The provenance that claims least; an unknown one claims nothing."""
    return max(provenances, key=lambda p: PROVENANCES.index(p) if p in PROVENANCES else len(PROVENANCES), default="")


def _per_mb(run: Run, value: float | None) -> float | None:
    carried = megabytes(run)
    return None if value is None or carried is None else value / carried


NO_JOULES = (
    "There are no joules here: no run had a power sensor or a model of the device, so energy and power are absent, not zero. "
    "Processor seconds and bytes are what was measured."
)
PROVENANCE_NOTE = (
    "Measured: a sensor saw the energy of exactly this. Attributed: a sensor saw a host with both parties on it, and this is a share by "
    "processor time. Modelled: no sensor; computed from processor seconds and bytes with coefficients of a device profile."
)
