"""The command line, end to end: import, keys, serve, prepare, infer, bench."""

import json
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from conftest import MODELS
from nets import Net, node
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
    np.save(folder / "one.npy", digit_images[:1])
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


def test_an_input_is_announced_over_http_and_asked_for_by_its_name(cli, workplace, address, floats):
    asks = ["--server", address, "--client", "alice"]
    told = json.loads(cli("notify", "new", *asks, "--expected", 1, "--link", "slow", "--json", cwd=workplace).stdout)
    assert told["state"] == "announced" and len(told["name"]) == 16
    seen = json.loads(cli("notify", "look", told["name"], *asks, "--wait", 600, "--json", cwd=workplace).stdout)
    assert seen == {"name": told["name"], "state": "announced", "inputs": 1, "turn": True}
    only_one = cli("infer", "three.npy", *as_alice(address, "none"), "--notice", told["name"], cwd=workplace, ok=False)
    assert "--notice is for 1, and there are 3 inputs" in only_one.stderr
    done = cli("infer", "one.npy", *as_alice(address, "none"), "--notice", told["name"], "--json", cwd=workplace)
    answer = json.loads(done.stdout)
    assert answer["class"] == floats[0] and {"offline", "online"} <= set(answer["phases"]) and "WARN" not in done.stderr
    gone = cli("notify", "look", told["name"], *asks, cwd=workplace, ok=False)
    assert "nothing of this client's is announced under this name" in gone.stderr
    text = cli("notify", "new", *asks, cwd=workplace).stdout
    name = text.split()[0]
    assert text.startswith(f"{name} announced; it would start at once")
    assert "was taken back" in cli("notify", "withdraw", name, *asks, cwd=workplace).stdout
    cli("notify", "withdraw", name, *asks, cwd=workplace, ok=False)
    assert "no name of an input" in cli("notify", "look", "12", *asks, cwd=workplace, ok=False).stderr
    # One that the server no longer knows is an input like any other, and that is said.
    late = cli("infer", "one.npy", *as_alice(address, "none"), "--notice", name, "--json", cwd=workplace)
    assert json.loads(late.stdout)["class"] == floats[0] and "not announced" in late.stderr


def test_a_batch_is_announced_over_http_and_asked_for_by_its_name(cli, workplace, address, floats):
    asks = ["--server", address, "--client", "alice"]
    told = json.loads(cli("notify", "new", *asks, "--inputs", 3, "--json", cwd=workplace).stdout)
    assert told["inputs"] == 3
    text = cli("notify", "new", *asks, "--inputs", 1000, cwd=workplace).stdout
    assert "announced, 8 inputs as one; it would" in text
    assert "was taken back" in cli("notify", "withdraw", text.split()[0], *asks, cwd=workplace).stdout
    done = cli("infer", "three.npy", *as_alice(address, "none"), "--notice", told["name"], "--json", cwd=workplace)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["class"] for a in answers] == list(floats) and [a["batch"] for a in answers] == [[0, 3], [1, 3], [2, 3]]
    # A small device takes no batches.
    done = cli("infer", "three.npy", *as_alice(address, "none"), "--device-memory", 1, "--json", cwd=workplace)
    assert [json.loads(line)["batch"] for line in done.stdout.splitlines()] == [[0, 1]] * 3
    small = cli("notify", "new", *asks, "--inputs", 3, "--device-memory", 1, "--json", cwd=workplace)
    assert json.loads(small.stdout)["inputs"] == 1
    cli("notify", "withdraw", json.loads(small.stdout)["name"], *asks, cwd=workplace)


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
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["batch"] for answer in answers] == [[place, len(answers)] for place in range(len(answers))]
    assert "offline" in answers[0]["phases"], "bob made his own"
    assert all(not answer["phases"] for answer in answers[1:]), "the first stands for all that were answered as one"


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
    cli("bench", "--model", "digits.tacit", "--runs", 2, "-o", "bench.json", cwd=workplace)
    check_report(json.loads((workplace / "bench.json").read_text()), 2)
    cli("bench", "--model", "digits.tacit", "--backend", "clear", "-o", "clear.json", cwd=workplace)
    check_report(json.loads((workplace / "clear.json").read_text()), 1, "clear", {"online"})


