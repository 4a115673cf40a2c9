"""What a flood from one client costs the others, live on loopback.

    python scripts/flood.py [--rounds N] [--seconds N] [--cores N] [--policy NAME ...] [--clients N]

A `tacit serve` with `--cores` for jobs; two quiet clients, each asking for one answer at a time with a pause between; then the same with
`--clients` processes of a third client that ask without a pause. Prints D of the quiet clients (their own clock: from request to answer,
with both phases, a connection's setup left out), alone and under the flood, and the ratio; and how long their phases waited in the server's
queue under it, by the server's own clock. Rounds without and with the flood take turns. Where the machine has two cores or more, the server
has as many of them as it may give to jobs (a server that is told of two cores and has one shares it between two jobs, whatever its queue
does), the quiet clients the first and the flood's clients the last.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from abused import MODELS, TACIT, Broken, Place, Server, run

# Of a quiet client, in seconds.
PAUSE = 0.3
QUIET = ("bob", "carol")


def cores(jobs: int) -> tuple[list[str], list[str], list[str]]:
    """How the server, the quiet clients and the flood are started."""
    have = sorted(os.sched_getaffinity(0))
    if len(have) < 2:
        return [], [], []
    parts = (have[:jobs], have[:1], have[-1:])
    server, first, last = (["taskset", "-c", ",".join(map(str, part))] for part in parts)
    return server, first, last


def command(server: Server, client: str, model: str, inputs: list[Path]) -> list[str]:
    files = [str(path) for path in inputs]
    return [TACIT, "infer", *files, "--model", model, "--server", server.address, "--keys", "keys", "--client", client, "--json"]


def quiet(place: Place, server: Server, prefix: list[str], one: Path, until: float) -> list[float]:
    """D of each answer to the quiet clients."""
    delays: list[float] = []

    def client(name: str, dice: random.Random) -> None:
        while time.monotonic() < until:
            done = subprocess.run([*prefix, *command(server, name, "digits", [one])], cwd=place.folder, capture_output=True)
            if done.returncode != 0:
                raise Broken(f"a quiet client got no answer: {done.stderr.decode()[-1000:]}")
            answer = json.loads(done.stdout)
            delays.append(answer["request_to_answer_s"] - setup_s(answer))
            time.sleep(dice.uniform(0.5, 1.5) * PAUSE)

    threads = [threading.Thread(target=client, args=(name, random.Random(name))) for name in QUIET]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return delays


def setup_s(answer: dict[str, dict[str, dict[str, float]]]) -> float:
    """Seconds of the connection's setup, which a client makes once."""
    phase = answer["phases"].get("setup")
    return phase["wall_s"] if phase else 0.0


def flooding(place: Place, server: Server, prefix: list[str], clients: int) -> list[subprocess.Popen[bytes]]:
    many = command(server, "mallory", "digits", [MODELS / "digits_samples.npy"] * 50)
    options = {"cwd": place.folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return [subprocess.Popen([*prefix, *many], **options) for _ in range(clients)]


def fingerprint(place: Place, name: str) -> str:
    return str(json.loads(run("keys", "fingerprint", "keys", name, "--json", cwd=place.folder).out)["fingerprint"])


def queued(place: Place, server: Server, clients: set[str]) -> list[float]:
    """Seconds that phases of these clients waited, of the last that the server remembers."""
    asks = ("--server", server.address, "--keys", "keys", "--client", "ops", "--json")
    jobs = json.loads(run("status", *asks, cwd=place.folder).out)["jobs"]
    return [job["started_s"] - job["queued_s"] for job in jobs if job["client"] in clients and job["phase"] != "setup"]


def measure(place: Place, policy: str, options: argparse.Namespace) -> None:
    """In turns, so that what else the machine does meets both alike."""
    servers, mine, others = cores(options.cores)
    extra = ("--cores", str(options.cores), "--strict-cores", "--policy", policy)
    server = Server(place, prefix=tuple(servers), extra=extra)
    clients = {fingerprint(place, name) for name in QUIET}
    alone: list[float] = []
    flooded: list[float] = []
    waits: list[float] = []
    ratios = []
    try:
        time.sleep(2)
        for _ in range(options.rounds):
            before = quiet(place, server, mine, place.digit, time.monotonic() + options.seconds)
            flood = flooding(place, server, others, options.clients)
            try:
                time.sleep(2)
                during = quiet(place, server, mine, place.digit, time.monotonic() + options.seconds)
                waits += queued(place, server, clients)
                if any(process.poll() is not None for process in flood):
                    raise Broken("the flood ended before the measurement")
            finally:
                for process in flood:
                    process.kill()
                    process.wait()
            time.sleep(1)
            alone += before
            flooded += during
            ratios.append(statistics.mean(during) / statistics.mean(before))
    finally:
        server.stop()
    means = [statistics.mean(delays) for delays in (alone, flooded)]
    print(
        f"| `{policy}` | {means[0]:.3f} ({len(alone)}) | {means[1]:.3f} ({len(flooded)}) | **{means[1] / means[0]:.2f}** | "
        f"{min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f} | {statistics.mean(waits):.4f} |",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="each without the flood, then with it")
    parser.add_argument("--seconds", type=float, default=6, help="of each half of a round")
    parser.add_argument("--cores", type=int, default=1, help="of the server, for jobs")
    parser.add_argument("--policy", nargs="+", default=["adaptive+fair", "adaptive"])
    parser.add_argument("--clients", type=int, default=8, help="processes of the flood, with two connections each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tacit-flood-") as folder:
        place = Place.make(Path(folder) / "place")
        for name in (*QUIET, "mallory"):
            run("keys", "add-client", "keys", name, cwd=place.folder)
        run("keys", "add-client", "keys", "ops", "--operator", cwd=place.folder)
        print("| policy | D alone, s (answers) | D under the flood | ratio | of the rounds: least, median, most | a phase's waiting, s |")
        print("| --- | --- | --- | --- | --- | --- |")
        for policy in options.policy:
            measure(place, policy, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
