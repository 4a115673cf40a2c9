"""`tacit sidecar`, end to end: an Open Inference Protocol client that knows nothing of tacit, over HTTP and gRPC."""

import asyncio
import base64
import http.client
import io
import json
import socket
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest
import tritonclient.grpc as oip_grpc
import tritonclient.grpc.aio as oip_grpc_aio
import tritonclient.http as oip_http
import tritonclient.http.aio as oip_http_aio
from tritonclient.utils import InferenceServerException

from conftest import MODELS
from test_cli import serving

# The client and what it builds on, not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@contextmanager
def beside(binary, folder, server, *options):
    """A `tacit sidecar` process: what it says of its addresses."""
    command = [binary, "sidecar", "--server", server, "--client", "alice", "--json", *map(str, options)]
    log = folder / "sidecar.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0
            assert "panicked" not in log.read_text()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, cli, digit_images):
    folder = tmp_path_factory.mktemp("sidecar")
    samples = MODELS / "digits_samples.npy"
    pixels = ["--pixel-scale", 1 / 255, "--calibrate", samples]
    cli("model", "import", MODELS / "digits.onnx", *pixels, "-o", "digits.tacit", cwd=folder)
    cli("keys", "init", "keys", "--client", "alice", cwd=folder)
    (folder / "seal.key").write_text(base64.b64encode(bytes(range(32))).decode())
    (folder / "seal.key").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def sidecar(workplace, binary):
    """Addresses for HTTP and gRPC, and what makes the headers that both want: the client changes what it is given."""
    addresses = ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--token-file", "token", "--new-token"]
    stored = ["--material", "material", "--seal", "seal.key", "--ready", 1, "--device", "raspberry-pi-4b"]
    with (
        serving(binary, workplace, "--material", "server-material") as server,
        beside(binary, workplace, server, *addresses, *stored) as told,
    ):
        assert (workplace / "token").stat().st_mode & 0o777 == 0o600
        token = (workplace / "token").read_text().strip()

        def headers():
            return {"authorization": f"Bearer {token}"}

        http = told["listening"].removeprefix("http://")
        with oip_http.InferenceServerClient(http) as client:
            while not client.is_model_ready("digits", headers=headers()):
                pass
        # A file is there before what is in it.
        while len(start := b"".join(path.read_bytes()[:8] for path in (workplace / "material").glob("*.material"))) < 8:
            pass
        assert start == b"TACITSEA"
        yield http, told["grpc"], headers


@pytest.fixture(scope="module")
def floats(digit_images, float_answers):
    return float_answers(MODELS / "digits.onnx", digit_images[:2])


def asked(module, images, **options):
    """Inputs as a client's module has them."""
    datatype = {"float32": "FP32", "float64": "FP64", "uint8": "UINT8"}[images.dtype.name]
    tensor = module.InferInput("input", images.shape, datatype)
    tensor.set_data_from_numpy(images, **options)
    return [tensor]


def near(result, floats):
    answers = result.as_numpy("output")
    assert answers.shape == floats.shape and answers.dtype == np.float32
    assert np.array_equal(answers.argmax(1), floats.argmax(1))
    assert np.abs(answers - floats).max() < 0.5


