"""`python -m tacit.report DIR -o report.html`."""

import argparse
import sys
from pathlib import Path

from tacit._tacit import TacitError
from tacit.report import write_report


def main() -> int:
    """Makes the report and says where it is; 1 with a message where it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m tacit.report", description="The page of a campaign of tacit lab.")
    parser.add_argument("folder", type=Path, help="the campaign's folder (campaign.json, runs.jsonl, records/)")
    parser.add_argument("-o", "--output", type=Path, help="the page to write; default: report.html in the folder")
    args = parser.parse_args()
    try:
        made = write_report(args.folder, args.output)
    except TacitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{made} (plots: {args.folder / 'plots'})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
