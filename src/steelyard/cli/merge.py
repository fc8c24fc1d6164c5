"""``steelyard merge``: one model from several models or from the statistics of several machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, save_model, summary_of, wrong_kind_error
from steelyard.cli.output import emit_facts, json_option, print_status
from steelyard.cli.registry import parse_settings
from steelyard.exceptions import DataError, ParameterError, SteelyardError

if TYPE_CHECKING:
    from steelyard.distributed.files import StatisticsPart
    from steelyard.tables import TableModel


@click.command("merge")
@click.argument("files", nargs=-1, required=True, type=IN_FILE)
@opt.out("Output file.", required=True)
@opt.settings()
@json_option
def merge_command(files: tuple[Path, ...], out: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Merge FILES into one model that has learned all their rows.

    FILES are models that have learned different rows with the same columns, and statistics written by
    `steelyard statistics`. Categories that occur in only some of the files are aligned. Rows that occur in
    two files are an error. If all FILES are statistics and the output file ends with .stats, the output is
    again a statistics file, which can be merged later. Rows that were given to `steelyard statistics
    --forget` are removed from the merged model.
    """
    from steelyard.distributed.files import StatisticsPart, combine
    from steelyard.persistence import load

    loaded = [(path, load(path)) for path in files]
    parts = [part for _, part in loaded if isinstance(part, StatisticsPart)]
    models = [path for path, item in loaded if not isinstance(item, StatisticsPart)]
    if out.suffix == ".stats" and models:
        raise DataError(
            f"only statistics can be merged into statistics, but {models[0]} is a model.",
            source="merge",
            hint="choose an output name that does not end with .stats to write a model",
        )
    total = combine(parts) if parts else None
    model = _merged(loaded, total)
    writes_statistics = total is not None and out.suffix == ".stats"
    leaving = None if total is None else total.retired
    if leaving is not None and not writes_statistics:
        model.subtract(leaving.model)
    _apply_settings(model.estimator, settings)
    summary = _summary(model, out, len(files))
    if leaving is not None:
        summary["to forget" if writes_statistics else "forgotten"] = [
            {"id": rows_id, "source": source} for rows_id, source in leaving.sources.items()
        ]
    emit_facts(summary, as_json=as_json)
    save_model(total if writes_statistics else model, out)
    print_status(f"merged {len(files)} files into {out}")


def _merged(loaded: list[tuple[Path, Any]], total: StatisticsPart | None) -> TableModel:
    """Return the model of all statistics, merged with the models in the order of the files."""
    from steelyard.distributed.files import StatisticsPart
    from steelyard.tables import TableModel

    merged: TableModel | None = None if total is None or not total.sources else total.model
    for path, item in loaded:
        if isinstance(item, StatisticsPart):
            continue
        if not isinstance(item, TableModel):
            raise wrong_kind_error(path, item)
        merged = item if merged is None else merged.merge(item, source=str(path))
    if merged is None and total is not None and total.retired:
        merged = total.model  # no file contains rows to learn, only rows to forget
    if not isinstance(merged, TableModel):
        raise wrong_kind_error(loaded[0][0], merged if total is None else total.model)
    return merged


def _apply_settings(learner: Any, settings: tuple[str, ...]) -> None:
    from steelyard.base import check_parameters

    try:
        learner.set_params(**parse_settings(settings))
        check_parameters(learner)
    except ParameterError:
        raise
    except ValueError as error:
        raise ParameterError(f"--set: {error}") from error
    # Reading C_ raises an error if the statistics do not support the setting, such as C=auto without folds.
    _ = getattr(learner, "C_", None)


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


@click.command(
    "combine", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def combine_command(arguments: tuple[str, ...]) -> None:  # noqa: ARG001  any arguments are accepted
    """Report the new name of this command."""
    raise SteelyardError("`steelyard combine` was renamed; use `steelyard merge`.")
