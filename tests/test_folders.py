"""Folders of material that cannot be written: whoever needs one says so, and all else goes on."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import abused
from abuse_kills import Sidecar, in_step, settle
from abused import Place, Server

READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


@pytest.fixture
def place(binary, tmp_path, monkeypatch) -> Place:
    monkeypatch.setattr(abused, "TACIT", str(binary))
    place = Place.small(tmp_path / "place", ["cheetah"])
    place.client_of_operator()
    return place


@contextmanager
def serving(place: Place) -> Iterator[Server]:
    server = Server(place)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def mounted_read_only(place: Place, folder: str) -> tuple[str, ...]:
    """Starts a program for which this folder is read-only, whoever runs it."""
    prefix = ("unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", READ_ONLY, "sh", folder)
    tried = subprocess.run([*prefix, "true"], cwd=place.folder, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    return prefix


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """Files can be neither made nor removed in it, by root neither."""
    if os.geteuid() != 0:
        folder.chmod(0o500)
    elif (tried := subprocess.run(["chattr", "+i", folder], capture_output=True, text=True)).returncode != 0:
        pytest.skip(f"root cannot be kept out of a folder here: {tried.stderr.strip()}")
    try:
        yield
    finally:
        if os.geteuid() != 0:
            folder.chmod(0o700)
        else:
            subprocess.run(["chattr", "-i", folder], check=True)


def test_who_starts_with_a_read_only_folder_says_so(place):
    with serving(place) as server:
        place.client(server, "prepare", "--count", 1)
        prefix = mounted_read_only(place, "client-material")
        for command in (["prepare"], ["infer", str(place.digit)]):
            command = [*prefix, abused.TACIT, *command, *place.asking(server.address)]
            done = subprocess.run(command, cwd=place.folder, capture_output=True, text=True, timeout=abused.PATIENCE_S)
            assert done.returncode == 1, done
            assert "client-material" in done.stderr and "Read-only file system" in done.stderr, done
        # A sidecar goes on, and tells whoever asks.
        sidecar = Sidecar(place, server.address, ready=1, workers=1, prefix=prefix)
        said = b""
        for _ in range(1000):
            said = sidecar.said("GET", "/v2/health/ready")
            if b"Read-only file system" in said:
                break
        assert b" 503 " in said and b"client-material" in said, said
        sidecar.end(signal.SIGTERM)
        settle(place, server)
        in_step(place, "a client's folder was read-only")
        place.infer(server)
    prefix = mounted_read_only(place, "server-material")
    with pytest.raises(abused.Broken, match="the server did not start: error: .*server-material.*") as refused:
        Server(place, prefix=prefix)
    assert str(refused.value).count("Read-only file system") == 1, refused.value


def test_a_server_whose_folder_takes_no_files_any_more_answers_without(place):
    folder = place.folder / "server-material"
    with serving(place) as server:
        place.client(server, "prepare", "--count", 2)
        with closed(folder):
            refused = place.client(server, "prepare", ok=False)
            assert "material store failed" in refused.err, refused
            wanted = f"writing material {folder.name}/"
            assert wanted in server.errors(), server.errors()
            # Who has no stored material needs no folder.
            own = ["--server", server.address, "--keys", "keys", "--material", "none"]
            abused.run("infer", place.digit, *own, cwd=place.folder)
            # A half that cannot be taken out of the folder is not used.
            refused = place.infer(server, ok=None)
            place.check_ledgers()
        place.infer(server)
        place.client(server, "prepare", "--count", 1)
    with serving(place) as server:
        place.ask(server, "material", "--material", "client-material", "list", "--json")
        settle(place, server)
        in_step(place, "the server's folder took no files")
        place.infer(server)
