"""Draws docs/data/crates.svg: the crates of the workspace, and which of them build on which.

    python docs/scripts/draw_crates.py            # writes the picture
    python docs/scripts/draw_crates.py --check    # fails if the file is not what would be drawn now

A crate stands above everything that it builds on. An arrow is left out if other arrows lead to the same crate.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PICTURE = ROOT / "docs" / "data" / "crates.svg"


@dataclass(frozen=True)
class Group:
    """Crates of some folders: a column of the picture with room for so many side by side, behind so many of others."""

    name: str
    folders: tuple[str, ...]
    before: int
    room: int
    colour: str


@dataclass(frozen=True)
class Sizes:
    """Lengths of the picture, in pixels. Arrows are at least a lane apart."""

    width: int = 1000
    margin: int = 12
    header: int = 46
    box_width: int = 98
    box_height: int = 26
    row: int = 62
    lane: int = 8


@dataclass
class Crate:
    """A crate, what it builds on, and the middle of its box: the row from below, and x."""

    name: str
    group: Group
    uses: set[str]
    row: int = 0
    x: float = 0.0


@dataclass(frozen=True)
class Arrow:
    """A crate builds on another one. The arrow leaves the box of the first at `start`."""

    user: Crate
    used: Crate
    start: float


GROUPS = (
    Group("base", ("crates/base",), 0, 2, "#2f6db0"),
    Group("backends", ("crates/backends",), 2, 2, "#7d46a8"),
    Group("service", ("crates/service",), 4, 2, "#22804a"),
    Group("app", ("crates/app",), 6, 1, "#b8500f"),
    Group("lab", ("lab",), 7, 1, "#806600"),
    Group("bindings, fuzz", ("bindings", "fuzz"), 8, 1, "#ad2f5c"),
)
SIZES = Sizes()
COLUMN = (SIZES.width - 2 * SIZES.margin) / sum(group.room for group in GROUPS)
HEAD = (
    "<title>The crates of tacit: an arrow leads from a crate to one that it builds on</title>\n"
    "<style>text{font:12px Arial,sans-serif;text-anchor:middle;fill:#1a1a1a}.arrow{fill:none;stroke-width:1.4}</style>\n"
    '<marker id="head" refX="2.5" refY="5" markerWidth="5" markerHeight="5"><path d="M0 0H5L2.5 5z"/></marker>\n'
    '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>'
)


def read_crates() -> dict[str, Crate]:
    """The crates of the workspace, by name, with the normal dependencies among them that do not follow from others."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    short = {package["name"]: package["name"].removeprefix("tacit-") for package in metadata["packages"]}
    crates = {}
    for package in sorted(metadata["packages"], key=lambda package: package["name"]):
        folder = Path(package["manifest_path"]).parent.relative_to(ROOT)
        group = next((g for g in GROUPS if any(folder.is_relative_to(inside) for inside in g.folders)), None)
        if group is None:
            sys.exit(f"{folder}: no group of docs/scripts/draw_crates.py has this folder")
        uses = {short[each["name"]] for each in package["dependencies"] if each["kind"] is None and each["name"] in short}
        crates[short[package["name"]]] = Crate(short[package["name"]], group, uses)
    below = {name: reached(crates, name) for name in crates}
    for crate in crates.values():
        crate.uses = {used for used in crate.uses if not any(used in below[other] for other in crate.uses)}
    return crates


def reached(crates: dict[str, Crate], name: str) -> set[str]:
    """All that a crate builds on, directly or by way of others."""
    uses = crates[name].uses
    return uses.union(*(reached(crates, used) for used in uses))


def place(crates: dict[str, Crate]) -> None:
    """Puts every crate into the lowest row that is above all that it builds on and has room in the crate's column."""
    below = [reached(crates, name) for name in crates]
    rows: dict[tuple[Group, int], list[Crate]] = {}
    # What a crate builds on has more users than the crate, so it is placed before.
    for crate in sorted(crates.values(), key=lambda crate: (-sum(crate.name in each for each in below), crate.name)):
        crate.row = max((crates[used].row + 1 for used in crate.uses), default=0)
        while len(side_by_side := rows.setdefault((crate.group, crate.row), [])) == crate.group.room:
            crate.row += 1
        side_by_side.append(crate)
    for (group, _), side_by_side in rows.items():
        for number, crate in enumerate(side_by_side):
            crate.x = SIZES.margin + COLUMN * (group.before + number + 0.5 + (group.room - len(side_by_side)) / 2)


