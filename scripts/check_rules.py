"""Checks the rules that a compiler does not: who may use whom, circles of files, file and function lengths,
`forbid(unsafe_code)`, leftovers, tests that no program holds, files that name a back end.

Circles: no file of a crate may name another that names it, directly or by way of others. A file names the module that a
path through `crate`, `super` or `self` leads to, in `use` and elsewhere, behind every `use` that hands a name on. Not
counted are paths between a module and what is inside it (a parent declares its children and may hold what they share),
and tests.

`--size` prints how much text the crates have instead.

Standard library only. Prints every offence and exits with 1 if there is any.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The product, and what measures it.
HOUSES = ("crates", "lab")

# The law (docs/architecture.md): what each crate builds on. A crate may use these and whatever they build on.
# "any" marks the outermost shell: it may use everything, and nothing here may use it.
LAYERS = {
    "tacit-admission": ["tacit-net"],
    "tacit-arith": [],
    "tacit-features": [],
    "tacit-floats": [],
    "tacit-foreign": [],
    "tacit-graph": ["tacit-floats", "tacit-foreign"],
    "tacit-ids": [],
    "tacit-net": ["tacit-foreign"],
    "tacit-sched": ["tacit-floats", "tacit-ids"],
    "tacit-sim": ["tacit-sched"],
    "tacit-he": ["tacit-arith", "tacit-floats"],
    "tacit-mpc": ["tacit-arith", "tacit-net"],
    "tacit-backend-api": ["tacit-mpc", "tacit-graph"],
    "tacit-ring": ["tacit-backend-api"],
    "tacit-two-party": ["tacit-ring", "tacit-he"],
    "tacit-dealer-backends": ["tacit-two-party"],
    "tacit-ckks": ["tacit-two-party"],
    "tacit-backends": ["tacit-dealer-backends", "tacit-ckks"],
    "tacit-measure": [],
    "tacit-store": ["tacit-foreign", "tacit-ids", "tacit-net"],
    "tacit-client": ["tacit-admission", "tacit-foreign", "tacit-backends", "tacit-store", "tacit-net", "tacit-ids", "tacit-graph", "tacit-measure"],
    "tacit-program": ["tacit-client", "tacit-foreign"],
    "tacit-serve": [
        "tacit-admission", "tacit-features", "tacit-program", "tacit-client", "tacit-backends", "tacit-sched", "tacit-store", "tacit-ids", "tacit-measure",
        "tacit-net", "tacit-plan",
    ],
    "tacit-sidecar": ["tacit-admission", "tacit-features", "tacit-program", "tacit-client"],
    "tacit-plan": ["tacit-backends", "tacit-measure"],
    "tacit-meter": ["tacit-floats", "tacit-measure"],
    "tacit-experiments": ["tacit-meter", "tacit-net", "tacit-store"],
    "tacit-cli": [
        "tacit-admission", "tacit-features", "tacit-program", "tacit-client", "tacit-backends", "tacit-sched", "tacit-store", "tacit-ids", "tacit-measure",
        "tacit-net", "tacit-plan",
    ],
    "tacit-lab": "any",
    "tacit-python": "any",
    "tacit-fuzz-targets": "any",
}
UNSAFE_ALLOWED = {"tacit-arith"}
# Whose programs serve many connections in few threads.
MAY_WAIT = {"tacit-serve", "tacit-sidecar"}
# Python bindings expand to `unsafe` inside PyO3's macros, so the crate denies it in its own code instead.
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_COMMENT_COLUMNS = 110
# Crates that `make demo` compiles, ours included: a dependency brings others with it.
MAX_DEMO_CRATES = 213
# The programs of each build: `make demo`, then `make binary`, `make lab`, the Python module.
BUILT_TOGETHER = [
    ["tacit-cli", "tacit-serve"],
    ["tacit-cli", "tacit-serve", "tacit-sidecar", "tacit-lab"],
    ["tacit-lab"],
    ["tacit-python"],
]
# Words that the vocabulary (docs/glossary.md) has replaced, and by what: each is a whole identifier.
REPLACED = {
    "Aids": "ConnectionResources",
    "Beating": "KeepaliveBody",
    "HomeConfig": "HelperServerConfig",
    "KeepFolder": "KeyFolder",
    "Lingering": "GracefulStream",
    "Lobby": "Connection",
    "Nearby": "InProcessDealer",
    "Rehearsal": "DryRun",
    "Talk": "TrafficModel",
    "lobby": "connection",
}
# The back ends, which only `crates/backends` names: others ask the seam, or the constants of the registry.
BACKENDS = ("cheetah", "sci-he", "dealt", "fss", "ckks", "clear")
NAMED = re.compile(rf'"({"|".join(BACKENDS)})"|\b(?:tacit_)?backends::({"|".join(BACKENDS).replace("-", "_")})\b|\btacit_(?:ckks|two_party|dealer_backends)\b')
# Files and folders that are about certain back ends, and why.
MAY_NAME = {
    "crates/app/cli/src/keyset": "`tacit keyset` handles keys of `ckks`",
    "lab/cli/src/lab/study": "the study compares the back ends of [PM24] and others",
    "lab/cli/src/tables": "tables of [KDS25], which are about keys of `ckks`",
    "lab/cli/src/tables.rs": "tables of [KDS25], which are about keys of `ckks`",
    "lab/experiments": "experiments of papers",
    "python/tacit/report": "reports of the study",
}
COMMENT = re.compile(r"^ *//[/!]? ?(?P<text>.*)")
# What a comment points to must be in the house: trackers and plans are not.
ELSEWHERE = re.compile(r"\b(issue \d+|the issue|DESIGN section|DESIGN\.md)\b|^Owner:")
# A paper: `[PM24]`, `[CF2-20]`, `[Ferret]`.
KEY = re.compile(r"\[([A-Z][A-Za-z0-9-]*\d\d|ABY2|Ferret|HalfTree)\]")
FENCE = re.compile(r"^ *//[/!] ```(.*)$", re.MULTILINE)
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX)\b|\b(todo|unimplemented|dbg)!\(")
# What drops a NaN, or leaves it to chance: `tacit_floats` decides. A comparison that is false of NaN says so (`is_some_and`).
FLOATS = re.compile(
    r"\bf(?:32|64)::(?:max|min|total_cmp|partial_cmp)\b|\.(?:total_cmp|partial_cmp)\((?!.*is_some_and)"
    # A fold that begins with a float.
    r"|fold\([^|]*(?:\d\.\d|\d_?f(?:32|64)|INFINITY)[^|]*\|.*\.(?:max|min)\("
)
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"')
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[path[^\n]*\s*)?mod tests")
USE = re.compile(r"^ *(?:pub(?:\([a-z: ]+\))? )?use ([^;]+);", re.M)
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
FUNCTION = re.compile(r"^( *)(pub(\([a-z: ]+\))? )?(default )?(const )?(async )?(unsafe )?(extern \"C\" )?fn (\w+)")


def allowed(name):
    """Everything that crate `name` may depend on."""
    direct = LAYERS[name]
    if direct == "any":
        return {other for other, uses in LAYERS.items() if uses != "any"}
    return set(direct).union(*(allowed(d) for d in direct))


def check_layers(packages):
    ours = {p["name"] for p in packages}
    for package in packages:
        name = package["name"]
        if name not in LAYERS:
            yield f"{name}: not in the table of layers (scripts/check_rules.py, docs/architecture.md)"
            continue
        for dependency in package["dependencies"]:
            used = dependency["name"]
            # A shell's tests may start the other shells, and those of the sidecar a server; a crate's tests may
            # switch its own features on.
            started = ("tacit-cli", name, *(["tacit-serve"] if name == "tacit-sidecar" else []))
            for_tests = dependency["kind"] == "dev" and used in started
            if used in ours and used not in allowed(name) and not for_tests:
                yield f"{name} must not use {used}"


def check_runtime(metadata):
    """`tacit` links no async runtime: only the programs that serve do."""
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    links = {
        node["id"]: [d["pkg"] for d in node["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    todo = [id for id, name in names.items() if name == "tacit-cli"]
    seen = set(todo)
    while todo:
        for used in links[todo.pop()]:
            if used not in seen:
                seen.add(used)
                todo.append(used)
    if "tokio" in {names[id] for id in seen}:
        yield "tacit-cli links tokio: only what serves may"
    for id, used in links.items():
        name = names[id]
        if name.startswith("tacit-") and name not in MAY_WAIT and "tokio" in {names[u] for u in used}:
            yield f"{name} must not use tokio: only {' and '.join(sorted(MAY_WAIT))} may"


def check_filters(sources):
    """Each name by which the Makefile picks or skips tests is in the name of one: a filter that matches nothing passes, too."""
    makefile = (ROOT / "Makefile").read_text()
    filters = re.search(r"^SLOW := (.*)$", makefile, re.MULTILINE)[1].split()
    for options in re.findall(r"cargo test .* -- (.*)$", makefile, re.MULTILINE):
        filters += [word.removesuffix("::") for word in options.split() if re.fullmatch(r"[\w:]+", word)]
    names = set()
    for source in sources:
        names.update(re.findall(r"\b(?:fn|mod) (\w+)", source.read_text()))
    for part in filters:
        for word in part.split("::"):
            if not any(word in name for name in names):
                yield f"Makefile: no test is called {part}"


def features_of(programs):
    """The sets of features with which each crate is compiled for `programs`: more than one where build scripts use it, too."""
    command = ["cargo", "tree", "--locked", *(f"-p{program}" for program in programs), "-e", "normal,build", "--prefix", "none", "-f", "{p};{f}"]
    lines = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    features = {}
    for line in filter(None, lines):
        crate, enabled = line.removesuffix(" (*)").split(";")
        features.setdefault(crate, set()).add(enabled)
    return features


def check_crates():
    """`make demo` compiles few crates. Unlike `cargo metadata`, `cargo tree` leaves out what other programs switch on."""
    programs = BUILT_TOGETHER[0]
    crates = features_of(programs)
    if len(crates) > MAX_DEMO_CRATES:
        yield f"`make demo` compiles {len(crates)} crates for {' and '.join(programs)}, at most {MAX_DEMO_CRATES}: see `cargo tree`"


def check_features():
    """What `make demo` has compiled is not compiled again for other programs: `tacit-features` unites the features."""
    every = features_of([program for programs in BUILT_TOGETHER for program in programs])
    for programs in BUILT_TOGETHER:
        for crate, features in features_of(programs).items():
            if not crate.startswith("tacit-") and not features <= every[crate]:
                yield f"{' and '.join(programs)} compile {crate} with other features than all programs together do: see tacit-features"


def check_test_features(packages):
    """`test-util` (the toy back end, doors for tests) is switched on for tests only."""
    for package in packages:
        if "test-util" in package["features"].get("default", []):
            yield f"{package['name']}: test-util is on by default"
        for dependency in package["dependencies"]:
            if "test-util" in dependency["features"] and dependency["kind"] != "dev":
                yield f"{package['name']} builds {dependency['name']} with test-util outside of its tests"


def check_unsafe(packages):
    for package in packages:
        if package["name"] in UNSAFE_ALLOWED:
            continue
        for target in package["targets"]:
            if not {"lib", "bin", "cdylib"} & set(target["kind"]):
                continue
            if not re.search(r"#!\[(forbid|deny)\(unsafe_code\)\]", Path(target["src_path"]).read_text()):
                yield f"{target['src_path']}: lacks #![forbid(unsafe_code)]"


def use_paths(tree, before=()):
    """The paths of a `use`: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    path, brace, rest = re.sub(r"\s+as\s+\w+|\s+", "", tree).partition("{")
    path = (*before, *(part for part in path.split("::") if part))
    if not brace:
        return [path]
    parts, depth = [""], 0
    for char in rest[: rest.rindex("}")]:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [found for part in parts if part for found in use_paths(part, path)]


