"""`make demo`: ten held-out handwritten digits, classified privately by two processes on this machine; then three clients at once.

What a stranger would do by hand, step by step: import the ONNX file, make keys, start `tacit serve`, prepare material and infer with the
`tacit` client over mutual TLS. Then the private answers are compared with the float network (onnxruntime). Last, three clients ask for
the same digits at the same time, one in a hurry, one as usual, one when there is room; the server gives jobs one core, so they wait for each other.
Everything is written under out/demo. Exits with 1 if an answer differs from the float network's.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
OUT = ROOT / "out" / "demo"
TACIT = os.environ.get("TACIT_BIN", str(ROOT / "target" / "release" / "tacit"))
DIGITS = 10
CLIENTS = {"alice": "interactive", "bob": "normal", "carol": "batch"}


def step(text: str) -> None:
    print(f"\n==> {text}", flush=True)


def tacit(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the binary to its end; its error ends the demo."""
    command = [TACIT, *map(str, arguments)]
    print("    tacit " + " ".join(command[1:]), flush=True)
    done = subprocess.run(command, cwd=OUT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"tacit {arguments[0]} failed:\n{done.stderr}")
    return done


def json_lines(*arguments: object) -> Iterator[dict]:
    """Runs the binary and yields the JSON lines it prints, as they come."""
    command = [TACIT, *map(str, arguments)]
    print("    tacit " + " ".join(command[1:]), flush=True)
    with subprocess.Popen(command, cwd=OUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            yield json.loads(line)
        errors = process.stderr.read()
    if process.returncode:
        sys.exit(f"tacit {arguments[0]} failed:\n{errors}")


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """A `tacit serve` process: its address and process id."""
    # One core for jobs, so that there is something to schedule.
    command = [TACIT, "serve", "digits.tacit", "--keys", "keys", "--listen", "127.0.0.1:0", "--material", "server-material",
               "--cores", "1", "--strict-cores"]  # fmt: skip
    print("    " + " ".join(["tacit", *command[1:]]), flush=True)
    with (OUT / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=OUT, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            sys.exit(f"the server did not start:\n{(OUT / 'server.log').read_text()}")
        yield line.split()[2], process.pid
    finally:
        process.terminate()
        process.wait(10)


def size(count: float) -> str:
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def milliseconds(phase: dict) -> str:
    return f"{phase['wall_s'] * 1e3:.1f} ms"


def total(phases: list[dict]) -> dict:
    """Sums of the same phase for several inputs; the peak of its peaks."""
    parties = {
        party: {
            "cpu_s": sum(p[party]["cpu_s"] for p in phases),
            "sent_bytes": sum(p[party]["sent_bytes"] for p in phases),
            "peak_rss_bytes": max(p[party]["peak_rss_bytes"] for p in phases),
        }
        for party in ("client", "server")
    }
    return {"wall_s": sum(p["wall_s"] for p in phases), "rounds": sum(p["rounds"] for p in phases), **parties}


def prepare(address: str) -> tuple[list[dict], list[dict]]:
    """The client's first process: keys and base OTs, then the offline phase for every digit. Figures of both phases."""
    setup, offline = [], []
    for line in json_lines("prepare", *client_options(address), "--count", DIGITS, "--json"):
        if "setup" in line:
            setup.append(line["setup"])
            print(f"    setup done in {milliseconds(line['setup'])}", flush=True)
        elif "offline" in line:
            offline.append(line["offline"])
            print(f"    material {len(offline):2}/{DIGITS}  {milliseconds(line['offline'])}, "
                  f"{size(line['bytes'][0])} here, {size(line['bytes'][1])} at the server", flush=True)  # fmt: skip
    return setup, offline


def infer(address: str) -> list[dict]:
    """The client's second process: one online phase per digit."""
    answers = []
    for line in json_lines("infer", "digits.npy", *client_options(address), "--json"):
        answers.append(line)
        print(f"    digit {len(answers):2}/{DIGITS}  answered in {milliseconds(line['phases']['online'])}", flush=True)
    return answers


def client_options(address: str, client: str = "alice") -> list[str]:
    return ["--server", address, "--keys", "keys", "--client", client, "--material", f"{client}-material"]


def classes_and_time(address: str, client: str, deadline: str, start: float) -> tuple[list[int], list[float]]:
    """All digits for one client, offline phases included: their classes, and when each answer came."""
    classes, times = [], []
    for line in json_lines("infer", "digits.npy", *client_options(address, client), "--deadline", deadline, "--json"):
        classes.append(line["class"])
        times.append(time.monotonic() - start)
    return classes, times


def three_clients(address: str, floats: np.ndarray) -> bool:
    """Three clients at once on one core; whether all answers are the float network's."""
    start = time.monotonic()
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        running = {
            name: pool.submit(classes_and_time, address, name, deadline, start) for name, deadline in CLIENTS.items()
        }
        done = {name: future.result() for name, future in running.items()}
    print(f"{'client':>7} {'deadline':>12} {'first answer':>13} {'mean':>9} {'last':>9}   agreement")
    right = True
    for name, (classes, times) in done.items():
        same = int((np.array(classes) == floats).sum())
        right &= same == DIGITS
        print(f"{name:>7} {CLIENTS[name]:>12} {times[0]:11.2f} s {np.mean(times):7.2f} s {times[-1]:7.2f} s   {same} of {DIGITS}")
    return right


def show_answers(labels: np.ndarray, answers: list[dict], floats: np.ndarray) -> int:
    """The table of digits; the number of private answers that equal the float network's."""
    agree = 0
    print(f"{'digit':>7} {'label':>7} {'private answer':>16} {'float network':>15}   agreement")
    for number, (label, answer, wanted) in enumerate(zip(labels, answers, floats, strict=True), 1):
        same = answer["class"] == wanted
        agree += same
        print(f"{number:7} {label:7} {answer['class']:16} {wanted:15}   {'yes' if same else 'NO'}")
    right = sum(a["class"] == label for a, label in zip(answers, labels, strict=True))
    print(f"\n{agree} of {len(answers)} private answers agree with the float network; {right} are the written digit.")
    return agree


def show_phases(phases: dict[str, dict]) -> None:
    print(f"{'phase':12} {'wall':>9} {'CPU client':>11} {'CPU server':>11} {'client sent':>12} {'server sent':>12} "
          f"{'rounds':>7} {'peak client':>12} {'peak server':>12}")  # fmt: skip
    for name, p in phases.items():
        c, s = p["client"], p["server"]
        print(f"{name:12} {p['wall_s']:7.3f} s {c['cpu_s']:9.3f} s {s['cpu_s']:9.3f} s {size(c['sent_bytes']):>12} "
              f"{size(s['sent_bytes']):>12} {p['rounds']:7} {size(c['peak_rss_bytes']):>12} "
              f"{size(s['peak_rss_bytes']):>12}")  # fmt: skip


def main() -> int:
    start = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    with np.load(MODELS / "digits_test.npz") as test:
        images, labels = test["images"][:DIGITS], test["labels"][:DIGITS]
    np.save(OUT / "digits.npy", images)

    step("Model owner: import the ONNX file, calibrated on 64 training images")
    done = tacit(
        "model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "digits.tacit"
    )
    print("".join(f"    {line}\n" for line in done.stdout.splitlines()), end="")
    step("Model owner: make a private CA, a server certificate and one for each client")
    tacit("keys", "init", "keys", *(word for name in CLIENTS for word in ("--client", name)))
    step("Server: a process of its own")
    with server() as (address, pid):
        print(f"    process {pid} listens on {address}")
        step("Client alice: setup and offline phase, before any digit is known")
        setup, offline = prepare(address)
        step("Client alice: online phase, ten digits that the server never sees")
        answers = infer(address)
        session = onnxruntime.InferenceSession(MODELS / "digits.onnx")
        floats = session.run(None, {"image": images})[0].argmax(1)
        step("Three clients at once, each in another hurry, without material made ahead of time")
        all_right = three_clients(address, floats)

    step("Answers")
    agree = show_answers(labels, answers, floats)
    step(f"Cost of each phase for all {DIGITS} digits (setup: once per client)")
    online = [answer["phases"]["online"] for answer in answers]
    show_phases({"setup": total(setup), "offline": total(offline), "online": total(online)})
    print("CPU and memory are each process's own; bytes are protocol messages with frame headers, before TLS and TCP.")
    print(f"\nDone in {time.monotonic() - start:.1f} s. Files of this run: {OUT.relative_to(ROOT)}")
    return 0 if agree == DIGITS and all_right else 1


if __name__ == "__main__":
    sys.exit(main())
