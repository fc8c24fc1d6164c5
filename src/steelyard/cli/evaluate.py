"""``steelyard evaluate``: how a saved model does on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steelyard.cli.decision import positive_of
from steelyard.cli.models_io import load_table_model, source_of
from steelyard.cli.options import (
    MODEL_FILE,
    chunk_option,
    limit_option,
    positive_option,
    query_option,
    report_option,
)
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option, tell
from steelyard.cli.positive import positive_refusal
from steelyard.cli.provenance import command_line

if TYPE_CHECKING:
    from steelyard.evaluation import PrequentialResult

__all__ = ["evaluate_command"]

_CONFUSED = 8  # classes that fit side by side


@click.command("evaluate")
@click.argument("model", type=MODEL_FILE)
@click.argument("source")
@query_option
@positive_option
@chunk_option
@limit_option
@report_option
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
    """Test MODEL on the labelled rows of SOURCE; it learns nothing from them.

    Measures come with the ends of a 95 % band (block bootstrap).
    """
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.evaluation.tracking import METRICS

    known = load_table_model(model)
    if positive is not None:
        positive_of(known.estimator, positive)  # refused at once, before a long table is read
    metrics = [name for name in METRICS if name != "pmauc"]
    evaluator = PrequentialEvaluator(
        {"model": known.estimator}, metrics=metrics, positive=positive, learns=False
    )
    rows = known.rows(source_of(source, query), chunk=chunk, limit=limit)
    evaluator.run(rows)
    if (refusal := positive_refusal(evaluator, positive)) is not None:
        raise refusal
    result = evaluator.result(rows)
    result.command = command_line(click.get_current_context())
    labels_seen, confusion = result.confusion("model")
    facts = {"rows": result.n_rows, "positive": result.positive, **result.totals("model")}
    if as_json:
        table = {"labels": labels_seen, "counts": confusion.astype(int).tolist()}
        emit_json({**facts, "by_class": result.by_class("model"), "confusion": table})
    else:
        emit_pairs(facts)
        click.echo()
        _print_classes(result)
    if report is not None:
        from steelyard.report import write_report

        write_report(result, report)
        tell(f"report: {report}")


def _print_classes(result: PrequentialResult) -> None:
    """What was taken for what, or with many classes how each of them fared."""
    labels, confusion = result.confusion("model")
    if len(labels) > _CONFUSED:
        emit_table(["label", "support", "recall", "precision", "f1"], result.by_class("model"))
        return
    rows = [
        {"true \\ predicted": label, **{str(x): int(n) for x, n in zip(labels, line, strict=True)}}
        for label, line in zip(labels, confusion, strict=True)
    ]
    emit_table(["true \\ predicted", *map(str, labels)], rows)
