"""Models by name: the learners of this package, and peers by their dotted name."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import steelyard
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["LEARNERS", "Entry", "ModelSpec", "available", "make_models", "parse_settings"]


@dataclass(frozen=True)
class Entry:
    """What a name stands for: a public class of the package, with parameters of its own."""

    class_name: str
    summary: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    wrapper: str | None = None  # a learner of `steelyard.windowing` that manages this one

    @property
    def is_there(self) -> bool:
        """Whether this installation has the class; asking does not import it."""
        return self.class_name in steelyard.__all__

    @property
    def learner(self) -> type:
        """The class."""
        found: type = getattr(steelyard, self.class_name)
        return found

    @property
    def around(self) -> Callable[[Any], Any] | None:
        """What goes around the learner."""
        return None if self.wrapper is None else getattr(import_module("steelyard.windowing"), self.wrapper)


# One line per name. A class that `steelyard` does not (yet) export is simply not offered.
LEARNERS: dict[str, Entry] = {
    "auto": Entry("StreamClassifier", "needs no choices: an ensemble weighted by recent predictions"),
    "proximal": Entry("ProximalSVC", "class-balanced planes; learns, forgets and merges exactly"),
    "proximal-unweighted": Entry("ProximalSVC", "the same, every row counting once", {"class_weight": None}),
    "adaptive": Entry("ProximalSVC", "proximal with windows that follow drift", wrapper="AdaptiveWindows"),
    "adaptive-unweighted": Entry(
        "ProximalSVC", "the same, every row counting once", {"class_weight": None}, wrapper="AdaptiveWindows"
    ),
    "incremental": Entry("IncrementalSVC", "exact kernel SVM, row by row, with forgetting"),
    "koil": Entry("KOIL", "online kernel learning of the AUC with two buffers"),
    "koil-multi": Entry("MultiKernelKOIL", "KOIL over several kernels"),
    "aligned": Entry("AlignedSVC", "kernel SVM with its boundary moved to suit the rare class"),
    "enclosing": Entry("EnclosingClassifier", "a sphere or ellipsoid around every class; finds the new"),
}
_PEERS = {"sklearn": "SklearnPeer", "river": "RiverPeer"}  # package -> what makes its models take part


def available() -> dict[str, Entry]:
    """The names that can be used here."""
    return {name: entry for name, entry in LEARNERS.items() if entry.is_there}


@dataclass(frozen=True)
class ModelSpec:
    """One ``--model``: ``NAME``, or ``LABEL=NAME`` to give it a label of one's own."""

    label: str
    name: str

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Read what was written on the command line."""
        label, equals, name = text.partition("=")
        return cls(label, name) if equals else cls(text, text)


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """``C=10`` or ``LABEL.C=10`` as names and values; a value that is no Python literal is text.

    >>> parse_settings(["C=10", "slow.class_weight=None", "kernel=rbf"])
    {'C': 10, 'slow.class_weight': None, 'kernel': 'rbf'}
    """
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ParameterError(
                f"--set: expected NAME=VALUE; got {setting!r}.", hint="for example --set C=10"
            )
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[name] = text
    return values


_SEEDS = ("random_state", "seed")


def make_models(specs: Sequence[str], settings: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
    """Fresh models by label; a setting goes to every model that has such a parameter, or to one label.

    A seed goes to every model that takes one, whatever it would be without.
    """
    models: dict[str, Any] = {}
    used: set[str] = set()
    for text in specs:
        spec = ModelSpec.parse(text)
        if spec.label in models:
            raise ParameterError(
                f"--model: {spec.label!r} is there twice.", hint="give labels of your own: --model LABEL=NAME"
            )
        maker, parameters, wrapper = _maker(spec.name)
        known = inspect.signature(maker).parameters
        for name, value in settings.items():
            target, dot, parameter = name.rpartition(".")
            if (target == spec.label if dot else True) and parameter in known:
                parameters[parameter] = value
                used.add(name)
        for name in _SEEDS:
            if seed is not None and name in known:
                parameters.setdefault(name, seed)
        model = maker(**parameters)
        models[spec.label] = model if wrapper is None else wrapper(model)
    unused = [name for name in settings if name not in used]
    if unused:
        raise ParameterError(
            f"--set: no model takes {unused[0]!r}.", hint="`steelyard models` lists what each model takes"
        )
    return models


def _maker(name: str) -> tuple[Any, dict[str, Any], Callable[[Any], Any] | None]:
    """The class behind a name, the parameters that the name stands for, and what goes around it."""
    package, colon, path = name.partition(":")
    if colon and package in _PEERS:
        return _peer_class(package, path), {}, getattr(import_module("steelyard.evaluation"), _PEERS[package])
    entry = LEARNERS.get(name)
    if entry is None or not entry.is_there:
        raise ParameterError(
            f"--model: there is no model {name!r}; there are {', '.join(available())}.",
            hint="peers go by dotted name: sklearn:linear_model.SGDClassifier, river:naive_bayes.GaussianNB",
        )
    return entry.learner, dict(entry.parameters), entry.around


def _peer_class(package: str, path: str) -> Any:
    module, _, class_name = f"{package}.{path}".rpartition(".")
    try:
        found = getattr(import_module(module), class_name)
    except ModuleNotFoundError as error:
        missing = error.name == package
        raise ParameterError(
            f"--model: {package}:{path} cannot be imported: {error}.",
            hint=f"pip install {package}" if missing else "write the dotted name below the package",
        ) from error
    except AttributeError as error:
        raise ParameterError(f"--model: {module} has no {class_name!r}.") from error
    if not isinstance(found, type):
        raise ParameterError(
            f"--model: {package}:{path} is a {type(found).__name__}; a class was expected.",
            hint="such as sklearn:linear_model.SGDClassifier",
        )
    return found
