"""``steelyard cube``: statistics of every slice of a table, the model of any, and where one for all fails."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.models_io import source_of, summary_of
from steelyard.cli.options import MISSING, MODEL_FILE, count_option, how_option, query_option
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option, talk, tell
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import FileFormatError, ParameterError

if TYPE_CHECKING:
    from steelyard.proximal import ProximalSVC
    from steelyard.sql import StatisticsCube

__all__ = ["cube_command"]

_COLUMNS = (
    "slice",
    "rows",
    "rare",
    "squared_error",
    "own_squared_error",
    "auc",
    "own_auc",
    "gmean",
    "own_gmean",
)
_settings_option = click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A parameter of the models: C=10."
)


@click.group("cube")
def cube_command() -> None:
    """One pass over a table, and then the model of any slice and any span of time.

    A cube keeps the statistics of every cell: the values of some columns, and a bucket of time. The model of
    a slice is exactly that of a fit on its rows.
    """


@cube_command.command("build")
@click.argument("source")
@query_option
@click.option("--by", metavar="COL", multiple=True, required=True, help="A column whose values cut the rows.")
@click.option("--target", metavar="COL", required=True, help="Column of the labels.")
@click.option("--time", metavar="COL", help="Column that says when a row happened.")
@click.option("--bucket", default="1d", show_default=True, metavar="LENGTH", help="Of time: 1h, 1d, 4w.")
@click.option("--feature", "features", metavar="COL", multiple=True, help="Use only these columns.")
@click.option("--drop", metavar="COL", multiple=True, help="Leave these columns out.")
@click.option("--missing", type=click.Choice(MISSING), default="refuse", show_default=True)
@count_option("--folds", "For ask --borrow auto.", least=0, default=0)
@how_option
@click.option("-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="Where to save the cube.")
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
    """Make a cube of the rows of SOURCE and save it."""
    from steelyard.sql import StatisticsCube

    cube = StatisticsCube(list(by), **options)
    cube.add(source_of(source, query), features=features or None, drop=drop, how=how)
    facts = {"cube": str(out), "rows": cube.n_rows, "cells": len(cube.cells), "bytes": cube.nbytes}
    emit_json(facts) if as_json else emit_pairs(facts)
    save_model(cube, out)
    talk(f"{cube.n_rows:,.0f} rows in {len(cube.cells):,} cells: {out}")


@cube_command.command("ask")
@click.argument("cube", type=MODEL_FILE)
@click.option(
    "--where",
    metavar="COL=VALUE",
    multiple=True,
    help="A slice; several values of a column add up, COL= is rows without one.",
)
@click.option("--since", metavar="TIME", help="From this border of a bucket on.")
@click.option("--until", metavar="TIME", help="Up to and without this border of a bucket.")
@click.option(
    "--borrow", metavar="ROWS", help="A thin slice borrows so many rows' weight of all rows, or auto."
)
@_settings_option
@click.option("-o", "--out", type=OUT_FILE, metavar="FILE", help="Where to save the model of the slice.")
@json_option
def ask_command(
    *,
    cube: Path,
    where: tuple[str, ...],
    since: str | None,
    until: str | None,
    borrow: str | None,
    settings: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> None:
    """The model of a slice of CUBE, exactly that of a fit on its rows."""
    known = _load(cube)
    slices: dict[str, Any] = {}
    for text in where:
        name, sign, value = text.partition("=")
        if not sign:
            raise click.UsageError(f"--where takes COL=VALUE; got {text!r}.")
        slices.setdefault(name, []).append(value or None)
    model = known.model(
        since=since, until=until, borrow=_borrowed(borrow), estimator=_learner(settings), **slices
    )
    facts = {**summary_of(model), "digest": model.learner.digest()}
    emit_json(facts) if as_json else emit_pairs(facts)
    if out is not None:
        model.note("learned", str(cube), round(model.learner.statistics_.n_rows))
        save_model(model, out)
        talk(f"the model of the slice: {out}")


@cube_command.command("compare")
@click.argument("cube", type=MODEL_FILE)
@click.option("--by", metavar="COL", multiple=True, help="Slices by these columns; by all by default.")
@_settings_option
@click.option("--report", type=OUT_FILE, metavar="FILE.html", help="Write maps to look at in a browser.")
@json_option
def compare_command(
    *, cube: Path, by: tuple[str, ...], settings: tuple[str, ...], report: Path | None, as_json: bool
) -> None:
    """Where the common model of CUBE fails, beside each slice's own; largest slices first."""
    known = _load(cube)
    names = list(by) or known.by
    standings = known.compare(names, _learner(settings))
    if as_json:
        emit_json({"by": names, "slices": [asdict(standing) for standing in standings]})
    else:
        lines = []
        for standing in standings:
            line = {**asdict(standing), "slice": standing.name, "rows": round(standing.rows)}
            lines.append({**line, "rare": min(standing.shares.values())})
        emit_table(list(_COLUMNS), lines)
    if report is not None:
        from steelyard.report import write_slices

        write_slices(standings, names, report)
        tell(f"report: {report}")


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


def _borrowed(text: str | None) -> float | str:
    if text is None or text == "auto":
        return text or 0.0
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"--borrow takes a number of rows or auto; got {text!r}.") from None


def _learner(settings: tuple[str, ...]) -> ProximalSVC:
    (learner,) = make_models(["proximal"], parse_settings(settings)).values()
    return learner
