"""`python -m tacit.report SOURCE -o report.html`."""

import argparse
import sys
from pathlib import Path

from tacit._tacit import TacitError
from tacit.report import write_report


def main() -> int:
    """Makes the report and says where it is; 1 with a message where it cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m tacit.report", description="The page of a campaign, of simulated runs or of a plan."
    )
    parser.add_argument("source", type=Path, help="a campaign's folder, or a file of `tacit simulate run -o` or `tacit plan -o`")
    parser.add_argument("-o", "--output", type=Path, help="the page; default: report.html in the folder, FILE with .html")
    args = parser.parse_args()
    try:
        made = write_report(args.source, args.output)
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    plots = made.with_name(f"{made.stem}-plots") if args.source.is_file() else args.source / "plots"
    print(f"{made} (plots: {plots})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
