"""``steelyard models`` lists models and their parameters, ``steelyard version`` versions of packages."""

from __future__ import annotations

import inspect
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from steelyard.cli.options import complete_models
from steelyard.cli.output import emit_facts, emit_json, emit_table, json_option, print_status, standard_output
from steelyard.cli.registry import LEARNERS, Entry
from steelyard.exceptions import ParameterError

_PACKAGES = ("steelyard", "numpy", "scipy", "scikit-learn", "pyarrow", "pandas", "polars", "river")


@click.command("models")
@click.argument("name", required=False, shell_complete=complete_models)
@json_option
def models_command(name: str | None, as_json: bool) -> None:
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


@click.command("version")
@json_option
def version_command(as_json: bool) -> None:
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
