"""Lower bounds on the mean input delay D of simulated runs: what no scheduler can beat.

    tacit simulate run --profile FILE --rate 1 --cores 16 --policy adaptive --seed 3 -o run.json
    python docs/scripts/delay_bound.py run.json ...        # needs numpy and scipy

Three bounds, of which the largest counts:

alone   the mean time of an input alone on its fastest thread counts, with what remains of T_pre if it started at the
        notice (with a pool: at time zero; what a pool held then needs none)
fluid   preemptive shortest remaining work on one machine of speed P
priced  Let every job pay for the shares of the cores and of the memory that it holds, at prices that change with time.
        Shares never add up to more than 1, so all jobs together pay at most the integral of both prices, and

            sum of delays >= sum over jobs of min over all ways to run it (delay + what it pays) - integral of the prices

        for any prices that are not negative: on the right every job chooses for itself, as if it were alone. The prices
        come from a linear program in which jobs may be split; how good they are decides how much is proven, never
        whether it is true, so the program is solved on coarse steps of time.

What a job pays is linear in its start, but for bends where its start or its end meets the edge of a step. So the least
over a step is at an edge or a bend and is found exactly. Three things are rounded, all downwards: an arrival and the
end of a T_pre to the start of their step, and starts after the last step to its start. Hence steps much finer than those
that the prices change on. A bound knows beforehand what will be asked for; what lies between it and a policy is partly
the price of not knowing.
"""

import argparse
import heapq
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

# How much finer than the linear program's the steps are that the proof is on; and how many those are unless told otherwise.
PARTS = 64
STEPS = 256

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Way:
    """A way to run a phase: seconds, and its shares of the cores and of the memory."""

    secs: float
    cores: float
    memory: float


@dataclass(frozen=True)
class Class:
    """The inputs of one model: when each came, and how long before that its T_pre may start. `stock` of them need none."""

    pre: list[Way]
    on: list[Way]
    stock: int
    arrived: Floats
    lead: Floats


@dataclass(frozen=True)
class Prices:
    """Of all cores and of all memory per second, in equal steps of `width` from `start` on; zero after the last."""

    start: float
    width: float
    cores: Floats
    memory: Floats

    def paid(self, way: Way, starts: Floats) -> Floats:
        """What a job pays that starts then."""
        edges = self.start + self.width * np.arange(len(self.cores) + 1)
        rate = way.cores * self.cores + way.memory * self.memory
        sums = np.concatenate([[0.0], np.cumsum(rate * self.width)])
        return np.interp(starts + way.secs, edges, sums) - np.interp(starts, edges, sums)

    def total(self) -> float:
        return float((self.cores + self.memory).sum() * self.width)

    def cut(self, parts: int) -> "Prices":
        return Prices(self.start, self.width / parts, np.repeat(self.cores, parts), np.repeat(self.memory, parts))


def read(run: dict[str, Any]) -> list[Class]:
    """The inputs of a run that `tacit simulate run` wrote."""
    if run.get("format") != "tacit-simulation" or run["version"] != 1:
        raise SystemExit("not a run of this version of `tacit simulate`")
    if run["spread"] != 1 or set(run["summary"]["outcomes"]) != {"done"}:
        raise SystemExit("bounds hold for runs whose jobs take the profile's times and whose inputs were all done")
    classes = []
    for model in run["models"]:
        inputs = [i for i in run["inputs"] if i["model"] == model["name"]]
        arrived = np.array([i["arrived"] for i in inputs])
        announced = np.array([i["lead"] or 0.0 for i in inputs])
        lead = arrived if run["pool"] != "none" else np.minimum(announced, arrived)
        pre, on = (
            [Way(w["secs"], w["threads"] / run["cores"], w["memory"] / run["memory"]) for w in model[phase]]
            for phase in ("pre", "on")
        )
        classes.append(Class(pre, on, model["stock"], arrived, lead))
    return [one for one in classes if len(one.arrived)]


def alone(classes: list[Class]) -> float:
    """The sum of delays if every input had the machine to itself; stock goes to those whom it helps most."""
    total = 0.0
    for one in classes:
        waits = np.maximum(min(w.secs for w in one.pre) - one.lead, 0.0)
        total += np.sort(waits)[: max(0, len(waits) - one.stock)].sum() + len(waits) * min(w.secs for w in one.on)
    return total


