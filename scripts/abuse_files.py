"""Files and messages that exhaust whoever reads them: pipes, devices, bombs, constants that double, pictures and nested fields at the sidecar."""

import http.client
import json
import os
import random
import resource
import socket
import struct
import subprocess
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from abused import MODELS, PATIENCE_S, TACIT, Place, Server, check, holds, run

# A file that is refused takes no more than this, whatever it promises.
MOST_S = 20.0
MOST_KIB = 400 << 10


def spent(place: Place, *arguments: object, limit: int | None = None) -> str:
    """Runs `tacit`, which must fail soon, in little memory and in words: these. `limit`: most bytes of a file."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command, start = [TACIT, *map(str, arguments)], time.monotonic()
    with (place.folder / "spent.log").open("w+b") as log:
        process = subprocess.Popen(command, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, preexec_fn=limited)
        while (done := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() - start > PATIENCE_S:
                process.kill()
                process.wait()
                holds(False, f"{' '.join(command)} hangs")
            time.sleep(0.01)
        process.returncode = code = os.waitstatus_to_exitcode(done[1])
        log.seek(0)
        said = log.read().decode(errors="replace")
    check(list(arguments), code, said)
    holds(code != 0 and said.strip(), f"{' '.join(command)} ended with {code} and said {said!r}")
    took, kib = time.monotonic() - start, done[2].ru_maxrss
    holds(took < MOST_S and kib < MOST_KIB, f"{' '.join(command)} took {took:.1f} s and {kib} KiB")
    return said


def field(number: int, content: bytes | str | int) -> bytes:
    """A field of a protobuf message."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def doubling(times: int) -> bytes:
    """A network of some 2 KB with a constant that is joined to itself so many times."""
    tensor = field(1, 16) + field(2, 1) + field(8, "c0") + field(9, bytes(64))
    axis = field(5, field(1, "axis") + field(3, 0) + field(20, 2))
    nodes = [field(1, f"c{i}") * 2 + field(2, f"c{i + 1}") + field(4, "Concat") + axis for i in range(times)]
    nodes.append(field(1, "x") + field(1, f"c{times}") + field(2, "y") + field(4, "Add"))
    shape = field(2, b"".join(field(1, field(1, length)) for length in (1, 16)))
    value = [field(1, name) + field(2, field(1, field(1, 1) + shape)) for name in ("x", "y")]
    graph = b"".join(field(1, node) for node in nodes) + field(2, "g") + field(5, tensor) + field(11, value[0]) + field(12, value[1])
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


def npy(shape: tuple[int, ...], elements: bytes) -> bytes:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + elements


def zeros(count: int, before: bytes = b"") -> bytes:
    """So many zeros behind something, compressed."""
    packer, part = zlib.compressobj(9), bytes(1 << 20)
    packed = packer.compress(before)
    for _ in range(count >> 20):
        packed += packer.compress(part)
    return packed + packer.compress(bytes(count & 0xFFFFF)) + packer.flush()


def png(width: int, height: int, *chunks: tuple[bytes, bytes], pixels: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(*c) for c in chunks) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def broken_files(place: Place, dice: random.Random) -> int:
    """What a user may name by mistake, or get from somebody."""
    folder, refused = place.folder, 0
    os.mkfifo(folder / "pipe")
    (folder / "pipe.npy").symlink_to("pipe")
    (folder / "pipe.tacit").symlink_to("pipe")
    (folder / "double.onnx").write_bytes(doubling(dice.choice([25, 45])))
    # A header alone, of a gibibyte that the archive does not hold, and one that it does.
    for name, data in (("promise", npy((1 << 22, 1, 8, 8), bytes(1 << 20))), ("bomb", npy((1 << 20, 1, 8, 8), bytes(1 << 28)))):
        with zipfile.ZipFile(folder / f"{name}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", data)
    model = f"{place.model}.tacit"
    for arguments, words in (
        (("model", "import", "pipe", "-o", "x.tacit"), "a named pipe"),
        (("model", "import", "/dev/zero", "-o", "x.tacit"), "a device"),
        (("model", "import", ".", "-o", "x.tacit"), "a folder"),
        (("model", "import", "double.onnx", "-o", "x.tacit"), "many times what it stores"),
        (("model", "import", MODELS / "digits.onnx", "--calibrate", "pipe.npy", "-o", "x.tacit"), "a named pipe"),
        (("model", "run", model, "pipe.npy"), "a named pipe"),
        (("model", "run", model, "/dev/zero"), "a device"),
        (("model", "run", model, "promise.npz"), "the limit"),
        (("model", "run", model, "bomb.npz"), "the limit"),
        (("model", "inspect", "pipe.tacit"), "a named pipe"),
    ):
        said = spent(place, *arguments)
        holds(words in said, f"{arguments}: {said}")
        refused += 1
    said = spent(place, "model", "import", MODELS / "digits.onnx", "-o", "x.tacit", "--backend", "none", limit=4096)
    holds("File too large" in said, f"a limit on the size of files: {said}")
    return refused + 1


