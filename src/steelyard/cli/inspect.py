"""``steelyard inspect``: show the contents of a saved file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, class_counts, inner_learner, summary_of
from steelyard.cli.output import emit_facts, emit_json, emit_table, json_option


@click.command("inspect")
@click.argument("file", type=IN_FILE)
@opt.count("--top", "Number of features to list.", default=10)
@json_option
def inspect_command(file: Path, top: int, as_json: bool) -> None:
    """Show the contents of FILE: a model (classes, important features, history) or statistics.

    A learner that was saved from Python without table columns is shown with its classes and parameters.
    """
    from steelyard.distributed.files import StatisticsPart
    from steelyard.persistence import describe, load
    from steelyard.tables import TableModel

    item, kind, parts = load(file), "model", None
    if isinstance(item, StatisticsPart):
        item, kind, parts = item.model, "statistics", _parts(item)
    is_table = isinstance(item, TableModel)
    learner = item.estimator if is_table else item
    facts: dict[str, Any] = {"file": str(file), "kind": kind if is_table else f"{kind} without columns"}
    facts |= (
        summary_of(item) if is_table else {"class": type(learner).__name__, "classes": class_counts(learner)}
    )
    parameters = learner.get_params(deep=False)
    facts["parameters"] = {name: repr(value) for name, value in parameters.items()}
    features, history = [], []
    if is_table:
        facts["columns"] = item.encoder.columns_
        facts["features"] = len(item.feature_names)
        facts["missing"] = item.encoder.missing
        features, history = important_features(item)[:top], item.history
    else:
        facts["features"] = getattr(inner_learner(learner), "n_features_in_", None)
    about = describe(file)
    facts |= {
        **_exactness(learner),
        "bytes": about["n_bytes"],
        "written by": f"steelyard {about['versions']['steelyard']}",
    }
    if as_json:
        if is_table:
            facts |= {"parameters": parameters, "telling_features": features, "history": history}
        emit_json(facts if parts is None and is_table else {**facts, "parts": parts or []})
        return
    emit_facts(facts, as_json=False)
    for columns, lines in (
        (list(features[0]) if features else [], features),
        (["id", "source"], parts),
        (["when", "what", "rows", "source"], history),
    ):
        if lines:
            click.echo()
            emit_table(columns, lines)


def _parts(statistics: Any) -> list[dict[str, str]]:
    """Return the ids and sources of the rows in a statistics file."""
    parts = [{"id": rows_id, "source": source} for rows_id, source in statistics.sources.items()]
    if statistics.retired is not None:
        leaving = statistics.retired.sources.items()
        parts += [{"id": rows_id, "source": f"{source} (to forget)"} for rows_id, source in leaving]
    return parts


def _exactness(model: Any) -> dict[str, Any]:
    """Return digest and quantizer of a learner with integer statistics; return {} for other learners."""
    learner = inner_learner(model)
    if not hasattr(learner, "digest") or not hasattr(learner, "quantizer_"):
        return {}
    quantizer = learner.quantizer_
    low, high = int(quantizer.exponents.min()), int(quantizer.exponents.max())
    facts = {"digest": learner.digest(), "quantizer": f"steps 2^{low} to 2^{high}, {quantizer.note()}"}
    if learner.statistics_.from_floats:
        facts["note"] = "learned in floating point by an earlier version and then rounded to the quantizer"
    return facts


def important_features(model: Any) -> list[dict[str, Any]]:
    """Return features sorted by their importance for the scores of the model.

    For linear models, importance is the signed effect per standard deviation, for each class. For other
    models, it is the mean absolute contribution over the rows that the model stores. The list is empty for
    models that cannot explain predictions.
    """
    from steelyard.evaluation.contributions import contributions, names_of_strengths, strengths_of

    weights, names = contributions(model.estimator), model.feature_names
    if weights is None:
        strengths = strengths_of(model.estimator)
        if strengths is None:
            return []
        names = names_of_strengths(model.estimator, len(strengths)) or names
        if len(strengths) != len(names):
            return []
        order = (-strengths).argsort(kind="stable").tolist()
        return [{"feature": names[k], "importance": float(strengths[k])} for k in order]
    if weights.shape[1] != len(names):
        return []
    classes = list(inner_learner(model.estimator).classes_)
    plane_classes = classes if len(weights) > 1 else classes[-1:]
    lines = [
        {"feature": name, "class": str(plane_classes[plane]), "weight": float(weights[plane, index])}
        for plane in range(len(weights))
        for index, name in enumerate(names)
    ]
    return sorted(lines, key=lambda line: -abs(line["weight"]))
