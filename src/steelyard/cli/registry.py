"""Registry of models by name. Models of other packages are given by their class path."""

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


@dataclass(frozen=True)
class Entry:
    """Registered model: a public class, a summary, and the parameters that differ from the class defaults."""

    class_name: str
    summary: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    wrapper: str | None = None  # class of `steelyard.windowing` that wraps the learner

    @property
    def learner(self) -> type:
        """Class of the learner."""
        found: type = getattr(steelyard, self.class_name)
        return found

    @property
    def wrapper_class(self) -> Callable[[Any], Any] | None:
        """Class of the wrapper, or None."""
        return None if self.wrapper is None else getattr(import_module("steelyard.windowing"), self.wrapper)


LEARNERS: dict[str, Entry] = {
    "auto": Entry("StreamClassifier", "adaptive ensemble without parameters to choose; the default"),
    "proximal": Entry("ProximalSVC", "class-balanced linear classifier; learns, forgets and merges exactly"),
    "proximal-unweighted": Entry("ProximalSVC", "proximal with equal row weights", {"class_weight": None}),
    "adaptive": Entry(
        "ProximalSVC", "proximal with windows that adapt to concept drift", wrapper="AdaptiveWindows"
    ),
    "adaptive-unweighted": Entry(
        "ProximalSVC", "adaptive with equal row weights", {"class_weight": None}, wrapper="AdaptiveWindows"
    ),
    "incremental": Entry("IncrementalSVC", "exact kernel SVM that learns and forgets single rows"),
    "koil": Entry("KOIL", "online kernel learner that maximises the AUC with two buffers"),
    "koil-multi": Entry("MultiKernelKOIL", "KOIL over several kernels"),
    "aligned": Entry("AlignedSVC", "kernel SVM with a boundary moved towards the frequent class"),
    "enclosing": Entry(
        "EnclosingClassifier", "sphere or ellipsoid around every class; detects unknown classes"
    ),
}
# Packages whose classes can be given by path, with their names on the package index.
_PACKAGES = {
    "sklearn": "scikit-learn", "river": "river", "lightgbm": "lightgbm", "xgboost": "xgboost",
    "imblearn": "imbalanced-learn",
}  # fmt: skip
# Short names of classes of other packages, with parameters of the class and of its wrapper Refit.
# Without regularization LightGBM diverges on very rare classes.
# LightGBM uses one thread, so that it does not compete for cores with the thread that reads the rows.
_SHORT_NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "lightgbm": (
        "lightgbm:LGBMClassifier",
        {
            "num_leaves": 16, "reg_lambda": 1.0, "n_jobs": 1, "verbose": -1, "every": 0.1, "window": 50_000,
        },
    )
}  # fmt: skip


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parse ``C=10`` or ``LABEL.C=10``. A value that is not a Python literal is a string.

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
            values[name] = parse_goal(text) if name.rpartition(".")[2] == "threshold" else text
    return values


def parse_goal(text: str) -> Any:
    """Parse a value of the parameter ``threshold``: a name, or numbers such as ``miss=20,alarm=1``.

    >>> parse_goal("alarms=0.01"), parse_goal("miss=20,alarm=1"), parse_goal("gmean")
    ({'alarms': 0.01}, {'miss': 20.0, 'alarm': 1.0}, 'gmean')
    """
    if "=" not in text:
        return text
    pairs = parse_pairs(text)
    if any(isinstance(value, str) for value in pairs.values()):
        raise ParameterError(
            f"threshold: expected NAME=NUMBER; got {text!r}.", hint="for example threshold=alarms=0.01"
        )
    return pairs


def parse_pairs(text: str) -> dict[str, float | str]:
    """Parse NAME=VALUE,NAME=VALUE; a value that is not a number stays a string."""
    pairs: dict[str, float | str] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        try:
            pairs[name] = float(value)
        except ValueError:
            pairs[name] = value
    return pairs


_SEEDS = ("random_state", "seed")


def make_models(specs: Sequence[str], settings: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
    """Create models by label.

    A setting ``C`` applies to every model with this parameter, ``LABEL.C`` to one model. The seed is passed
    to every model with a seed parameter.
    """
    from steelyard.base import check_parameters

    models: dict[str, Any] = {}
    used: set[str] = set()
    for text in specs:
        label, _, name = text.rpartition("=")
        label = label or name
        if label in models:
            raise ParameterError(
                f"the model {label!r} is given twice.", hint="choose distinct labels: --model LABEL=NAME"
            )
        maker, parameters, wrapper = _maker(name)
        accepted = {*inspect.signature(maker).parameters, *_wrapper_parameters(wrapper)}
        for setting, value in settings.items():
            target, dot, parameter = setting.rpartition(".")
            if (target == label if dot else True) and parameter in accepted:
                parameters[parameter] = value
                used.add(setting)
        for seed_name in _SEEDS:
            if seed is not None and seed_name in accepted:
                parameters.setdefault(seed_name, seed)
        for_wrapper = {key: parameters.pop(key) for key in _wrapper_parameters(wrapper) if key in parameters}
        model = maker(**parameters)
        check_parameters(model)
        models[label] = model if wrapper is None else wrapper(model, **for_wrapper)
    unused = [name for name in settings if name not in used]
    if unused:
        raise ParameterError(
            f"no model takes the parameter {unused[0]!r}.",
            hint="`steelyard models` lists the parameters of each model",
        )
    return models


def _wrapper_parameters(wrapper: Callable[..., Any] | None) -> list[str]:
    """Return the parameters of a wrapper class, except the model."""
    return [] if wrapper is None else list(inspect.signature(wrapper).parameters)[1:]


def _maker(name: str) -> tuple[Any, dict[str, Any], Callable[..., Any] | None]:
    """Return class, parameters and wrapper class of a model name."""
    path, parameters = _SHORT_NAMES.get(name, (name, {}))
    package, colon, class_path = path.partition(":")
    if colon and package in _PACKAGES:
        from steelyard.evaluation import RiverPeer, SklearnPeer
        from steelyard.windowing import Refit

        found = _peer_class(package, class_path, name)
        adapter = RiverPeer if package == "river" else SklearnPeer if hasattr(found, "partial_fit") else Refit
        return found, dict(parameters), adapter
    entry = LEARNERS.get(name)
    if entry is None:
        raise ParameterError(
            f"there is no model {name!r}; the models are {', '.join([*LEARNERS, *_SHORT_NAMES])}.",
            hint="models of other packages: sklearn:ensemble.RandomForestClassifier, "
            "river:naive_bayes.GaussianNB",
        )
    return entry.learner, dict(entry.parameters), entry.wrapper_class


def _peer_class(package: str, path: str, name: str) -> Any:
    module, _, class_name = f"{package}.{path}".rpartition(".")
    try:
        found = getattr(import_module(module), class_name)
    except ModuleNotFoundError as error:
        missing = error.name == package
        raise ParameterError(
            f"model {name} needs the package {_PACKAGES[package]}, which is not installed."
            if missing
            else f"model {name} cannot be imported: {error}.",
            hint=f"pip install {_PACKAGES[package]}" if missing else "give the class path inside the package",
        ) from error
    except AttributeError as error:
        raise ParameterError(f"{module} has no class {class_name!r}.") from error
    if not isinstance(found, type) or not (package == "river" or hasattr(found, "predict")):
        what = f"a {type(found).__name__}" if not isinstance(found, type) else "a class without predict()"
        raise ParameterError(
            f"model {name} is {what}; a classifier was expected.",
            hint="for example sklearn:ensemble.RandomForestClassifier",
        )
    return found
