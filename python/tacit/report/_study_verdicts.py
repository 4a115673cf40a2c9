"""The claims of [PM24], each with a verdict in words and the figures behind it."""

from collections.abc import Callable, Sequence

from tacit.report._cells import Grid
from tacit.report._energy import account
from tacit.report._format import NONE, Stat, Table, plain
from tacit.report._study import Cell, Link, Study, ratio

# What is compared: at equal precision where both ran, else at the importer's.
PAIRS = (("cheetah-12", "sci-he-12"), ("cheetah", "sci-he"))
# [PM24] Table 2: network, approach, latency (s), client W and J, server W and J; net of idle.
TABLE_2 = (
    ("squeezenet", "cheetah", 25.5, 29.7, 772.1, 27.91, 725.7),
    ("squeezenet", "sci-he", 79.9, 9.96, 796.9, 25.33, 2026.57),
    ("resnet50", "cheetah", 107.9, 25.53, 2757.61, 42.31, 4569.9),
    ("resnet50", "sci-he", 371.0, 8.83, 3276.33, 45.12, 16741.35),
)
# What SqueezeNet's online phase may take at 3.89 Mbit/s, seconds: must, must once the engine got lighter, aim.
ONLINE_S = (75.0, 57.0, 45.0)
# Less than this is no change.
CHANGE = 1.1
Row = tuple[str, str, str]


def verdicts(study: Study, pacing: Grid | None) -> list[Row]:
    """Claim, verdict, figures; a claim whose cells did not run says so."""
    rows: list[Row] = []
    for net in study.nets:
        rows += [_draws_less(study, net), _energy_rises(study, net), _privacy(study, net), _devices(study, net)]
        rows.append(_night(study, net))
    return [*rows, _online(study), _cap(pacing)]


def _marked(cell: Cell) -> str:
    return "" if cell.n else " (modelled)"


def _pairs(study: Study, net: str, link: Link) -> list[tuple[Cell, Cell]]:
    found = [(study.find(net, a, link.name), study.find(net, b, link.name)) for a, b in PAIRS]
    alike = [(a, b) for a, b in found if a and b and (a.n > 0) == (b.n > 0)]
    return [(a, b) for a, b in alike if "client" in a.energy and "client" in b.energy]


def _draws_less(study: Study, net: str) -> Row:
    claim = f"{net}: the client of SCI-HE draws a third of Cheetah's power and takes as much energy"
    words, figures = [], []
    for link in study.lan()[:1]:
        for cheetah, scihe in _pairs(study, net, link):
            power, energy = scihe.net_w("client") / cheetah.net_w("client"), _net(scihe) / _net(cheetah)
            words.append("less power" if power < 1 / CHANGE else "no less power")
            words[-1] += ", less energy" if energy < 1 / CHANGE else ", more energy" if energy > CHANGE else ", as much energy"
            figures.append(
                f"{scihe.approach} / {cheetah.approach} at {plain(link.mbps)} Mbit/s: power {plain(power)}\u00d7, energy "
                f"{plain(energy)}\u00d7, server energy {_over(scihe, cheetah, 'server')}, latency "
                f"{ratio(scihe.latency_s, cheetah.latency_s)}{_marked(scihe) or _marked(cheetah)}"
            )
    return claim, "; ".join(dict.fromkeys(words)) or "not run", "; ".join(figures)


def _net(cell: Cell) -> float:
    return cell.energy["client"].net_j


def _over(a: Cell, b: Cell, party: str) -> str:
    return ratio(a.energy[party].net_j, b.energy[party].net_j) if party in a.energy and party in b.energy else NONE


def _energy_rises(study: Study, net: str) -> Row:
    # A prediction beside a run would show how far the planner is off.
    claim = f"{net}: total energy rises as bandwidth falls (SCI-HE's does, Cheetah's hardly); cells that ran"
    words, figures = [], []
    for approach in [a for pair in zip(*PAIRS, strict=True) for a in pair]:
        cells = [c for k in study.lan() if (c := study.find(net, approach, k.name)) and c.n and len(c.energy) > 1]
        if len(cells) < 2:
            continue
        first, last = cells[0], cells[-1]
        net_times, gross_times = last.total_j() / first.total_j(), last.total_j(net=False) / first.total_j(net=False)
        change = "rises" if net_times > CHANGE else "hardly changes" if net_times > 1 / CHANGE else "falls"
        words.append(f"{approach} {change}")
        figures.append(
            f"{approach}, {first.link} to {last.link}: {plain(net_times)}\u00d7 above idle, {plain(gross_times)}\u00d7 with idle"
        )
    return claim, "; ".join(words) or "not run", "; ".join(figures)


