"""Folders that programs manage, which have a mark, and files that they replace: nothing of somebody else's (docs/files.md)."""

from collections.abc import Callable
from pathlib import Path

from tacit._tacit import TacitError

MARK = ".tacit-folder"


def managed_folder(folder: Path, party: str, kind: str, is_ours: Callable[[Path], bool], mode: int = 0o777) -> None:
    """Makes and marks a folder. One without a mark is taken over if it is empty, or if `is_ours` says so of all in it."""
    text = (
        "Made and managed by tacit: what it makes here it may delete (docs/files.md).\n"
        f"party: {party}\nkind: {kind}\nversion: 1\n"
    )
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    mark = folder / MARK
    if mark.is_file():
        if mark.read_text(errors="replace") != text:
            raise TacitError(f"{folder}: is marked as something else than the {party}'s {kind}; name another folder")
        return
    for entry in folder.iterdir():
        if not is_ours(entry):
            raise TacitError(
                f"{folder}: holds {entry.name!r}, which is nothing of the {party}'s {kind}, and has no mark of tacit's: nothing in it "
                "was touched; name a new or an empty folder, or move away what else it holds"
            )
    mark.write_text(text)


def check_replaced(path: Path, is_ours: Callable[[bytes], bool]) -> None:
    """Whether a file may be written: there is none, an empty one, or one of the same kind."""
    if path.is_file() and path.stat().st_size > 0 and not is_ours(path.read_bytes()):
        raise TacitError(f"{path}: exists, and is not what is written there: nothing is overwritten; choose another name")
