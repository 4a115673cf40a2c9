"""The table of docs/parameters.md, section "LPN", is what docs/scripts/lpn_estimate.py prints."""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PRINTED = re.compile(
    r"(\w+): .* Prange (\d+), ISD bound (\d+) \| sparse (\d+), peeled (\d+) .* Stern ([\d.]+) .* algebraic (\d+) \(degree (\d+),"
)


def test_the_table_is_what_the_script_prints():
    printed = subprocess.run(
        [sys.executable, DOCS / "scripts" / "lpn_estimate.py"], check=True, capture_output=True, text=True, timeout=300
    ).stdout
    rows = [match.groups() for line in printed.splitlines() if (match := PRINTED.match(line))]
    assert [row[0] for row in rows] == ["Ferret", "small", "medium", "large", "huge"]
    text = (DOCS / "parameters.md").read_text()
    for name, prange, bound, sparse, peeled, stern, algebraic, degree in rows:
        start = "| Ferret's" if name == "Ferret" else f"| `{name}`"
        (line,) = [line for line in text.splitlines() if line.startswith(start)]
        cells = f" {prange} | {bound} | {peeled} to {sparse} | {stern} | {algebraic} (degree {degree}) |"
        assert cells in line.replace("**", ""), f"{name}: docs/parameters.md says {line}, the script {cells}"