def module_uses(src):
    """For every module (a tuple of names) of the crate in `src`: the modules beside it that it names."""
    files = {}
    for path in sorted(src.rglob("*.rs")):
        if not path.stem.endswith("tests"):
            module = path.relative_to(src).with_suffix("").parts
            files[module[:-1] if module[-1] in ("lib", "main", "mod") else module] = path
    codes = {module: TESTS.split(COMMENT_OR_TEXT.sub("", path.read_text()))[0] for module, path in files.items()}
    offers = {}
    for module, code in codes.items():
        for tree in USE.findall(code):
            for found in use_paths(tree):
                offers[(*module, found[-1])] = found
    uses = {}
    for module, code in codes.items():
        paths = [found for tree in USE.findall(code) for found in use_paths(tree)]
        paths += [tuple(found.split("::")) for found in PATH.findall(USE.sub("", code))]
        for found in paths:
            target = leads_to(found, module, files, offers)
            if target is not None and target != module[: len(target)] and module != target[: len(module)]:
                uses.setdefault(module, set()).add(target)
    return uses


def leads_to(path, module, files, offers, depth=8):
    """The module of the crate that a path in `module` leads to, behind what others offer; None for one of another crate."""
    at, (first, *names) = list(module), path
    while first == "super" and at:
        at.pop()
        first = names.pop(0) if names[:1] == ["super"] else "self"
    if first == "crate":
        target = ()
    elif first == "self":
        target = tuple(at)
    elif (*module, first) in files:
        target, names = module, [first, *names]
    else:
        return None
    for name in names:
        if (*target, name) in files:
            target = (*target, name)
            continue
        offered = offers.get((*target, name))
        if offered and depth:
            return leads_to(offered, target, files, offers, depth - 1) or target
        break
    return target


