"""Rewriting of the hints of library errors: Python arguments are replaced by command-line options."""

from __future__ import annotations

import re
import shlex

import click

# Matches a Python argument such as drop='id', again=True or time=, except after an option such as --set.
_ARGUMENT = re.compile(
    r"(?<![-\w,])(?<!--set )(?<!--grid )(?<!--cost )([A-Za-z_]\w*)="
    r"""("[^"]*"|'[^']*'|True|False|None|\d[\d.]*|(?=[\s,;.)]|$))"""
)
_ASIDE = re.compile(r" \(([^()]*) on the command line\)")
_CALLS = {
    "for example threshold=alarms=0.01": "for example --set threshold=alarms=0.01",
    'for example threshold={"miss": 1, "alarm": 5}': "for example --set threshold=miss=1,alarm=5",
    "pass time= to partial_fit() and predict(), or use a share of rows: {'alarms': 0.01}": (
        "name the column of times with --time, or use a share of rows with --set threshold=alarms=0.01"
    ),
    "pass time= to partial_fit()": "name the time column with --time",
    'set C="auto" before fit() or the first partial_fit()': "use --set C=auto from the first rows on",
    "steelyard.save writes files that can be loaded": "`steelyard fit` and `stream --save` write them",
}


def command_line_hint(hint: str, command: click.Command, fit_command: click.Command) -> str:
    """Return a hint with Python arguments and classes replaced by options of a command.

    Options that only ``steelyard fit`` has are marked as such. A hint may end with an alternative such as
    "(--again on the command line)". If the argument before the alternative was rewritten, the alternative is
    dropped. Otherwise it replaces the word before it.

    >>> fit = click.Command("fit", params=[click.Option(["--drop"])])
    >>> command_line_hint("leave the column out: drop='id' (--drop id on the command line)", fit, fit)
    'leave the column out: --drop id'
    """
    own, of_fit, uses_fit = _options(command), _options(fit_command), False

    def as_option(found: re.Match[str]) -> str:
        nonlocal uses_fit
        name, value = found[1], found[2].strip("\"'")
        for options in (own, of_fit):
            option = options.get(name) or options.get(f"{name}s")
            if option is not None:
                uses_fit = uses_fit or options is not own
                value = "" if option.is_flag or not value else shlex.quote(value)
                return f"{max(option.opts, key=len)} {value}".rstrip()
        return f"--set {name}={value}" if value else found[0]

    for call, text in _CALLS.items():
        hint = hint.replace(call, text)
    rewritten = _ARGUMENT.sub(as_option, hint)
    if rewritten != hint:
        rewritten = _ASIDE.sub("", rewritten)
    rewritten = re.sub(rf"\S+{_ASIDE.pattern}", r"\1", rewritten)
    rewritten = re.sub(r"\bProximalSVC\b", "a model of `steelyard fit --model proximal`", rewritten)
    return f"{rewritten} (option of `steelyard fit`)" if uses_fit else rewritten


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by parameter name. A group has the options of all its commands."""
    options: dict[str, click.Option] = {}
    if isinstance(command, click.Group):
        for each in command.commands.values():
            options |= _options(each)
    return options | {p.name or "": p for p in command.params if isinstance(p, click.Option)}