def find_arrows(crates: dict[str, Crate]) -> list[Arrow]:
    """All arrows, the short ones first. Those of one crate leave it side by side, in the order of their ends."""
    found = []
    for user in crates.values():
        ends = sorted((crates[name] for name in user.uses), key=lambda used: (used.x, used.row))
        step = SIZES.box_width / (len(ends) + 1)
        found += [Arrow(user, used, user.x - SIZES.box_width / 2 + step * number) for number, used in enumerate(ends, 1)]
    return sorted(found, key=lambda arrow: (arrow.user.row - arrow.used.row, arrow.user.name, arrow.used.name))


def route(arrow: Arrow, crates: dict[str, Crate], taken: dict[tuple[int, int], str]) -> list[float]:
    """An arrow's x in each row below its start, around boxes and what is `taken` (row and x) by arrows to other crates."""
    rows = range(arrow.user.row - 1, arrow.used.row, -1)
    lanes = range(2 * SIZES.margin, SIZES.width - 2 * SIZES.margin, SIZES.lane)
    # The straightest way to each x of a row, with the sum of its squared steps.
    ways: dict[float, tuple[float, list[float]]] = {arrow.start: (0.0, [])}
    for row in rows:
        boxes = [crate.x for crate in crates.values() if crate.row == row]
        clear = [x for x in lanes if all(abs(x - box) >= (SIZES.box_width + SIZES.lane) / 2 for box in boxes)]
        free = [x for x in clear if taken.get((row, x), arrow.used.name) == arrow.used.name]
        ways = {x: min((cost + (x - at) ** 2, [*way, x]) for at, (cost, way) in ways.items()) for x in free}
    _, best = min((cost + (arrow.used.x - at) ** 2, way) for at, (cost, way) in ways.items())
    taken.update({(row, int(x)): arrow.used.name for row, x in zip(rows, best, strict=True)})
    return [*best, arrow.used.x]


def draw_arrow(arrow: Arrow, places: list[float], bottom: float) -> str:
    """Upright beside boxes, bent between rows."""
    x, y = arrow.start, bottom - arrow.user.row * SIZES.row + SIZES.box_height / 2
    path = f"M{x:.1f} {y:.1f}"
    for row, to in zip(range(arrow.user.row - 1, arrow.used.row - 1, -1), places, strict=True):
        end = bottom - row * SIZES.row - SIZES.box_height / 2
        path += f"C{x:.1f} {(y + end) / 2:.1f} {to:.1f} {(y + end) / 2:.1f} {to:.1f} {end:.1f}"
        x, y = to, end + SIZES.box_height
        path += f"V{y:.1f}" if row > arrow.used.row else ""
    path = f'<path class="arrow" d="{path}" stroke="{arrow.user.group.colour}" marker-end="url(#head)">'
    return f"{path}<title>{arrow.user.name} builds on {arrow.used.name}</title></path>"


def draw_box(crate: Crate, bottom: float) -> str:
    x, y = crate.x - SIZES.box_width / 2, bottom - crate.row * SIZES.row - SIZES.box_height / 2
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{SIZES.box_width}" height="{SIZES.box_height}" rx="4"'
    text = f'<text x="{crate.x:.1f}" y="{y + 17:.1f}">{crate.name}</text>'
    title = f"<title>{crate.name} builds on {', '.join(sorted(crate.uses)) or 'no other crate'}</title>"
    return f'<g>{title}<rect {shape} fill="#ffffff" stroke="{crate.group.colour}" stroke-width="1.5"/>{text}</g>'


def draw_column(group: Group, height: float) -> str:
    x, width = SIZES.margin + COLUMN * group.before, COLUMN * group.room
    shape = f'x="{x + 2:.1f}" y="{SIZES.margin}" width="{width - 4:.1f}" height="{height - 2 * SIZES.margin:.1f}" rx="6"'
    text = f'<text x="{x + width / 2:.1f}" y="{SIZES.margin + 20}" style="font-weight:bold">{group.name}</text>'
    return f'<rect {shape} fill="{group.colour}" fill-opacity="0.09"/>{text}'


def draw() -> str:
    crates = read_crates()
    place(crates)
    height = SIZES.header + SIZES.row * (1 + max(crate.row for crate in crates.values()))
    bottom = height - SIZES.margin - SIZES.row / 2
    taken: dict[tuple[int, int], str] = {}
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZES.width}" viewBox="0 0 {SIZES.width} {height}">', HEAD]
    lines += [draw_column(group, height) for group in GROUPS]
    lines += [draw_arrow(arrow, route(arrow, crates, taken), bottom) for arrow in find_arrows(crates)]
    return "\n".join([*lines, *(draw_box(crate, bottom) for crate in crates.values()), "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the file is not what would be drawn")
    drawn, args = draw(), parser.parse_args()
    if not args.check:
        PICTURE.write_text(drawn)
    elif not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is not up to date: run python docs/scripts/draw_crates.py")


if __name__ == "__main__":
    main()
