"""``steelyard models``: what there is, what each can do and what it takes."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click

from steelyard.cli.options import complete_models
from steelyard.cli.output import emit_json, emit_pairs, emit_table, json_option
from steelyard.cli.registry import Entry, available
from steelyard.exceptions import ParameterError

__all__ = ["models_command"]


@click.command("models")
@click.argument("name", required=False, shell_complete=complete_models)
@json_option
def models_command(name: str | None, as_json: bool) -> None:
    """List the models, what each can do and what it takes; with NAME, explain what that one takes.

    What a model takes is given with --set, such as --set C=10.
    """
    entries = available()
    if name is not None and name not in entries:
        raise ParameterError(f"there is no model {name!r}; there are {', '.join(entries)}.")
    if name is not None:
        _explain(name, entries[name], as_json=as_json)
        return
    rows = [_describe(each, entry) for each, entry in entries.items()]
    if as_json:
        emit_json(rows)
        return
    for row in rows:
        row["takes"] = ", ".join(row["parameters"])
    emit_table(["name", "streams", "forgets", "merges", "exact", "bounded", "summary", "takes"], rows)


def _explain(name: str, entry: Entry, *, as_json: bool) -> None:
    """One model with its parameters, as its documentation has them."""
    facts = _describe(name, entry)
    meanings = _meanings(entry.learner)
    parameters = [
        {"parameter": key, "default": repr(value), "meaning": meanings.get(key, "")}
        for key, value in facts.pop("parameters").items()
    ]
    if as_json:
        emit_json({**facts, "parameters": parameters})
        return
    emit_pairs(facts)
    click.echo()
    emit_table(["parameter", "default", "meaning"], parameters)


def _meanings(learner: type) -> dict[str, str]:
    """The first sentence about each parameter, out of the class's own documentation."""
    text = inspect.getdoc(learner) or ""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", section[1] if section else ""):
        head, _, rest = block.partition("\n")
        names, _, _ = head.partition(" : ")
        message = re.split(r"(?<=[.;])\s", " ".join(rest.split()), maxsplit=1)[0].rstrip(";.")
        found |= {name.strip(): message.replace("``", "") for name in names.split(",")}
    return found


def _describe(name: str, entry: Entry) -> dict[str, Any]:
    from steelyard.base import Traits, traits_of

    learner = entry.learner
    model = learner(**entry.parameters)
    traits = traits_of(model)
    name_of_class = entry.class_name
    if entry.around is not None:
        model, traits = entry.around(model), Traits()
        name_of_class = f"{type(model).__name__}({name_of_class})"
    return {
        "name": name,
        "class": name_of_class,
        "streams": hasattr(model, "partial_fit"),
        "forgets": hasattr(model, "forget"),
        "merges": hasattr(model, "merge"),
        "exact": traits.exact,
        "bounded": traits.bounded_memory,
        "summary": entry.summary,
        "parameters": {
            key: entry.parameters.get(key, parameter.default)
            for key, parameter in inspect.signature(learner).parameters.items()
        },
    }
