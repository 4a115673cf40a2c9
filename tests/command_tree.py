"""Which commands and options there are: the programs' own help, and what Python's programs declare."""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# `tacit COMMAND` that is a program in Python.
IN_PYTHON = {("cluster",): "python/tacit/cluster", ("lab", "report"): "python/tacit/report"}
SECTION = re.compile(r"^(Commands|Options|Arguments|[A-Z][\w ]*):$")
OPTION = re.compile(r"^ {2,6}(?:-\w, )?--([a-z][a-z0-9-]*)")
ALIAS = re.compile(r"\[alias(?:es)?: ([^\]]*)\]")
COMMAND = re.compile(r"^ {2}([a-z][a-z0-9-]*)(?: |$)")
DECLARED = re.compile(r"""add_argument\(\s*(?:["']-\w["'],\s*)?["']--([a-z][a-z0-9-]*)["']""")


@dataclass
class Command:
    """A command: the options it takes, the commands below it, and its help."""

    options: set[str]
    text: str = ""
    below: dict[str, "Command"] = field(default_factory=dict)

    def walk(self, path: tuple[str, ...] = ()):
        yield path, self
        for name, command in self.below.items():
            yield from command.walk((*path, name))


def declared(folder: Path) -> set[str]:
    """Options of the programs in Python below a folder."""
    return {name for file in sorted(folder.rglob("*.py")) for name in DECLARED.findall(file.read_text())}


def tree(binary: Path, path: tuple[str, ...] = ()) -> Command:
    """A command and all below it."""
    if path in IN_PYTHON:
        return Command(declared(ROOT / IN_PYTHON[path]) | {"help"})
    done = subprocess.run([binary, *path, "--help"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stdout.strip(), f"{path}: {done.stderr}"
    found, section, prose = Command(set()), "", []
    for line in done.stdout.splitlines():
        if (heading := SECTION.match(line)) and heading[1] != "Examples":
            section = heading[1]
        elif section == "Commands" and (name := COMMAND.match(line)) and name[1] != "help":
            found.below[name[1]] = tree(binary, (*path, name[1]))
        elif section and section != "Commands" and (option := OPTION.match(line)):
            found.options.add(option[1])
            prose.append(line[option.end() :])
        else:
            prose.append(line)
    found.text = "\n".join(prose)
    found.options.update(name for names in ALIAS.findall(found.text) for name in re.findall(r"--([a-z][a-z0-9-]*)", names))
    if path == ("serve",):
        found.options.add("front")
        found.below["--front"] = tree(binary, (*path, "--front"))
    return found


def lowering_options(binary: Path, folder: Path) -> set[str]:
    """What `-O` may set, of all back ends: each lists its options where it refuses one."""
    digits = ROOT / "models" / "digits.onnx"
    found: set[str] = set()
    backends = subprocess.run([binary, "model", "backends"], capture_output=True, text=True, timeout=60, check=True).stdout
    for name in (line.split()[0] for line in backends.splitlines()):
        command = [binary, "model", "import", digits, "-o", folder / "x.tacit", "--backend", name, "-O", "no_such_option=1"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
        listed = re.search(r"there is no such option; there are: ([a-z0-9_, ]+)", refused.stderr)
        found |= set(listed[1].split(", ")) if listed else set()
    return found