def test_http_in_both_forms_of_tensors(sidecar, digit_images, floats):
    address, _, headers = sidecar
    with oip_http.InferenceServerClient(address) as client:
        assert client.is_server_live() and client.is_server_ready(headers=headers())
        told = client.get_model_metadata("digits", headers=headers())
        assert told["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
        for binary in (True, False):
            wanted = [oip_http.InferRequestedOutput("output", binary_data=binary)]
            inputs = asked(oip_http, digit_images[:2], binary_data=binary)
            result = client.infer("digits", inputs, outputs=wanted, request_id="7", headers=headers(), timeout=120_000_000)
            near(result, floats)
            assert result.get_response()["id"] == "7"
        near(client.infer("digits", asked(oip_http, digit_images[:2]), model_version="1", headers=headers()), floats)
        for same in (digit_images[:2].astype(np.float64), np.round(digit_images[:2] * 255).astype(np.uint8)):
            near(client.infer("digits", asked(oip_http, same), headers=headers()), floats)
        wanted = [oip_http.InferRequestedOutput("output", class_count=3)]
        ranked = client.infer("digits", asked(oip_http, digit_images[:1]), outputs=wanted, headers=headers()).as_numpy(
            "output"
        )
        assert ranked.shape == (1, 3) and int(ranked[0, 0].split(b":")[1]) == floats[0].argmax()
        stats = client.get_inference_statistics("digits", headers=headers())["model_stats"][0]
        assert stats["inference_count"] >= 7
        assert client.get_model_repository_index(headers=headers())[0]["state"] == "READY"


def test_grpc(sidecar, digit_images, floats):
    _, address, headers = sidecar
    with oip_grpc.InferenceServerClient(address) as client:
        assert client.is_server_live(headers=headers()) and client.is_server_ready(headers=headers())
        assert client.get_model_metadata("digits", headers=headers()).inputs[0].shape == [-1, 1, 8, 8]
        inputs = asked(oip_grpc, digit_images[:2])
        near(client.infer("digits", inputs, request_id="7", headers=headers(), client_timeout=120), floats)
        assert client.get_inference_statistics("digits", headers=headers()).model_stats[0].inference_count >= 2
        assert client.get_model_repository_index(headers=headers()).models[0].name == "digits"
        with pytest.raises(InferenceServerException, match="(?i)deadline"):
            client.infer("digits", inputs, headers=headers(), client_timeout=0.001)
        near(client.infer("digits", inputs, headers=headers()), floats)


def test_both_without_waiting(sidecar, digit_images, floats):
    http, grpc, headers = sidecar

    async def ask(client, module):
        async with client:
            one = [client.infer("digits", asked(module, digit_images[i : i + 1]), headers=headers()) for i in range(2)]
            for i, result in enumerate(await asyncio.gather(*one)):
                near(result, floats[i : i + 1])

    async def both():
        await ask(oip_http_aio.InferenceServerClient(http), oip_http)
        await ask(oip_grpc_aio.InferenceServerClient(grpc), oip_grpc)

    asyncio.run(both())


def test_what_is_refused_is_told(sidecar, digit_images):
    http, grpc, headers = sidecar
    with oip_http.InferenceServerClient(http) as client:
        wrong = [
            (lambda: client.infer("digits", asked(oip_http, digit_images[:2, 0]), headers=headers()), "shape"),
            (lambda: client.infer("digits", asked(oip_http, digit_images[:1] * np.nan), headers=headers()), "finite"),
            (lambda: client.infer("digits", asked(oip_http, digit_images[:1] + 1e6), headers=headers()), "accepts"),
            (
                lambda: client.infer("digits", asked(oip_http, digit_images[:1]), sequence_id=3, headers=headers()),
                "sequence_",
            ),
            (lambda: client.infer("other", asked(oip_http, digit_images[:1]), headers=headers()), "no model `other`"),
            (lambda: client.infer("digits", asked(oip_http, digit_images[:1])), "Authorization"),
            (lambda: client.get_model_config("digits", headers=headers()), "`config` is not supported"),
            (lambda: client.get_system_shared_memory_status(headers=headers()), "shared memory is not supported"),
            (lambda: client.load_model("digits", headers=headers()), "loading and unloading"),
        ]
        for call, says in wrong:
            with pytest.raises(InferenceServerException, match=says):
                call()
    with (
        oip_grpc.InferenceServerClient(grpc) as client,
        pytest.raises(InferenceServerException, match="UNAUTHENTICATED"),
    ):
        client.infer("digits", asked(oip_grpc, digit_images[:1]))


def test_the_page_asks_for_a_picture(sidecar, digit_images, floats):
    address, _, headers = sidecar
    with urllib.request.urlopen(f"http://{address}/") as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert b"Ask a model without showing it what you ask" in answer.read() and "default-src 'none'" in policy
    ask = urllib.request.Request(
        f"http://{address}/page/classify?model=digits", png_bytes(digit_images[0, 0]), headers()
    )
    ask.add_header("Content-Type", "application/octet-stream")
    with urllib.request.urlopen(ask) as answer:
        told = json.load(answer)
    assert told["top"][0]["class"] == floats[0].argmax() and told["phases"][-1]["name"] == "online"
    assert told["private"] and "could not see your input" in told["server_sees"]
    # 0.925 W for a busy core of a Raspberry Pi 4B, so no more than four cores of it for as long as the phases took.
    assert told["energy"]["provenance"] == "modelled" and "Raspberry Pi 4" in told["energy"]["device"]
    spent = sum(phase["modelled_j"] for phase in told["phases"])
    assert 0 < spent < 0.925 * 4 * told["all_s"] + 1e-8 * sum(p["sent_bytes"] + p["received_bytes"] for p in told["phases"])
    ask.add_header("Origin", "http://evil.example")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(ask)
    broken = urllib.request.Request(f"http://{address}/page/classify?model=digits", b"\x89PNG broken", dict(ask.headers))
    broken.remove_header("Origin")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(broken)


def npy_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png_bytes(image):
    """A picture of values from 0 to 1, `[H, W]`."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.round(image * 255).astype(np.uint8)).save(file, "png")
    return file.getvalue()


def test_the_page_takes_numbers_where_no_pixels_are_known(workplace, binary, cli, digit_images, floats):
    # Without --pixel-scale, a model that was calibrated with values from 0 to 1 does not say how pixels become those.
    cli("model", "import", MODELS / "digits.onnx", "--calibrate", MODELS / "digits_samples.npy", "-o", "plain.tacit", cwd=workplace)
    options = ["--listen", "127.0.0.1:0", "--token-file", "other-token", "--new-token"]
    with (
        serving(binary, workplace, "plain.tacit") as server,
        beside(binary, workplace, server, *options) as told,
    ):
        headers = {"authorization": f"Bearer {(workplace / 'other-token').read_text().strip()}"}

        def ask(path, body=None):
            headers["content-type"] = "application/octet-stream"
            with urllib.request.urlopen(urllib.request.Request(told["listening"] + path, body, headers)) as answer:
                return json.load(answer)

        while not (models := ask("/page/models")) or not all(model["ready"] for model in models):
            pass
        known = {model["name"]: model for model in models}
        assert known["digits"]["pictures"] and not known["plain"]["pictures"]
        assert "does not say how pixels" in known["plain"]["no_pictures"]
        numbers = json.dumps(digit_images[0].tolist()).encode()
        for body in (numbers, json.dumps(digit_images[0].ravel().tolist()).encode(), npy_bytes(digit_images[:1])):
            assert ask("/page/classify?model=plain", body)["top"][0]["class"] == floats[0].argmax()
        assert ask("/page/classify?model=digits", numbers)["top"][0]["class"] == floats[0].argmax()
        for body, says in [
            (png_bytes(digit_images[0, 0]), "does not say how pixels"),
            (npy_bytes(np.zeros((8, 8), np.uint8)), "shape"),
            (npy_bytes(np.zeros((1, 8, 8), np.uint8)), "bytes are pixels"),
            (b"[1, 2]", "2 numbers: the model takes 64"),
            (b"[1, \"a\"]", "no list of numbers"),
            (b"GIF89a", "no list of numbers"),
            (json.dumps([1e9] * 64).encode(), "accepts"),
        ]:
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask("/page/classify?model=plain", body)
            assert refused.value.code == 400 and says in json.load(refused.value)["error"], says


def ask_socket(path, what, body=None):
    connection = http.client.HTTPConnection("localhost")
    with socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.connect(str(path))
        connection.request("GET" if body is None else "POST", what, body and json.dumps(body))
        return json.load(connection.getresponse())


def test_a_socket_needs_no_token(workplace, binary):
    with (
        serving(binary, workplace) as server,
        beside(binary, workplace, server, "--unix", "socket", "--model", "digits=cheetah") as told,
    ):
        assert told == {"listening": "unix:socket", "grpc": None}
        assert (workplace / "socket").stat().st_mode & 0o777 == 0o600
        while "error" in (answer := ask_socket(workplace / "socket", "/v2/models/digits")):
            pass
        assert answer["platform"] == "tacit_cheetah"
    assert not (workplace / "socket").exists()


def test_a_small_device_takes_no_batches(workplace, binary, digit_images):
    images = np.asarray(digit_images[:3], np.float32)
    tensor = {"name": "input", "shape": images.shape, "datatype": "FP32", "data": images.ravel().tolist()}
    with serving(binary, workplace) as server:
        for memory, runs in [(4096, 1), (1, 3)]:
            options = ["--unix", "socket", "--model", "digits=cheetah", "--link", "broadband", "--device-memory", memory]
            with beside(binary, workplace, server, *options):
                while "error" in ask_socket(workplace / "socket", "/v2/models/digits"):
                    pass
                answer = ask_socket(workplace / "socket", "/v2/models/digits/infer", {"inputs": [tensor]})
                assert answer["outputs"][0]["shape"] == [3, 10], answer
                [stats] = ask_socket(workplace / "socket", "/v2/models/digits/stats")["model_stats"]
                assert (stats["inference_count"], stats["execution_count"]) == (3, runs), memory


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--token-file"),
        (["--token-file", "open"], "open to others"),
        (["--token-file", "short"], "one line"),
        (["--token-file", "none"], "No such file"),
        (["--token-file", "good", "--listen", "0.0.0.0:0"], "loopback"),
        (["--token-file", "good", "--ready", "1"], "--material"),
        (["--unix", "open"], "another's"),
        (["--unix", "socket", "--grpc", "127.0.0.1:0"], "--token-file"),
    ],
)
def test_what_is_not_safe_is_not_started(cli, workplace, options, says):
    for name, text, mode in [("open", "a" * 20, 0o644), ("short", "a", 0o600), ("good", "a" * 20, 0o600)]:
        (workplace / name).write_text(text)
        (workplace / name).chmod(mode)
    done = cli("sidecar", "--client", "alice", *options, cwd=workplace, ok=False)
    assert says in done.stderr
