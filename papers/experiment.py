"""Registry of experiments."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec

from papers.context import Context
from papers.result import Report, Result
from papers.revision import current_commit
from steelyard.exceptions import DatasetUnavailable, ParameterError

__all__ = ["Experiment", "experiment", "experiments", "find", "run"]

# One module or package per paper, in the order of the list. Every public Experiment of a module is listed.
_MODULES = ("dcil", "distributed", "koil", "kba", "mhe", "own")


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper with the function that recomputes it."""

    name: str  # such as "dcil-table-5.1"
    paper: str
    title: str
    function: Callable[[Context], Result]

    def __call__(self, context: Context) -> Result:
        return self.function(context)


def experiment(name: str, *, paper: str, title: str) -> Callable[[Callable[[Context], Result]], Experiment]:
    """Decorate a function to make an :class:`Experiment`."""

    def bind(function: Callable[[Context], Result]) -> Experiment:
        return Experiment(name, paper, title, function)

    return bind


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name, grouped by paper."""
    found: dict[str, Experiment] = {}
    for module in _MODULES:
        full_name = f"{__package__}.{module}"
        if find_spec(full_name) is not None:
            values = vars(import_module(full_name)).values()
            own = [value for value in values if isinstance(value, Experiment)]
            found |= {value.name: value for value in sorted(own, key=_place)}
    return found


def _place(experiment: Experiment) -> tuple[list[int], str]:
    """Return the sort key: number of the table or figure, then name."""
    match = re.search(r"\d+(\.\d+)?", experiment.name)
    return ([int(part) for part in match[0].split(".")], experiment.name) if match else ([], "")


def find(name: str) -> Experiment:
    """Return the experiment of a name."""
    known = experiments()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    raise ParameterError(
        f"papers: there is no experiment {name!r}.",
        hint=f"did you mean {near[0]!r}?" if near else "`python -m papers list` names them all",
    )


def run(experiment: Experiment, context: Context) -> Report:
    """Run an experiment. Missing datasets are reported, and the others are used."""
    context.unavailable.clear()
    context.saved_seconds = 0.0
    started = time.perf_counter()
    try:
        result = experiment(context)
    except DatasetUnavailable as trouble:
        context.unavailable.append(trouble.summary)
        result = Result()
    return Report(
        experiment.name,
        experiment.paper,
        experiment.title,
        result,
        tuple(dict.fromkeys(context.unavailable)),
        time.perf_counter() - started + context.saved_seconds,
        context.seed,
        context.quick,
        version("steelyard"),
        context.saved_seconds,
        current_commit(),
    )
