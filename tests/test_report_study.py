"""The page of `tacit lab run pm24-study`: cells that ran, cells that were predicted, and the verdicts."""

import json

import report_campaigns as made
from tacit.report import _load, write_report
from tacit.report._build import make_sections
from tacit.report._cells import grid
from tacit.report._study import load

LINKS = {"pm24-941": 941.0, "pm24-3.89": 3.89}
CORE_W, BASE_W = 5.0, 10.0
# Of each approach: seconds and bytes of the three phases, client's and server's processor seconds.
APPROACHES = {
    "cheetah": ("two-party", 4.0, 5.0),
    "sci-he": ("two-party", 2.0, 12.0),
    "dealt": ("dealer", 0.5, 1.0),
    "clear": ("server-sees-input", 0.1, 0.2),
    "local": (None, 0.8, 0.0),
}


def phases(approach, mbps):
    """As the planner has them: half of the work offline, 8 MB in each of two phases."""
    _, client, server = APPROACHES[approach]
    moved = 8e6 if approach in ("cheetah", "sci-he") else 1e6
    wall = max(client, server) / 2 + moved * 8 / mbps / 1e6

    def phase(share):
        return {
            "wall_s": wall if share else 0.0,
            "client_cpu_s": client * share,
            "server_cpu_s": server * share,
            "up_bytes": moved * share,
            "down_bytes": moved * share,
            "client_j": client * share,
            "server_j": 0.0,
        }

    return {"setup": phase(0), "offline": phase(0.5), "online": phase(0.5)}


def study(folder, left=()):
    """A study whose cells ran as predicted times 1.25, but for those `left` to a prediction."""
    runs, cells = [], []
    for link, mbps in LINKS.items():
        for approach, (_, client, server) in APPROACHES.items():
            planned = phases(approach, mbps)
            is_left = (approach, link) in left
            cells.append({
                "net": "squeezenet", "approach": approach, "link": link, "repetitions": 0 if is_left else 2,
                "length_s": 1.0, "phases": planned,
            })  # fmt: skip
            if is_left:
                continue
            took = 1.25 * sum(p["wall_s"] for p in planned.values())
            # On the wire there is more than in the protocol: headers, and what a dealer sends.
            results = {"latency_s": took, "client_wire_bytes": 33e6}
            for name, phase in planned.items():
                results |= {f"phases.{name}.wall_s": 1.25 * phase["wall_s"], f"phases.{name}.client.cpu_s": phase["client_cpu_s"]}
                results |= {f"phases.{name}.server.cpu_s": phase["server_cpu_s"]}
                results |= {f"phases.{name}.client.sent_bytes": phase["up_bytes"]}
                results |= {f"phases.{name}.server.sent_bytes": phase["down_bytes"]}
            busy = {"client": client} if approach == "local" else {"client": client, "server": server}
            energy = {p: made.energy(BASE_W * took + CORE_W * s, BASE_W * took, seconds=took) for p, s in busy.items()}
            parties = {p: made.party(s, 0.0) for p, s in busy.items()}
            cell = {"link": link, "transport": "plain", "workload": f"squeezenet+{approach}"}
            more = {"link": made.link(mbps, 0.0006), "energy": energy, "parties": parties, "results": results}
            runs += [made.run(cell, repetition, took, **more) for repetition in range(2)]
    made.write_campaign(folder, runs, experiment="pm24-study")
    trusts = [{"name": name, "backend": name, "trust": trust} for name, (trust, _, _) in APPROACHES.items()]
    boards = [
        {"device": "pi", "net": "squeezenet", "approach": a, "link": "pm24-3.89", "phases": phases(a, 3.89)} for a in APPROACHES
    ]
    described = {
        "format": "tacit-study", "version": 1, "nets": ["squeezenet"], "approaches": trusts, "device": "made-up",
        "links": [{"name": n, "up_bits": m * 1e6, "down_bits": m * 1e6, "rtt_s": 0.0006} for n, m in LINKS.items()],
        "coefficients": {"base_w": BASE_W, "core_w": CORE_W, "byte_j": 0.0}, "cells": cells, "boards": boards,
        "left_out": ["resnet50 on ckks: refused: <b>too large</b>"],
    }  # fmt: skip
    (folder / "study.json").write_text(json.dumps(described))
    return folder


def sections(folder):
    """What is said of each claim, the tables below, and all sections by title."""
    campaign = _load.load(folder)
    found = {s.title: s for s in make_sections(campaign, grid(campaign.runs), [])}
    items = found["The study"].items
    return {i.title: i.caption for i in items}, next(i.tables for i in items if i.tables), found


def said(claims, words):
    """The verdict on the claim that has these words."""
    return next(text for claim, text in claims.items() if words in claim)


