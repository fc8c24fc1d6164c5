"""Rewriting of the hints of library errors: Python arguments are replaced by model settings."""

from __future__ import annotations

import re
from dataclasses import fields

from steelyard.service.spec import Spec

_SETTINGS = frozenset(field.name for field in fields(Spec))
# Matches an argument such as missing="zero", track_rows=True or key=0.
_ARGUMENT = re.compile(r"""(?<![-\w.])([A-Za-z_]\w*)=("[^"]*"|'[^']*'|True|False|\d[\d.]*)""")
_ASIDE = re.compile(r" \([^()]* on the command line\)")
_TEXTS = {
    "pass time= to partial_fit() and predict(), or use a share of rows: {'alarms': 0.01}": (
        "use a share of rows: learner.threshold = {alarms = 0.01}"
    ),
    "pass time= to partial_fit(), or give the window as a number of rows": (
        "give the window as a number of rows, or use the setting memory"
    ),
    'set C="auto" before fit() or the first partial_fit()': 'create a model with learner.C = "auto"',
    "convert the labels to strings, for example with str(label)": "send them as strings",
    "remove the character, for example with label.rstrip('\\0')": "remove the character",
}


def service_hint(hint: str) -> str:
    """Return a hint that names model settings instead of Python arguments and command-line options.

    >>> service_hint('fill values with missing="zero" (--missing on the command line)')
    'fill values with missing = "zero" (in the settings of a new model)'
    """
    hint = _ASIDE.sub("", _TEXTS.get(hint, hint))
    if hint.startswith("leave the column out"):
        return "create a model whose setting columns lists the other columns"
    rewritten = _ARGUMENT.sub(_as_setting, hint)
    return rewritten if rewritten == hint else f"{rewritten} (in the settings of a new model)"


def _as_setting(found: re.Match[str]) -> str:
    name, value = found[1], found[2].replace("'", '"')
    value = value.lower() if value in {"True", "False"} else value
    return f"{name if name in _SETTINGS else f'learner.{name}'} = {value}"
