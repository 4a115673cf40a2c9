"""The command line, end to end: import, keys, serve, prepare, infer, bench."""

import json
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from conftest import MODELS
from test_bench import check_report


@contextmanager
def serving(binary, folder, *options, model="digits.tacit"):
    """A `tacit serve` process: its address. What it says beside is in the file server.log of the folder."""
    command = [binary, "serve", model, "--listen", "127.0.0.1:0", *map(str, options)]
    log = folder / "server.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on "), log.read_text()
            yield line.split()[2]
        finally:
            process.terminate()
            process.communicate(timeout=30)
            assert "panicked" not in log.read_text()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, cli, digit_images):
    """A folder with an imported model, keys for alice and bob, and inputs."""
    folder = tmp_path_factory.mktemp("cli")
    cli(
        "model",
        "import",
        MODELS / "digits.onnx",
        "--calibrate",
        MODELS / "digits_samples.npy",
        "-o",
        "digits.tacit",
        cwd=folder,
    )
    cli("keys", "init", "keys", "--client", "alice", "--client", "bob", cwd=folder)
    np.save(folder / "three.npy", digit_images[:3])
    for number in range(2):
        pixels = np.round(digit_images[number, 0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"digit{number}.png")
    return folder


@pytest.fixture(scope="module")
def address(workplace, binary):
    with serving(binary, workplace, "--material", "server-material") as address:
        yield address


@pytest.fixture(scope="module")
def floats(digit_images, float_answers):
    return float_answers(MODELS / "digits.onnx", digit_images[:3]).argmax(1)


def as_alice(address, material="alice-material"):
    return ["--server", address, "--client", "alice", "--material", material]


def test_infer_answers_as_the_float_network(cli, workplace, address, floats):
    done = cli("infer", "three.npy", *as_alice(address), "--json", cwd=workplace)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["class"] for a in answers] == list(floats)
    assert all(len(a["values"]) == 10 for a in answers)


def test_prepared_material_is_listed_used_and_discarded(cli, workplace, address, floats):
    me = as_alice(address, "prepared")
    made = cli("prepare", *me, "--count", 3, "--json", cwd=workplace).stdout.splitlines()
    ids = [json.loads(line)["id"] for line in made if "id" in json.loads(line)]
    assert len(ids) == 3
    listed = [json.loads(line)["id"] for line in cli("material", "list", *me, "--json", cwd=workplace).stdout.splitlines()]
    assert sorted(listed) == sorted(ids)
    done = cli("infer", "three.npy", *me, "--json", cwd=workplace)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["class"] for a in answers] == list(floats)
    assert all(set(a["phases"]) == {"online"} for a in answers), "nothing but the online phase was needed"
    assert not cli("material", "list", *me, "--json", cwd=workplace).stdout.strip()

    cli("prepare", *me, "--count", 2, cwd=workplace)
    assert "2" in cli("material", "discard", *me, "--all", cwd=workplace).stdout
    assert not cli("material", "list", *me, "--json", cwd=workplace).stdout.strip()


def test_pixels_without_a_normalisation_are_refused(cli, workplace, address):
    # The model takes 0..1 and states no normalisation, so pixels in 0..255 are out of its range.
    refused = cli("infer", "digit0.png", *as_alice(address), cwd=workplace, ok=False)
    assert "accepts" in refused.stderr


def test_inspect_shows_the_public_part(cli, workplace):
    shown = json.loads(cli("model", "inspect", "digits.tacit", "--json", cwd=workplace).stdout)
    assert "digits" in json.dumps(shown)
    assert "Conv " in cli("model", "inspect", "digits.tacit", cwd=workplace).stdout, "the float network"
    assert "Conv2d" in cli("model", "inspect", "digits.cheetah.lowered", cwd=workplace).stdout, "its typed nodes"


def test_an_image_model_takes_image_files(cli, workplace, binary, digit_images, tmp_path, floats):
    np.save(tmp_path / "samples.npy", np.round(np.load(MODELS / "digits_samples.npy") * 255).astype(np.uint8))
    cli(
        "model",
        "import",
        MODELS / "digits.onnx",
        "--calibrate",
        "samples.npy",
        "--pixel-scale",
        1 / 255,
        "-o",
        "digits.tacit",
        cwd=tmp_path,
    )
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    (tmp_path / "labels.txt").write_text("".join(f"the-{n}\n" for n in range(10)))
    with serving(binary, tmp_path) as address:
        files = [workplace / "digit0.png", workplace / "digit1.png"]
        done = cli("infer", *files, *as_alice(address), "--labels", "labels.txt", "--top", 1, cwd=tmp_path)
        assert [f"the-{c}" in done.stdout for c in floats[:2]] == [True, True]


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.full((1, 8, 8), np.nan, np.float32), "NaN"),
        (np.full((1, 8, 8), np.inf, np.float32), "inf"),
        (np.full((1, 8, 8), 99, np.float32), "accepts"),
        (np.zeros((1, 900, 900), np.float32), "shape"),
        (np.zeros((0, 1, 8, 8), np.float32), "no input"),
    ],
    ids=["nan", "inf", "range", "oversized", "empty"],
)
def test_bad_arrays_are_errors(cli, workplace, address, tmp_path, array, says):
    np.save(tmp_path / "bad.npy", array)
    done = cli("infer", tmp_path / "bad.npy", *as_alice(address), cwd=workplace, ok=False)
    assert says.lower() in done.stderr.lower()