@contextmanager
def sidecar(place: Place, server: Server) -> Iterator[tuple[subprocess.Popen[str], str, str, str]]:
    """A sidecar of the server: its process, its addresses for HTTP and gRPC, its token."""
    command = [TACIT, "sidecar", "--server", server.address, "--keys", "keys", "--json", "--listen", "127.0.0.1:0"]
    command += ["--grpc", "127.0.0.1:0", "--token-file", "token", "--new-token"]
    with (place.folder / "sidecar.log").open("w+") as log:
        process = subprocess.Popen(command, cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            told = json.loads(process.stdout.readline())
            yield process, told["listening"].removeprefix("http://"), told["grpc"], (place.folder / "token").read_text().strip()
        finally:
            process.terminate()
            code = process.wait(PATIENCE_S)
            process.stdout.close()
            log.seek(0)
            check(["sidecar"], code, log.read())


def peak_kib(process: subprocess.Popen[str]) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def classified(address: str, token: str, model: str, picture: bytes) -> tuple[int, str, float]:
    """What the page answers to a picture, and after how long."""
    start, connection = time.monotonic(), http.client.HTTPConnection(address, timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    connection.request("POST", f"/page/classify?model={model}", picture, headers)
    answer = connection.getresponse()
    said = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, said, time.monotonic() - start


SETTINGS, WINDOW_UPDATE = 4, 8


def until(stream: BinaryIO, kind: int) -> None:
    """Reads frames of HTTP/2 until one of this kind."""
    while len(head := stream.read(9)) == 9:
        stream.read(int.from_bytes(head[:3], "big"))
        if head[3] == kind:
            return
    holds(False, f"a gRPC connection ends before a frame of kind {kind}")


def call(address: str, token: str, message: bytes) -> None:
    """A call of `ModelInfer`, to its end, over HTTP/2 as plain as it can be (RFC 9113, RFC 7541)."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    def header(name: str, value: str) -> bytes:
        # Literal, never indexed; lengths below 127.
        return b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    headers = {":method": "POST", ":scheme": "http", ":path": "/inference.GRPCInferenceService/ModelInfer", ":authority": address}
    headers |= {"content-type": "application/grpc", "te": "trailers", "authorization": f"Bearer {token}"}
    data = b"\0" + len(message).to_bytes(4, "big") + message
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as peer:
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"") + frame(1, 4, 1, b"".join(header(*h) for h in headers.items())))
        stream = peer.makefile("rb")
        until(stream, SETTINGS)
        # What the sidecar settles, such as a stream's window, holds from the acknowledgement on; the window of the
        # connection is as wide once it says so.
        peer.sendall(frame(SETTINGS, 1, 0, b""))
        until(stream, WINDOW_UPDATE)
        for at in range(0, len(data), 1 << 14):
            peer.sendall(frame(0, int(at + (1 << 14) >= len(data)), 1, data[at : at + (1 << 14)]))
        while len(head := stream.read(9)) == 9:
            stream.read(int.from_bytes(head[:3], "big"))
            if head[3] == 1 and head[4] & 1:
                return
    holds(False, "a gRPC call has no answer")


def hostile_sidecar(place: Place, server: Server) -> str:
    """Pictures that unpack to a thousand times their size, fields that do, and headers that stand twice."""
    bombs = {
        "a colour profile of 1 GB": (png(8, 8, (b"iCCP", b"x\0\0" + zeros(1 << 30)), pixels=zeros(72)), 200),
        "16,000 x 16,000 pixels": (png(16_000, 16_000, pixels=zeros(16_000 * 16_001)), 400),
        "a text of 1 GB": (png(8, 8, (b"zTXt", b"x\0\0" + zeros(1 << 30)), pixels=zeros(72)), 200),
    }
    with sidecar(place, server) as (process, address, grpc, token):
        while classified(address, token, place.model, png(8, 8, pixels=zeros(72)))[0] == 503:
            time.sleep(0.1)
        before, slowest = peak_kib(process), 0.0
        for name, (picture, status) in bombs.items():
            got, said, took = classified(address, token, place.model, picture)
            holds(got == status, f"{name}: {got} {said}")
            holds(took < MOST_S, f"{name} took {took:.1f} s of the sidecar")
            slowest = max(slowest, took)
        # One input whose shape has 150,000 axes of a byte each, which would be eight in memory.
        call(grpc, token, field(1, place.model) + field(5, field(3, b"\1" * 150_000)))
        grown = peak_kib(process) - before
        holds(grown < 200 << 10, f"the sidecar grew by {grown} KiB")
        for twice in ("Host: evil.example", "Origin: http://evil.example"):
            host, port = address.rsplit(":", 1)
            with socket.create_connection((host, int(port)), PATIENCE_S) as peer:
                head = f"GET /v2 HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\n{twice}\r\nAuthorization: Bearer {token}\r\n\r\n"
                peer.sendall(head.encode())
                status = peer.recv(4096).split(b" ")[1]
            holds(status in (b"400", b"403"), f"a second {twice}: {status!r}")
        got, said, _ = classified(address, token, place.model, png(8, 8, pixels=zeros(72)))
        holds(got == 200, f"an honest picture afterwards: {got} {said}")
    return f"{len(bombs)} pictures, the slowest in {slowest:.1f} s, {grown >> 10} MiB more"


def exhausting_files(place: Place, end: float, dice: random.Random) -> str:
    """Whatever a file or a message promises: it is refused soon, in little memory, and in words."""
    refused = broken_files(place, dice)
    # One of which it is known how pixels become its inputs.
    place.model = "pixels"
    run("model", "import", MODELS / "digits.onnx", "--pixel-scale", 1 / 255, "-o", "pixels.tacit", cwd=place.folder)
    server = Server(place)
    pictures = hostile_sidecar(place, server)
    place.infer(server)
    server.stop()
    return f"{refused} files refused within {MOST_S:.0f} s and {MOST_KIB >> 10} MiB each; the sidecar: {pictures}"
