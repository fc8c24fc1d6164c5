"""The command that was given, as a report tells it."""

from __future__ import annotations

import shlex

import click
from click.core import ParameterSource

__all__ = ["command_line"]


def command_line(context: click.Context) -> str:
    """The command with all that was written behind it, options in the order of the help."""
    words = [context.find_root().info_name or "steelyard"]
    if context.parent is not None:
        words.append(context.info_name or "")
    arguments, options = [], []
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if isinstance(parameter, click.Argument):
            arguments += list(value) if isinstance(value, tuple) else [value]
        elif getattr(parameter, "is_flag", False):
            options.append(max(parameter.opts, key=len))
        else:
            for one in value if isinstance(value, tuple) else [value]:
                options += [max(parameter.opts, key=len), one]
    return shlex.join(str(word) for word in [*words, *arguments, *options])
