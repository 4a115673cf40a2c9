"""Every option that the documents, help and error texts name is one that a command has."""

import re
import shlex

import command_tree
import pytest
from command_tree import ROOT, declared

# Options of other programs that documents and texts name, by the program.
OTHERS = {
    "cargo": "release example bench test lib locked nocapture workspace no-run ignored std",
    "pip": "no-deps",
    "curl": "cacert cert key",
    "ray": "head address resources node-name",
    "systemd-run": "scope",
    "./program, in examples": "its-options",
}
# What `-O` is to others, and what stands for any key.
OTHERS_LOWERING = {"dtb", "key"}
# Options that a document names because they are gone.
GONE = {("CHANGELOG.md", "html")}
# Behind a space, a bracket or a quote; not the dashes of a branch name or of a table.
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*+(?:-[a-z0-9]++)*+)(?![\w-])")
LOWERING = re.compile(r"(?<![\w-])-O ([a-z_]+=[^\s,`'\")|]*(?:,[a-z_]+=[^\s,`'\")|]*)*|[a-z_]+(?=`))")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def documents():
    files = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "models/README.md", "benches/README.md")]
    return [file for file in [*files, *sorted((ROOT / "docs").rglob("*.md"))] if file.exists()]


def program_texts():
    """Text literals and help of our programs: what they print."""
    for file in sorted((ROOT / "python").rglob("*.py")):
        if file.name != "_css.py":
            yield file, file.read_text()
    for file in sorted(file for house in ("crates", "lab", "bindings") for file in (ROOT / house).rglob("src/**/*.rs")):
        if file.stem == "tests" or "tests" in file.parts[-2:]:
            continue
        source = file.read_text().split("#[cfg(test)]")[0]
        lines = source.splitlines()
        helps = [line.strip()[3:] for line in lines if line.strip().startswith("///")]
        code = "\n".join(line for line in lines if not line.strip().startswith("//"))
        yield file, "\n".join([*helps, *LITERAL.findall(code)])


@pytest.fixture(scope="session")
def tree(binary):
    return command_tree.tree(binary)


@pytest.fixture(scope="session")
def every(tree):
    """Options of all commands and of all programs in Python here, and those of other programs."""
    ours = set().union(*(command.options for _, command in tree.walk()), {"help", "version"})
    folders = ("python", "scripts", "docs/scripts", "models", "examples", "benches")
    return ours.union(*(declared(ROOT / folder) for folder in folders), *(names.split() for names in OTHERS.values()))


def commands(text):
    """The command lines of `tacit` in a text, as lists of words behind the program's name."""
    joined = re.sub(r"\\\n\s*(?:[#/*]+ )?", " ", text).replace(" -- ", "\n")
    for found in re.finditer(r"(?<![\w/.-])tacit\)?\"? ([a-z.-][^\n`;|&#]*)", joined):
        line = re.split(r"\. [A-Z]|, and ", found[1])[0]
        try:
            yield shlex.split(line)
        except ValueError:
            yield line.split()


def at(tree, words):
    """The command that words name, and how many words that took."""
    command, depth = tree, 0
    while depth < len(words) and words[depth] in command.below:
        command, depth = command.below[words[depth]], depth + 1
    return command, depth


def wrong_commands(tree, text):
    """Command lines with an option that their command does not have."""
    for words in commands(text):
        command, depth = at(tree, words)
        if depth == 0:
            continue
        options = command.options | {"help", "version"}
        # `tacit lab .. --source`: any command below.
        if command.below and depth < len(words) and not words[depth].startswith("-"):
            options = options.union(*(below.options for _, below in command.walk()))
        named = [found[1] for word in words[depth:] if (found := re.match(r"--([a-z][a-z0-9-]*)", word))]
        lacks = [f"--{name}" for name in named if name not in options]
        if lacks:
            yield f"tacit {' '.join(words[:depth])} has no {', '.join(lacks)}"


def test_documents_and_texts_name_options_that_exist(every):
    texts = [*((file, file.read_text()) for file in documents()), *program_texts()]
    wrong = [
        f"{file.relative_to(ROOT)}: --{name}"
        for file, text in texts
        for name in sorted(set(OPTION.findall(text)) - every)
        if (file.name, name) not in GONE
    ]
    assert len(texts) > 100 and not wrong, "\n".join(wrong)


def test_command_lines_name_options_of_their_command(tree):
    texts = [*((file, file.read_text()) for file in documents()), *program_texts()]
    found = sum(1 for _, text in texts for words in commands(text) if at(tree, words)[1])
    wrong = [f"{file.relative_to(ROOT)}: {complaint}" for file, text in texts for complaint in wrong_commands(tree, text)]
    assert found > 300 and not wrong, "\n".join(wrong)


def test_help_names_options_of_its_own_command(tree):
    """Or of one that it names, as `tacit COMMAND` or as a script."""
    wrong = []
    for path, command in tree.walk():
        others = set()
        for words in commands(command.text):
            others |= at(tree, words)[0].options
        for script in re.findall(r"[\w/]+\.py", command.text):
            others |= set(command_tree.DECLARED.findall((ROOT / script).read_text())) if (ROOT / script).is_file() else set()
        named = set(OPTION.findall(command.text)) - command.options - others - {"help", "version"}
        wrong += [f"tacit {' '.join(path)} --help: --{name}" for name in sorted(named)]
    assert not wrong, "\n".join(wrong)


def test_lowering_options_that_are_named_exist(binary, tmp_path):
    known = command_tree.lowering_options(binary, tmp_path)
    assert {"frac_bits", "leaves", "rotations", "tolerance", "linear", "level"} <= known
    wrong = []
    for file, text in [*((file, file.read_text()) for file in documents()), *program_texts()]:
        for group in LOWERING.findall(text):
            keys = {part.split("=")[0] for part in group.split(",") if part}
            wrong += [f"{file.relative_to(ROOT)}: -O {key}" for key in sorted(keys - known - OTHERS_LOWERING)]
    assert not wrong, "\n".join(wrong)


def test_the_test_finds_what_is_wrong(tree):
    assert list(wrong_commands(tree, "run `tacit plan m.tacit --devices x --json` first")) == ["tacit plan has no --devices"]
    assert list(wrong_commands(tree, "tacit serve a.tacit \\\n  --lisen 1")) == ["tacit serve has no --lisen"]
    assert not list(wrong_commands(tree, "sudo tacit lab link --rate 1mbit -- ./program --strange"))
    assert OPTION.findall("a--b --c-d, (`--e`) w-foo--bar") == ["c-d", "e"]