def best(study: Study, net: str, link: str, of: Callable[[Cell], float], dealer: bool) -> Cell | None:
    """The private approach with the least of a figure; with a dealer only if one is trusted."""
    private = [a for a in study.approaches if study.is_private(a) and (dealer or not study.needs_dealer(a))]
    cells = [c for a in private if (c := study.find(net, a, link))]
    return min(cells, key=of, default=None)


def winners(study: Study, net: str) -> Table:
    """Who is best at what, by link; in brackets who would be if a dealer were trusted."""
    goals: Sequence[tuple[str, Callable[[Cell], float]]] = (
        ("latency", lambda c: c.latency_s),
        ("client energy, with idle", lambda c: c.energy["client"].gross_j if "client" in c.energy else c.latency_s),
        ("client energy, above idle", lambda c: c.energy["client"].net_j if "client" in c.energy else c.cpu_s["client"]),
        ("total energy, with idle", lambda c: c.total_j(net=False) or c.latency_s),
    )

    def named(link: Link, of: Callable[[Cell], float]) -> str:
        alone, dealt = (best(study, net, link.name, of, dealer) for dealer in (False, True))
        if alone is None:
            return NONE
        other = f" ({dealt.approach}{_marked(dealt)})" if dealt and dealt.approach != alone.approach else ""
        return f"{alone.approach}{_marked(alone)}{other}"

    def first(link: Link) -> str:
        planned = [p for p in study.predicted if (p.net, p.link) == (net, link.name) and study.is_private(p.approach)]
        lacks = [p.approach for p in planned if not study.find(net, p.approach, link.name)]
        return f"{link.name}, without {', '.join(lacks)}" if lacks else link.name

    rows = tuple((first(k), *(named(k, of) for _, of in goals)) for k in study.links)
    note = "In brackets: if a dealer is trusted. Modelled: the planner's prediction, not a run. Without: has not run yet."
    return Table(("link", *(title for title, _ in goals)), rows, f"{net}: who is best", note)


def _privacy(study: Study, net: str) -> Row:
    claim = f"{net}: what privacy costs beside the server on the plain input and the client with the model"
    words, figures = [], []
    for link in [*study.lan()[:1], *study.lan()[-1:]]:
        cell = best(study, net, link.name, lambda c: c.latency_s, dealer=False)
        for bound in ("clear", "local"):
            base = study.find(net, bound, link.name)
            if cell and base:
                words.append(f"{ratio(cell.latency_s, base.latency_s)} the latency of {bound} over {link.name}")
                joules = f", client energy {_gross(cell, base)}" if "client" in base.energy else ""
                figures.append(
                    f"{link.name}, {cell.approach}{_marked(cell)} / {bound}: latency {ratio(cell.latency_s, base.latency_s)}{joules}"
                )
    return claim, "; ".join(dict.fromkeys(words)) or "not run", "; ".join(dict.fromkeys(figures))


def _gross(cell: Cell, base: Cell) -> str:
    return ratio(cell.energy["client"].gross_j, base.energy["client"].gross_j) if "client" in cell.energy else NONE


def _devices(study: Study, net: str) -> Row:
    """All by the planner: nobody has run these boards here."""
    claim = f"{net}: on a board, is computing locally cheaper than asking privately? (modelled, above idle)"
    link = study.lan()[1].name if len(study.lan()) > 1 else (study.links[0].name if study.links else "")
    words, figures = [], []
    for name in dict.fromkeys(b.name for b in study.boards):
        here = [b for b in study.boards if (b.name, b.net, b.link) == (name, net, link)]
        private = [b for b in here if study.is_private(b.approach) and not study.needs_dealer(b.approach)]
        local = next((b for b in here if b.approach == "local"), None)
        if local and private:
            least = min(private, key=lambda b: b.client_j)
            words.append(f"{name}: {'yes' if local.client_j < least.client_j else 'no'}")
            figures.append(
                f"{name} over {link}: local {plain(local.client_j)} J, {plain(local.wall_s)} s; {least.approach} "
                f"{plain(least.client_j)} J ({ratio(least.client_j, local.client_j)}), {plain(least.wall_s)} s"
            )
    return claim, "; ".join(words) or "no figure", "; ".join(figures)


def _night(study: Study, net: str) -> Row:
    claim = f"{net}: offline at night, online by day: energy of the client at the moment of use (modelled, with idle)"
    figures, shares = [], []
    for approach in ("cheetah", "sci-he", "cheetah-12", "sci-he-12"):
        for link in [*study.lan()[:1], *study.lan()[-1:]]:
            cell = study.find(net, approach, link.name)
            if cell and cell.phases["online"].wall_s > 0:
                by_phase = {name: study_joules(study, cell, name) for name in cell.phases}
                whole = sum(by_phase.values())
                shares.append(by_phase["online"] / whole if whole else 1.0)
                figures.append(
                    f"{approach}, {link.name}{_marked(cell)}: {plain(by_phase['online'])} of {plain(whole)} J, "
                    f"{plain(cell.phases['online'].wall_s)} of {plain(cell.latency_s)} s"
                )
    verdict = f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % is left for the day" if shares else "not run"
    return claim, verdict, "; ".join(dict.fromkeys(figures))


