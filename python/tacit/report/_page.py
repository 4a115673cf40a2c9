"""The page: one file of HTML with its style and its plots inside. Whatever comes from files is escaped here, and only here."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from tacit.report._cells import Grid
from tacit.report._css import CSS
from tacit.report._format import Table
from tacit.report._load import Campaign, Run
from tacit.report._sections import Item, Section

MAX_LISTED = 100


def page(
    campaign: Campaign, grid: Grid, sections: Sequence[Section], plots: Mapping[str, bytes], warnings: Sequence[str]
) -> str:
    """`plots` holds the SVG of each item that has a figure, by the item's name."""
    parts = [
        _header(campaign, grid),
        _failures(campaign),
        _list("Remarks", warnings),
        *(_section(section, plots) for section in sections),
        _spec(campaign.spec),
    ]
    return _document(f"{campaign.experiment}: report of tacit lab", parts)


def simulation_page(
    title: str, facts: Iterable[tuple[str, str]], sections: Sequence[Section], plots: Mapping[str, bytes]
) -> str:
    """The page of simulated runs; `plots` as above."""
    header = f"<header><h1>{escape(title)}</h1>{_facts(facts)}</header>"
    return _document(title, [header, *(_section(section, plots) for section in sections)])


def _document(title: str, body: Sequence[str]) -> str:
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        # The page fetches nothing and runs nothing, whatever names the files held.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><main>",
        *body,
        "</main></body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _header(campaign: Campaign, grid: Grid) -> str:
    facts = [
        ("experiment", campaign.experiment),
        ("started", _date(campaign.started_unix_s)),
        ("runs", _runs(campaign, grid)),
    ]
    provenances = sorted({e.provenance for r in campaign.runs for e in r.energy.values()})
    facts.append(("energy", ", ".join(provenances) or "none: absent, not zero"))
    machine = campaign.machine.items()
    return f"<header><h1>{escape(campaign.experiment)}</h1><p>{escape(campaign.description)}</p>{_facts(facts)}</header>" + (
        f"<details open><summary>Machine</summary>{_facts(machine)}</details>" if machine else ""
    )


def _date(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"


def _runs(campaign: Campaign, grid: Grid) -> str:
    if not campaign.runs and not campaign.failures:
        return "none yet"
    failed = sum(not again for _, again in campaign.failures)
    repeated = len(campaign.failures) - failed
    words = [
        f"{len(campaign.runs)} in {len(grid.groups)} cells" if len(grid.groups) != 1 else f"{len(campaign.runs)} in one cell"
    ]
    words += [f"{failed} failed"] if failed else []
    words += [f"{repeated} failed and repeated with success"] if repeated else []
    return "; ".join(words)


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts if v)
    return f"<dl>{rows}</dl>"


def _failures(campaign: Campaign) -> str:
    def line(run: Run, again: bool) -> str:
        cell = ", ".join(f"{k} {v}" for k, v in run.cell) or "all runs"
        ending = " (repeated with success)" if again else ""
        return f"{cell}, repetition {run.repetition}{ending}: {run.failure}"

    return _list("Runs that failed", [line(run, again) for run, again in campaign.failures])


def _list(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    more = f"<li>and {len(lines) - MAX_LISTED} more</li>" if len(lines) > MAX_LISTED else ""
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines[:MAX_LISTED])
    return f'<section class="remarks"><h2>{title}</h2><ul>{rows}{more}</ul></section>'


def _section(section: Section, plots: Mapping[str, bytes]) -> str:
    groups: dict[str, list[Item]] = {}
    for item in section.items:
        groups.setdefault(item.group, []).append(item)
    body = []
    first = next((label for label in groups if label), "")
    for label, items in groups.items():
        inner = "".join(_item(item, plots) for item in items)
        # The first of many is open; a page with everything open is too long to read.
        opened = " open" if label == first else ""
        body.append(f"<details{opened}><summary>{escape(label)}</summary>{inner}</details>" if label else inner)
    return f"<section><h2>{escape(section.title)}</h2><p>{escape(section.intro)}</p>{''.join(body)}</section>"


def _item(item: Item, plots: Mapping[str, bytes]) -> str:
    heading = f"<h3>{escape(item.title)}</h3>" if item.title else ""
    caption = f'<p class="caption">{escape(item.caption)}</p>' if item.caption else ""
    tables = "".join(table(t) for t in item.tables if t.rows)
    svg = plots.get(item.name)
    if svg is None:
        return f'{heading}{caption}<div class="wide">{tables}</div>'
    data = base64.b64encode(svg).decode()
    name = ", ".join(part for part in (item.title, item.group) if part)
    alt = escape(f"{name}: the table has the numbers" if tables else name)
    image = f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{alt}"></figure>'
    if not tables:
        return f'{heading}{caption}<div class="wide">{image}</div>'
    return f'{heading}{caption}<div class="pair">{image}<div>{tables}</div></div>'


def table(content: Table) -> str:
    """A table; columns of numbers are set flush right."""
    right = [content.right_aligned(i) for i in range(len(content.columns))]
    marks = [' class="n"' if r else "" for r in right]
    head = "".join(f'<th scope="col"{m}>{escape(c)}</th>' for c, m in zip(content.columns, marks, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{m}>{escape(c)}</td>" for c, m in zip(row, marks, strict=True)) + "</tr>"
        for row in content.rows
    )
    title = f"<caption>{escape(content.title)}</caption>" if content.title else ""
    note = f'<p class="note">{escape(content.note)}</p>' if content.note else ""
    return f'<div class="scroll"><table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'


def _spec(spec: str) -> str:
    if not spec.strip():
        return ""
    return f"<details><summary>The experiment as it was run</summary><pre>{escape(spec)}</pre></details>"
