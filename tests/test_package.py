"""What `pip install .` gives: a typed package whose public names are documented."""

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import tacit
from conftest import ROOT
from tacit import _tacit, ckks


def test_the_package_is_typed_and_versioned():
    folder = Path(tacit.__file__).parent
    assert (folder / "py.typed").exists()
    assert importlib.metadata.version("tacit") == "0.2.0"


def test_every_public_name_is_documented():
    names = [(module, name) for module in (tacit, ckks) for name in module.__all__]
    for module, name in names:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and thing.__module__.startswith(("tacit._", "tacit.ckks")) and name != "TacitError":
            for member, value in vars(thing).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod)):
                    assert inspect.getdoc(value), f"{name}.{member}"


def test_the_stub_lists_what_the_native_module_has():
    tree = ast.parse((Path(tacit.__file__).parent / "_tacit.pyi").read_text())
    stub = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    native = {n for n in dir(_tacit) if not n.startswith("_")}
    assert set(stub) == native
    for name, node in stub.items():
        if isinstance(node, ast.ClassDef) and name != "TacitError":
            listed = {
                item.target.id if isinstance(item, ast.AnnAssign) else item.name
                for item in node.body
                if isinstance(item, ast.AnnAssign | ast.FunctionDef)
            }
            public = {member for member in listed if not member.startswith("_")}
            assert public == {m for m in vars(getattr(_tacit, name)) if not m.startswith("_")}


def test_the_package_passes_a_strict_type_check():
    """`[tool.mypy]` in pyproject.toml: strict, over all of python/tacit."""
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# Built up, so that this file does not hold what it looks for.
FROM_AN_INDEX = re.compile(r"(?:pip3?|pipx|uv|uv pip) (?:install|add)\b[^`\n;&|]*?[\s'\"](" + "tacit" + r")(?:\[|['\"`\s=<>~;)]|$)")


def test_no_text_installs_a_package_that_is_somebody_elses():
    """There is no release: what an index has under this name is not ours."""
    name = "tacit"
    for wrong in (f"pip install {name}", f"pip install '{name}[report]'", f"pip install -U {name}\n", f"uv add {name}", f"(`pip3 install {name}`)"):
        assert FROM_AN_INDEX.search(wrong), wrong
    for right in ("pip install '.[report]'", "pip install .", f"pip install ./{name}", "pip install numpy; tacit serve"):
        assert not FROM_AN_INDEX.search(right), right
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found, read = [], 0
    for file in filter(None, tracked):
        path = ROOT / file
        if path.is_file() and path.stat().st_size < 4 << 20:
            read += 1
            found += [f"{file}: {hit.group()}" for hit in FROM_AN_INDEX.finditer(path.read_text(errors="replace"))]
    assert read > 500 and not found, found
