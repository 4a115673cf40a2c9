"""`python -m tacit.cluster._watch SECONDS PROGRAM ARGUMENTS..`: runs a server for as long as it holds a lease.

SECONDS is the first lease. A process of its own, so that a node that hangs, is killed or is cut off serves nobody beyond its lease. Lines on standard input:
`until T` (seconds of this machine's clock since it was started, which goes on while it is suspended) is the lease, `stop` asks the server to end. Where the lease is over, or
the input ends, the server is killed.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """The kernel kills this process when the one that made it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def read_lines(waiting: bytes) -> tuple[list[bytes], bytes] | None:
    """Whole lines that have come, and what is left; `None` where no more will come."""
    read = os.read(0, 4096)
    if not read:
        return None
    *lines, rest = (waiting + read).split(b"\n")
    return lines, rest


def watch(server: "subprocess.Popen[bytes]", until: float) -> None:
    """Returns when the server has ended or must."""
    waiting = b""
    while server.poll() is None:
        left = until - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= 0:
            return
        # The server's end is looked for now and then: it is no file.
        if not select.select([0], [], [], min(left, 0.2))[0]:
            continue
        read = read_lines(waiting)
        if read is None:
            return
        lines, waiting = read
        for line in lines:
            if line == b"stop":
                server.terminate()
            elif line.startswith(b"until "):
                until = float(line[6:])


def main() -> int:
    """The server's exit status."""
    until = time.clock_gettime(time.CLOCK_BOOTTIME) + float(sys.argv[1])
    # The terminal's Ctrl-C is for who started this process: it says `stop`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent) as server:
        try:
            watch(server, until)
        finally:
            server.kill()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
