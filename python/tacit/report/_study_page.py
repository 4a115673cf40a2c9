"""The page of the study of [PM24]: verdicts first, then every cell, the sweep over bandwidths, phases, pace."""

from collections.abc import Callable
from pathlib import Path

from tacit.report import _figures as figures
from tacit.report import _load
from tacit.report._cells import Grid, grid
from tacit.report._energy import PROVENANCE_NOTE
from tacit.report._figures import Line
from tacit.report._format import NONE, Stat, Table, brief, plain, slug, spread
from tacit.report._overtime import over_time
from tacit.report._sections import Item, Section
from tacit.report._study import PARTIES, Cell, Study, load
from tacit.report._study_verdicts import study_joules, table_2, verdicts, winners
from tacit.report._sweep import sweep

PACING = "pacing"
# So many inputs share a setup.
SHARED = (1, 10, 100, 1000)
# Power over time is drawn for these, over the fastest link.
DRAWN = ("cheetah", "sci-he", "clear")


def study_sections(cells: Grid, folder: Path, warnings: list[str]) -> list[Section] | None:
    """All sections that are the study's; nothing where the campaign is another one."""
    study = load(folder, cells)
    if study is None:
        return None
    pacing = _pacing(folder / PACING, warnings)
    made = [_first(study, pacing)]
    made += [_net(study, net) for net in study.nets]
    if pacing and (paced := sweep(pacing)):
        made.append(paced)
    fastest = study.lan()[0].name if study.lan() else ""
    drawn = {f"{net}+{approach}" for net in study.nets[:1] for approach in DRAWN}
    few = tuple(g for g in cells.groups if g.value("workload") in drawn and g.value("link") in ("", fastest))
    if timed := over_time(Grid(few, cells.keys), folder, warnings):
        made.append(timed)
    return made


def _pacing(folder: Path, warnings: list[str]) -> Grid | None:
    if not (folder / "campaign.json").is_file():
        return None
    campaign = _load.load(folder)
    warnings += [f"{PACING}: {w}" for w in campaign.warnings]
    return grid(campaign.runs) if campaign.runs else None


def _first(study: Study, pacing: Grid | None) -> Section:
    items = [Item(claim, "", _sentence(verdict, why), ()) for claim, verdict, why in verdicts(study, pacing)]
    compared = table_2(study)
    tables = [*(winners(study, net) for net in study.nets), *([compared] if compared.rows else [])]
    items.append(Item("", "study", "", tuple(tables)))
    if study.left_out:
        items.append(Item("Left out", "", "; ".join(study.left_out), ()))
    ran = sum(1 for c in study.cells if c.n)
    modelled = len(study.cells) - ran
    intro = (
        f"{ran} cells ran and {modelled} are modelled, of {len(study.predicted)}. A modelled cell would have taken too long: it is the "
        "planner's prediction, marked wherever it is shown, with how far predictions of its neighbours were from what ran."
    )
    return Section("The study", intro, tuple(items))


def _sentence(verdict: str, why: str) -> str:
    return f"Verdict: {verdict}.{f' {why}.' if why else ''}"


def _net(study: Study, net: str) -> Section:
    cells = [c for link in study.links for a in study.approaches if (c := study.find(net, a, link.name))]
    items = [_cells(study, net, cells)]
    items += _sweep(study, net)
    items.append(_phases(study, net, cells))
    items.append(_shared(study, net, cells))
    if boards := _boards(study, net):
        items.append(boards)
    return Section(net, PROVENANCE_NOTE, tuple(items))


def _runs(study: Study, cell: Cell) -> str:
    if cell.n:
        return str(cell.n)
    ratios = study.ratios(cell)
    if not ratios:
        return "modelled"
    low, high = brief(min(ratios)), brief(max(ratios))
    return f"modelled ({low} to {high})" if low != high else f"modelled ({low})"


def _cells(study: Study, net: str, cells: list[Cell]) -> Item:
    rows = []
    for cell in cells:
        latency = spread(Stat(cell.n, cell.latency_s, cell.spread_s or None))
        parties = [x for party in PARTIES for x in _party(cell, party)]
        kinds = " and ".join(dict.fromkeys(e.provenance for e in cell.energy.values())) or NONE
        rows.append((cell.link, cell.approach, _runs(study, cell), latency, *parties, kinds, plain(cell.bytes / 1e6)))
    each = [f"{party} {what}" for party in PARTIES for what in ("CPU (s)", "mean (W)", "gross (J)", "net (J)")]
    table = Table(("link", "approach", "runs", "latency (s)", *each, "joules are", "MB at the client"), tuple(rows))
    caption = (
        "Setup, offline and online phase of a new client. Modelled in place of runs: predicted, in brackets the latency that was predicted "
        "over that which was measured in neighbouring cells (none: no neighbour ran). MB with what a dealer sends."
    )
    return Item("Cells", f"cells-{slug(net)}", caption, (table,))


def _party(cell: Cell, party: str) -> tuple[str, ...]:
    energy = cell.energy.get(party)
    if energy is None:
        return (plain(cell.cpu_s[party]), NONE, NONE, NONE)
    return tuple(plain(x) for x in (cell.cpu_s[party], energy.mean_w, energy.gross_j, energy.net_j))


