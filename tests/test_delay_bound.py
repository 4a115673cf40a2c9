"""Lower bounds on the delay of simulated runs (docs/scripts/delay_bound.py): known answers."""

import math

import numpy as np
import pytest

pytest.importorskip("scipy", reason="the bounds need scipy: it is in requirements.lock")
import delay_bound as bound  # noqa: E402


def together(n, *on):
    """`n` inputs at time zero, with a T_pre that takes next to nothing."""
    return [bound.Class([bound.Way(1e-9, 0.0, 0.0)], list(on), 0, np.zeros(n), np.zeros(n))]


def priced(classes):
    """What the prices of the linear program prove."""
    return bound.prove(classes, bound.good_prices(classes).cut(bound.PARTS))


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.0, 1.0)])
def test_prices_see_the_queue(shares):
    # One after the other on the whole machine: delays 1 + 2 + ... + 20. Alone each would take 1 s.
    classes = together(20, bound.Way(1.0, *shares))
    assert 0.95 * 210 <= priced(classes) <= 210 + 1e-6
    assert bound.alone(classes) == pytest.approx(20)


def test_prices_see_that_threads_are_taken_from_others():
    # One thread of ten for 10 s, or all for 4 s. Alone 4 s; ten at once do best side by side: 10 s each.
    assert 60 <= priced(together(10, bound.Way(10.0, 0.1, 0.0), bound.Way(4.0, 1.0, 0.0))) <= 100 + 1e-6


@pytest.mark.parametrize(("stock", "waits"), [(0, 19), (1, 9), (2, 2), (3, 0), (9, 0)])
def test_stock_goes_to_whom_it_helps_most(stock, waits):
    # From time zero on T_pre takes 10 s: the three come 7, 10 and 2 s too early.
    arrived = np.array([3.0, 0.0, 8.0])
    classes = [bound.Class([bound.Way(10.0, 0.01, 0.0)], [bound.Way(1.0, 0.01, 0.0)], stock, arrived, arrived)]
    assert bound.alone(classes) == pytest.approx(waits + 3)
    assert 0.95 * (waits + 3) - 0.05 <= priced(classes) <= waits + 3 + 1e-9


def test_shortest_remaining_work_preempts():
    # A long job alone; a short one comes at 1 and goes first: delays 1 and 3 + 1. Idle time between jobs does not count.
    ways = [bound.Way(1e-12, 1.0, 0.0)]
    jobs = [(0.0, 3.0), (1.0, 1.0)]
    classes = [bound.Class(ways, [bound.Way(s, 1.0, 0.0)], 0, np.array([a]), np.zeros(1)) for a, s in jobs]
    assert bound.fluid(classes) == pytest.approx(5.0)
    apart = [bound.Class(ways, [bound.Way(1.0, 1.0, 0.0)], 0, np.array([0.0, 10.0]), np.zeros(2))]
    assert bound.fluid(apart) == pytest.approx(2.0)


@pytest.mark.parametrize("lead", [0.0, 2.0, 9.0])
def test_no_start_that_is_tried_is_cheaper_than_the_choice(lead):
    # Any prices at all, and one job that tries many starts: what is proven of it is never above what a start costs.
    random = np.random.default_rng(5)
    draw = [random.uniform(0, 20, 64) * (random.uniform(size=64) < 0.5) for _ in range(2)]
    prices = bound.Prices(0.5, 0.7, *draw)
    pre, on = [bound.Way(6.0, 0.2, 0.1), bound.Way(2.9, 0.6, 0.1)], [bound.Way(5.0, 0.4, 0.3), bound.Way(3.3, 1.0, 0.3)]
    one = bound.Class(pre, on, 0, np.array([10.0]), np.array([lead]))
    proven = bound.prove([one], prices) + prices.total()
    ticks = np.arange(200) * 0.2
    least = math.inf
    for first in pre:
        for start in 10.0 - lead + ticks:
            begin = np.maximum(10.0, start + first.secs) + ticks
            paid = prices.paid(first, np.array([start]))[0]
            for then in on:
                least = min(least, (begin + then.secs + prices.paid(then, begin) + paid).min() - 10.0)
    assert least - 3 <= proven <= least + 1e-9


RUN = {
    "format": "tacit-simulation", "version": 1, "cores": 2, "memory": 100, "pool": "none", "spread": 1.0,
    "models": [{"name": "m", "stock": 0, "pre": [{"threads": 1, "secs": 2.0, "memory": 1}], "on": [{"threads": 1, "secs": 1.0, "memory": 1}]}],
    "inputs": [{"model": "m", "arrived": 0.0, "lead": None}, {"model": "m", "arrived": 5.0, "lead": 1.5}],
    "summary": {"outcomes": {"done": 2}},
}  # fmt: skip


def test_bounds_of_a_run():
    found = bound.bounds(RUN)
    assert found["alone"] == pytest.approx((3.0 + 1.5) / 2)
    assert found["priced"] <= (3.0 + 1.5) / 2 + 1e-9
    for wrong in ({"spread": 2.0}, {"summary": {"outcomes": {"done": 1, "failed": 1}}}, {"version": 2}):
        with pytest.raises(SystemExit):
            bound.bounds(RUN | wrong)
