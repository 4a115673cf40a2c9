"""The end of `tacit lab transport`: figures of each cell, compared with plain TCP, and beside the tables of [VPN24]."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.lab import _print
from tacit.lab._compare import Run
from tacit.lab._stats import Summary, fieller, ratio
from tacit.report._energy import worst
from tacit.report._format import decimals

MB, GB = 1e6, 1e9
TRANSPORTS = ("plain", "tls", "wireguard", "tls+wireguard")
Value = Callable[[Run], float | None]
Figure = dict[str, Any] | None
"""Of several runs `mean` and `sd`, with `ratio` to plain TCP in the same setting and its 95 % `interval` where there are any."""
Row = dict[str, Any]
"""A cell: `link`, `role` of the client, `transport`, number of good `runs`, figures, both `parties` by name; as `--json` prints it.

A party has CPU seconds (tunnel process included), joules above idle with their `provenance`, and its largest memory.
"""


def rows(runs: Sequence[Run]) -> list[Row]:
    """A row for each cell with good runs, by link, role and transport."""
    cells: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        link, role, transport = (run["cell"].get(key, "") for key in ("link", "workload", "transport"))
        if "failure" not in run and transport in TRANSPORTS:
            cells.setdefault((link, role, TRANSPORTS.index(transport)), []).append(run)
    made = []
    for (link, role, kind), own in sorted(cells.items(), key=lambda cell: cell[0]):
        plain = cells.get((link, role, 0), [])
        row: Row = {"link": link, "role": role, "transport": TRANSPORTS[kind], "runs": len(own)}
        row |= {"mb_per_s": _figure(own, plain, _mb_per_s), "messages": _figure(own, plain, _messages)}
        made.append(row | {"parties": {name: _party(own, plain, name) for name in ("client", "server")}})
    return made


def _bytes(run: Run) -> float:
    results = run.get("results", {})
    return float(results.get("sent_bytes", 0) + results.get("received_bytes", 0))


def _mb_per_s(run: Run) -> float | None:
    seconds = run.get("results", {}).get("seconds", 0)
    return _bytes(run) / MB / seconds if _bytes(run) > 0 and seconds > 0 else None


def _messages(run: Run) -> float | None:
    found: float | None = run.get("results", {}).get("messages")
    return found


def _per_byte(kind: str, party: str, unit: float, *keys: str) -> Value:
    """The sum of a party's figures under `kind`, for each `unit` of bytes."""

    def of(run: Run) -> float | None:
        own, moved = run.get(kind, {}).get(party, {}), _bytes(run)
        return sum(own[key] for key in keys) * unit / moved if all(key in own for key in keys) and moved > 0 else None

    return of


def _party(runs: Sequence[Run], plain: Sequence[Run], name: str) -> dict[str, Any]:
    times = {"user_s_per_gb": ("user_s",), "system_s_per_gb": ("system_s",), "cpu_s_per_gb": ("user_s", "system_s")}
    made: dict[str, Any] = {figure: _figure(runs, plain, _per_byte("parties", name, GB, *keys)) for figure, keys in times.items()}
    ours, theirs = (worst(run["energy"][name]["provenance"] for run in some if name in run.get("energy", {})) for some in (runs, plain))
    # Joules of different origin have no ratio.
    alike = plain if ours == theirs else []
    joules = _figure(runs, alike, _per_byte("energy", name, MB, "net_j"), _per_byte("energy", name, MB, "net_sd_j"))
    memory = _figure(runs, plain, lambda r: r.get("parties", {}).get(name, {}).get("rss_bytes"))
    return made | {"net_j_per_mb": joules, "provenance": ours or None, "memory_bytes": memory}


def _figure(runs: Sequence[Run], plain: Sequence[Run], value: Value, shared: Value = lambda _: None) -> Figure:
    """The figure; nothing if a run lacks it. `shared` are uncertainties that all runs of a cell share, such as that of idle power."""
    ours, theirs = _summary(runs, value), _summary(plain, value)
    if ours is None:
        return None
    made: dict[str, Any] = {"mean": ours.mean, "sd": ours.sd}
    if theirs and (times := ratio(ours, theirs)) is not None:
        made["ratio"] = times
        ours, theirs = (of.with_shared([u for run in some if (u := shared(run)) is not None]) for of, some in ((ours, runs), (theirs, plain)))
        if interval := fieller(ours, theirs):
            made["interval"] = interval
    return made


def _summary(runs: Sequence[Run], value: Value) -> Summary | None:
    values = [float(v) for run in runs if (v := value(run)) is not None]
    return Summary.of(values) if len(values) == len(runs) else None