def _sweep(study: Study, net: str) -> list[Item]:
    """[PM24] Fig. 5: against bandwidth, modelled cells included."""
    if len(study.lan()) < 2:
        return []
    kinds: list[tuple[str, str, Callable[[Cell], float]]] = [
        ("Latency", "latency (s)", lambda c: c.latency_s),
        ("Energy of the client, idle included", "client energy (J)", lambda c: _joules(c, "client")),
        ("Energy of both, above idle", "energy above idle (J)", lambda c: c.total_j()),
    ]
    items = []
    for title, label, of in kinds:
        drawn = [a for a in study.approaches if a != "local"]
        lines = [line for k, a in enumerate(drawn) if (line := _line(study, net, a, k, of))]
        if lines:
            figure = figures.against_bandwidth(lines, "bandwidth (Mbit/s)", label)
            table = _by_link(study, net, label, of)
            group = f"{net}, against bandwidth"
            items.append(Item(title, f"{slug(title)}-{slug(net)}", _modelled(study, net), (table,), figure, group))
    return items


def _by_link(study: Study, net: str, label: str, of: Callable[[Cell], float]) -> Table:
    """What a figure shows: a row for each approach, a column for each bandwidth."""

    def shown(approach: str, link: str) -> str:
        cell = study.find(net, approach, link)
        return plain(of(cell)) if cell else NONE

    columns = (label, *(f"{plain(k.mbps)} Mbit/s" for k in study.lan()))
    approaches = [a for a in study.approaches if any(study.find(net, a, k.name) for k in study.lan())]
    return Table(columns, tuple((a, *(shown(a, k.name) for k in study.lan())) for a in approaches))


def _line(study: Study, net: str, approach: str, colour: int, of: Callable[[Cell], float]) -> Line | None:
    cells = [(link.mbps, c) for link in study.lan() if (c := study.find(net, approach, link.name))]
    if not cells:
        return None
    name = approach if any(c.n for _, c in cells) else f"{approach} (modelled)"
    hollow = not any(c.n for _, c in cells)
    return Line(name, [x for x, _ in cells], [of(c) for _, c in cells], [0.0] * len(cells), colour, hollow)


def _joules(cell: Cell, party: str) -> float:
    return cell.energy[party].gross_j if party in cell.energy else 0.0


def _modelled(study: Study, net: str) -> str:
    names = [f"{c.approach} at {c.link}" for c in study.cells if c.net == net and not c.n and c.approach != "local"]
    return f"Modelled, not run: {', '.join(names)}." if names else "All points ran."


def _phases(study: Study, net: str, cells: list[Cell]) -> Item:
    rows = []
    for cell in cells:
        for name, phase in cell.phases.items():
            if phase.wall_s > 0:
                joules = [study_joules(study, cell, name, party) for party in PARTIES]
                figures_of = (phase.wall_s, *(phase.cpu_s[p] for p in PARTIES), phase.up / 1e6, phase.down / 1e6, *joules)
                rows.append((cell.link, cell.approach, name, "" if cell.n else "modelled", *(plain(x) for x in figures_of)))
    columns = (
        "link", "approach", "phase", "", "wall (s)", "client CPU (s)", "server CPU (s)", "MB up", "MB down", "client (J)", "server (J)"
    )  # fmt: skip
    note = "Joules of phases are modelled by the campaign's device profile, idle included, whatever the source of whole runs is."
    table = Table(columns, tuple(rows), note=note)
    return Item("By phase", f"phases-{slug(net)}", "", (table,), group=f"{net}, by phase")


def _shared(study: Study, net: str, cells: list[Cell]) -> Item:
    """What an input costs when many of them come after one setup (keys are sent once)."""
    rows = []
    for cell in cells:
        setup = cell.phases.get("setup")
        if setup is None or setup.wall_s <= 0:
            continue
        later = [name for name in cell.phases if name != "setup"]
        once_j = study_joules(study, cell, "setup", "client")
        each_s = sum(cell.phases[name].wall_s for name in later)
        each_j = sum(study_joules(study, cell, name, "client") for name in later)
        seconds = [setup.wall_s / n + each_s for n in SHARED]
        energy = [once_j / n + each_j for n in SHARED]
        figures_of = (setup.wall_s, setup.bytes / 1e6, once_j, *seconds, *energy)
        rows.append((cell.link, cell.approach, "" if cell.n else "modelled", *(plain(x) for x in figures_of)))
    each = [f"{what} of {n}" for what in ("s an input", "client J an input") for n in SHARED]
    table = Table(("link", "approach", "", "setup (s)", "setup (MB)", "setup, client (J)", *each), tuple(rows))
    caption = "A setup comes once for a client and model: what each of so many inputs takes, with its part of it. Joules as by phase."
    return Item("With the setup shared", f"shared-{slug(net)}", caption, (table,), group=f"{net}, by phase")


def _boards(study: Study, net: str) -> Item | None:
    rows = tuple(
        (b.name, b.link, b.approach, plain(b.wall_s), plain(b.client_j)) for b in study.boards if b.net == net
    )  # fmt: skip
    if not rows:
        return None
    caption = "What the planner says of boards that nobody has run here; speeds and coefficients are assumed (docs/planning.md)."
    table = Table(("device", "link", "approach", "all phases (s)", "client, above idle (J)"), rows)
    return Item("On boards (modelled)", f"boards-{slug(net)}", caption, (table,), group=f"{net}, on boards")
