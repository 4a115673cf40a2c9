"""Measures a back end on the networks of [SS26] and writes a profile for `tacit simulate`.

    python docs/scripts/profile_backend.py --backend dealt -o dealt.json
    tacit simulate paper-table2 --profile dealt.json

Weights are random (`tacit zoo`), which changes no time and no byte. Each network runs `--runs` times alone, server and client as two
processes over TLS on loopback, one thread each (`tacit bench`); the run in the middle by time counts. T_pre is the offline phase, with
the dealer's work in it where there is a dealer, T_on the online phase from the client's request to its answer, memory the server's peak.
`TACIT_BIN` names the program (default: target/release/tacit).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

NETWORKS = ["m1", "m2", "hinet", "alexnet", "vgg16"]


def tacit(*arguments: str) -> str:
    program = os.environ.get("TACIT_BIN", "target/release/tacit")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tacit {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def phase(run: dict, name: str) -> dict:
    """Seconds and bytes of one phase, of a run of `tacit bench`."""
    parties = run["phases"][name]
    return {
        "wall_s": parties["wall_s"],
        "cpu_s": parties["server"]["cpu_s"] + parties["client"]["cpu_s"],
        "peak_rss_bytes": parties["server"]["peak_rss_bytes"],
        "bytes_server_to_client": parties["server"]["sent_bytes"],
        "bytes_client_to_server": parties["client"]["sent_bytes"],
    }


def measure(network: str, backend: str, options: list[str], runs: int, folder: Path) -> tuple[dict, str]:
    """One network's entry of the profile, and the machine that it was measured on."""
    onnx = folder / f"{network}.onnx"
    tacit("zoo", network, "-o", str(onnx))
    chosen = [word for option in options for word in ("-O", option)]
    report = json.loads(
        tacit("bench", "--model", str(onnx), "--backend", backend, *chosen, "--runs", str(runs), "--json")
    )
    onnx.unlink()
    ordered = sorted(report["runs"], key=lambda run: sum(run["phases"][name]["wall_s"] for name in ("offline", "online")))
    run = ordered[len(ordered) // 2]
    entry = {
        "network": network,
        "pre": phase(run, "offline"),
        "on": phase(run, "online"),
        "key_bytes_server": run["material_bytes"]["server"],
        "key_bytes_client": run["material_bytes"]["client"],
        "measured": True,
    }
    return entry, report["machine"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="dealt")
    parser.add_argument("-O", "--option", action="append", default=[], help="option of the back end, KEY=VALUE")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="names of `tacit zoo --list`, with commas")
    parser.add_argument("--runs", type=int, default=3, help="of each network; VGG-16 runs once")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    models, machine = {}, "unknown"
    with tempfile.TemporaryDirectory() as folder:
        for network in asked.networks.split(","):
            runs = 1 if network == "vgg16" else asked.runs
            models[network], machine = measure(network, asked.backend, asked.option, runs, Path(folder))
            figures = models[network]
            print(f"{network}: T_pre {figures['pre']['wall_s']:.3f} s, T_on {figures['on']['wall_s']:.3f} s", file=sys.stderr)
    about = (
        f"Job times and memory of the back end {asked.backend}, {machine}, {date.today()}, loopback, one thread per party; "
        "made by docs/scripts/profile_backend.py"
    )
    units = {"wall_s": "seconds", "cpu_s": "seconds", "peak_rss_bytes": "bytes", "key_bytes": "bytes", "bytes": "bytes"}
    profile = {"about": about, "units": units, "backend": asked.backend, "threads": 1, "link": "loopback", "models": models}
    asked.output.write_text(json.dumps(profile, indent=1) + "\n")


if __name__ == "__main__":
    main()
