"""``steelyard statistics``, ``merge`` and ``drift``: sums of several machines and periods."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import (
    IN_FILE,
    load_table_model,
    open_table,
    save_model,
    summary_of,
    wrong_kind_error,
)
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_facts, emit_json, emit_text, print_status
from steelyard.cli.registry import make_models, parse_settings
from steelyard.exceptions import DataError, ParameterError, SteelyardError

if TYPE_CHECKING:
    from steelyard import RandomFeatures
    from steelyard.distributed.files import StatisticsPart
    from steelyard.tables import TableModel, TableStream
_SAVED = (".stats", ".steelyard")  # other files are tables


@opt.command("statistics", cls=opt.renamed({"--retire": "--forget"}))
def statistics_command(
    data: str | None = opt.argument(required=False),
    target: str | None = opt.target("Label column; with --like, the label column of that file is used."),
    forget: str | None = opt.option("Table of rows to forget, which must have been learned before.", "DATA"),
    like: Path | None = opt.option(
        "Use the columns, parameters and quantizer of this model or these statistics; needed to forget "
        "rows exactly.",
        "FILE",
        type=IN_FILE,
    ),
    out: Path = opt.out("Output file.", required=True, metavar="FILE.stats"),
    settings: tuple[str, ...] = opt.settings("Model parameter, for example C=10 or C=auto."),
    random_features: int | None = opt.count("Use a random feature map with N features.", minimum=2),
    gamma: tuple[float, ...] = opt.option(
        "Kernel width of the feature map, equal on all machines; may be repeated.",
        "G",
        type=float,
        multiple=True,
    ),
    seed: int = opt.count("Random seed of the feature map, equal on all machines.", minimum=0, default=0),
    columns: ColumnOptions = opt.columns,
    as_json: bool = opt.as_json,
) -> None:
    """Write the statistics of DATA for `steelyard merge`; the rows stay on this machine.

    If C=auto or a feature map is used, it must be used on all machines; other parameters can be set when
    merging. With --forget, the file also removes rows that were learned before, so that one file per period
    implements a sliding window.
    """
    from steelyard.distributed.files import StatisticsPart

    if columns.missing == "mean":
        raise ParameterError(
            "--missing: the running mean differs between machines.",
            hint="use --missing indicator, refuse or zero",
        )
    if data is None and forget is None:
        raise ParameterError("no rows given.", hint="give DATA to learn, --forget DATA, or both")
    if like is not None and (settings or random_features is not None):
        raise ParameterError(
            "--like: parameters come from the file.", hint="omit --set and --random-features"
        )
    if like is None:
        parameters = parse_settings(settings)
        if random_features is not None:
            parameters["feature_map"] = _feature_map(random_features, gamma, seed)
        model = _new_model(target, parameters, columns.time)
    else:
        model = _unlearned(like, target)
    part, leaving, facts = StatisticsPart(model), StatisticsPart(deepcopy(model)), {}
    if data is not None:
        facts["learn"] = _read(part, data, columns)
    if forget is not None:
        part.retired = leaving
        facts["forget"] = _read(leaving, forget, columns)
    if as_json:
        learned = facts.get("learn", {"id": None, "rows": 0, "classes": {}})
        forgotten = {"forget": facts["forget"]} if forget is not None else {}
        emit_json({"out": str(out), **learned, **forgotten})
    else:
        for each in facts.values():
            click.echo(each["id"])
    save_model(part, out)
    rows = " and ".join(f"{each['rows']:,} rows to {what}" for what, each in facts.items())
    print_status(f"wrote the statistics of {rows} to {out}")


def _read(part: StatisticsPart, table: str, columns: ColumnOptions) -> dict[str, Any]:
    """Learn a table and return the id, the number and the class counts of its rows."""
    model = part.model
    stream, n_rows = _learn(model, table, columns)
    rows_id = model.history[-1]["id"]
    part.sources[rows_id] = stream.name
    learner = model.estimator
    counts = dict(zip(learner.classes_.tolist(), learner.class_count_.tolist(), strict=True))
    return {"id": rows_id, "rows": n_rows, "classes": counts}


def _learn(model: TableModel, table: str, columns: ColumnOptions) -> tuple[TableStream, int]:
    """Learn a table, with the columns of the model if it has any, and return the table and its row count."""
    encoder = model.encoder if model.encoder.is_fitted else None
    stream = open_table(table, model.target, columns, encoder=encoder)
    model.encoder = stream.encoder
    return stream, model.learn(stream)


def _new_model(target: str | None, parameters: dict[str, Any], time: str | None) -> TableModel:
    from steelyard.tables import TableModel

    if target is None:
        raise ParameterError("--target is missing.", hint="name the label column: --target COL")
    return TableModel(make_models(["proximal"], parameters)["proximal"], None, target, time)


def _feature_map(n_features: int, gamma: tuple[float, ...], seed: int) -> RandomFeatures:
    from steelyard import RandomFeatures

    if not gamma:
        raise ParameterError(
            "--random-features: kernel widths estimated from the data would differ between machines.",
            hint="give numbers: --gamma 0.01 --gamma 0.1",
        )
    return RandomFeatures(n_features, gamma=list(gamma), random_state=seed)


def _unlearned(path: Path, target: str | None) -> TableModel:
    """Return the model in a file as it was before it learned rows."""
    loaded = load_table_model(path, accepts_statistics=True)
    if not hasattr(loaded.estimator, "subtract"):
        raise wrong_kind_error(path, loaded)
    if target not in {None, loaded.target}:
        raise ParameterError(f"--target: the label column of {path} is {loaded.target!r}.")
    return loaded.unlearned()


@opt.command("merge")
def merge_command(
    files: tuple[Path, ...] = opt.argument(nargs=-1, required=True, type=IN_FILE),
    out: Path = opt.out("Output file.", required=True),
    settings: tuple[str, ...] = opt.settings(),
    as_json: bool = opt.as_json,
) -> None:
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


@opt.command(
    "combine", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
def combine_command(arguments: Any = opt.argument(nargs=-1, type=click.UNPROCESSED)) -> None:  # noqa: ARG001
    """Report the new name of this command."""
    raise SteelyardError("`steelyard combine` was renamed; use `steelyard merge`.")


@opt.command("drift")
def drift_command(
    before: str = opt.argument(),
    after: str = opt.argument(),
    target: str | None = opt.target(
        "Label column of tables. If one period is a saved file, its label column is used."
    ),
    columns: ColumnOptions = opt.columns,
    as_json: bool = opt.as_json,
) -> None:
    """Show what changed from BEFORE to AFTER: class frequencies, single columns, or the concept.

    BEFORE and AFTER are statistics (.stats, written by `steelyard statistics`, possibly merged from several
    machines), models of class ProximalSVC (.steelyard), or tables with a label column. Only sums for each
    class are compared, so the rows of statistics files are not needed.
    """
    saved = {
        name: load_table_model(Path(name), accepts_statistics=True)
        for name in (before, after)
        if name.endswith(_SAVED)
    }
    for model in saved.values():
        model.check_has_statistics()  # before a long table is read
    first = saved.get(before) or _period(before, saved.get(after), target, columns)
    second = saved.get(after) or _period(after, first, target, columns)
    report = second.drift_report(first)
    if as_json:
        emit_json({"before": before, "after": after, **report.as_dict()})
    else:
        emit_text(f"{report}\n")


def _period(source: str, like: TableModel | None, target: str | None, columns: ColumnOptions) -> TableModel:
    """Return a model of the rows of a table, with the columns of the model ``like`` if it is given."""
    if like is None and target is None:
        raise click.UsageError("Missing option '--target', the label column of a table.")
    model = _new_model(target, {}, columns.time) if like is None else like.unlearned()
    _learn(model, source, columns)
    return model
