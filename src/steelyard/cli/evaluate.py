"""``steelyard evaluate``: test a saved model on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.cli import options as opt
from steelyard.cli.decision import positive_of
from steelyard.cli.files import IN_FILE, load_table_model, open_source
from steelyard.cli.output import emit_facts, emit_json, emit_table, json_option
from steelyard.cli.runs import finished_result, write_report_to

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialResult

# Maximum number of classes of a printed confusion matrix. With more classes, one line per class is printed.
_MAX_CONFUSION_CLASSES = 8


@click.command("evaluate")
@click.argument("model", type=IN_FILE)
@click.argument("source")
@opt.query
@opt.positive
@opt.chunk
@opt.limit
@opt.report
@json_option
def evaluate_command(
    *,
    model: Path,
    source: str,
    query: str | None,
    positive: str | None,
    chunk: int,
    limit: int | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Test MODEL on the labelled rows of SOURCE without learning them.

    Measures are printed with 95 % confidence intervals (block bootstrap).
    """
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.evaluation.tracking import METRICS

    loaded = load_table_model(model)
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
    rows = loaded.rows(open_source(source, query), chunk=chunk, limit=limit)
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
