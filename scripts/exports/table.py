"""docs/exports.md from the results."""

import json
import re
import sys

from collection import COLLECTION, identity
from judge import BACKENDS
from places import RESULTS, ROOT, beside

PAGE = ROOT / "docs" / "exports.md"
# A float network this near to onnxruntime's, as a share of the range of its answers, computes the same.
SAME = 1e-3

HEAD = """# What practitioners export

Written by `scripts/exports` (its commands stand in `scripts/exports/__main__.py`; `table` writes this page). The collection was written
down before any of it was imported: networks of torchvision, timm, `keras.applications` and scikit-learn, and networks as people write
them, through the exporters that they use. Weights are random but where scikit-learn, XGBoost or LightGBM trained them; batch
normalisations have the statistics of their inputs. Images are small where the architecture allows it. Seven files that packages on PyPI
ship were on the list, too; they are not fetched.

Each file is imported with 16 or 64 calibration inputs (for what was trained: its training data), and asked about 8 or 24 others
by one program. *Float* is the largest difference of the imported float network from onnxruntime's answers; inputs "out of range" are
beyond what calibration saw: a client refuses them, and they are not compared. The columns of back ends say
how far a lowered model, computed in the clear as the protocols do, is from the float network: the mean over inputs of the root mean
square error; then on how many inputs a number leaves its range and the answer is wrong; then how many get another class, if any do.
Errors are shares of the range of the answers. A quantised file is read in real numbers: without the rounding of activations, and without
their clamping where the smallest integer does not stand for zero; onnxruntime's answers on the file itself and on the file without
these are both beside it. "-": the back end refuses the model, for the reason below.

The lowering takes the cheapest numbers that keep the class on 99 % of inputs, with 12 fraction bits at most, so errors are chosen
(`--agreement`, `-O max_frac_bits=`). With random weights the best of many outputs lie close together, and 12 bits often do not
suffice: the import says so, with the share of inputs that it expects to get another class.
"""


def size(value: float) -> str:
    """A share, as percent."""
    percent = 100 * value
    return f"{percent:.2f} %" if percent >= 0.005 else f"{percent:.0e} %" if percent else "0"


def cell(found: dict) -> str:
    if "refusal" in found:
        return "late" if found["refusal"].startswith("took longer") else "-"
    words = []
    if found["output_error"] is not None:
        words.append(size(found["output_error"]))
    if found["overflowed"]:
        words.append(f"overflows on {found['overflowed']} of {found['inputs']}")
    if found["agreement"] < 1:
        words.append(f"{round((1 - found['agreement']) * found['inputs'])} of {found['inputs']} another class")
    return ", ".join(words)


def float_cell(found: dict) -> str:
    if "wrong" in found:
        return "not compared"
    words = [size(found["float_error"])]
    if "real_error" in found:
        words.append(f"{size(found['real_error'])} read in real numbers")
    if found["out_of_range"]:
        words.append(f"{found['out_of_range']} of {found['out_of_range'] + found['compared']} out of range")
    return ", ".join(words)


def is_right(found: dict) -> bool:
    """The float network is onnxruntime's; of a quantised file, that in real numbers."""
    error = found.get("real_error", found.get("float_error"))
    return error is not None and error <= SAME


def line(*cells: object) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def judged_for(results: dict) -> list[str]:
    """Back ends that every export was judged for."""
    kept = [found["backends"] for found in results.values() if "refusal" not in found]
    return [backend for backend in BACKENDS if all(backend in known for known in kept)]


def imported(results: dict) -> list[str]:
    columns = judged_for(results)
    lines = [line("export", "by", "float", *columns), line(*["---"] * (3 + len(columns)))]
    for export in COLLECTION:
        found = results.get(identity(export), {"refusal": ""})
        if "refusal" not in found:
            cells = [cell(found["backends"][backend]) for backend in columns]
            lines.append(line(identity(export), export.exporter, float_cell(found), *cells))
    return lines