def check_circles(src):
    uses = module_uses(src)

    def reach(module):
        found, todo = set(), [module]
        while todo:
            new = uses.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    reached = {module: reach(module) for module in uses}
    circles = {frozenset(m for m in reached if m in reached[n] and n in reached[m]) for n in reached if n in reached[n]}
    for circle in sorted(map(sorted, circles)):
        names = ", ".join("/".join(module) for module in circle)
        yield f"{src.relative_to(ROOT)}: a circle of files that name each other: {names}"


def check_source(path):
    lines = path.read_text().splitlines()
    name = path.relative_to(ROOT)
    fenced = False
    if len(lines) > MAX_FILE_LINES:
        yield f"{name}: {len(lines)} lines, at most {MAX_FILE_LINES}"
    for number, line in enumerate(lines, 1):
        comment = COMMENT.match(line)
        fenced = bool(comment) and fenced != comment["text"].startswith("```")
        # Code, tables and commands may be longer.
        if comment and not fenced and len(line) > MAX_COMMENT_COLUMNS and not comment["text"].lstrip().startswith(("|", "`", "Example")):
            yield f"{name}:{number}: a comment of {len(line)} columns, at most {MAX_COMMENT_COLUMNS}"
        if comment and ELSEWHERE.search(comment["text"]):
            yield f"{name}:{number}: points to what is not here: {line.strip()}"
        if LEFTOVERS.search(line):
            yield f"{name}:{number}: {line.strip()}"
        function = FUNCTION.match(line)
        if function and not line.rstrip().endswith((";", "}")):
            # The end of its body, or of a signature without one.
            end, signature = f"{function[1]}}}", f"{function[1]})"
            ends = (later == end or later.startswith(signature) and later.endswith(";") for later in lines[number:])
            length = next((i for i, is_end in enumerate(ends, 2) if is_end), 0)
            if length > MAX_FUNCTION_LINES:
                yield f"{name}:{number}: fn {function[9]} has {length} lines, at most {MAX_FUNCTION_LINES}"