def test_bad_image_files_are_errors(cli, workplace, address, tmp_path):
    (tmp_path / "noise.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(200)))
    # A PNG header that claims 2^31-1 x 2^31-1 pixels.
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + b"\x7f\xff\xff\xff" * 2 + b"\x08\x02\x00\x00\x00"
    (tmp_path / "huge.png").write_bytes(header + bytes(64))
    for name in ("noise.png", "huge.png", "missing.png"):
        done = cli("infer", tmp_path / name, *as_alice(address), cwd=workplace, ok=False)
        assert name in done.stderr


def test_wrong_files_are_errors(cli, workplace, tmp_path):
    done = cli("model", "import", MODELS / "digits_samples.npy", "-o", "x.tacit", cwd=tmp_path, ok=False)
    assert "ONNX" in done.stderr
    (tmp_path / "short.onnx").write_bytes((MODELS / "digits.onnx").read_bytes()[:3000])
    cli("model", "import", "short.onnx", "-o", "x.tacit", cwd=tmp_path, ok=False)
    other = bytearray((workplace / "digits.tacit").read_bytes())
    other[8:12] = (99).to_bytes(4, "little")
    (tmp_path / "digits.tacit").write_bytes(other)
    assert "99" in cli("model", "inspect", "digits.tacit", cwd=tmp_path, ok=False).stderr
    assert "99" in cli("serve", "digits.tacit", "--keys", workplace / "keys", cwd=tmp_path, ok=False).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.tacit", "short.onnx"], "nothing was written"


def test_a_client_without_the_right_keys_is_refused(cli, address, tmp_path, workplace):
    cli("keys", "init", "keys", "--client", "alice", cwd=tmp_path)
    cli("infer", workplace / "three.npy", *as_alice(address), cwd=tmp_path, ok=False)
    done = cli("infer", "three.npy", "--server", address, "--client", "carol", cwd=workplace, ok=False)
    assert "carol" in done.stderr


def test_clients_do_not_share_material(cli, workplace, address):
    cli("prepare", *as_alice(address, "shared"), "--count", 1, cwd=workplace)
    bob = ["--server", address, "--client", "bob", "--material", "shared"]
    done = cli("infer", "three.npy", *bob, "--json", cwd=workplace)
    assert all("offline" in json.loads(line)["phases"] for line in done.stdout.splitlines()), "bob made his own"


def test_keys_are_not_overwritten_and_private(cli, workplace):
    done = cli("keys", "init", "keys", cwd=workplace, ok=False)
    assert "keys" in done.stderr
    for path in (workplace / "keys").glob("*.key"):
        assert path.stat().st_mode & 0o077 == 0
    for path in (workplace / "alice-material", workplace / "server-material"):
        if path.exists():
            assert path.stat().st_mode & 0o077 == 0


def test_an_unknown_model_and_a_missing_server_are_named(cli, workplace, address):
    done = cli("infer", "three.npy", *as_alice(address), "--model", "resnet", cwd=workplace, ok=False)
    assert "resnet" in done.stderr
    assert "digits" in done.stderr
    done = cli("infer", "three.npy", *as_alice("127.0.0.1:1"), cwd=workplace, ok=False)
    assert "127.0.0.1:1" in done.stderr


def test_bench_writes_the_promised_json(cli, workplace):
    cli("bench", "--model", "digits.tacit", "--runs", 2, "--json", "bench.json", cwd=workplace)
    check_report(json.loads((workplace / "bench.json").read_text()), 2)
    cli("bench", "--model", "digits.tacit", "--backend", "clear", "--json", "clear.json", cwd=workplace)
    check_report(json.loads((workplace / "clear.json").read_text()), 1, "clear", {"online"})


def test_help_names_every_command(cli, workplace):
    text = cli("--help", cwd=workplace).stdout
    for command in ("model", "keys", "serve", "prepare", "infer", "bench"):
        assert command in text
