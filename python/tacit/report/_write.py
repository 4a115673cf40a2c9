"""The files of a page: its plots, then the page that is made of them."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

from tacit._folders import check_replaced, managed_folder
from tacit._tacit import TacitError
from tacit.report._sections import Section
from tacit.report._style import render


# What every page of a report begins with.
PAGE = b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy"'


def write(sections: list[Section], plots: Path, output: Path, page: Callable[[dict[str, bytes]], str]) -> Path:
    """Writes the plots into the folder `plots`, then the page that is made of them."""
    try:
        text = page(_write_plots(sections, plots))
        _replace(output, text.encode("utf-8"))
    except OSError as error:
        raise TacitError(f"{error.filename or output}: {error.strerror or error}: the report cannot be written") from None
    return output


def _write_plots(sections: list[Section], folder: Path) -> dict[str, bytes]:
    """Two files for each figure; returns the SVGs by name."""
    # A folder that came from elsewhere must not lead us outside.
    if folder.is_symlink():
        raise TacitError(f"{folder}: is a link, and plots are written into a folder of their own only; remove it")
    managed_folder(folder, "lab", "plots", lambda path: path.suffix in {".svg", ".png"} and _is_plot(path))
    # Plots of an earlier report are removed, and only those.
    for old in [*folder.glob("*.svg"), *folder.glob("*.png")]:
        if _is_plot(old):
            old.unlink()
    made: dict[str, bytes] = {}
    for section in sections:
        for item in section.items:
            if item.figure is None:
                continue
            svg, png = render(item.figure)
            (folder / f"{item.name}.svg").write_bytes(svg)
            (folder / f"{item.name}.png").write_bytes(png)
            made[item.name] = svg
    return made


def _is_plot(path: Path) -> bool:
    """Whether a file is a plot of a report: it says who has written it."""
    return path.is_file() and not path.is_symlink() and (path.stat().st_size == 0 or b"tacit" in path.read_bytes())


def _replace(path: Path, content: bytes) -> None:
    check_replaced(path, lambda found: found.startswith(PAGE))
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
