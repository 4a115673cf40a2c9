"""Campaign folders made up for tests of the report: the formats of lab/experiments/src/campaign.rs and lab/meter/src/record.rs."""

import json
import random
from pathlib import Path

HEADER = {
    "type": "header",
    "format": "tacit-record",
    "version": 1,
    "host": "pi",
    "started_unix_ns": 1_700_000_000_000_000_000,
    "interval_s": 1.0,
    "sources": [],
    "machine": {"cpu": "four cores"},
    "labels": {},
}


def source(name="meter", provenance="measured", counted=(True,)):
    """A power source of a record's header."""
    rails = [{"name": f"rail{i}", "counted": c} for i, c in enumerate(counted)]
    return {"name": name, "provenance": provenance, "rails": rails, "min_interval_ms": 100}


def powered(t, joules, name="meter"):
    """A sample with one rail and nothing else."""
    return {"type": "sample", "t": t, "power": {name: [{"w": 1.0, "j": joules}]}, "memory_bytes": 0}


def mark(t, phase, edge, party="client"):
    """The edge of a phase."""
    return {"type": "mark", "t": t, "party": party, "phase": phase, "edge": edge}


def energy(gross, idle=None, sd=None, seconds=1.0, provenance="modelled", noisy=False):
    """An energy figure of a run."""
    made = {"provenance": provenance, "gross_j": gross, "mean_w": gross / seconds, "below_noise": noisy}
    if idle is not None:
        made |= {"idle_j": idle, "net_j": gross - idle}
    if sd is not None:
        made["net_sd_j"] = sd
    return made


def link(mbit, rtt_s=0.04, off=1.0):
    """A link that carries `off` times what it should."""
    return {
        "target_up_bps": mbit * 1e6,
        "target_down_bps": mbit * 1e6,
        "target_rtt_s": rtt_s,
        "up_bps": mbit * 1e6 * off,
        "down_bps": mbit * 1e6 * off,
        "rtt_s": rtt_s * 1.01,
        "loaded_rtt_s": rtt_s * 2,
    }


def party(user_s, system_s, rss_bytes=50e6):
    """A party's processor time and memory."""
    return {"user_s": user_s, "system_s": system_s, "rss_bytes": int(rss_bytes), "processes": 1}


def run(cell, repetition=0, duration_s=1.0, **more):
    """A line of `runs.jsonl`."""
    return {"cell": cell, "repetition": repetition, "record": "", "duration_s": duration_s, **more}


