"""`python -m tacit.lab COMMAND`, which `tacit-lab` runs: the input is a JSON object on standard input."""

import json
import os
import sys

from tacit._tacit import TacitError
from tacit.lab import _compare, _papers, _print, _transports

COMMANDS = {"compare": _compare.run, "papers": _papers.run, "transport": _transports.run}


def main() -> int:
    """Runs the command; 1 with a message on standard error where it fails."""
    _print.prepare()
    told = json.load(sys.stdin.buffer)
    try:
        COMMANDS[sys.argv[1]](told)
        return 0
    except TacitError as error:
        _print.error(str(error), told["json"])
    except BrokenPipeError:
        # The status of the Rust programs where the reader of standard output is gone; nothing is left to flush.
        os._exit(141)
    except OSError as error:
        _print.error(f"writing to standard output: {error.strerror} (os error {error.errno})", told["json"])
        os._exit(1)
    return 1


if __name__ == "__main__":
    sys.exit(main())
