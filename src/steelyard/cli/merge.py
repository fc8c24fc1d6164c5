"""``steelyard merge``: one model of several that were taught apart, or of the statistics of many machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.files import OUT_FILE, save_model
from steelyard.cli.models_io import refuse_kind, summary_of
from steelyard.cli.options import MODEL_FILE
from steelyard.cli.output import emit_json, emit_pairs, json_option, talk
from steelyard.cli.registry import parse_settings
from steelyard.exceptions import DataError, ParameterError

if TYPE_CHECKING:
    from steelyard.distributed.files import StatisticsPart
    from steelyard.tables import TableModel

__all__ = ["merge_command"]


@click.command("merge")
@click.argument("files", nargs=-1, required=True, type=MODEL_FILE)
@click.option(
    "-o", "--out", type=OUT_FILE, required=True, metavar="FILE", help="Where to write what comes out."
)
@click.option(
    "--set", "settings", metavar="NAME=VALUE", multiple=True, help="A parameter of the model: C=10."
)
@json_option
def merge_command(files: tuple[Path, ...], out: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Merge FILES into the model that has learned all their rows.

    FILES are models, taught on different rows of the same columns, and statistics, written by `steelyard
    statistics`. Categories that only some of them have met are brought together. The same rows in two of
    them are refused. Statistics alone, merged into a file whose name ends with .stats, can be merged again.
    Rows that statistics were told to retire are unlearned once all the others are in.
    """
    from steelyard.distributed.files import StatisticsPart, combine
    from steelyard.persistence import load

    loaded = [(path, load(path)) for path in files]
    parts = [part for _, part in loaded if isinstance(part, StatisticsPart)]
    models = [path for path, item in loaded if not isinstance(item, StatisticsPart)]
    if out.suffix == ".stats" and models:
        raise DataError(
            f"only statistics can be merged into statistics, and {models[0]} is a model.",
            source="merge",
            hint="give the output another name than one with .stats, and it becomes a model",
        )
    total = combine(parts) if parts else None
    model = _merged(loaded, total)
    stays_statistics = total is not None and out.suffix == ".stats"
    retired = None if total is None else total.retired
    if retired is not None and not stays_statistics:
        model.subtract(retired.model)
    _set(model.estimator, settings)
    summary = _summary(model, out, len(files))
    if retired is not None:
        summary["to retire" if stays_statistics else "retired"] = [
            {"id": rows_id, "source": source} for rows_id, source in retired.sources.items()
        ]
    emit_json(summary) if as_json else emit_pairs(summary)
    save_model(total if stays_statistics else model, out)
    talk(f"merged {len(files)} files into {out}")


def _merged(loaded: list[tuple[Path, Any]], total: StatisticsPart | None) -> TableModel:
    """All statistics as one model, and then the models one after the other."""
    from steelyard.distributed.files import StatisticsPart
    from steelyard.tables import TableModel

    merged: TableModel | None = None if total is None or not total.sources else total.model
    for path, item in loaded:
        if isinstance(item, StatisticsPart):
            continue
        if not isinstance(item, TableModel):
            raise refuse_kind(path, item)
        merged = item if merged is None else merged.merge(item, source=str(path))
    if merged is None and total is not None:
        if not total.retired or not isinstance(total.model, TableModel):
            raise refuse_kind(loaded[0][0], total.model)
        return total.model  # rows to retire alone, which can be merged into statistics only
    if not isinstance(merged, TableModel):
        raise refuse_kind(loaded[0][0], merged)
    return merged


def _set(learner: Any, settings: tuple[str, ...]) -> None:
    from steelyard.base import check_parameters

    try:
        learner.set_params(**parse_settings(settings))
        check_parameters(learner)
    except ParameterError:
        raise
    except ValueError as error:
        raise ParameterError(f"--set: {error}") from error
    _ = getattr(
        learner, "C_", None
    )  # refuses what these statistics cannot give, such as C=auto without folds


def _summary(model: TableModel, out: Path, n_files: int) -> dict[str, Any]:
    counts = getattr(model.estimator, "class_count_", None)
    summary: dict[str, Any] = {"model": str(out), "merged": n_files, **summary_of(model)}
    if counts is not None:
        summary["rows"] = float(sum(counts))
    summary["parts"] = [
        {"id": rows_id, "source": entry["source"], "rows": entry["rows"]}
        for rows_id, entry in model.learned().items()
    ]
    if unnamed := model.unnamed():
        summary["not compared"] = [f"{source} (its rows have no id)" for source in unnamed]
    return summary
