"""Records of NSL-KDD (`nsl-kdd` in the data folder, see shared_data.py) as an intrusion detector takes them.

A record becomes 122 numbers in 0..1, which a client computes before it encrypts:

- the 38 numeric fields, in the file's order: those with a long tail (LONG) as log(1 + x); then (x - low) / (high - low) with the bounds of the training
  part, and what lies outside of them at their ends. A field that never changes is 0.
- `protocol_type`, `service`, `flag`: 1 at the value's place among the 3 + 70 + 11 values of the training file, sorted; a value that is not there is 0 everywhere.

Classes: 0 normal, 1 dos, 2 probe, 3 r2l, 4 u2r. The test file has 17 kinds of attacks that the training file has not.
"""

import json
import zipfile
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Encoding:
    """What a client must know to encode a record: bounds of the numeric fields (after logarithms), values of the symbolic ones."""

    low: list[float]
    high: list[float]
    values: list[list[str]]

    @classmethod
    def of(cls, lines: list[str], all_lines: list[str]) -> "Encoding":
        """Bounds of the training part, values of the whole file."""
        numbers, rows = _numbers(_rows(lines)), _rows(all_lines)
        values = [sorted({row[i] for row in rows}) for i in SYMBOLIC]
        return cls(numbers.min(0).tolist(), numbers.max(0).tolist(), values)

    @classmethod
    def read(cls, path: Path) -> "Encoding":
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def records(self, lines: list[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Inputs `[N, 122]` and classes."""
        rows, low, high = _rows(lines), np.array(self.low), np.array(self.high)
        numbers = np.clip((_numbers(rows) - low) / np.where(high > low, high - low, np.inf), 0, 1)
        chosen = [np.array([[row[i] == v for v in values] for row in rows]) for i, values in zip(SYMBOLIC, self.values, strict=True)]
        return np.concatenate([numbers, *chosen], axis=1).astype(np.float32), np.array([LABELS[row[FIELDS]] for row in rows])


def _rows(lines: list[str]) -> list[list[str]]:
    return [line.split(",") for line in lines]


def _numbers(rows: list[list[str]]) -> NDArray[np.float64]:
    numeric = [i for i in range(FIELDS) if i not in SYMBOLIC]
    values = np.array([[float(row[i]) for i in numeric] for row in rows])
    long = [numeric.index(i) for i in LONG]
    values[:, long] = np.log1p(values[:, long])
    return values


def lines(data: Path) -> dict[str, list[str]]:
    """Lines of the files: `train` (nine tenths of KDDTrain+), `held_out` (the other tenth, by chance), `test` (KDDTest+)."""
    with zipfile.ZipFile(data / "nsl-kdd" / "KDDTrain.zip") as archive:
        whole = archive.read(archive.namelist()[0]).decode().split()
    order = np.random.default_rng(SEED).permutation(len(whole))
    held_out = set(order[: len(whole) // 10].tolist())
    return {
        "train": [line for i, line in enumerate(whole) if i not in held_out],
        "held_out": [line for i, line in enumerate(whole) if i in held_out],
        "test": (data / "nsl-kdd" / "KDDTest+.txt").read_text().split(),
    }
