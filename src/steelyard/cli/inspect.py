"""``steelyard inspect``: what a saved file is and knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.models_io import summary_of
from steelyard.cli.options import MODEL_FILE, count_option
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option

if TYPE_CHECKING:
    from steelyard.tables import TableModel

__all__ = ["inspect_command"]


@click.command("inspect")
@click.argument("file", type=MODEL_FILE)
@count_option("--top", "Features to list.", default=10)
@json_option
def inspect_command(file: Path, top: int, as_json: bool) -> None:
    """Tell what FILE is: a model with its classes, most telling features and history, or statistics.

    A learner that was saved from Python, without the columns of a table, is told with what it has.
    """
    from steelyard.distributed.files import StatisticsPart
    from steelyard.persistence import load
    from steelyard.tables import TableModel

    found = load(file)
    if isinstance(found, StatisticsPart):
        parts = [{"id": rows_id, "source": source} for rows_id, source in found.sources.items()]
        if found.retired is not None:
            leaving = found.retired.sources.items()
            parts += [{"id": rows_id, "source": f"{source} (to retire)"} for rows_id, source in leaving]
        kind, known = "statistics", found.model
    else:
        parts, kind, known = [], "model", found
    if not isinstance(known, TableModel):
        _tell_learner(known, file, kind, parts, as_json=as_json)
        return
    facts = {"file": str(file), "kind": kind, **summary_of(known), **_of_table(known)}
    facts |= {**_exactness(known.learner), **_of_file(file)}
    features = telling_features(known)[:top]
    if as_json:
        facts["parameters"] = known.learner.get_params(deep=False)
        more = {"parts": parts} if parts else {}
        emit_json({**facts, **more, "telling_features": features, "history": known.history})
        return
    emit_pairs(facts)
    for columns, lines in (
        (["feature", "class", "weight"], features),
        (["id", "source"], parts),
        (["when", "what", "rows", "source"], known.history),
    ):
        if lines:
            click.echo()
            emit_table(columns, lines)


def _tell_learner(learner: Any, file: Path, kind: str, parts: list[dict[str, str]], *, as_json: bool) -> None:
    """What can be told of a learner without columns."""
    inner = getattr(learner, "estimator_", learner)
    counts = getattr(inner, "class_count_", None)
    classes: Any = [str(label) for label in getattr(inner, "classes_", [])]
    if counts is not None:
        classes = dict(zip(classes, map(float, counts), strict=True))
    facts = {
        "file": str(file),
        "kind": f"{kind} without columns",
        "class": type(learner).__name__,
        "classes": classes,
        "parameters": {name: repr(value) for name, value in learner.get_params(deep=False).items()},
        "features": getattr(inner, "n_features_in_", None),
        **_exactness(learner),
        **_of_file(file),
    }
    if as_json:
        emit_json({**facts, "parts": parts})
        return
    emit_pairs(facts)
    if parts:
        click.echo()
        emit_table(["id", "source"], parts)


def _of_table(model: TableModel) -> dict[str, Any]:
    return {
        "parameters": _parameters(model),
        "columns": model.encoder.columns_,
        "features": len(model.feature_names),
        "missing": model.encoder.missing,
    }


def _of_file(file: Path) -> dict[str, Any]:
    from steelyard.persistence import describe

    about = describe(file)
    return {"bytes": about["n_bytes"], "written by": f"steelyard {about['versions']['steelyard']}"}


def _exactness(taught: Any) -> dict[str, Any]:
    """The digest and the grid, of a learner whose statistics are whole numbers."""
    learner = getattr(taught, "estimator_", taught)
    if not hasattr(learner, "digest") or not hasattr(learner, "quantizer_"):
        return {}
    quantizer = learner.quantizer_
    low, high = int(quantizer.exponents.min()), int(quantizer.exponents.max())
    facts = {"digest": learner.digest(), "quantizer": f"quanta 2^{low} to 2^{high}, {quantizer.note()}"}
    if learner.statistics_.from_floats:
        facts["note"] = "learned by an earlier version in floating point, and rounded to this grid since"
    return facts


def _parameters(model: TableModel) -> dict[str, Any]:
    learner = model.learner
    return {name: repr(value) for name, value in learner.get_params(deep=False).items()}


def telling_features(model: TableModel) -> list[dict[str, Any]]:
    """Features by how much one standard deviation of them moves a score; empty where there are no planes."""
    from steelyard.evaluation.contributions import contributions

    learner = getattr(model.learner, "estimator_", model.learner)
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
