"""The study of [PM24] in short: a line for each run, and the table of docs/lab.md from these lines.

    python docs/scripts/study_table.py study -o docs/data/pm24-study.jsonl        # condenses a folder of `tacit lab run pm24-study`
    python docs/scripts/study_table.py docs/data/pm24-study.jsonl                 # prints the tables

Cells that did not run because they would have taken longer than `--at-most` are the planner's predictions, and are marked *modelled*, as on the
study's page, which has beside them how far predictions of their neighbours were off.
"""

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path

LINKS = ("pm24-941", "pm24-95.6", "pm24-19.2", "pm24-3.89", "wan-40ms")
APPROACHES = ("cheetah", "cheetah-12", "sci-he", "sci-he-12", "dealt", "fss", "clear", "local")
PARTIES = ("client", "server")


def condensed(folder: Path) -> list[dict]:
    """Runs of the study and of its paces, and predictions of cells that did not run."""
    lines, ran = [], set()
    for name in (".", "pacing"):
        file = folder / name / "runs.jsonl"
        for text in file.read_text().splitlines() if file.exists() else []:
            run = json.loads(text)
            cell, results = run["cell"], run["results"]
            net, approach = cell["workload"].split("+")
            ran.add((net, approach, cell["link"]))
            line = {"kind": "pace" if name == "pacing" else "run", "net": net, "approach": approach, "link": cell["link"]}
            if "pace" in cell:
                line["pace"] = cell["pace"]
            line |= {
                "latency_s": results["latency_s"],
                "online_s": results["phases.online.wall_s"] if approach != "local" else 0.0,
            }
            line["bytes"] = int(results.get("client_wire_bytes", 0))
            for party in PARTIES:
                if party in run["parties"]:
                    used, energy = run["parties"][party], run["energy"][party]
                    line[party] = {"cpu_s": round(used["user_s"] + used["system_s"], 4), "net_j": round(energy["net_j"], 3),
                                   "gross_j": round(energy["gross_j"], 2), "rss_bytes": used["rss_bytes"], "from": energy["provenance"]}  # fmt: skip
            lines.append(line)
    for cell in json.loads((folder / "study.json").read_text())["cells"]:
        if (cell["net"], cell["approach"], cell["link"]) in ran or "phases" not in cell:
            continue
        phases = cell["phases"].values()
        line = {"kind": "modelled", "net": cell["net"], "approach": cell["approach"], "link": cell["link"]}
        line |= {"latency_s": sum(phase["wall_s"] for phase in phases), "online_s": cell["phases"]["online"]["wall_s"]}
        line["bytes"] = sum(phase["up_bytes"] + phase["down_bytes"] for phase in phases)
        for party in PARTIES:
            cpu, joules = (sum(phase[f"{party}_{what}"] for phase in phases) for what in ("cpu_s", "j"))
            line[party] = {"cpu_s": round(cpu, 4), "net_j": round(joules, 3), "from": "planned"}
        lines.append(line)
    return lines


def cells(lines: list[dict]) -> list[tuple[tuple, list[dict]]]:
    """Runs by network, link, pace and approach, in the order of the tables."""
    by = defaultdict(list)
    for line in lines:
        by[line["net"], line["link"], line.get("pace"), line["approach"]].append(line)

    def place(entry: tuple[tuple, list[dict]]) -> tuple:
        (net, link, pace, approach), _ = entry
        return (
            net != "squeezenet",
            pace is not None,
            LINKS.index(link),
            APPROACHES.index(approach),
            -float((pace or "0").removesuffix("mbit").replace("none", "1e9")),
        )

    return sorted(by.items(), key=place)


def row(runs: list[dict]) -> str:
    """Medians of a cell."""

    def middle(of: str, party: str | None = None) -> float:
        return statistics.median((run[party] if party else run)[of] for run in runs if party is None or party in run)

    latency = middle("latency_s")
    spread = (max(run["latency_s"] for run in runs) - min(run["latency_s"] for run in runs)) / latency / 2
    ran = "*modelled*" if runs[0]["kind"] == "modelled" else f"{len(runs)}, ±{100 * spread:.0f} %"
    joules = middle("net_j", "client")
    server = f"{middle('cpu_s', 'server'):.2f} s, {middle('net_j', 'server'):.1f} J" if "server" in runs[0] else "-"
    return (
        f"{latency:.2f} s | {ran} | {middle('cpu_s', 'client'):.2f} s, {joules:.1f} J, {joules / latency:.2f} W | {server} |"
        f" {middle('bytes') / 1e6:.1f} | {middle('online_s'):.2f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder of a study, or its lines")
    parser.add_argument("-o", "--output", type=Path, help="write the lines here and print nothing")
    args = parser.parse_args()
    lines = (
        condensed(args.source)
        if args.source.is_dir()
        else [json.loads(text) for text in args.source.read_text().splitlines()]
    )
    if args.output:
        args.output.parent.mkdir(exist_ok=True)
        args.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return
    last = None
    for (net, link, pace, approach), runs in cells(lines):
        if (net, pace is None) != last:
            last = net, pace is None
            print(f"\n{net}{'' if pace is None else ', both senders held to a pace'}\n")
            print(
                "| link | approach | latency | runs | client: CPU, above idle, mean | server: CPU, above idle | MB | online |\n|"
                + " --- |" * 8
            )
        name = f"`{approach}`" + (f", {pace}" if pace else "")
        print(f"| {link} | {name} | {row(runs)}")


if __name__ == "__main__":
    main()
