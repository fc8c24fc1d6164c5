"""``steelyard models``, ``version``, ``inspect`` and ``export``: what models and saved files contain."""

from __future__ import annotations

import inspect
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from steelyard.cli import options as opt
from steelyard.cli.files import IN_FILE, OUT_FILE, class_counts, inner_learner, summary_of
from steelyard.cli.output import emit_facts, emit_json, emit_table, print_status, standard_output
from steelyard.cli.registry import LEARNERS, Entry
from steelyard.exceptions import ParameterError

_PACKAGES = ("steelyard", "numpy", "scipy", "scikit-learn", "pyarrow", "pandas", "polars", "river")


@opt.command("models")
def models_command(
    name: str | None = opt.argument(required=False, shell_complete=opt.complete_models),
    as_json: bool = opt.as_json,
) -> None:
    """List the models with their capabilities and parameters; with NAME, describe the model's parameters.

    Set a parameter with --set, for example --set C=10.
    """
    if name is None:
        rows = [_describe(each, entry) for each, entry in LEARNERS.items()]
        if as_json:
            emit_json(rows)
            return
        for row in rows:
            row["takes"] = ", ".join(row["parameters"])
        # A terminal is too narrow for the parameters.
        is_narrow = standard_output().isatty()
        columns = ["name", "streams", "forgets", "merges", "exact", "bounded", "summary"]
        emit_table(columns if is_narrow else [*columns, "takes"], rows)
        print_status("`steelyard models NAME` describes the parameters of a model")
        return
    if name not in LEARNERS:
        raise ParameterError(f"there is no model {name!r}; the models are {', '.join(LEARNERS)}.")
    facts = _describe(name, LEARNERS[name])
    descriptions = _parameter_descriptions(LEARNERS[name].learner)
    parameters = [
        {"parameter": key, "default": repr(value), "meaning": descriptions.get(key, "")}
        for key, value in facts.pop("parameters").items()
    ]
    if as_json:
        emit_json({**facts, "parameters": parameters})
        return
    emit_facts(facts, as_json=False)
    click.echo()
    emit_table(["parameter", "default", "meaning"], parameters)


def _parameter_descriptions(learner: type) -> dict[str, str]:
    """Return the first sentence about each parameter from the docstring of a class."""
    text = inspect.getdoc(learner) or ""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", section[1] if section else ""):
        head, _, rest = block.partition("\n")
        names, _, _ = head.partition(" : ")
        first = re.split(r"(?<=[.;])\s", " ".join(rest.split()), maxsplit=1)[0].rstrip(";.")
        found |= {name.strip(): first.replace("``", "") for name in names.split(",")}
    return found


def _describe(name: str, entry: Entry) -> dict[str, Any]:
    from steelyard.base import Traits, traits_of

    model = entry.learner(**entry.parameters)
    traits, class_name = traits_of(model), entry.class_name
    if entry.wrapper_class is not None:
        model, traits = entry.wrapper_class(model), Traits()
        class_name = f"{type(model).__name__}({class_name})"
    return {
        "name": name,
        "class": class_name,
        "streams": hasattr(model, "partial_fit"),
        "forgets": hasattr(model, "forget"),
        "merges": hasattr(model, "merge"),
        "exact": traits.exact,
        "bounded": traits.bounded_memory,
        "summary": entry.summary,
        "parameters": {
            key: entry.parameters.get(key, parameter.default)
            for key, parameter in inspect.signature(entry.learner).parameters.items()
        },
    }


@opt.command("version")
def version_command(as_json: bool = opt.as_json) -> None:
    """Print the versions of steelyard and its dependencies."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    if as_json:
        emit_json(versions)
        return
    click.echo(f"steelyard {versions.pop('steelyard')}")
    for package, number in versions.items():
        click.echo(f"{package} {number or 'not installed'}")


@opt.command("inspect")
def inspect_command(
    file: Path = opt.argument(type=IN_FILE),
    top: int = opt.count("Number of features to list.", default=10),
    as_json: bool = opt.as_json,
) -> None:
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


@opt.command("export")
def export_command(
    model: Path = opt.argument(type=IN_FILE),
    c_file: Path = opt.option("C header to write.", "FILE.h", type=OUT_FILE, required=True, names="--c"),
    name: str = opt.option("Prefix of all names in C.", "NAME", default="model"),
    as_json: bool = opt.as_json,
) -> None:
    """Write MODEL, a proximal model without a feature map, as a C header.

    The header contains the weights, the names of features and labels, and the functions NAME_scores() and
    NAME_class(). NAME_set_category() sets the features of a categorical column.
    """
    from steelyard.compat.c_header import c_header
    from steelyard.persistence import load
    from steelyard.persistence.files import write_atomically

    text = c_header(load(model), name)
    write_atomically(c_file, [text.encode()], source="export")
    facts = {"file": str(c_file), "kind": "C header", "name": name, "bytes": len(text)}
    emit_facts(facts, as_json=as_json)