def fluid(classes: list[Class]) -> float:
    """The same with preemptive shortest remaining work, in whole machines; no T_pre where some may be done before."""
    jobs = []
    for one in classes:
        pre, on = (min(w.secs * w.cores for w in ways) for ways in (one.pre, one.on))
        jobs += [(a, on + (0.0 if lead > 0 or one.stock else pre)) for a, lead in zip(one.arrived, one.lead, strict=True)]
    jobs.sort()
    queue: list[tuple[float, float]] = []
    total = now = 0.0
    for until, work in [*jobs, (math.inf, 0.0)]:
        while queue:
            left, arrived = heapq.heappop(queue)
            if now + left > until:
                heapq.heappush(queue, (left - (until - now), arrived))
                break
            now += left
            total += now - arrived
        now = until
        heapq.heappush(queue, (work, until))
    return total


def good_prices(classes: list[Class], steps: int = STEPS) -> Prices:
    """The duals of the capacities in a linear program that starts fractions of jobs at the edges of coarse steps."""
    first = min(float((one.arrived - one.lead).min()) for one in classes)
    last = max(float(one.arrived.max()) for one in classes)
    busy = max(
        sum(len(one.arrived) * min(w.secs * getattr(w, what) for w in ways) for one in classes for ways in (one.pre, one.on))
        for what in ("cores", "memory")
    )
    longest = max(min(w.secs for w in one.pre) + min(w.secs for w in one.on) for one in classes)
    width = (1.25 * max(last - first, busy) + longest) / steps
    edges = first + width * np.arange(steps + 1)
    program = Program(edges, width)
    for one in classes:
        program.add(one)
    cores, memory = program.duals()
    return Prices(first, width, cores / width, memory / width)


class Program:
    """Starts of jobs at the edges of steps: least sum of ends, subject to capacities and to flows of jobs.

    Rows: the cores, then the memory in each step, then the flows, each with a row for each edge: what was left before, and
    what comes, is what goes, and what is left. From the last edge on there is no capacity, so all jobs find room.
    """

    def __init__(self, edges: Floats, width: float) -> None:
        self.edges, self.width, self.last = edges, width, len(edges) - 1
        self.cost: list[Floats] = []
        self.comes: list[Floats] = []
        self.entries: list[tuple[NDArray[np.int64], NDArray[np.int64], float]] = []

    def _columns(self, cost: Floats) -> NDArray[np.int64]:
        """Variables, one for each edge."""
        self.cost.append(cost)
        return (len(self.cost) - 1) * len(self.edges) + np.arange(len(self.edges))

    def _flow(self, comes: Floats) -> NDArray[np.int64]:
        rows = 2 * self.last + len(self.comes) * len(self.edges) + np.arange(len(self.edges))
        self.comes.append(comes)
        left = self._columns(np.zeros(len(self.edges)))
        self.entries += [(rows, left, 1.0), (rows[1:], left[:-1], -1.0)]
        return rows

    def _steps(self, times: Floats) -> NDArray[np.int64]:
        return np.clip((times - self.edges[0]) / self.width, 0, self.last).astype(np.int64)

    def _count(self, times: Floats) -> Floats:
        return np.bincount(self._steps(times), minlength=len(self.edges)).astype(float)

    def _starts(self, way: Way, cost: Floats) -> NDArray[np.int64]:
        """Variables for starts of this way at each edge, and what they hold."""
        columns = self._columns(cost)
        for after in range(math.ceil(way.secs / self.width)):
            part = min(way.secs / self.width - after, 1.0)
            starts = np.arange(max(0, self.last - after))
            self.entries.append((starts + after, columns[starts], way.cores * part))
            self.entries.append((starts + after + self.last, columns[starts], way.memory * part))
        return columns

    def add(self, one: Class) -> None:
        """The jobs of a class. A T_on may start when T_pre of some job has ended, and as many as have arrived."""
        released, ready = self._flow(self._count(one.arrived - one.lead)), self._flow(np.eye(len(self.edges))[0] * one.stock)
        arrived = self._flow(self._count(one.arrived))
        # Whatever is left unserved at the last edge is dear.
        self.cost[-1][-1] = 10 * self.edges[-1]
        for way in one.pre:
            columns = self._starts(way, np.zeros(len(self.edges)))
            self.entries += [(released, columns, 1.0), (ready[self._steps(self.edges + way.secs)], columns, -1.0)]
        for way in one.on:
            columns = self._starts(way, self.edges + way.secs)
            self.entries += [(arrived, columns, 1.0), (ready, columns, 1.0)]

    def duals(self) -> tuple[Floats, Floats]:
        """What a share of all cores and of all memory is worth in each step."""
        rows, columns = (np.concatenate([entry[i] for entry in self.entries]) for i in (0, 1))
        values = np.concatenate([np.full(len(entry[0]), entry[2]) for entry in self.entries])
        comes = np.concatenate(self.comes)
        shape = (2 * self.last + len(comes), len(self.cost) * len(self.edges))
        matrix = sparse.csr_matrix((values, (rows, columns)), shape=shape)
        capacity = 2 * self.last
        solved = linprog(
            np.concatenate(self.cost), matrix[:capacity], np.ones(capacity), matrix[capacity:], comes, method="highs-ipm"
        )
        if solved.status != 0:
            raise SystemExit(f"the linear program was not solved: {solved.message}")
        worth = np.maximum(-solved.ineqlin.marginals, 0.0)
        return worth[: self.last], worth[self.last :]