@dataclass(frozen=True)
class Table:
    """A table as text: aligned columns, the first `words` ones left, numbers right."""

    title: str
    head: list[str]
    words: int
    rows: list[list[str]]

    def __str__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        made = [self.title]
        for line in lines:
            sides = "<" * self.words + ">" * (len(widths) - self.words)
            made.append("  " + "  ".join(f"{c:{s}{w}}" for c, s, w in zip(line, sides, widths, strict=True)).rstrip())
        return "\n".join(made) + "\n"


def _number(figure: Figure, unit: float = 1.0) -> str:
    return significant(figure["mean"] / unit) if figure else "-"


def significant(x: float) -> str:
    """Three significant digits."""
    return f"{x:.{decimals(x)}f}"


def _ratio(figure: Figure) -> str:
    if not figure or "ratio" not in figure:
        return "-"
    return f"{figure['ratio']:.2f}" + (" [{:.2f}, {:.2f}]".format(*figure["interval"]) if "interval" in figure else "")


def _label(row: Row) -> list[str]:
    return [row["link"], row["role"], row["transport"]]


def verdict(rows: Sequence[Row]) -> Table:
    """Speed, CPU time of both sides and energy, as ratios to plain TCP."""
    head = ["link", "client", "transport", "speed", "client CPU", "server CPU", "client J/MB", "server J/MB"]
    lines = []
    for row in rows:
        if row["transport"] != "plain":
            parts = [party[name] for name in ("cpu_s_per_gb", "net_j_per_mb") for party in row["parties"].values()]
            lines.append([*_label(row), _ratio(row["mb_per_s"]), *map(_ratio, parts)])
    return Table("Ratios to plain TCP on the same link (95 % confidence intervals)", head, 3, lines)


def figures(rows: Sequence[Row]) -> Table:
    """The figures behind the verdict, a line for each party."""
    head = "link,client,transport,party,runs,MB/s,user s/GB,kernel s/GB,net J/MB,joules,MB memory,messages".split(",")
    lines = []
    for row in rows:
        for name, party in row["parties"].items():
            own = [row["mb_per_s"], *(party[key] for key in ("user_s_per_gb", "system_s_per_gb", "net_j_per_mb"))]
            last = [party["provenance"] or "none", _number(party["memory_bytes"], MB), _number(row["messages"])]
            lines.append([*_label(row), name, str(row["runs"]), *map(_number, own), *last])
    title = "Figures (means; CPU with the tunnel's process; memory: the most of all processes of the party)"
    return Table(title, head, 4, lines)


def beside_paper(rows: Sequence[Row], paper: Mapping[str, Any]) -> Table:
    """The paper's values beside ours for the same transport and role on each link, in comparable units."""
    head = "table,device,mode,client,transport,unit,paper,to plain,link,ours,to plain".split(",")
    lines = []
    for value in paper["values"]:
        to_plain = ratio_to_plain(paper, value)
        start = [str(value[key]) for key in ("table", "device", "power_mode", "role", "transport", "unit")]
        start += [significant(value["value"]), "-" if to_plain is None else f"{to_plain:.2f}"]
        alike = [row for row in rows if (row["transport"], row["role"]) == (value["transport"], value["role"])]
        ours = [[row["link"], _number(f), _ratio(f)] for row in alike if (f := _of_unit(row, value["unit"]))]
        lines += [[*start, *end] for end in ours or [["-", "-", "-"]]]
    return Table(f"Beside {paper['source']}", head, 6, lines)


def ratio_to_plain(paper: Mapping[str, Any], value: Mapping[str, Any]) -> float | None:
    """Ratio to the plain value of the same table, device, mode, role and unit; nothing without one."""
    wanted = {**value, "transport": "plain"}
    plain = next((v["value"] for v in paper["values"] if {**v, "value": wanted["value"]} == wanted), 0.0)
    return value["value"] / plain if plain > 0 else None


def _of_unit(row: Row, unit: str) -> Figure:
    """The client's figure in a unit of the paper; the client stands for the paper's device."""
    joules: Figure = row["parties"]["client"]["net_j_per_mb"]
    # The paper's mW/MB is a sum of net power over samples of 1 s: millijoules per megabyte.
    milli = joules and joules | {"mean": joules["mean"] * 1e3}
    return {"MB/s": row["mb_per_s"], "J/MB": joules, "mW/MB": milli}.get(unit)


def run(told: Mapping[str, Any]) -> None:
    """Evaluates the runs and prints."""
    found, paper = rows(told["runs"]), told["paper"]
    if told["json"]:
        source = paper and {"source": paper["source"], "values": len(paper["values"])}
        return _print.as_json({"rows": found, "paper": source}, indent=None)
    _print.line(f"{verdict(found)}\n{figures(found)}")
    if paper:
        note = "The paper's mW/MB are in effect net millijoules of the CPU per megabyte: ours beside them is net J/MB times 1000."
        _print.line(f"{beside_paper(found, paper)}\n{note}")
