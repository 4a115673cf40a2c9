"""The picture of the crates (docs/data/crates.svg) is the one that docs/scripts/draw_crates.py draws."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import draw_crates

pytestmark = pytest.mark.skipif(shutil.which("cargo") is None, reason="no cargo here: nothing says which crates there are")
SVG = "{http://www.w3.org/2000/svg}"


def workspace():
    """Names of the workspace's crates, as the picture has them."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"]
    done = subprocess.run(command, cwd=draw_crates.ROOT, check=True, capture_output=True, text=True)
    return {package["name"].removeprefix("tacit-") for package in json.loads(done.stdout)["packages"]}


def test_the_picture_is_current():
    done = subprocess.run([sys.executable, draw_crates.__file__, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_picture_is_xml_that_names_every_crate_and_no_other():
    picture = ET.fromstring(draw_crates.PICTURE.read_text())
    named = {text.text for group in picture.iter(f"{SVG}g") for text in group.iter(f"{SVG}text")}
    assert named == workspace()


@pytest.mark.parametrize("older", [None, "<svg/>"])
def test_an_older_picture_fails_the_check(older, monkeypatch, tmp_path):
    place = tmp_path / "docs" / "data" / "crates.svg"
    place.parent.mkdir(parents=True)
    if older:
        place.write_text(older)
    drawn = draw_crates.draw()
    monkeypatch.setattr(draw_crates, "draw", lambda: drawn)
    monkeypatch.setattr(draw_crates, "ROOT", tmp_path)
    monkeypatch.setattr(draw_crates, "PICTURE", place)
    monkeypatch.setattr(sys, "argv", ["draw_crates.py", "--check"])
    with pytest.raises(SystemExit, match="^docs/data/crates.svg is not up to date: run python docs/scripts/draw_crates.py$"):
        draw_crates.main()
    monkeypatch.setattr(sys, "argv", ["draw_crates.py"])
    draw_crates.main()
    assert place.read_text() == drawn


def test_arrows_point_down_and_none_follows_from_others():
    crates = draw_crates.read_crates()
    draw_crates.place(crates)
    for crate in crates.values():
        for used in crate.uses:
            assert crates[used].row < crate.row
            assert not any(used in draw_crates.reached(crates, other) for other in crate.uses)
