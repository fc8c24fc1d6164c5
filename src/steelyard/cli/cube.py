"""``steelyard cube``: build a model for any slice of a table from stored statistics."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, open_source, save_model, summary_of
from steelyard.cli.output import emit_facts, emit_json, emit_table, json_option, print_message, print_status
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


@cube_command.command("build")
@click.argument("source")
@opt.query
@opt.option("--by", "COL", "Column that defines slices.", multiple=True, required=True)
@opt.target(required=True)
@opt.time
@opt.option("--bucket", "LENGTH", "Time bucket, such as 1h, 1d or 4w.", default="1d")
@opt.features
@opt.drop
@opt.missing
@opt.count("--folds", "Cross-validation folds, needed for ask --shrink auto.", minimum=0, default=0)
@opt.how
@opt.out("Output file for the cube.", required=True)
@json_option
def build_command(
    *,
    source: str,
    query: str | None,
    by: tuple[str, ...],
    features: tuple[str, ...],
    drop: tuple[str, ...],
    how: str,
    out: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Build a cube from the rows of SOURCE and save it."""
    from steelyard.sql import StatisticsCube

    cube = StatisticsCube(list(by), **options)
    cube.add(open_source(source, query), features=features or None, drop=drop, how=how)
    facts = {"cube": str(out), "rows": cube.n_rows, "cells": len(cube.cells), "bytes": cube.nbytes}
    emit_facts(facts, as_json=as_json)
    save_model(cube, out)
    print_status(f"{cube.n_rows:,.0f} rows in {len(cube.cells):,} cells: {out}")


@cube_command.command("ask", cls=opt.renamed({"--borrow": "--shrink"}))
@click.argument("cube", type=IN_FILE)
@opt.option(
    "--where",
    "COL=VALUE",
    "Slice. Several values of a column are combined; COL= selects rows without a value.",
    multiple=True,
)
@opt.option("--since", "TIME", "Start of the first time bucket.")
@opt.option("--until", "TIME", "End of the time range (exclusive); the start of a bucket.")
@opt.option(
    "--shrink",
    "ROWS",
    "Shrink the model of a small slice towards the model of all rows: all rows together get the weight "
    "of ROWS rows. auto selects ROWS by cross-validation.",
)
@opt.settings()
@opt.out("Output file for the model of the slice.")
@json_option
def ask_command(
    *,
    cube: Path,
    where: tuple[str, ...],
    since: str | None,
    until: str | None,
    shrink: str | None,
    settings: tuple[str, ...],
    out: Path | None,
    as_json: bool,
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


@cube_command.command("compare")
@click.argument("cube", type=IN_FILE)
@opt.option("--by", "COL", "Column to slice by. Default: all columns of CUBE.", multiple=True)
@opt.settings()
@opt.report
@json_option
def compare_command(
    *, cube: Path, by: tuple[str, ...], settings: tuple[str, ...], report: Path | None, as_json: bool
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
