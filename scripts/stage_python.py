"""Puts the Python package together from what `cargo test` has built, for the tests: FOLDER/python, to be named in PYTHONPATH.

    python scripts/stage_python.py target/debug

What users install is built by maturin (`pip install .`); this saves a build of everything with other settings.
"""

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    folder = Path(sys.argv[1])
    staged = folder / "python"
    shutil.rmtree(staged, ignore_errors=True)
    unwanted = shutil.ignore_patterns("_tacit*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "tacit", staged / "tacit", ignore=unwanted)
    shutil.copy(folder / "deps" / "lib_tacit.so", staged / "tacit" / "_tacit.abi3.so")
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    info = staged / f"tacit-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tacit\nVersion: {version}\n")


if __name__ == "__main__":
    main()