def test_claims_have_verdicts_with_figures(tmp_path):
    claims, (best, table_2), found = sections(study(tmp_path))
    # Half the energy over a longer time.
    draws = said(claims, "the client of SCI-HE")
    assert draws.startswith("Verdict: less power, less energy. sci-he / cheetah at 941 Mbit/s") and "energy 0.500×" in draws
    assert said(claims, "total energy").startswith("Verdict: cheetah hardly changes; sci-he hardly changes.")
    assert said(claims, "offline at night").startswith("Verdict: 50 to 50 % is left for the day.")
    assert said(claims, "cap on power").startswith("Verdict: not run.")
    assert best.rows[0][:2] == ("pm24-941", "cheetah (dealt)"), best.rows
    assert [row[0] for row in table_2.rows] == ["squeezenet", "squeezenet"]
    assert "(25.5)" in table_2.rows[0][2]
    assert "too large" in claims["Left out"]
    cells = found["squeezenet"].items[0].tables[0]
    assert len(cells.rows) == 10 and cells.rows[0][2] == "2"
    local = next(row for row in cells.rows if row[1] == "local")
    assert local[8:13] == ("0", "–", "–", "–", "modelled")
    assert cells.rows[0][-1] == "33.0"


def test_what_did_not_run_is_marked_and_told_with_its_neighbours(tmp_path):
    folder = study(tmp_path, left={("sci-he", "pm24-3.89"), ("dealt", "pm24-941"), ("dealt", "pm24-3.89")})
    claims, (best, *_), found = sections(folder)
    cells = {(row[0], row[1]): row for row in found["squeezenet"].items[0].tables[0].rows}
    assert cells["pm24-3.89", "sci-he"][2] == "modelled (0.8)"
    assert cells["pm24-3.89", "dealt"][2] == "modelled"
    # A prediction is not held against a run.
    assert said(claims, "total energy").startswith("Verdict: cheetah hardly changes. ")
    assert "(modelled)" in said(claims, "offline at night")
    assert best.rows[0][1] == "cheetah (dealt (modelled))"
    captions = [item.caption for item in found["squeezenet"].items]
    assert any("sci-he at pm24-3.89" in caption for caption in captions)
    page = write_report(folder).read_text()
    assert "modelled (0.8)" in page and "<b>too large" not in page


def test_a_cell_that_has_not_run_yet_is_not_shown(tmp_path):
    folder = study(tmp_path)
    kept = [line for line in (folder / "runs.jsonl").read_text().splitlines() if "squeezenet+sci-he" not in line]
    (folder / "runs.jsonl").write_text("\n".join(kept) + "\n")
    campaign = _load.load(folder)
    shown = load(folder, grid(campaign.runs))
    assert {c.approach for c in shown.cells} == set(APPROACHES) - {"sci-he"}
    assert len(shown.predicted) == 10
    claims, (best, *_), _ = sections(folder)
    assert best.rows[0][0] == "pm24-941, without sci-he"
    assert said(claims, "the client of SCI-HE") == "Verdict: not run."


def test_the_rate_cap_is_judged(tmp_path):
    folder = study(tmp_path)

    def paced(value, seconds, watts):
        cell = {"link": "pm24-941", "transport": "plain", "workload": "squeezenet+cheetah", "pace": value}
        energy = {"client": made.energy(watts * seconds, BASE_W * seconds, seconds=seconds)}
        results = {"latency_s": seconds}
        return made.run(cell, 0, seconds, link=made.link(941), energy=energy, results=results)

    made.write_campaign(folder / "pacing", [paced("none", 4.0, 15.0), paced("50mbit", 8.0, 12.0)])
    claims, _, found = sections(folder)
    cap = said(claims, "cap on power")
    assert cap.startswith("Verdict: squeezenet+cheetah: less power, more energy. "), cap
    assert "power 0.800× with idle, 0.400× above idle; energy 1.60× with idle" in cap
    assert "Against pace" in found


def test_a_setup_is_shared_by_the_inputs_behind_it(tmp_path):
    folder = study(tmp_path)
    runs = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    for run in runs:
        if run["cell"]["workload"] == "squeezenet+cheetah":
            setup = {"wall_s": 20.0, "client.cpu_s": 2.0, "server.cpu_s": 0.0, "client.sent_bytes": 40e6}
            run["results"] |= {f"phases.setup.{name}": value for name, value in setup.items()}
    (folder / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    _, _, found = sections(folder)
    shared = next(item.tables[0] for item in found["squeezenet"].items if item.title == "With the setup shared")
    assert {row[1] for row in shared.rows} == {"cheetah"} and len(shared.rows) == len(LINKS)
    row = next(row for row in shared.rows if row[0] == "pm24-941")
    # 10 W for 20 s and 5 W for two of processor; an input takes 6.42 s and four of processor beside it.
    assert row[3:6] == ("20.0", "40.0", "210"), row
    assert row[6:10] == ("26.4", "8.42", "6.62", "6.44"), row
    assert row[10:] == ("294", "105", "86.3", "84.4"), row
