"""Records of NSL-KDD (`nsl-kdd` in the data folder, see shared_data.py) as an intrusion detector takes them.

A record becomes 122 numbers in 0..1, which a client computes before it encrypts:

- the 38 numeric fields, in the file's order: those with a long tail (LONG) as log(1 + x); then (x - low) / (high - low) with the bounds of the training
  part, and what lies outside of them at their ends. A field that never changes is 0.
- `protocol_type`, `service`, `flag`: 1 at the value's place among the 3 + 70 + 11 values of the training file, sorted; a value that is not there is 0 everywhere.

Classes: 0 normal, 1 dos, 2 probe, 3 r2l, 4 u2r. The test file has 17 kinds of attacks that the training file has not.
"""

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = ("normal", "dos", "probe", "r2l", "u2r")
KINDS = {
    "normal": "normal",
    "dos": "back land neptune pod smurf teardrop apache2 mailbomb processtable udpstorm worm",
    "probe": "ipsweep nmap portsweep satan mscan saint",
    "r2l": "ftp_write guess_passwd imap multihop phf spy warezclient warezmaster httptunnel named sendmail snmpgetattack snmpguess "
    "xlock xsnoop",
    "u2r": "buffer_overflow loadmodule perl rootkit ps sqlattack xterm",
}
LABELS = {label: CLASSES.index(kind) for kind, labels in KINDS.items() for label in labels.split()}
SYMBOLIC = (1, 2, 3)
FIELDS = 41
# duration, src_bytes, dst_bytes; counts of what happened in a connection; connections within two seconds.
LONG = (0, 4, 5, 7, 8, 9, 10, 12, 15, 16, 17, 18, 22, 23)
SEED = 20261124
FEATURES = 122


def _rows(text: str) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text)) if row]


def _numbers(rows: list[list[str]]) -> NDArray[np.float64]:
    numeric = [i for i in range(FIELDS) if i not in SYMBOLIC]
    values = np.array([[float(row[i]) for i in numeric] for row in rows])
    long = [numeric.index(i) for i in LONG]
    values[:, long] = np.log1p(values[:, long])
    return values


def labels(rows: list[list[str]]) -> NDArray[np.int64]:
    return np.array([LABELS[row[FIELDS]] for row in rows])


def load(data: Path) -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Inputs `[N, 122]` and classes: `train` (nine tenths of KDDTrain+), `held_out` (the other tenth, by chance), `test` (KDDTest+)."""
    with zipfile.ZipFile(data / "nsl-kdd" / "KDDTrain.zip") as archive:
        train = _rows(archive.read(archive.namelist()[0]).decode())
    test = _rows((data / "nsl-kdd" / "KDDTest+.txt").read_text())
    order = np.random.default_rng(SEED).permutation(len(train))
    held_out = set(order[: len(train) // 10].tolist())
    parts = {
        "train": [row for i, row in enumerate(train) if i not in held_out],
        "held_out": [row for i, row in enumerate(train) if i in held_out],
        "test": test,
    }
    known = [sorted({row[i] for row in train}) for i in SYMBOLIC]
    low, high = (f(_numbers(parts["train"]), axis=0) for f in (np.min, np.max))
    span = np.where(high > low, high - low, np.inf)

    def encoded(rows: list[list[str]]) -> NDArray[np.float32]:
        numbers = np.clip((_numbers(rows) - low) / span, 0, 1)
        chosen = [np.array([[row[i] == v for v in values] for row in rows]) for i, values in zip(SYMBOLIC, known, strict=True)]
        return np.concatenate([numbers, *chosen], axis=1).astype(np.float32)

    return {name: (encoded(rows), labels(rows)) for name, rows in parts.items()}
