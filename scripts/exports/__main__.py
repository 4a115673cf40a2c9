"""What practitioners export: makes the files of `collection.py`, imports each, and compares with onnxruntime.

    python3 -m venv out/exports-venv
    out/exports-venv/bin/pip install --no-deps -r scripts/exports/requirements.txt  # 6 GB: PyTorch, TensorFlow
    out/exports-venv/bin/python scripts/exports make                                # files, inputs and onnxruntime's answers, in out/exports
    out/exports-venv/bin/python scripts/exports judge                               # by one program, into out/exports/results.json
    out/exports-venv/bin/python scripts/exports table                               # docs/exports.md

Whether `ckks` gives silent wrong answers on networks is tried with model files of them (`tacit model import --backend none`) in a folder:

    TACIT_NETWORKS=FOLDER cargo test --release -p tacit-ckks --lib -- --ignored --nocapture campaign_tests::folder_networks

`make` and `judge` take names (`own-unet`) or sources (`own`); without, they do all, and leave out what is done already (`--again`
does it again). The program is `target/debug/tacit`, which `cargo test` makes, or that of TACIT_BIN. `make test` needs nothing of this.
"""

import argparse
import sys
import traceback

import judge
import table
from collection import COLLECTION, Export, identity


def chosen(wanted: list[str]) -> list[Export]:
    known = {name for export in COLLECTION for name in (export.source, identity(export))}
    if unknown := set(wanted) - known:
        sys.exit(f"not in the collection: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return [e for e in COLLECTION if not wanted or {e.source, identity(e)} & set(wanted)]


def make_all(exports: list[Export], again: bool) -> int:
    # PyTorch and TensorFlow are loaded for this alone.
    import make

    failed = []
    for export in exports:
        if not again and make.is_made(export):
            continue
        try:
            make.make(export)
            print(f"made {identity(export)}", flush=True)
        except Exception:
            traceback.print_exc()
            failed.append(identity(export))
    if failed:
        print(f"not made: {' '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["make", "judge", "table"])
    parser.add_argument("names", nargs="*", help="exports or sources (default: all)")
    parser.add_argument("--again", action="store_true", help="what is done already, too")
    parser.add_argument("--backend", action="append", choices=judge.BACKENDS, help="judge for these alone (default: all)")
    parser.add_argument("--commit", help="what the program was built from (default: what is checked out)")
    options = parser.parse_intermixed_args()
    if options.command == "table":
        return table.write()
    exports = chosen(options.names)
    if options.command == "make":
        return make_all(exports, options.again)
    return judge.judge_all(exports, options.backend or judge.BACKENDS, options.again, options.commit)


if __name__ == "__main__":
    sys.exit(main())
