"""Reports of the lab's campaigns: one self-contained page, and every plot as PNG and SVG.

    python -m tacit.report DIR -o report.html       # what `tacit lab report` calls

Needs matplotlib: `pip install 'tacit[report]'`; the rest of the package does without.
"""

from pathlib import Path

from tacit._tacit import TacitError

__all__ = ["write_report"]


def write_report(folder: str | Path, output: str | Path | None = None) -> Path:
    """Makes the page of the campaign in `folder`; returns where it is.

    `output` is `folder/report.html` unless told otherwise. Every plot goes to `folder/plots` as PNG and SVG; plots of an earlier
    report are replaced. Raises `TacitError` where the folder is no campaign, a file has a version that this tacit does not know,
    nothing can be written, or matplotlib is missing. Broken lines and unreadable records are left out, and the page says so.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise TacitError(f"a report needs matplotlib ({error}): pip install 'tacit[report]'") from None
    from tacit.report._build import build

    folder = Path(folder)
    return build(folder, folder / "report.html" if output is None else Path(output))
