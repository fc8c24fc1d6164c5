"""``steelyard models``: what there is and what each can do."""

from __future__ import annotations

import inspect
from typing import Any

import click

from steelyard.cli.output import emit_json, emit_table, json_option
from steelyard.cli.registry import Entry, available

__all__ = ["models_command"]


@click.command("models")
@json_option
def models_command(as_json: bool) -> None:
    """List the models and what each can do."""
    rows = [_describe(name, entry) for name, entry in available().items()]
    if as_json:
        emit_json(rows)
    else:
        emit_table(["name", "class", "streams", "forgets", "merges", "exact", "bounded", "summary"], rows)


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