def test_json_means_json_everywhere(cli, workplace, address, tmp_path):
    """Before or after the command, for answers and for errors."""

    def parsed(*args, **kwargs):
        return json.loads(cli(*args, **kwargs).stdout)

    assert parsed("--json", "keys", "init", tmp_path / "keys", "--client", "dora", cwd=tmp_path)["clients"][0]["client"] == "dora"
    shown = parsed("keys", "--json", "fingerprint", tmp_path / "keys", "dora", cwd=tmp_path)
    assert shown == parsed("keys", "fingerprint", tmp_path / "keys", "dora", "--json", cwd=tmp_path)
    assert parsed("keys", "add-client", tmp_path / "keys", "emil", "--json", cwd=tmp_path)["fingerprint"]
    assert [b["id"] for b in parsed("model", "backends", "--json", cwd=tmp_path)][:6] == ["cheetah", "sci-he", "dealt", "fss", "ckks", "clear"]
    assert parsed("zoo", "tiny-cnn", "-o", "tiny.onnx", "--json", cwd=tmp_path)["bytes"] == (tmp_path / "tiny.onnx").stat().st_size
    assert parsed("model", "import", "tiny.onnx", "-o", "tiny.tacit", "--json", cwd=tmp_path)["output_error"] >= 0
    assert parsed("--json", "model", "lower", "tiny.tacit", cwd=tmp_path)["output_error"] >= 0
    assert parsed("model", "run", "digits.tacit", "digit.npy", "--json", cwd=one_digit(workplace, tmp_path))["values"]
    assert parsed("bench", "--model", "tiny.tacit", "--backend", "clear", "--json", cwd=tmp_path)["runs"]

    me = as_alice(address, "json-material")
    told = [json.loads(line) for line in cli("--json", "prepare", *me, cwd=workplace).stdout.splitlines()]
    assert [next(iter(line)) for line in told] == ["startup", "setup", "bytes"], "setup is included"
    assert told[1]["setup"]["client"]["sent_bytes"] > 0
    listed = [json.loads(line) for line in cli("material", "list", *me, "--json", cwd=workplace).stdout.splitlines()]
    assert told[2]["id"] in [one["id"] for one in listed if one["state"] == "ready"]
    gone = parsed("material", "discard", "--all", *me, "--json", cwd=workplace)
    assert gone["destroyed"] == gone["of"] >= 1
    for line in (["--json", "model", "inspect", "none.tacit"], ["model", "inspect", "none.tacit", "--json"]):
        refused = cli(*line, cwd=tmp_path, ok=False)
        assert "none.tacit" in json.loads(refused.stderr)["error"]
        assert not refused.stdout
    for line in (["--json", "model", "imprt"], ["infer", "--threads", "0", "x.npy", "--json"]):
        refused = cli(*line, cwd=tmp_path, ok=False)
        assert refused.returncode == 2 and json.loads(refused.stderr)["error"] and not refused.stdout
    assert cli("model", "imprt", "--", "--json", cwd=tmp_path, ok=False).stderr.startswith("error: ")


def test_lists_and_plans_of_the_lab_are_json_where_asked(cli, tmp_path):
    def parsed(*args):
        return json.loads(cli("lab", *args, "--json", cwd=tmp_path).stdout)

    assert {"name", "link", "source"} == parsed("link", "--list")[0].keys()
    listed = {one["name"]: one["seconds"] for one in parsed("run", "--list")}
    assert listed["ss26-live"] == 1800 and listed["pm24-bandwidth"] > 0
    assert parsed("run", "pm24-bandwidth", "--show")["name"] == "pm24-bandwidth"
    plan = parsed("run", "pm24-bandwidth", "--dry-run")
    assert plan["runs"] == sum(cell["runs"] for cell in plan["cells"]) > 0 < plan["seconds"]
    assert parsed("transport", "--dry-run")["runs"] > 0


def one_digit(workplace, folder):
    """A folder with the digits model and one input."""
    np.save(folder / "digit.npy", np.load(workplace / "three.npy")[0])
    (folder / "digits.tacit").write_bytes((workplace / "digits.tacit").read_bytes())
    return folder


