"""What the front of a cluster costs for a request: its processor time, and requests a second.

    tacit keys init keys --client alice && tacit keys add-client keys ops --operator
    TACIT_BIN=target/release/tacit python docs/scripts/front_cost.py --keys keys

The front with made-up nodes; this process is the clients, one after the other. On a connection that is kept, with a new connection for
each request whose TLS session goes on from the last one, and with a new session for each. What the nodes' leases cost meanwhile is told first.
"""

import argparse
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from tacit.cluster._front import Front, Report, client_context

BODY = json.dumps({"model": "digits"})
HEAD = f"POST /v1/place HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY.encode()


def beat(keys: Path, address: str, nodes: int) -> None:
    """Nodes that admit whoever is sent to them, each asking for its lease once a second."""
    front = Front(address, client_context(keys, "ops"))
    runs = {f"n{k}": front.join(f"n{k}", f"127.0.0.1:{9000 + k}") for k in range(nodes)}
    versions = dict.fromkeys(runs, 0)
    while True:
        for name, run in runs.items():
            _, versions[name] = front.renew(name, run, Report(models={"digits": ("cheetah",)}, admitted=versions[name]))
            time.sleep(1.0 / nodes)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask_once(context: ssl.SSLContext, port: int, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
    with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain, server_hostname="localhost", session=session) as tls:
        # The request follows the end of the handshake at once.
        tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls.sendall(HEAD)
        answer = tls.recv(4096)
        while b"\r\n\r\n" not in answer or b"}" not in answer:
            answer += tls.recv(4096)
        assert b" 200 " in answer, answer
        return tls.session, bool(tls.session_reused)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--client", default="alice")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--requests", type=int, default=1000)
    args = parser.parse_args()
    serve = [os.environ.get("TACIT_BIN", "tacit"), "serve", "--front", "--keys", str(args.keys), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "it was asked for"
    address = json.loads(process.stdout.readline())["listening"]
    port = int(address.rpartition(":")[2])
    threading.Thread(target=beat, args=(args.keys, address, args.nodes), daemon=True).start()
    context = client_context(args.keys, args.client)

    def kept() -> int:
        connection = http.client.HTTPSConnection("localhost", port, context=context)
        for _ in range(args.requests):
            connection.request("POST", "/v1/place", body=BODY, headers={"Content-Type": "application/json"})
            assert connection.getresponse().read()
        return 0

    def resumed() -> int:
        session, count = None, 0
        for _ in range(args.requests):
            session, again = ask_once(context, port, session)
            count += again
        return count

    def fresh() -> int:
        return sum(ask_once(context, port, None)[1] for _ in range(args.requests))

    # The first is answered when a lease's time is over, and its node goes by a list with the client.
    ask_once(context, port, None)
    cpu = cpu_s(process.pid)
    time.sleep(5.0)
    print(json.dumps({"nodes": args.nodes, "leases_cpu_ms_a_second": round(1e3 * (cpu_s(process.pid) - cpu) / 5.0, 3)}), flush=True)
    for name, run in (("kept connection", kept), ("resumed session", resumed), ("new session", fresh)):
        cpu, began = cpu_s(process.pid), time.perf_counter()
        count = run()
        took = time.perf_counter() - began
        print(json.dumps({"requests": args.requests, "how": name, "front_cpu_ms": round(1e3 * (cpu_s(process.pid) - cpu) / args.requests, 3),
                          "a_second": round(args.requests / took), "resumed": count}), flush=True)  # fmt: skip
    process.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
