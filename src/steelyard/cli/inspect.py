"""``steelyard inspect``: what a saved model is and knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.models_io import load_table_model, summary_of
from steelyard.cli.options import MODEL_FILE
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option

if TYPE_CHECKING:
    from steelyard.tables import TableModel

__all__ = ["inspect_command"]


@click.command("inspect")
@click.argument("model", type=MODEL_FILE)
@click.option(
    "--top", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Features to list."
)
@json_option
def inspect_command(model: Path, top: int, as_json: bool) -> None:
    """Tell what MODEL is: its classes and counts, most telling features, size and history."""
    from steelyard.persistence import describe

    known = load_table_model(model)
    file = describe(model)
    facts = {
        "file": str(model),
        **summary_of(known),
        "parameters": _parameters(known),
        "columns": known.encoder.columns_,
        "features": len(known.feature_names),
        "missing": known.encoder.missing,
        "bytes": file["n_bytes"],
        "written by": f"steelyard {file['versions']['steelyard']}",
    }
    features = telling_features(known)[:top]
    if as_json:
        facts["parameters"] = known.learner.get_params(deep=False)
        emit_json({**facts, "telling_features": features, "history": known.history})
        return
    emit_pairs(facts)
    click.echo()
    if features:
        emit_table(["feature", "class", "weight"], features)
        click.echo()
    emit_table(["when", "what", "rows", "source"], known.history)


def _parameters(model: TableModel) -> dict[str, Any]:
    learner = model.learner
    return {name: repr(value) for name, value in learner.get_params(deep=False).items()}


def telling_features(model: TableModel) -> list[dict[str, Any]]:
    """Features by how much one standard deviation of them moves a score; empty where there are no planes."""
    from steelyard.evaluation.contributions import contributions

    learner = getattr(model.learner, "learner_", model.learner)
    weights, names = contributions(model.learner), model.feature_names
    if weights is None or weights.shape[1] != len(names):
        return []
    classes = list(learner.classes_)
    of_plane = classes if len(weights) > 1 else classes[-1:]
    lines = [
        {"feature": name, "class": str(of_plane[plane]), "weight": float(weights[plane, index])}
        for plane in range(len(weights))
        for index, name in enumerate(names)
    ]
    return sorted(lines, key=lambda line: -abs(line["weight"]))
