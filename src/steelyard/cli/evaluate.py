"""``steelyard evaluate``, ``tune`` and ``compare``: measures of models and runs."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli import files
from steelyard.cli import options as opt
from steelyard.cli.decision import check_positive, positive_of
from steelyard.cli.files import IN_FILE
from steelyard.cli.options import ColumnOptions
from steelyard.cli.output import emit_facts, emit_json, emit_table, print_message, print_status
from steelyard.cli.registry import make_models, parse_settings
from steelyard.cli.runs import finished_result, print_notes, shuffle_option, shuffled, write_report_to
from steelyard.exceptions import DataError, ParameterError

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialResult

# Maximum number of classes of a printed confusion matrix. With more classes, one line per class is printed.
_MAX_CONFUSION_CLASSES = 8
_CHOOSING_MEASURES = (
    "mean_g_mean", "lowest_g_mean", "g_mean", "mean_macro_recall", "lowest_macro_recall",
    "macro_recall", "f1", "auc", "average_precision", "precision_at_k", "recall_at_k", "log_loss", "brier",
    "expected_calibration_error", "sensitivity", "specificity",
)  # fmt: skip
_COMPARED_MEASURES = (
    "sensitivity", "specificity", "f1", "auc", "average_precision", "precision_at_k", "recall_at_k",
    "log_loss", "brier", "expected_calibration_error", "rows_per_second",
)  # fmt: skip


@opt.command("evaluate")
def evaluate_command(
    model: Path = opt.argument(type=IN_FILE),
    source: str = opt.argument(),
    query: str | None = opt.query,
    positive: str | None = opt.positive,
    chunk: int = ColumnOptions.chunk,
    limit: int | None = ColumnOptions.limit,
    report: Path | None = opt.report,
    as_json: bool = opt.as_json,
) -> None:
    """Test MODEL on the labelled rows of SOURCE without learning them.

    Measures are printed with 95 % confidence intervals (block bootstrap).
    """
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.evaluation.tracking import METRICS

    loaded = files.load_table_model(model)
    if positive is not None:
        positive_of(loaded.estimator, positive)  # reports an unknown label before a long table is read
    metrics = [name for name in METRICS if name != "pmauc"]
    evaluator = PrequentialEvaluator(
        {"model": loaded.estimator},
        metrics=metrics,
        positive=positive,
        learns=False,
        explains=report is not None,
    )
    rows = loaded.rows(files.open_source(source, query), chunk=chunk, limit=limit)
    evaluator.run(rows)
    result = finished_result(evaluator, rows, positive)
    facts = {"rows": result.n_rows, "positive": result.positive, **result.totals("model")}
    if as_json:
        labels, confusion = result.confusion("model")
        table = {"labels": labels, "counts": confusion.astype(int).tolist()}
        emit_json({**facts, "by_class": result.by_class("model"), "confusion": table})
    else:
        emit_facts(facts, as_json=False)
        click.echo()
        _print_classes(result)
    write_report_to(report, result)


def _print_classes(result: PrequentialResult) -> None:
    """Print the confusion matrix or, if there are many classes, the measures of each class."""
    labels, confusion = result.confusion("model")
    if len(labels) > _MAX_CONFUSION_CLASSES:
        emit_table(["label", "support", "recall", "precision", "f1"], result.by_class("model"))
        return
    rows = [
        {"true \\ predicted": label, **{str(x): int(n) for x, n in zip(labels, line, strict=True)}}
        for label, line in zip(labels, confusion, strict=True)
    ]
    emit_table(["true \\ predicted", *map(str, labels)], rows)


@opt.command("tune")
def tune_command(
    source: str = opt.argument(),
    query: str | None = opt.query,
    target: str = opt.target(required=True),
    grid: tuple[str, ...] = opt.option(
        "Parameter values to try; several grids are combined.  [default: C=0.01,...,100]",
        "NAME=V1,V2,...",
        multiple=True,
    ),
    by: str | None = opt.option(
        "Measure that chooses the best values, for example average_precision or log_loss. Default: "
        "mean_g_mean, or mean_macro_recall without a positive class.",
        "MEASURE",
        type=click.Choice(_CHOOSING_MEASURES),
    ),
    positive: str | None = opt.positive,
    measure_window: int = opt.measure_window(default=1000),
    k: int = opt.k,
    model_name: str = opt.model(default="proximal"),
    settings: tuple[str, ...] = opt.model_settings,
    seed: int = opt.seed,
    shuffle: int | None = shuffle_option,
    columns: ColumnOptions = opt.prequential_columns,
    out: Path | None = opt.out("Save the best model, which has learned all rows."),
    report: Path | None = opt.report,
    as_json: bool = opt.as_json,
) -> None:
    """Try every combination of parameter values on SOURCE, testing each row before it is learned.

    All candidates learn in the same pass over the table, so the best model needs no second fit.
    """
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.evaluation.peers import as_stream_learner
    from steelyard.streams.chunks import small_first
    from steelyard.tables import TableModel

    fixed = parse_settings(settings)
    make_models([model_name], fixed, seed)  # reports wrong values of --set
    if not grid:
        try:
            make_models([model_name], {**fixed, "C": 1.0}, seed)
        except ParameterError:
            raise click.UsageError(
                f"--grid is needed, because the model {model_name} has no parameter C."
            ) from None
    candidates = {
        ", ".join(f"{name}={value}" for name, value in values.items()): as_stream_learner(
            make_models([f"candidate={model_name}"], {**fixed, **values}, seed)["candidate"]
        )
        for values in _combinations(grid or ("C=0.01,0.1,1,10,100",))
    }
    if out is not None:
        files.check_can_be_saved(next(iter(candidates.values())), model_name)
    check_positive(source, target, positive, columns.limit)
    stream = files.open_table(files.open_source(source, query), target, columns, unlabelled="keep")
    evaluator = PrequentialEvaluator(
        candidates, window=measure_window, positive=positive, k=k, seed=seed, explains=report is not None
    )
    evaluator.run(small_first(stream if shuffle is None else shuffled(stream, shuffle)))
    result = finished_result(evaluator, stream, positive)
    print_notes(result)
    by = by or f"mean_{result.leading}"
    lines = sorted(result.summary(), key=lambda line: -_value_of(line, by))
    if not _value_of(lines[0], by) > -math.inf:
        raise DataError(
            f"{by} could not be measured on the {evaluator.n_rows:,} rows of {stream.name}.",
            source="tune",
            hint="use more rows, with at least two classes",
        )
    best = lines[0]["model"]
    print_status(f"best by {by}: {best}")
    if as_json:
        emit_json({"best": best, "by": by, "candidates": lines})
    else:
        others = ["g_mean", "sensitivity", "specificity", "auc", "average_precision", "log_loss"]
        others = others if result.positive is not None else ["f1", "log_loss"]
        emit_table(["model", *dict.fromkeys([by, result.leading, *others])], lines)
    if out is not None:
        model = TableModel(candidates[best], stream.encoder, target, columns.time)
        files.save_model(model.note("tuned", stream.name, evaluator.n_rows), out)
    write_report_to(report, result)


def _value_of(line: dict[str, Any], measure: str) -> float:
    """Return the value of a measure, with flipped sign for a loss, so that the largest value is the best."""
    from steelyard.evaluation.tracking import LOSSES

    value = line.get(measure, math.nan)
    return -math.inf if math.isnan(value) else -float(value) if measure in LOSSES else float(value)


def _combinations(grids: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return every combination of the values of all grids."""
    choices = []
    for grid in grids:
        name, equals, values = grid.partition("=")
        if not equals or not values:
            raise ParameterError(
                f"--grid: expected NAME=V1,V2,...; got {grid!r}.", hint="for example --grid C=0.1,1,10"
            )
        choices.append([parse_settings([f"{name}={value}"]) for value in values.split(",")])
    return [{name: value for part in parts for name, value in part.items()} for parts in product(*choices)]


@opt.command("compare")
def compare_command(
    first: Path = opt.argument(type=IN_FILE),
    second: Path = opt.argument(type=IN_FILE),
    report: Path | None = opt.report,
    as_json: bool = opt.as_json,
) -> None:
    """Compare two runs, FIRST and SECOND, written by `steelyard stream ... --json > run.json`.

    Prints the measures of all models of both runs, and warns about differences between the runs that make
    the comparison unfair.
    """
    from steelyard.report.compare import compare_runs, read_run, write_comparison

    runs = read_run(first), read_run(second)
    names = (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    if names[0] == names[1]:
        names = (f"{names[0]} (1)", f"{names[1]} (2)")
    found = compare_runs(*runs, names)
    if as_json:
        emit_json(found)
    else:
        leading = found["leading"]
        measures = [
            name for name in _COMPARED_MEASURES if any(line.get(name) is not None for line in found["lines"])
        ]
        emit_table(
            ["run", "model", f"mean_{leading}", f"lowest_{leading}", leading, *measures], found["lines"]
        )
    for warning in found["warnings"]:
        print_message(f"note: {warning}")
    if report is not None:
        write_comparison(*runs, report, names)
        print_message(f"report: {report}")
