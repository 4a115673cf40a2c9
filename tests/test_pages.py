"""The pages in headless Chromium: the sidecar's, the operator's dashboard, and the planner's.

Skipped, with the reason in the summary, where there is no Chromium (Debian: `sudo apt install chromium`; `TACIT_CHROMIUM` names another
one). With `TACIT_SCREENSHOTS` set, pictures of the pages are left in that folder, to be looked at.
"""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

from conftest import MODELS
from test_cli import serving
from test_plan import planning
from test_sidecar import beside, png_bytes

# What the driver leaves to the garbage collector, not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, NARROW = {"width": 1300, "height": 900}, {"width": 420, "height": 900}
# Milliseconds: nothing here depends on how long it takes, but what never comes must end the test.
PATIENCE = 120_000


@pytest.fixture(scope="module")
def chromium():
    found = os.environ.get("TACIT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here, so no page was looked at: sudo apt install chromium, or set TACIT_CHROMIUM")
    arguments = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    # Chromium keeps its sandbox from the superuser.
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened(chromium, address, **options):
    """A page, and what it writes to its console as errors."""
    expect.set_options(timeout=PATIENCE)
    with chromium.new_context(viewport=WIDE, **options) as context:
        context.set_default_timeout(PATIENCE)
        page, errors = context.new_page(), []
        page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        yield page, errors


