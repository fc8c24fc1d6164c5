"""Reading and writing reports: numbers, curves and pictures, one subfolder per experiment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from papers.plots import save_picture
from papers.result import Report, Result, Row
from papers.tables import rows_csv, series_csv
from steelyard.exceptions import FileAccessError

__all__ = ["can_draw", "read_reports", "write_report"]

_FILE = "report.json"


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write a report to `folder`; return the written files.

    ``NAME/report.json`` is read by :func:`read_reports`. ``rows.csv`` and ``series.csv`` contain every number
    in full precision. Pictures are written as PNG files if matplotlib is installed.
    """
    place = folder / report.name
    place.mkdir(parents=True, exist_ok=True)
    for stale in place.glob("*.png"):
        stale.unlink()
    written = [_write(place / "rows.csv", rows_csv(report.result.rows))]
    if report.result.series:
        written.append(_write(place / "series.csv", series_csv(report.result.series)))
    for picture in report.result.pictures if can_draw() else ():
        path = place / f"{picture.name}.png"
        save_picture(picture, path)
        written.append(path)
    written.append(_write(place / _FILE, json.dumps(_as_json(report), indent=1, ensure_ascii=False)))
    return written


def read_reports(folder: Path) -> dict[str, tuple[Report, dict[Path, str]]]:
    """Return the reports of `folder` by name, each with its picture files and captions."""
    paths = sorted(folder.glob(f"*/{_FILE}"))
    if not paths:
        raise FileAccessError(
            f"papers: there are no results in `{folder}`.",
            hint="`python -m papers run` with --output writes them",
        )
    return {path.parent.name: _read(path) for path in paths}


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _as_json(report: Report) -> dict[str, Any]:
    plain = {field.name: getattr(report, field.name) for field in fields(report)}
    plain["result"] = {
        "rows": [asdict(row) for row in report.result.rows],
        "notes": list(report.result.notes),
        "pictures": {picture.name: picture.caption for picture in report.result.pictures},
        "layout": report.result.layout,
    }
    return plain


def _read(path: Path) -> tuple[Report, dict[Path, str]]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        stored = plain.pop("result")
        result = Result([Row(**row) for row in stored["rows"]], stored["notes"], layout=stored["layout"])
        report = Report(result=result, **plain)
    except (OSError, ValueError, KeyError, TypeError) as trouble:
        raise FileAccessError(f"papers: `{path}` is no report of this library: {trouble}.") from trouble
    pictures: Iterable[tuple[Path, str]] = (
        (path.parent / f"{name}.png", caption) for name, caption in stored["pictures"].items()
    )
    return report, {file: caption for file, caption in pictures if file.exists()}