def test_serve_tells_its_address_as_json(cli, binary, workplace):
    command = [binary, "--json", "serve", "digits.tacit", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=workplace, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            told = json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert told["models"] == ["digits"]
    assert told["listening"].startswith("127.0.0.1:")


def test_infer_accounts_for_what_comes_before_the_first_phase(cli, workplace, address):
    done = cli("infer", "three.npy", *as_alice(address), "--json", cwd=workplace)
    first, *others = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(first["startup"]) == {"connect_s", "open_s", "inputs_s", "cpu_s"}
    assert all(value > 0 for value in first["startup"].values())
    assert not any("startup" in answer for answer in others), "once for the whole command"
    text = cli("infer", "three.npy", *as_alice(address), "--phases", cwd=workplace).stdout
    assert text.count("startup") == 1
    assert "before TLS" in text


def test_arrays_from_archives(cli, workplace, tmp_path):
    images = np.load(workplace / "three.npy")
    one_digit(workplace, tmp_path)
    np.savez(tmp_path / "one.npz", images)
    np.savez_compressed(tmp_path / "two.npz", first=images[0], second=images[1])

    def run(name, ok=True):
        return cli("model", "run", "digits.tacit", name, "--json", cwd=tmp_path, ok=ok)

    values = [json.loads(line)["values"] for line in run("one.npz").stdout.splitlines()]
    assert len(values) == 3
    assert json.loads(run("two.npz:second").stdout)["values"] == values[1]
    assert "first, second" in run("two.npz", ok=False).stderr
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", "one.npz", "-o", "other.tacit", cwd=tmp_path)


@pytest.fixture(scope="module")
def photo_model(cli, tmp_path_factory):
    """A network `[3, 32, 32]` that gives its pixels back."""
    folder = tmp_path_factory.mktemp("photo")
    net = Net("photo", (3, 32, 32), [node("Flatten", "x", "y")])
    (folder / "photo.onnx").write_bytes(net.to_bytes())
    cli("model", "import", "photo.onnx", "--range", "0,255", "--backend", "none", "-o", "photo.tacit", cwd=folder)
    return folder / "photo.tacit"


def noise(size=(96, 64)):
    return Image.fromarray(np.random.default_rng(2).integers(0, 256, (*reversed(size), 3), np.uint8))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"subsampling": 0},
        {"subsampling": 2, "optimize": True},
        {"progressive": True},
        {"progressive": True, "subsampling": 0},
        {"restart_marker_blocks": 4},
        {"progressive": True, "restart_marker_rows": 1},
        {"grey": True},
        {"grey": True, "progressive": True},
    ],
    ids=str,
)
def test_jpegs_that_are_cut_short_or_damaged_are_refused(cli, photo_model, tmp_path, how):
    how = dict(how)
    photo = noise().convert("L") if how.pop("grey", False) else noise()
    photo.save(tmp_path / "photo.jpg", quality=85, **how)
    whole = (tmp_path / "photo.jpg").read_bytes()
    cli("model", "run", photo_model, "photo.jpg", cwd=tmp_path)
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 300] = bytes(300)
    bad = {f"cut{percent}.jpg": whole[: len(whole) * percent // 100] for percent in (25, 50, 90, 99)}
    bad |= {f"ended{percent}.jpg": whole[: len(whole) * percent // 100] + b"\xff\xd9" for percent in (25, 50, 90, 99)}
    bad["hole.jpg"] = whole[: len(whole) // 2] + whole[len(whole) // 2 + 300 :]
    bad["zeros.jpg"] = bytes(damaged)
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        refused = cli("model", "run", photo_model, name, cwd=tmp_path, ok=False)
        assert name in refused.stderr
        assert "damaged or cut short" in refused.stderr, (name, refused.stderr)


def test_real_photos_are_whole(cli, data, photo_model):
    photos = [path for path in (data / "images").iterdir() if path.suffix in (".jpg", ".jpeg")]
    assert photos
    for photo in photos:
        cli("model", "run", photo_model, photo, cwd=data)


def test_help_names_every_command(cli, workplace):
    text = cli("--help", cwd=workplace).stdout
    for command in ("model", "keys", "serve", "prepare", "infer", "bench"):
        assert command in text
