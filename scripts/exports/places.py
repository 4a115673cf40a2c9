"""Where the collection lies: `out/exports/NAME.onnx`, and beside it what belongs to it."""

from pathlib import Path

from collection import Export, identity

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "exports"
RESULTS = OUT / "results.json"


def network(export: Export) -> Path:
    return OUT / f"{identity(export)}.onnx"


def beside(export: Export, what: str) -> Path:
    """`calibration`, `unseen`: inputs; `wanted`: onnxruntime's answers on the unseen, `[N, outputs]`, where it takes one input;
    `real`: as `wanted`, of a quantised network read in real numbers."""
    return OUT / f"{identity(export)}.{what}.npy"
