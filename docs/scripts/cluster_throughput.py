"""Answers a second of a cluster whose nodes are processes of this machine, and what its front takes of a processor.

    TACIT_BIN=target/release/tacit python docs/scripts/cluster_throughput.py -o /tmp/cluster --nodes 1,2,4

A front, nodes of one core each, and clients that ask the front and then their node for some inputs, again and again. On a machine with
fewer cores than nodes and clients this shows that clients spread and what the front costs, not that more nodes answer more.
"""

import argparse
import json
import os
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tacit.cluster._front import Front, client_context
from tacit.cluster._node import Node, Settings

ROOT = Path(__file__).resolve().parents[2]
LEASE_S = 5.0
TOOL = str(Path(os.environ.get("TACIT_BIN", ROOT / "target/release/tacit")).resolve())


def tool(folder: Path, *words: str) -> None:
    subprocess.run([TOOL, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def prepare(folder: Path, clients: int) -> None:
    """Keys for the clients and an operator, and the digits network, lowered."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "digits.tacit").exists():
        return
    tool(folder, "keys", "init", "keys", *(word for k in range(clients) for word in ("--client", f"c{k}")))
    tool(folder, "keys", "add-client", "keys", "ops", "--operator")
    samples = str(ROOT / "models/digits_samples.npy")
    tool(folder, "model", "import", str(ROOT / "models/digits.onnx"), "--calibrate", samples, "-o", "digits.tacit")
    tool(folder, "model", "lower", "digits.tacit")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def node_of(folder: Path, name: str, front: str) -> Node:
    keys = folder / "keys"
    settings = Settings(
        name, "127.0.0.1", keys, "ops", (folder / "digits.tacit",), folder / name, program=TOOL, lease_s=LEASE_S, arguments=("--no-warm-up",)
    )
    return Node(settings, Front(front, client_context(keys, "ops")))


def ask(folder: Path, client: str, front: str, until: float, inputs: int, told: list[tuple[str, int]]) -> None:
    """One client, until the time is over."""
    keys = folder / "keys"
    while time.monotonic() < until:
        asked = Front(front, client_context(keys, client))
        place = asked.place("digits")
        asked.close()
        words = ["infer", *[str(ROOT / "models/digit.npy")] * inputs, "--batch", "1", "--server", place["address"], "--keys", "keys", "--client", client]
        tool(folder, *words)
        told.append((place["node"], inputs))


def measured(folder: Path, nodes: int, clients: int, seconds: float, inputs: int) -> dict[str, object]:
    serve = [TOOL, "serve", "--front", "--keys", str(folder / "keys"), "--listen", "127.0.0.1:0", "--lease", str(LEASE_S), "--json"]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(serve, stdout=subprocess.PIPE, text=True))
        stack.callback(process.terminate)
        assert process.stdout is not None, "it was asked for"
        front = json.loads(process.stdout.readline())["listening"]
        for k in range(nodes):
            node = node_of(folder, f"n{k}", front)
            running = threading.Thread(target=node.run)
            running.start()
            stack.callback(running.join)
            stack.callback(node.kill)
        operator = Front(front, client_context(folder / "keys", "ops"))
        while sum(bool(node["models"]) for node in operator.nodes()["nodes"]) < nodes:
            time.sleep(0.1)
        # Nobody is placed before an earlier front's leases would be over.
        time.sleep(LEASE_S)
        told: list[tuple[str, int]] = []
        cpu, began = cpu_s(process.pid), time.monotonic()
        threads = [threading.Thread(target=ask, args=(folder, f"c{k}", front, began + seconds, inputs, told)) for k in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, front_cpu = time.monotonic() - began, cpu_s(process.pid) - cpu
        spread = Counter[str]()
        for name, count in told:
            spread[name] += count
        return {
            "nodes": nodes, "clients": clients, "answers": sum(spread.values()), "answers_a_second": round(sum(spread.values()) / took, 2),
            "spread": dict(sorted(spread.items())), "front_cpu_share": round(front_cpu / took, 5), "placed": len(told),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for keys, models and nodes")
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--inputs", type=int, default=8, help="of one call")
    args = parser.parse_args()
    folder = args.output.resolve()
    prepare(folder, args.clients)
    for nodes in args.nodes.split(","):
        print(json.dumps(measured(folder, int(nodes), args.clients, args.seconds, args.inputs)), flush=True)


if __name__ == "__main__":
    main()