def look(page, name):
    """Fits in both widths: neither the page nor a part of it that cannot be scrolled is wider than the window."""
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        # Drawings follow the size with the next frame.
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        beyond = page.evaluate(
            """() => {
              const wide = document.documentElement.clientWidth, found = [];
              if (document.documentElement.scrollWidth > wide) found.push("the page");
              for (const part of document.body.querySelectorAll("*")) {
                const { right, width } = part.getBoundingClientRect();
                if (width > 0 && right > wide + 1 && !part.closest(".scroll, svg")) found.push(part.outerHTML.slice(0, 120));
              }
              return found;
            }"""
        )
        assert not beyond, (size, beyond)
        if folder := os.environ.get("TACIT_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=f"{folder}/{name}-{size['width']}.png", full_page=True)
    page.set_viewport_size(WIDE)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, cli):
    folder = tmp_path_factory.mktemp("pages")
    samples = ["--calibrate", MODELS / "digits_samples.npy"]
    cli("model", "import", MODELS / "digits.onnx", *samples, "--pixel-scale", 1 / 255, "-o", "digits.tacit", cwd=folder)
    cli("model", "import", MODELS / "digits.onnx", *samples, "-o", "plain.tacit", cwd=folder)
    cli("keys", "init", "keys", "--client", "alice", cwd=folder)
    cli("keys", "add-client", "keys", "ops", "--operator", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def server(workplace, binary):
    with serving(binary, workplace, "plain.tacit", "--material", "server-material") as address:
        yield address


@pytest.fixture(scope="module")
def sidecar(workplace, binary, server):
    """The page's address, with and without the token."""
    options = ["--listen", "127.0.0.1:0", "--token-file", "token", "--new-token", "--device", "raspberry-pi-4b"]
    with beside(binary, workplace, server, *options) as told:
        address = told["listening"]
        yield f"{address}/#{(workplace / 'token').read_text().strip()}", address


def ready(page):
    """Both models are; the first one is chosen."""
    expect(page.locator("#model option")).to_have_count(2)
    expect(page.locator("#model")).not_to_contain_text("not ready")


def answered(page):
    expect(page.locator("#state")).to_have_text("Answered.")
    return page.locator("#top .name").first.text_content()


@pytest.fixture(scope="module")
def digit(digit_images, float_answers):
    """A digit from 0 to 1, `[8, 8]`, and what the page calls its class."""
    return digit_images[0, 0], f"class {float_answers(MODELS / 'digits.onnx', digit_images[:1])[0].argmax()}"


def test_the_sidecars_page_answers_a_picture(chromium, sidecar, digit):
    image, name = digit
    with opened(chromium, sidecar[0]) as (page, errors):
        ready(page)
        page.select_option("#model", "digits")
        expect(page.locator("#about")).to_contain_text("Takes pictures of 8 × 8 in grey")
        expect(page.locator("#ask")).to_be_disabled()
        look(page, "sidecar-asks")
        page.set_input_files("#file", {"name": "digit.png", "mimeType": "image/png", "buffer": png_bytes(image)})
        expect(page.locator("#shown")).to_be_visible()
        page.click("#ask")
        assert answered(page) == name
        expect(page.locator("#sees")).to_contain_text("could not see your input or the answer")
        assert [cell.strip() for cell in page.locator("#phases td:first-child").all_text_contents()][-1] == "online"
        expect(page.locator("#energy")).to_contain_text("modelled and not measured")
        look(page, "sidecar-picture")
        assert errors == []


def test_the_sidecars_page_takes_a_picture_with_the_camera(chromium, sidecar):
    with opened(chromium, sidecar[0]) as (page, errors):
        ready(page)
        page.select_option("#model", "digits")
        page.click("#shoot")
        expect(page.locator("#camera")).to_be_visible()
        page.wait_for_function("() => document.getElementById('camera').videoWidth > 0")
        look(page, "sidecar-camera")
        page.click("#shoot")
        expect(page.locator("#shown")).to_be_visible()
        expect(page.locator("#camera")).to_be_hidden()
        page.click("#ask")
        assert answered(page).startswith("class ")
        assert errors == []


def test_the_sidecars_page_asks_for_numbers_where_it_cannot_know_what_a_pixel_is(chromium, sidecar, digit, tmp_path):
    image, name = digit
    np.save(tmp_path / "digit.npy", image[None])
    (tmp_path / "digit.json").write_text(json.dumps(image.tolist()))
    with opened(chromium, sidecar[0]) as (page, errors):
        ready(page)
        page.select_option("#model", "plain")
        for part in ("#pictures", "#shoot", "#file"):
            expect(page.locator(part)).to_be_hidden()
        expect(page.locator("#why")).to_contain_text("does not say how pixels become its inputs")
        expect(page.locator("#ask")).to_be_disabled()
        look(page, "sidecar-numbers")
        page.fill("#text", json.dumps(image.ravel().tolist()))
        page.click("#ask")
        assert answered(page) == name
        look(page, "sidecar-numbers-answered")
        for file in ("digit.npy", "digit.json"):
            page.fill("#text", "")
            expect(page.locator("#ask")).to_be_disabled()
            page.set_input_files("#array", tmp_path / file)
            page.click("#ask")
            expect(page.locator("#state")).not_to_have_text("Asking…")
            assert answered(page) == name, file
        # From one kind of model to the other and back.
        page.select_option("#model", "digits")
        expect(page.locator("#shoot")).to_be_visible()
        expect(page.locator("#numbers")).to_be_hidden()
        assert errors == []
        page.select_option("#model", "plain")
        page.fill("#text", "[1, 2]")
        page.click("#ask")
        expect(page.locator("#state")).to_have_text("2 numbers: the model takes 64, for [1, 8, 8]")


def test_the_sidecars_page_says_that_its_token_is_missing(chromium, sidecar):
    with opened(chromium, sidecar[1]) as (page, _):
        expect(page.locator("#state")).to_contain_text("The token is missing")


def test_the_dashboard_shows_clients_models_and_the_profile(chromium, server, workplace, cli):
    asks = ["--server", server, "--client", "alice", "--model", "digits", "--backend", "cheetah"]
    for _ in range(2):
        cli("infer", MODELS / "digits_samples.npy", *asks, cwd=workplace, timeout=600)
    prints = {
        who: json.loads(cli("keys", "fingerprint", "keys", who, "--json", cwd=workplace).stdout)["fingerprint"]
        for who in ("alice", "ops")
    }
    keys = workplace / "keys"
    address = f"https://{server}"
    shows = {"origin": address, "certPath": keys / "ops.pem", "keyPath": keys / "ops.key"}
    with opened(chromium, address, client_certificates=[shows], ignore_https_errors=True) as (page, errors):
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("#clients")).to_contain_text(f"alice {prints['alice'][:12]}")
        row = page.locator("#clients tr", has_text=prints["alice"][:12])
        cells = dict(zip(page.locator("#clients th").all_text_contents(), row.locator("td").all_text_contents(), strict=True))
        assert int(cells["inputs"]) >= 2 and cells["D"].endswith("s") and cells["W"].endswith("s"), cells
        head = page.locator("#models th").all_text_contents()
        assert head == ["model", "back ends", "inputs", "inputs/s", "D", "W"]
        rows = [row.locator("td").all_text_contents() for row in page.locator("#profile tr").all()[1:]]
        digits = [row for row in rows if row[:2] == ["digits", "cheetah"]]
        assert {row[2] for row in digits} == {"offline", "online"}, rows
        assert all(row[3].endswith("%") and row[5].endswith("s") and row[6].endswith("s") for row in digits), digits
        page.select_option("#span", "600")
        expect(page.locator("#gantt rect.online").first).to_be_attached()
        expect(page.locator("#unprofiled")).to_be_hidden()
        look(page, "dashboard")
        page.emulate_media(color_scheme="dark")
        look(page, "dashboard-dark")
        assert errors == []


def test_the_planners_page_follows_its_sliders(chromium, workplace, binary):
    with planning(binary, workplace) as address, opened(chromium, address) as (page, errors):
        expect(page.locator("#best")).to_have_text("Best: cheetah")
        expect(page.locator("#rows")).to_contain_text("the server sees the input")
        expect(page.locator("#rate-shown")).to_have_text("20.0 Mbit/s")
        look(page, "plan")
        page.select_option("#trust", "dealer")
        page.fill("#rtt", "2")
        expect(page.locator("#command")).to_contain_text("--link 20mbit/100ms --goal latency --limit trust=dealer")
        expect(page.locator("#best")).not_to_have_text("Best: cheetah")
        page.fill("#memory", "1")
        expect(page.locator("#best")).to_have_text("No private back end is within the limits")
        expect(page.locator("#rows")).to_contain_text("the client needs")
        look(page, "plan-without-memory")
        assert errors == []