def from_then_on(costs: Floats) -> Floats:
    """The least cost of starts in each step or later."""
    return np.minimum.accumulate(costs[::-1])[::-1]


def prove(classes: list[Class], prices: Prices) -> float:
    """The sum of delays that these prices prove."""
    width, last = prices.width, len(prices.cores)
    edges = prices.start + width * np.arange(last + 1)

    def step(time: float) -> int:
        return min(max(int((time - prices.start) / width), 0), last)

    def points(way: Way) -> tuple[int, Floats, Floats]:
        """Whole steps that it takes; starts at the left edge, bend and right edge of each step, and what they pay."""
        whole = int(way.secs / width)
        starts = np.array([edges, edges + (whole + 1) * width - way.secs, edges + width])
        return whole, starts, prices.paid(way, starts)

    def online(way: Way) -> Floats:
        _, starts, paid = points(way)
        return (starts + way.secs + paid).min(axis=0)

    total = -prices.total()
    for one in classes:
        on = from_then_on(np.min([online(way) for way in one.on], axis=0))
        ways = []
        for way in one.pre:
            whole, _, paid = points(way)
            after = np.array([on[np.minimum(np.arange(last + 1) + whole + late, last)] for late in (0, 0, 1)])
            ways.append((way, from_then_on((paid + after).min(axis=0)), paid.min(axis=0)))
        without = np.array([on[step(a)] for a in one.arrived])
        costs = np.full(len(one.arrived), math.inf)
        for i, (arrived, lead) in enumerate(zip(one.arrived, one.lead, strict=True)):
            for way, both, paid in ways:
                latest = step(arrived - min(way.secs, lead))
                costs[i] = min(costs[i], both[latest])
                if way.secs <= lead:
                    # T_pre ends before the request comes: T_on starts from then on.
                    costs[i] = min(costs[i], paid[step(arrived - lead) : latest + 1].min() + without[i])
        gains = np.sort(costs - without)
        total += without.sum() + gains[: max(0, len(gains) - one.stock)].sum() - one.arrived.sum()
    return total


def bounds(run: dict[str, Any], steps: int = STEPS) -> dict[str, float]:
    """Lower bounds on D of this run, in seconds."""
    classes = read(run)
    n = sum(len(one.arrived) for one in classes)
    priced = prove(classes, good_prices(classes, steps).cut(PARTS))
    return {"alone": alone(classes) / n, "fluid": fluid(classes) / n, "priced": priced / n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="what `tacit simulate run -o` wrote")
    parser.add_argument("--steps", type=int, default=STEPS, help="of time; more prove more, in much more time (%(default)s)")
    args = parser.parse_args()
    ratios = []
    print("| file | policy | alone | fluid | priced | D | D / bound |\n| --- | --- | --- | --- | --- | --- | --- |")
    for path in args.files:
        content = json.loads(path.read_text())
        for run in content if isinstance(content, list) else [content]:
            found = bounds(run, args.steps)
            delay = run["summary"]["all"]["input_delay"]
            ratios.append(delay / max(found.values()))
            figures = " | ".join(f"{x:.2f}" for x in (*found.values(), delay))
            print(f"| {path.name} | {run['policy']} | {figures} | {ratios[-1]:.3f} |", flush=True)
    print(f"mean of D / bound over {len(ratios)} runs: {np.mean(ratios):.3f}")


if __name__ == "__main__":
    main()
