"""Plays the requests of a simulated run by [SS26] Algorithm 1, as printed, under each reading of its open lines.

    tacit simulate run --policy ss26:fcfs --rate 1 -o run.json
    python docs/scripts/ss26_readings.py run.json

The program of the scheduler is not used: only arrivals, times and memory come from the file. The first row is the reading that the policy of the run
has; its mean delay must equal that of the run. Notices, pools and jobs on several threads are refused.
"""

import argparse
import dataclasses
import heapq
import json
import re
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Readings:
    """How the open lines are read."""

    beta: float | None = None
    """Order by equation (1) with this weight of age, or None for arrival."""
    ready_by_entry: bool = False
    """Line 32, first come first served: by entry into Q_ready, else by arrival of the request."""
    overtakes: bool = False
    """Lines 34 to 37: the next T_on is tried when T* does not fit, else T* blocks."""
    online_load_only: bool = False
    """Line 33: w_q counts T_on alone (line 36), so that p* may be a core on which a T_pre runs; else any idle core serves."""
    stops_at_misfit: bool = False
    """Lines 19 to 21: the first T_pre that does not fit ends the pass, else the next is tried."""
    exclusive: frozenset = frozenset()
    """Section 6: phases of which one job of a model runs at a time."""


ROWS = {
    "as built": {},
    "Q_ready by entry": {"ready_by_entry": True},
    "T* is overtaken": {"overtakes": True},
    "w_q counts T_on alone": {"online_load_only": True},
    "T_pre blocks, too": {"stops_at_misfit": True},
    "one T_on of a model": {"exclusive": frozenset({"on"})},
    "one T_pre of a model": {"exclusive": frozenset({"pre"})},
    "one of each phase": {"exclusive": frozenset({"pre", "on"})},
}


@dataclasses.dataclass
class Job:
    """A queued job of one input."""

    order: int
    model: dict
    phase: str
    arrived: float
    entered: float

    @property
    def seconds(self):
        return self.model[self.phase][0]["secs"]

    @property
    def memory(self):
        return self.model[self.phase][0]["memory"]


class Machine:
    """Cores and memory, with the queues of both phases."""

    def __init__(self, run, readings):
        self.readings = readings
        self.now = 0.0
        self.memory = run["memory"]
        self.idle = list(range(run["cores"]))
        self.load = [0.0] * run["cores"]
        self.queues = {"pre": [], "on": []}
        self.ends = []
        self.running = []
        self.delays = []

    def key(self, job):
        """Place of a job in its queue."""
        if self.readings.beta is not None:
            return (job.seconds - self.readings.beta * (self.now - job.entered), job.order)
        by_entry = self.readings.ready_by_entry and job.phase == "on"
        return (job.entered if by_entry else job.arrived, job.order)

    def core_for(self, job):
        """The core that the job would take, or None if it does not fit."""
        same = any(other.model is job.model and other.phase == job.phase for other in self.running)
        if not self.idle or job.memory > self.memory or (same and job.phase in self.readings.exclusive):
            return None
        if job.phase == "on" and self.readings.online_load_only:
            least = min(range(len(self.load)), key=lambda core: (self.load[core], core))
            return least if least in self.idle else None
        return min(self.idle)

    def start(self, job, core):
        self.queues[job.phase].remove(job)
        self.running.append(job)
        self.idle.remove(core)
        self.memory -= job.memory
        if job.phase == "on":
            self.load[core] += job.seconds
        heapq.heappush(self.ends, (self.now + job.seconds, job.order, core, job))

    def start_first(self, phase, tries_all):
        """Starts the first job of a queue that fits; only the first of all is tried unless `tries_all`."""
        for job in sorted(self.queues[phase], key=self.key):
            core = self.core_for(job)
            if core is not None:
                self.start(job, core)
                return True
            if not tries_all:
                return False
        return False

    def run_passes(self):
        while self.start_first("pre", not self.readings.stops_at_misfit) or self.start_first("on", self.readings.overtakes):
            pass

    def finish(self):
        self.now, _, core, job = heapq.heappop(self.ends)
        self.running.remove(job)
        self.idle.append(core)
        self.memory += job.memory
        if job.phase == "pre":
            self.queues["on"].append(dataclasses.replace(job, phase="on", entered=self.now))
        else:
            self.load[core] -= job.seconds
            self.delays.append(self.now - job.arrived)


def mean_delay(run, readings):
    """Mean delay of all inputs of a run, in seconds."""
    models = {model["name"]: model for model in run["models"]}
    inputs = sorted(run["inputs"], key=lambda one: (one["arrived"], one["request"], one["index"]))
    machine = Machine(run, readings)
    for order, one in enumerate(inputs):
        while machine.ends and machine.ends[0][0] < one["arrived"]:
            machine.finish()
            machine.run_passes()
        machine.now = one["arrived"]
        machine.queues["pre"].append(Job(order, models[one["model"]], "pre", machine.now, machine.now))
        machine.run_passes()
    while machine.ends:
        machine.finish()
        machine.run_passes()
    return sum(machine.delays) / len(machine.delays)


def built(policy):
    """The reading that a policy has, by its name in a run."""
    if not (name := re.fullmatch(r"ss26:(?:fcfs(\(entry\))?|priority\((.+)\))(\+exclusive)?", policy)):
        raise SystemExit(f"{policy} is none of the policies of Algorithm 1: ss26:fcfs, ss26:fcfs:entry, ss26:priority")
    return Readings(
        beta=float(name[2]) if name[2] else None,
        ready_by_entry=name[1] is not None,
        exclusive=frozenset({"on"}) if name[3] else frozenset(),
    )


def delays(run):
    """Mean delay under each reading, in seconds."""
    base = built(run["policy"])
    return {name: mean_delay(run, dataclasses.replace(base, **changes)) for name, changes in ROWS.items()}


def check(run):
    """Refuses a run that Algorithm 1 does not describe."""
    threads = {way["threads"] for model in run["models"] for way in model["pre"] + model["on"]}
    if threads != {1} or run["pool"] != "none" or any(one["lead"] is not None or one["outcome"] != "done" for one in run["inputs"]):
        raise SystemExit("this needs a run with one thread a job, without notices, pools and failures")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="file of `tacit simulate run -o`")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    run = json.loads(args.run.read_text())
    for one in run if isinstance(run, list) else [run]:
        check(one)
        found = delays(one)
        if args.json:
            print(json.dumps({"policy": one["policy"], "simulated": one["summary"]["all"]["input_delay"], "readings": found}))
            continue
        print(f"{one['policy']} at {one['rate']} requests/s, seed {one['seed']}: D {one['summary']['all']['input_delay']:.2f} s in the simulator")
        for name, delay in found.items():
            print(f"  {name:24} {delay:8.2f} s")


if __name__ == "__main__":
    main()