def check_floats(src):
    """Floats are compared and reduced by `tacit_floats` alone, tests apart."""
    for path in sorted(src.rglob("*.rs")):
        if path.stem.endswith("tests") or src.parent.name == "floats":
            continue
        code = TESTS.split(path.read_text())[0]
        for number, line in enumerate(code.splitlines(), 1):
            if FLOATS.search(COMMENT_OR_TEXT.sub("", line)):
                yield f"{path.relative_to(ROOT)}:{number}: `tacit_floats` decides about NaN, not {line.strip()}"


def check_examples(packages):
    """Examples in comments are run, and no crate without any takes the time to look for them."""
    for package in packages:
        for target in package["targets"]:
            if "lib" in target["kind"]:
                src = Path(target["src_path"]).parent
                fences = [f for path in src.rglob("*.rs") for f in FENCE.findall(path.read_text())]
                # Every second one closes.
                has = any(fence != "text" for fence in fences[::2])
                if has != target["doctest"]:
                    yield f"{package['name']}: its library has {'' if has else 'no '}examples to run: doctest = {str(has).lower()}"


def check_suites():
    """The program of a crate's tests holds every file that lies beside it: a forgotten one would run nowhere."""
    for main in sorted(main for house in HOUSES for main in (ROOT / house).rglob("tests/*/main.rs")):
        named = set(re.findall(r"^(?:pub )?mod (\w+);", main.read_text(), re.MULTILINE))
        for path in sorted(main.parent.iterdir()):
            if path != main and path.stem not in named:
                yield f"{path.relative_to(ROOT)}: {main.relative_to(ROOT)} does not name it"


