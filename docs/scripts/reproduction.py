"""Writes docs/reproduction.md from lab/experiments/papers.toml, of which `tacit lab papers` is made, too.

    python docs/scripts/reproduction.py            # writes the document; --check fails if it is not up to date
"""

import argparse
import sys
from itertools import groupby
from pathlib import Path

from tacit.lab._papers import Claim, read_claims, tell_counts

ROOT = Path(__file__).resolve().parents[2]
CLAIMS, PAGE = ROOT / "lab" / "experiments" / "papers.toml", ROOT / "docs" / "reproduction.md"
DATA = "../shared/data"
HEAD = """# What the papers say, and what came out here

Written by `docs/scripts/reproduction.py` from `lab/experiments/papers.toml`. Tables, figures and numbered claims of the four papers that this
project stands on ([references.md](references.md)): those whose figures are known to us and that were tried, not all. `tacit lab papers` prints the same, `--json` for programs, and
`tacit lab papers --run` runs those marked *quick* and looks whether their output still holds what stands here. Bytes and keys of the others are compared with their commands by `--run --heavy`
(`lab/experiments/figures.toml`); times are of the day and machine that stand beside them in the documents below.

Our figures are those of [performance.md](performance.md), [lab.md](lab.md), [keysets.md](keysets.md), [serving.md](serving.md), [notes/ckks.md](notes/ckks.md) and [notes/scheduler.md](notes/scheduler.md), where machine,
day and load stand beside them; "not measured" where there is none. **The papers' machines are others than ours, and no machine here has a power sensor**, so a ratio to a paper's time or energy is given only where it means
something; else the reason stands in its place. Commands write to folders of the reader's choice; models come from `tacit zoo` and `tacit model import`.
"""


def row(claim: Claim) -> str:
    """A claim's line of the table."""
    command = f"`{claim.command.replace('{data}', DATA)}`{' *quick*' if claim.holds else ''}"
    verdict = f"**{claim.verdict}**{claim.judged}"
    return f"| {claim.place} | {claim.claim} | {command} | {claim.theirs} | {claim.ours} | {claim.ratio} | {verdict} |\n"


def page() -> str:
    """The text of the document."""
    made = HEAD
    for paper, claims in groupby(read_claims(CLAIMS.read_text()), lambda claim: claim.paper):
        own = list(claims)
        made += f"\n## [{paper}]\n\n{len(own)}: {tell_counts(own)}.\n\n"
        made += "| where | what | command | paper | here | ratio, or why none | verdict |\n| --- | --- | --- | --- | --- | --- | --- |\n"
        made += "".join(map(row, own))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the document is not what would be written")
    made, args = page(), parser.parse_args()
    if not args.check:
        PAGE.write_text(made)
    elif PAGE.read_text() != made:
        sys.exit("docs/reproduction.md is not what papers.toml says: run python docs/scripts/reproduction.py")


if __name__ == "__main__":
    main()