def refused(results: dict) -> list[str]:
    lines = [line("export", "by", "why"), line("---", "---", "---")]
    for export in COLLECTION:
        found = results.get(identity(export), {})
        if "refusal" in found:
            lines.append(line(identity(export), export.exporter, found["refusal"]))
    return lines


def refused_by_some(results: dict) -> list[str]:
    """Refusals of back ends, without node and numbers, and whom they meet."""
    columns, met = judged_for(results), {}
    for name, found in results.items():
        for backend, lowered in found.get("backends", {}).items():
            if backend in columns and "refusal" in lowered:
                why = re.sub(r"^node \d+ `[^`]*` ", "", lowered["refusal"])
                why = re.sub(r"on \[.*?\]", "on its range", re.sub(r"takes \d+ levels|tensor \d+ slots", some_of, why))
                met.setdefault((backend, why), []).append(name)
    lines = [line("back end", "why", "exports"), line("---", "---", "---")]
    return lines + [line(backend, why, ", ".join(names)) for (backend, why), names in sorted(met.items())]


def some_of(found: re.Match[str]) -> str:
    return re.sub(r"\d+", "so many", found[0])


def is_kept(backend: str, lowered: dict) -> bool:
    """Whether a back end takes a network; `ckks`, whose polynomials are approximations, only if it keeps what it promises."""
    if "refusal" in lowered or backend != "ckks":
        return "refusal" not in lowered
    return lowered["overflowed"] == 0 and lowered["agreement"] >= 0.99 and lowered["output_error"] <= 0.05


def summary(document: dict) -> str:
    results, program = document["exports"], document["program"]
    kept = {name: found for name, found in results.items() if "refusal" not in found}
    right = sum(map(is_right, kept.values()))
    served = {b: sum(is_kept(b, found["backends"][b]) for found in kept.values()) for b in judged_for(results)}
    some = sum(any("refusal" not in one for one in found["backends"].values()) for found in kept.values())
    by_backend = ", ".join(f"`{backend}` {count}" for backend, count in served.items())
    return (
        f"Of {len(results)} files {len(kept)} are imported and {len(results) - len(kept)} refused. {some} of those imported are taken by a "
        f"private back end ({by_backend}); {right} float networks are onnxruntime's within {100 * SAME:.1f} % of the range (a quantised one "
        "that of the file read in real numbers). `ckks` counts where no input overflows, 99 % have the float network's class and outputs are off "
        "by 5 % of their range on average at most, with the ranges of samples (`-O domain=calibrated` now); by default it takes only what "
        "holds for certain on all accepted inputs. Of the 28 networks that `ckks` lowered then, 26 were made again on 28 November 2026 (not "
        "the two of Keras): by default 12 are lowered, all for certain, and 14 are refused in words. Of 2,400 inputs from all of their "
        "accepted ranges no answer was wrong unnoticed; the client refused 170, all of one network (`scripts/exports/__main__.py` has the "
        "command).\n\n"
        f"{document['date']}, `{program['version']}` at {program['commit']} (SHA-256 of the program {program['sha256'][:16]}), on "
        f"{program['machine']}; exporters as in `scripts/exports/requirements.txt`.\n"
    )


def write() -> int:
    document = json.loads(RESULTS.read_text())
    results = document["exports"]
    if missing := [identity(e) for e in COLLECTION if identity(e) not in results]:
        unmade = [identity(e) for e in COLLECTION if not beside(e, "wanted").exists()]
        print(f"not judged yet: {' '.join(missing)}; of these not made: {' '.join(unmade) or 'none'}", file=sys.stderr)
        return 1
    parts = [
        HEAD, summary(document), "## Imported\n", "\n".join(imported(results)), "\n## Refused\n", "\n".join(refused(results)),
        "\n## Refused by some back ends\n", "\n".join(refused_by_some(results)),
    ]
    PAGE.write_text("\n".join(parts) + "\n")
    return 0
