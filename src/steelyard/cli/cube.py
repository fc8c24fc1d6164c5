"""``steelyard cube``: build a model for any slice of a table from stored statistics."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, open_source, save_model, summary_of
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_facts, emit_json, emit_table, print_message, print_status
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import FileFormatError, ParameterError

if TYPE_CHECKING:
    from steelyard.sql import StatisticsCube

_COLUMNS = (
    "slice", "rows", "rare", "squared_error", "own_squared_error", "auc", "own_auc", "gmean", "own_gmean",
)  # fmt: skip


@click.group("cube")
def cube_command() -> None:
    """Read a table once, then build a model for any slice and time range.

    A cube stores the statistics of every cell. A cell is a combination of column values and a time bucket.
    The model of a slice is exactly the model that a fit on the rows of the slice would give.
    """


@opt.command("build", cube_command)
def build_command(
    source: str = opt.argument(),
    query: str | None = opt.query,
    by: tuple[str, ...] = opt.option("Column that defines slices.", "COL", multiple=True, required=True),
    target: str = opt.target(required=True),
    time: str | None = ColumnOptions.time,
    bucket: str = opt.option("Time bucket, such as 1h, 1d or 4w.", "LENGTH", default="1d"),
    features: tuple[str, ...] = ColumnOptions.features,
    drop: tuple[str, ...] = ColumnOptions.drop,
    missing: str = ColumnOptions.missing,
    folds: int = opt.count("Cross-validation folds, needed for ask --shrink auto.", minimum=0, default=0),
    how: str = opt.how,
    out: Path = opt.out("Output file for the cube.", required=True),
    as_json: bool = opt.as_json,
) -> None:
    """Build a cube from the rows of SOURCE and save it."""
    from steelyard.sql import StatisticsCube

    cube = StatisticsCube(list(by), target, time=time, bucket=bucket, missing=missing, folds=folds)
    cube.add(open_source(source, query), features=features or None, drop=drop, how=how)
    facts = {"cube": str(out), "rows": cube.n_rows, "cells": len(cube.cells), "bytes": cube.nbytes}
    emit_facts(facts, as_json=as_json)
    save_model(cube, out)
    print_status(f"{cube.n_rows:,.0f} rows in {len(cube.cells):,} cells: {out}")


@opt.command("ask", cube_command, cls=opt.renamed({"--borrow": "--shrink"}))
def ask_command(
    cube: Path = opt.argument(type=IN_FILE),
    where: tuple[str, ...] = opt.option(
        "Slice. Several values of a column are combined; COL= selects rows without a value.",
        "COL=VALUE",
        multiple=True,
    ),
    since: str | None = opt.option("Start of the first time bucket.", "TIME"),
    until: str | None = opt.option("End of the time range (exclusive); the start of a bucket.", "TIME"),
    shrink: str | None = opt.option(
        "Shrink the model of a small slice towards the model of all rows: all rows together get the weight "
        "of ROWS rows. auto selects ROWS by cross-validation.",
        "ROWS",
    ),
    settings: tuple[str, ...] = opt.settings(),
    out: Path | None = opt.out("Output file for the model of the slice."),
    as_json: bool = opt.as_json,
) -> None:
    """Build the model of a slice of CUBE. The model equals a fit on the rows of the slice."""
    loaded = _load(cube)
    slices: dict[str, Any] = {}
    for text in where:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--where expects COL=VALUE; got {text!r}.")
        slices.setdefault(name, []).append(value or None)
    learner = make_models(["proximal"], parse_settings(settings))["proximal"]
    model = loaded.model(since=since, until=until, borrow=_parse_shrink(shrink), estimator=learner, **slices)
    emit_facts({**summary_of(model), "digest": model.estimator.digest()}, as_json=as_json)
    if out is not None:
        model.note("learned", str(cube), round(model.estimator.statistics_.n_rows))
        save_model(model, out)
        print_status(f"model of the slice: {out}")


@opt.command("compare", cube_command)
def compare_command(
    cube: Path = opt.argument(type=IN_FILE),
    by: tuple[str, ...] = opt.option(
        "Column to slice by. Default: all columns of CUBE.", "COL", multiple=True
    ),
    settings: tuple[str, ...] = opt.settings(),
    report: Path | None = opt.report,
    as_json: bool = opt.as_json,
) -> None:
    """Compare the model of all rows of CUBE with a separate model for each slice, largest slices first."""
    loaded = _load(cube)
    names = list(by) or loaded.by
    learner = make_models(["proximal"], parse_settings(settings))["proximal"]
    slices = loaded.compare(names, learner)
    if as_json:
        emit_json({"by": names, "slices": [asdict(one) for one in slices]})
    else:
        shown = [
            {**asdict(one), "slice": one.name, "rows": round(one.rows), "rare": min(one.shares.values())}
            for one in slices
        ]
        emit_table(list(_COLUMNS), shown)
    if report is not None:
        from steelyard.report import write_slices

        write_slices(slices, names, report)
        print_message(f"report: {report}")


def _load(path: Path) -> StatisticsCube:
    from steelyard.persistence import load
    from steelyard.sql import StatisticsCube

    cube = load(path)
    if not isinstance(cube, StatisticsCube):
        raise FileFormatError(
            f"this file holds a {type(cube).__name__}, not a cube.",
            source=str(path),
            hint="cubes are written by `steelyard cube build`",
        )
    return cube


def _parse_shrink(text: str | None) -> float | str:
    if text is None or text == "auto":
        return text or 0.0
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"--shrink: expected a number of rows or auto; got {text!r}.") from None