def write_lines(path, lines):
    """JSON Lines, one object each; a string is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line, separators=(",", ":"))) + "\n" for line in lines)
    path.write_text(text)


def write_campaign(folder: Path, runs=(), **about) -> Path:
    """The folder with its description and its runs."""
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "version": 1,
        "experiment": "made-up",
        "description": "Numbers that a test knows.",
        "spec": 'name = "made-up"\n',
        "machine": {"cpu": "four cores", "kernel": "6.1"},
        "started_unix_s": 1_700_000_000,
    }
    (folder / "campaign.json").write_text(json.dumps(described | about))
    write_lines(folder / "runs.jsonl", runs)
    return folder


def write_record(path, lines, sources=(), **header):
    """A record: header, lines, summary."""
    write_lines(path, [HEADER | {"sources": list(sources)} | header, *lines, {"type": "summary", "duration_s": 1.0}])


def write_idle(folder, *baselines):
    """Idle baselines of two seconds each, at the given watts, `before` and `after` by turns."""
    lines = []
    for k, watts in enumerate(baselines):
        write_record(folder / f"records/idle-{k}.jsonl", [powered(t, watts * t) for t in range(3)], [source()])
        power = {"meter": {"mean_w": watts, "sd_w": 0.2, "n": 20, "mean_sd_w": 0.05}}
        lines.append(
            {"when": ("before", "after")[k % 2], "record": f"records/idle-{k}.jsonl", "duration_s": 2.0, "power": power}
        )
    write_lines(folder / "idle.jsonl", lines)


def _samples(dice, seconds, mbit, cores, interval):
    """A sender busy in three phases, noisy as real ones are."""
    joules = rx = 0.0
    busy = [0.0] * cores
    used = {"client": [0.0, 0.0], "server": [0.0, 0.0]}
    count = int(seconds / interval)
    for i in range(count + 1):
        t = i * seconds / count
        step = seconds / count if i else 0.0
        load = (0.3, 0.9, 0.55)[min(2, int(3 * t / seconds * 0.999))]
        for core in range(cores):
            busy[core] += step * min(1.0, max(0.0, dice.gauss(load * (1 - 0.15 * core), 0.08)))
        for name, share in (("client", 0.8), ("server", 1.4)):
            used[name][0] += step * load * share * 0.7
            used[name][1] += step * load * share * 0.3 * dice.uniform(0.8, 1.2)
        watts = 2.6 + 2.4 * load + dice.gauss(0, 0.12)
        joules += watts * step
        rx += mbit * 1e6 / 8 * step * (0.4 + load / 2)
        yield {
            "type": "sample",
            "t": t,
            "power": {"model": [{"w": watts, "j": joules}]},
            "parties": {n: party(*u) for n, u in used.items()},
            "cores": [
                {
                    "user_s": b * 0.7,
                    "system_s": b * 0.3,
                    "idle_s": t - b,
                    "mhz": 1400 - 500 * (load < 0.5) + dice.gauss(0, 15),
                }
                for b in busy
            ],
            "memory_bytes": 400_000_000,
            "interfaces": {
                "veth0": {
                    "rx_bytes": int(rx),
                    "tx_bytes": int(rx / 9),
                    "rx_packets": int(rx / 1400),
                    "tx_packets": int(rx / 2800),
                }
            },
        }


def realistic_record(path, dice, seconds, mbit, cores=4, interval=0.1):
    """A record as the lab makes it on a board with a model for its power."""
    marks = [
        (0.0, "setup", "begin"), (seconds / 3, "setup", "end"), (seconds / 3, "offline", "begin"),
        (2 * seconds / 3, "offline", "end"), (2 * seconds / 3, "online", "begin"), (seconds, "online", "end"),
    ]  # fmt: skip
    lines = [*_samples(dice, seconds, mbit, cores, interval), *(mark(*m, p) for m in marks for p in ("client", "server"))]
    write_record(path, sorted(lines, key=lambda x: x["t"]), [source("model", "modelled")], interval_s=interval)


def bandwidth_campaign(folder: Path, repetitions=10) -> Path:
    """`pm24-bandwidth` as it might come out: four links, the same work on each; one run failed at first, one for good."""
    dice = random.Random(4)
    runs = []
    for name, mbit in (("941mbit", 941.0), ("95.6mbit", 95.6), ("19.2mbit", 19.2), ("3.89mbit", 3.89)):
        for k in range(repetitions):
            seconds = (8 + 600 / mbit) * dice.gauss(1, 0.03)
            record = f"records/{name}-{k}.jsonl"
            realistic_record(folder / record, dice, seconds, mbit, interval=max(0.1, seconds / 80))
            idle = 1.3 * seconds
            figures = {
                p: energy(idle + w * seconds ** 0.5 * dice.gauss(1, 0.02), idle, 0.05 * seconds ** 0.5, seconds)
                for p, w in (("client", 2.0), ("server", 4.5))
            }  # fmt: skip
            runs.append(run(
                {"link": name, "workload": "bulk"}, k, seconds, record=record, link=link(mbit, 0.0006, dice.gauss(0.98, 0.005)),
                energy=figures, parties={"client": party(4.1, 0.9 + k / 50), "server": party(7.9, 1.6, 160e6)},
                results={"latency_s": seconds, "goodput_bps": mbit * 8e5, "sent_bytes": 6e7, "received_bytes": 9e6, "messages": 310},
            ))  # fmt: skip
    runs[3:3] = [{**runs[3], "failure": "server: the port was in use"}]
    runs.append({**runs[-1], "repetition": repetitions, "failure": "client: timed out after 600 s"})
    return write_campaign(
        folder, runs, experiment="pm24-bandwidth", description="Latency, power and energy of one workload over four links.",
        spec='[[link]]\nrate = "941mbit"\nrtt = "0.6ms"\n', machine={
            "cpu": "AMD EPYC 9B14", "cores": "2", "governor": "unknown", "kernel": "Linux 6.6.72", "tacit": "0.1.0", "memory": "24 GB",
        },
    )  # fmt: skip


def transport_campaign(folder: Path, repetitions=5) -> Path:
    """`vpn24-transport` as it might come out: four transports, sending and receiving apart."""
    dice = random.Random(5)
    runs = []
    for transport, speed, user, kernel in (
        ("tls+wireguard", 38, 9.5, 4.0), ("wireguard", 46, 6.0, 3.8), ("tls", 88, 1.9, 1.3), ("plain", 110, 0.1, 1.0),
    ):  # fmt: skip
        for role in ("send", "receive"):
            for k in range(repetitions):
                payload = 1 << 30
                seconds = payload / 1e6 / speed * dice.gauss(1, 0.02)
                net = (user + kernel) * 5.0 * dice.gauss(1, 0.04)
                runs.append(run(
                    {"link": "lan", "transport": transport, "role": role}, k, seconds, link=link(941, 0.0006, 0.97),
                    energy={p: energy(10 * seconds + net * f, 10 * seconds, 0.3, seconds) for p, f in (("client", 1), ("server", 0.8))},
                    parties={"client": party(user * 1.07, kernel * 1.07), "server": party(user * 0.8, kernel * 1.3)},
                    results={"goodput_bps": speed * 8e6, "payload_bytes": payload, "messages": 16384},
                ))  # fmt: skip
    return write_campaign(
        folder, runs, experiment="vpn24-transport", description="Energy and processor time per byte by transport."
    )


def two_links(**more):
    """Two links, two repetitions each, in the order of a shuffled campaign."""
    return [
        run(
            {"link": name}, k, seconds + k, link=link(mbit, off=0.98),
            energy={"client": energy(20 + 2 * k, 10, 0.5, 10)}, parties={"client": party(2, 1 + k)},
            results={"latency_s": seconds + k, "sent_bytes": 3e6, "received_bytes": 1e6}, **more,
        )
        for name, mbit, seconds in (("slow", 4, 100), ("fast", 100, 5)) for k in (1, 0)
    ]  # fmt: skip