def check_words(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for word in sorted(set(re.findall(r"\w+", line)) & set(REPLACED)):
            yield f"{path.relative_to(ROOT)}:{number}: `{word}` is `{REPLACED[word]}` now (docs/glossary.md)"
        if re.search(r"\bMOST(_[A-Z0-9_]+)?\b", line):
            yield f"{path.relative_to(ROOT)}:{number}: a limit is called MAX_..."


def may_name(path):
    """Whether a file may name back ends: it is a test, belongs to `crates/backends`, or is listed in `MAY_NAME`."""
    name = path.relative_to(ROOT)
    is_test = set(name.parts) & {"tests", "benches", "examples"} or path.stem.endswith(("tests", "_test"))
    places = ("crates/backends", "fuzz", *MAY_NAME)
    return bool(is_test) or any(name.is_relative_to(place) for place in places)


def check_backends():
    """No file names a protocol but those of the back ends, tests, and what is about certain back ends."""
    for path in sorted(path for house in (*HOUSES, "bindings") for path in (ROOT / house).rglob("*.rs")):
        if "target" in path.parts or may_name(path):
            continue
        for number, line in enumerate(TESTS.split(path.read_text())[0].splitlines(), 1):
            code = line.split("//")[0]
            for found in NAMED.findall(code) if not COMMENT.match(line) else []:
                yield f"{path.relative_to(ROOT)}:{number}: names a back end ({next(filter(None, found), code.strip())}): ask the seam or the registry"
    for path in sorted((ROOT / "python").rglob("*.py")):
        if may_name(path):
            continue
        # Types list the values of `Preparation`.
        tree = ast.parse(path.read_text())
        types = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Subscript) for part in ast.walk(node.slice)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in BACKENDS and id(node) not in types:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: names a back end ({node.value}): ask the native module"


def show_sizes(packages):
    """Bytes of Rust by crate, without benches, examples and fuzz targets: code, the tests in the same files, files of tests."""
    rows = {}
    for package in packages:
        folder, size = Path(package["manifest_path"]).parent, [0, 0, 0]
        for path in folder.rglob("*.rs"):
            parts = set(path.relative_to(folder).parts)
            if parts & {"target", "benches", "examples"} or "fuzz" in folder.parts:
                continue
            text = path.read_text()
            code = len(TESTS.split(text)[0].encode())
            if "tests" in parts or path.stem.endswith(("tests", "_test")):
                size[2] += len(text.encode())
            else:
                size[0] += code
                size[1] += len(text.encode()) - code
        rows[package["name"]] = size
    rows = {**dict(sorted(rows.items())), "all": [sum(column) for column in zip(*rows.values(), strict=True)]}
    print(f"{'bytes':20} {'code':>9} {'tests in it':>12} {'test files':>11}")
    for name, (code, within, tests) in rows.items():
        print(f"{name:20} {code:9} {within:12} {tests:11}")


def check_references():
    """Papers are cited by keys that `docs/references.md` resolves."""
    listed = re.findall(r"^- \*\*\[(.+?)\]\*\*", (ROOT / "docs/references.md").read_text(), re.MULTILINE)
    for key in sorted({key for key in listed if listed.count(key) > 1}):
        yield f"docs/references.md: [{key}] stands twice"
    places = [*((house, ending) for house in HOUSES for ending in ("rs", "toml")), ("docs", "md"), ("models", "md"), *((f, "py") for f in ("docs", "scripts", "python", "tests"))]
    paths = [path for folder, ending in places for path in (ROOT / folder).rglob(f"*.{ending}")]
    for path in sorted([*paths, *ROOT.glob("*.md")]):
        for key in sorted(set(KEY.findall(path.read_text())) - set(listed)):
            yield f"{path.relative_to(ROOT)}: [{key}] is not in docs/references.md"


def main():
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    metadata = json.loads(metadata.stdout)
    members = set(metadata["workspace_members"])
    packages = [package for package in metadata["packages"] if package["id"] in members]
    if "--size" in sys.argv[1:]:
        show_sizes(packages)
        return
    offences = [*check_layers(packages), *check_runtime(metadata), *check_test_features(packages)]
    offences += check_crates()
    offences += check_features()
    offences += check_unsafe(packages)
    offences += check_references()
    offences += check_examples(packages)
    offences += check_suites()
    offences += check_backends()
    for package in packages:
        src = Path(package["manifest_path"]).parent / "src"
        offences += [*check_circles(src), *check_floats(src)] if src.is_dir() else []
    sources = [path for folder in (*HOUSES, "bindings", "fuzz") for path in sorted((ROOT / folder).rglob("*.rs")) if "target" not in path.parts]
    offences += check_filters(sources)
    for path in sources:
        offences += [*check_source(path), *check_words(path)]
    for offence in offences:
        print(f"rule broken: {offence}", file=sys.stderr)
    print(f"rules: {len(packages)} crates, {len(offences)} offences")
    sys.exit(bool(offences))


if __name__ == "__main__":
    main()
