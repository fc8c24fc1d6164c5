"""``steelyard evaluate``: how a saved model does on labelled rows."""

from __future__ import annotations

from pathlib import Path

import click

from steelyard.cli.models_io import load_table_model
from steelyard.cli.options import MODEL_FILE, label_of
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option

__all__ = ["evaluate_command"]


@click.command("evaluate")
@click.argument("model", type=MODEL_FILE)
@click.argument("source")
@click.option("--positive", metavar="LABEL", help="The positive class; the rarer of two by default.")
@click.option("--chunk", type=click.IntRange(1), default=1000, show_default=True, metavar="N")
@json_option
def evaluate_command(model: Path, source: str, positive: str | None, chunk: int, as_json: bool) -> None:
    """Test MODEL on the labelled rows of SOURCE; it learns nothing from them.

    Measures come with the ends of a 95 % band (block bootstrap).
    """
    from steelyard.evaluation.tracking import METRICS, Tracker

    known = load_table_model(model)
    tracker = Tracker(tuple(name for name in METRICS if name != "pmauc"), window=1000, seed=0)
    counts: dict[object, int] = {}
    chosen = None
    for part, answers in known.answers(source, chunk=chunk, labelled=True):
        if not counts:
            labels = dict.fromkeys([*answers.classes, *part.y.tolist()])
            n_rows = {label: int((part.y == label).sum()) for label in labels}
            rarer = min(n_rows, key=n_rows.__getitem__) if len(n_rows) == 2 else None
            chosen = rarer if positive is None else label_of(positive, labels)
        for label in part.y.tolist():
            counts[label] = counts.get(label, 0) + 1
        tracker.update(part.y, answers, chosen)
    labels_seen, confusion = tracker.overall.confusion()
    facts = {"rows": tracker.n_scored, "positive": chosen, **tracker.total()}
    if as_json:
        table = {"labels": labels_seen, "counts": confusion.astype(int).tolist()}
        emit_json({**facts, "confusion": table})
        return
    emit_pairs(facts)
    click.echo()
    rows = [
        {
            "true \\ predicted": label,
            **{str(x): int(n) for x, n in zip(labels_seen, confusion[row], strict=True)},
        }
        for row, label in enumerate(labels_seen)
    ]
    emit_table(["true \\ predicted", *map(str, labels_seen)], rows)
