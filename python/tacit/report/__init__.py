"""Reports of the lab's campaigns, of simulated runs and of plans: one self-contained page, and every plot as PNG and SVG.

    python -m tacit.report DIR -o report.html       # what `tacit lab report` calls
    python -m tacit.report FILE -o page.html        # what `tacit simulate report` and `tacit plan --page` call

Needs matplotlib: `pip install '.[report]'` in a clone of the repository; the rest of the package does without.
"""

from pathlib import Path

from tacit._tacit import TacitError

__all__ = ["write_report"]


def write_report(source: str | Path, output: str | Path | None = None) -> Path:
    """Makes the page of the campaign in the folder `source`, or of the simulated runs or the plan in the file; returns where it is.

    `output` is `report.html` in the folder, or beside the file and named like it, unless told otherwise. Every plot goes to
    `plots` in the folder, or beside the page, as PNG and SVG; plots of an earlier report are replaced. Raises `TacitError` where
    the folder is no campaign or the file neither, a file has a version that this tacit does not know, nothing can be written,
    or matplotlib is missing. Broken lines and unreadable records of a campaign are left out, and the page says so.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise TacitError(f"a report needs matplotlib ({error}): pip install '.[report]' in a clone of the repository") from None
    from tacit.report import _build, _planning, _simulation

    source = Path(source)
    if source.is_file():
        build = _planning.build if _planning.is_plan(source) else _simulation.build
        return build(source, source.with_suffix(".html") if output is None else Path(output))
    return _build.build(source, source / "report.html" if output is None else Path(output))
