"""Heart beats of the MIT-BIH record of the data folder (`ecg/100.*`, see shared_data.py) as a beat classifier takes them.

A beat is `[2, 128]`: both leads at 120 Hz (means of three samples), from 96 samples (0.8 s) before its mark on, in millivolts without their mean. Whether a
beat comes early shows by where the one before it lies. Classes: 0 normal, 1 premature (33 atrial, 1 ventricular).
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BEFORE, LENGTH, RATIO = 96, 128, 3
NORMAL, PREMATURE = 1, (5, 8)
BASE, GAIN = 1024, 200
# Codes of the annotation format that are no beats: a long interval, and what goes with a mark.
SKIP, FIRST_OF_EXTRAS, AUX = 59, 60, 63


def signal(path: Path) -> NDArray[np.float64]:
    """Both leads in millivolts, `[2, N]`: pairs of 12 bits in 3 bytes (format 212)."""
    a, b, c = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3).astype(np.int64).T
    raw = np.stack([a | (b & 15) << 8, c | (b >> 4) << 8])
    return (np.where(raw >= 2048, raw - 4096, raw) - BASE) / GAIN


def marks(path: Path) -> list[tuple[int, int]]:
    """Sample and code of each mark."""
    words = np.frombuffer(path.read_bytes(), "<u2").tolist()
    found, time, at = [], 0, 0
    while words[at] != 0:
        code, rest = words[at] >> 10, words[at] & 1023
        at += 1
        if code == SKIP:
            time += words[at] << 16 | words[at + 1]
            at += 2
        elif code == AUX:
            at += (rest + 1) // 2
        elif code < FIRST_OF_EXTRAS:
            time += rest
            found.append((time, code))
    return found


def beats(data: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Beats `[N, 2, 128]` in the order of time, and their classes."""
    leads = signal(data / "ecg" / "100.dat")
    slow = leads[:, : leads.shape[1] // RATIO * RATIO].reshape(2, -1, RATIO).mean(2)
    starts = [(time // RATIO - BEFORE, code) for time, code in marks(data / "ecg" / "100.atr")]
    kept = [(at, int(code in PREMATURE)) for at, code in starts if code in (NORMAL, *PREMATURE) and 0 <= at <= slow.shape[1] - LENGTH]
    windows = np.stack([slow[:, at : at + LENGTH] for at, _ in kept])
    return (windows - windows.mean(2, keepdims=True)).astype(np.float32), np.array([label for _, label in kept])