def study_joules(study: Study, cell: Cell, phase: str, party: str = "client") -> float:
    """A party's energy in a phase, idle included, by the campaign's device profile."""
    own = cell.phases[phase]
    k = study.coefficients
    return k.get("base_w", 0.0) * own.wall_s + k.get("core_w", 0.0) * own.cpu_s[party] + k.get("byte_j", 0.0) * own.bytes


def _online(study: Study) -> Row:
    must, lighter, aim = ONLINE_S
    claim = f"SqueezeNet online at 3.89 Mbit/s: {must:.0f} s at most, {lighter:.0f} s with the lighter engine, aim {aim:.0f} s"
    cell = study.find("squeezenet", "cheetah", "pm24-3.89")
    if cell is None or cell.phases["online"].wall_s <= 0:
        return claim, "not run", ""
    took = cell.phases["online"].wall_s
    words = "aim met" if took <= aim else "met" if took <= lighter else "first bound met" if took <= must else "missed"
    return claim, f"{words}{_marked(cell)}", f"cheetah, default scales: {plain(took)} s"


def _cap(pacing: Grid | None) -> Row:
    claim = "a cap on the rate is a cap on power (sec. 5.2)"
    words, figures = [], []
    for label, groups in pacing.split(("pace",)) if pacing else []:
        free = next((g for g in groups if g.value("pace") == "none"), None)
        capped = [g for g in groups if g.value("pace") not in ("", "none")]
        lowest = min(capped, key=lambda g: _rate(g.value("pace")), default=None)
        if not free or not lowest or not (a := account(free, "client")) or not (b := account(lowest, "client")):
            continue
        power, energy = b.mean_w.mean / a.mean_w.mean, b.gross_j.mean / a.gross_j.mean
        name = label or free.value("workload")
        said = "less power" if power < 1 / CHANGE else "hardly less power"
        words.append(f"{name}: {said}, {'more energy' if energy > CHANGE else 'no more energy'}")
        above = _quotient(b.net_j, a.net_j, lowest.stat(lambda r: r.duration_s), free.stat(lambda r: r.duration_s))
        figures.append(
            f"{name}, {lowest.value('pace')} / no pace: power {plain(power)}\u00d7 with idle, {above} above idle; "
            f"energy {plain(energy)}\u00d7 with idle"
        )
    return claim, "; ".join(words) or "not run", "; ".join(figures)


def _quotient(b: Stat | None, a: Stat | None, b_s: Stat | None, a_s: Stat | None) -> str:
    """Mean power above idle over mean power above idle."""
    if not (a and b and a_s and b_s) or min(a.mean, a_s.mean, b_s.mean) <= 0:
        return NONE
    return f"{plain((b.mean / b_s.mean) / (a.mean / a_s.mean))}\u00d7"


def _rate(pace: str) -> float:
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    number = pace[:-4]
    return float(number) * units.get(pace[-4:], 1.0) if number.replace(".", "", 1).isdigit() else float("inf")


def table_2(study: Study) -> Table:
    """The paper's results on one link beside ours; ours at 12 fraction bits where they ran."""
    fastest = study.lan()[0].name if study.lan() else ""
    rows = []
    for net, approach, latency, *theirs in TABLE_2:
        cell = study.find(net, f"{approach}-12", fastest) or study.find(net, approach, fastest)
        if cell is None or len(cell.energy) < 2:
            continue
        ours = [x for party in ("client", "server") for x in (cell.net_w(party), cell.energy[party].net_j)]
        pairs = [f"{plain(o)} ({plain(t)})" for o, t in zip([cell.latency_s, *ours], [latency, *theirs], strict=True)]
        rows.append((net, f"{cell.approach}{_marked(cell)}", *pairs, ratio(cell.latency_s, latency)))
    columns = (
        "network", "approach", "latency (s)", "client (W)", "client (J)", "server (W)", "server (J)", "latency, ours / theirs"
    )  # fmt: skip
    note = (
        "In brackets the paper's figures (Table 2: two Xeon E-2378, a power meter, net of idle); ours are of another machine and their "
        "provenance is in the table of cells. Only ratios within a column of one source mean anything."
    )
    return Table(columns, tuple(rows), "Table 2 of [PM24] beside ours", note)
