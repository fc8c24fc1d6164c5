"""Settings of a model: its columns, its learner, its window and the rows that the store keeps."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar

import steelyard
from steelyard.ensemble.decision import is_prices
from steelyard.exceptions import ParameterError, SteelyardError
from steelyard.features import RandomFeatures
from steelyard.windowing import AdaptiveWindows, ExponentialDecay
from steelyard.windowing.sliding import window_size

LEARNERS = (
    "StreamClassifier",
    "ProximalSVC",
    "IncrementalSVC",
    "KOIL",
    "MultiKernelKOIL",
    "EnclosingClassifier",
)
ROWS = ("none", "until labelled", "window")
MISSING = ("refuse", "indicator", "mean", "zero")
KINDS = ("number", "category", "time")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DEFAULT_SEED = 0  # fixed, because events replayed during recovery must draw the same random numbers
# Settings that can change without relearning the rows.
_CHANGEABLE = frozenset(
    {"learner", "memory", "rows", "max_future", "classes", "ranges", "violations", "quota"}
)
VIOLATIONS = ("refuse", "quarantine")
_QUOTAS = ("requests_per_second", "columns", "rows", "waiting", "megabytes")
# Settings that a challenger must share with its model, because both learn the same stored rows.
_SHARED_WITH_CHALLENGER = ("target", "time", "subject", "id", "rows", "sites", "max_future")
_CHANGEABLE_PARAMETERS = {
    "ProximalSVC": frozenset({"C", "class_weight", "objective", "threshold", "penalize_intercept"})
}


@dataclass(frozen=True)
class Spec:
    """Settings of a model, as in a TOML file or a JSON body.

    Parameters
    ----------
    target : str
        The column that contains the labels.
    time : str, optional
        The column that contains the time of a row. By default, the time of arrival is used.
    subject : str, optional
        The column that names the person or thing that a row is about. Rows can be forgotten by subject.
    id : str, optional
        The column that contains the unique identifier of a row.
    columns : "auto" or mapping of str to {"number", "category", "time"}
        The features and their kinds; "auto" infers them from the rows.
    learner : mapping
        ``class`` and its parameters; ``features = 300`` adds a feature map with 300 random features.
    memory : "all", "drift", int, str or mapping
        Which rows the model is based on: all rows, adaptive windows, the last n rows, the last "30d", or
        {half_life = 20000} for exponential decay.
    rows : {"none", "until labelled", "window"}
        Which rows the store keeps: none, only rows that wait for labels, or also all rows in the window.
    cost : str, optional
        The column that multiplies the cost of a miss, such as the amount of a payment; it can be a
        feature, too. The learner needs a threshold such as {miss = 1, alarm = 5}.
    missing : {"indicator", "refuse", "mean", "zero"}
        How missing values are treated: an indicator feature, an error, the mean of the column, or zero.
        StreamClassifier treats missing values itself with "indicator".
    sites : bool
        Whether the model is federated: it combines the updates of several sites and learns no rows.
    max_future : str or None
        How far in the future the time of a row may be, such as "1d". Rows with later times are refused,
        because one wrong date would expire all other rows. None means no limit.
    classes : list of str or int, optional
        Allowed labels. Without this setting, a mistyped label creates a class.
    ranges : mapping of str to [low, high], optional
        Allowed values of numeric columns; None means no limit. Missing values are allowed.
    violations : {"refuse", "quarantine"}
        How labelled rows outside ``classes`` and ``ranges`` are treated: the request is refused, or these
        rows are quarantined and the others are learned.
    quota : mapping, optional
        Limits of this model: ``requests_per_second``, ``columns``, ``rows`` (in the model), ``waiting`` (rows
        that wait for labels) and ``megabytes`` (size of the learned state, checked every 30 seconds).
    """

    target: str
    time: str | None = None
    subject: str | None = None
    id: str | None = None
    columns: str | Mapping[str, str] = "auto"
    learner: Mapping[str, Any] | None = None
    memory: str | int | Mapping[str, Any] = "all"
    rows: str = "window"
    missing: str = "indicator"
    sites: bool = False
    max_future: str | None = "1d"
    classes: Sequence[str | int] | None = None
    ranges: Mapping[str, Sequence[float | None]] | None = None
    violations: str = "refuse"
    quota: Mapping[str, float] | None = None
    cost: str | None = None

    given: ClassVar[frozenset[str]] = frozenset()  # names of the settings that were given explicitly

    @classmethod
    def from_mapping(cls, values: Any) -> Spec:
        """Create a spec from the values of a file or a request; raise ParameterError if one is not valid."""
        if not isinstance(values, Mapping):
            raise _error(f"expected a table of settings; got {type(values).__name__}.")
        known = list(inspect.signature(cls).parameters)
        unknown = [name for name in values if name not in known]
        if unknown:
            raise _error(f"there is no setting {unknown[0]!r}; the settings are {', '.join(known)}.")
        if "target" not in values:
            raise _error("target, the column of labels, is missing.")
        if values.get("sites") is True:
            values = {"rows": "none", **values}
        spec = cls(**values)
        spec._check()
        object.__setattr__(spec, "given", frozenset(values))
        return spec

    def with_defaults_of(self, stored: Spec) -> Spec:
        """Return this spec with the ``learner`` and ``missing`` of an existing model if they are not given.

        The version that created the model may have had other defaults.
        """
        kept = {name: getattr(stored, name) for name in ("learner", "missing") if name not in self.given}
        return replace(self, **kept)

    @classmethod
    def from_store(cls, values: Mapping[str, Any]) -> Spec:
        """Restore a stored spec. Settings that it lacks get the defaults of version 0.2."""
        return cls.from_mapping({"max_future": None, "missing": "refuse", **values})

    def _check(self) -> None:
        for name, (is_valid, expected) in _RULES.items():
            value = getattr(self, name)
            if not is_valid(value):
                raise _error(f"{name} must be {expected}; got {value!r}.")
        special = [name for name in (self.target, self.time, self.subject, self.id) if name is not None]
        if len(set(special)) < len(special):
            raise _error("target, time, subject and id must be different columns.")
        for name, kind in self.columns.items() if isinstance(self.columns, Mapping) else ():
            if kind not in KINDS:
                raise _error(f"column {name!r} must be number, category or time; got {kind!r}.")
            if name in special:
                raise _error(f"column {name!r} cannot also be a feature.")
        self._check_limits()
        self._check_learner()
        self._check_sites()
        if self.window is not None and self.rows != "window":
            raise _error(
                f"a window of {self.memory!r} needs stored rows to expire them; rows is {self.rows!r}.",
                hint='set rows = "window"',
            )

    def _check_limits(self) -> None:
        for name, limits in (self.ranges or {}).items():
            if not _is_range(limits):
                raise _error(f"the range of {name!r} must be [low, high]; got {limits!r}.")
        for name, limit in (self.quota or {}).items():
            if name not in _QUOTAS:
                raise _error(f"there is no quota {name!r}; the quotas are {', '.join(_QUOTAS)}.")
            if not _is_number(limit) or limit <= 0:
                raise _error(f"the quota {name} must be a positive number; got {limit!r}.")

    def _check_learner(self) -> None:
        """Raise ParameterError for learner parameters that would otherwise fail with the first rows."""
        learner = self.make_learner()
        for candidate in (learner, getattr(learner, "estimator", None)):
            check = getattr(candidate, "_check_params", None)
            if check is not None:
                check()
        if self.cost is not None and not is_prices(getattr(learner, "threshold", None)):
            raise _error(
                f"cost = {self.cost!r} needs a learner whose threshold is given by costs.",
                hint='set learner.threshold = {"miss": 1, "alarm": 5}',
            )

    def _check_sites(self) -> None:
        """Raise ParameterError if a federated model, which learns no rows, has settings for rows."""
        if not self.sites:
            return
        plain = Spec(self.target, learner=self.learner, rows="none", sites=True, max_future=self.max_future)
        if self.missing == "refuse":  # the default of version 0.2
            plain = replace(plain, missing="refuse")
        unusable = [name for name in asdict(self) if getattr(self, name) != getattr(plain, name)]
        if unusable:
            raise _error(
                f"a model with sites = true learns no rows, so {unusable[0]} = "
                f"{getattr(self, unusable[0])!r} has no effect.",
                hint="a federated model has the settings target, sites and learner",
            )
        settings = dict(self.learner or {"class": "ProximalSVC"})
        if settings.get("class") != "ProximalSVC" or {"features", "feature_map"} & set(settings):
            raise _error("a federated model must be a ProximalSVC without random features.")
        if settings.get("C") == "auto":
            raise _error("sites do not publish statistics of folds, so C must be a number.")

    # -- derived properties -------------------------------------------------------------------------

    @cached_property
    def window(self) -> int | timedelta | None:
        """Number of rows or time after which rows expire, or None if there is no sliding window."""
        if isinstance(self.memory, Mapping) or self.memory in {"all", "drift"}:
            return None
        return window_size(self.memory)

    @cached_property
    def allowed_labels(self) -> frozenset[str] | None:
        """Allowed labels as texts, or None if all labels are allowed."""
        return None if self.classes is None else frozenset(map(str, self.classes))

    @cached_property
    def integer_classes(self) -> dict[str, int]:
        """Allowed labels by their texts if all of them are integers, otherwise an empty dictionary."""
        found = {str(label): label for label in self.classes or () if isinstance(label, int)}
        return found if len(found) == len(self.classes or ()) else {}

    @cached_property
    def max_future_seconds(self) -> float:
        """Maximum number of seconds that the time of a row may be in the future."""
        limit = None if self.max_future is None else window_size(self.max_future)
        return limit.total_seconds() if isinstance(limit, timedelta) else math.inf

    @cached_property
    def keeps_rows(self) -> bool:
        """Whether the store keeps the rows in the window."""
        return self.rows == "window"

    @cached_property
    def has_guards(self) -> bool:
        """Whether labelled rows are checked against allowed classes or ranges."""
        return self.classes is not None or bool(self.ranges)

    @cached_property
    def quarantines(self) -> bool:
        """Whether rows that violate a guard are quarantined."""
        return self.has_guards and self.violations == "quarantine"

    @cached_property
    def columns_may_change(self) -> bool:
        """Whether rows may lack columns, whose values are then missing, and may have new columns."""
        return self.columns == "auto" and self.missing != "refuse"

    def feature_names(self, columns: Iterable[str]) -> list[str]:
        """Return the columns that are features."""
        if isinstance(self.columns, Mapping):
            return [name for name in columns if name in self.columns]
        special = {self.time, self.subject, self.id, self.target}
        return [name for name in columns if name not in special]

    def limit(self, quota: str) -> float:
        """Return a quota, or infinity if it is not set."""
        return math.inf if self.quota is None else float(self.quota.get(quota, math.inf))

    @property
    def _kind_of_memory(self) -> str:
        if isinstance(self.memory, Mapping):
            return "decay"
        return str(self.memory) if self.window is None else "window"

    def make_learner(self, *, own_window: bool = True) -> Any:
        """Return a new learner, with its feature map and its windowing.

        With ``own_window``, a learner that has a parameter ``window`` manages the sliding window itself.
        """
        settings = dict(self.learner or {"class": "ProximalSVC"})
        name = settings.pop("class", None)
        maker = getattr(steelyard, name, None) if name in LEARNERS else None
        if maker is None:
            raise _error(f"learner.class must be one of {', '.join(LEARNERS)}; got {name!r}.")
        features = settings.pop("features", None)
        if features is not None:
            settings["feature_map"] = RandomFeatures(features, random_state=_DEFAULT_SEED)
        known = inspect.signature(maker).parameters
        if "random_state" in known and settings.get("random_state") is None:
            settings["random_state"] = _DEFAULT_SEED
        if own_window and self.window is not None and "window" in known:
            settings.setdefault("window", self.memory)
        unknown = [key for key in settings if key not in known]
        if unknown:
            raise _error(f"{name} has no parameter {unknown[0]!r}; it has {', '.join(known)}.")
        return self._with_memory(maker(**settings))

    def _with_memory(self, learner: Any) -> Any:
        if isinstance(self.memory, Mapping):
            if set(self.memory) != {"half_life"}:
                raise _error(f"memory as a table must be {{half_life = rows}}; got {dict(self.memory)!r}.")
            half_life = self.memory["half_life"]
            if isinstance(half_life, bool) or not isinstance(half_life, int | float) or not half_life > 0:
                raise _error(f"half_life must be a number of rows; got {half_life!r}.")
            return ExponentialDecay(learner, half_life)
        if self.memory == "drift":
            return AdaptiveWindows(learner)
        if self.window is not None and not hasattr(learner, "forget"):
            raise _error(f"{type(learner).__name__} cannot forget rows, so it cannot have a sliding window.")
        return learner

    # -- checks of changed settings -----------------------------------------------------------------

    def check_change(self, other: Spec) -> None:
        """Raise ParameterError for a change that would require relearning the rows."""
        old, new = self.as_dict(), other.as_dict()
        changed = [name for name in old if old[name] != new[name]]
        frozen = [name for name in changed if name not in _CHANGEABLE]
        if frozen:
            raise _error(
                f"{frozen[0]} cannot be changed after a model is created: it is {old[frozen[0]]!r} and would "
                f"become {new[frozen[0]]!r}.",
                hint="create a new model with another name",
            )
        if "learner" in changed:
            self._check_learner_change(old["learner"], new["learner"])
        if "rows" in changed and other.keeps_rows:
            raise _error(
                f"rows cannot change from {self.rows!r} to {other.rows!r}: rows learned before could not be "
                "found to forget them.",
                hint="create a new model with another name",
            )
        if "memory" in changed and self._kind_of_memory != other._kind_of_memory:
            raise _error(
                f"memory cannot change from {self.memory!r} to {other.memory!r}: that needs rows that are "
                "not stored, or another kind of learner."
            )

    def check_challenger(self, other: Spec) -> None:
        """Raise ParameterError if a model with another spec cannot learn the same stored rows."""
        for name in _SHARED_WITH_CHALLENGER:
            if getattr(self, name) != getattr(other, name):
                raise _error(
                    f"the setting {name} of a challenger must be that of its model, {getattr(self, name)!r}; "
                    f"got {getattr(other, name)!r}."
                )
        if self.window != other.window:
            raise _error(
                f"a challenger must have the same sliding window as its model: memory is {self.memory!r}; "
                f"got {other.memory!r}."
            )
        if self.sites:
            raise _error("a federated model cannot have a challenger.")

    @staticmethod
    def _check_learner_change(old: dict[str, Any], new: dict[str, Any]) -> None:
        name = old.get("class", "ProximalSVC")
        allowed = _CHANGEABLE_PARAMETERS.get(name, frozenset())
        for key in {*old, *new} - allowed:
            if old.get(key) != new.get(key):
                raise _error(
                    f"learner.{key} cannot be changed after a model is created.",
                    hint=f"parameters that can be changed: {', '.join(sorted(allowed)) or 'none'}",
                )

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        values = asdict(self)
        values["learner"] = dict(self.learner or {"class": "ProximalSVC"})
        return values


def _error(message: str, hint: str | None = None) -> ParameterError:
    return ParameterError(message, source="the spec", hint=hint)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_range(limits: Any) -> bool:
    if not isinstance(limits, list | tuple) or len(limits) != 2:
        return False
    known = [limit for limit in limits if limit is not None]
    return all(map(_is_number, known)) and known == sorted(known)


def _is_column(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value != "")


def _is_time(value: Any) -> bool:
    return value is None or (isinstance(value, str) and isinstance(window_size(value), timedelta))


def _are_classes(values: Any) -> bool:
    if values is None:
        return True
    is_list = isinstance(values, list | tuple) and all(
        isinstance(value, str | int) and not isinstance(value, bool) for value in values
    )
    return is_list and len(values) >= 2 and len(set(map(str, values))) == len(values)


# For each setting, a function that tests its value, and the expectation for the error message.
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "target": (lambda value: value is not None and _is_column(value), "the name of a column"),
    **dict.fromkeys(("time", "subject", "id", "cost"), (_is_column, "the name of a column")),
    "rows": (ROWS.__contains__, f"one of {', '.join(ROWS)}"),
    "missing": (MISSING.__contains__, f"one of {', '.join(MISSING)}"),
    "violations": (VIOLATIONS.__contains__, f"one of {', '.join(VIOLATIONS)}"),
    "learner": (lambda value: isinstance(value, Mapping | None), "a table of settings"),
    "ranges": (lambda value: isinstance(value, Mapping | None), "a table of columns"),
    "quota": (lambda value: isinstance(value, Mapping | None), "a table of limits"),
    "sites": (lambda value: isinstance(value, bool), "true or false"),
    "columns": (
        lambda value: value == "auto" or (isinstance(value, Mapping) and bool(value)),
        '"auto" or a table of names and kinds',
    ),
    "memory": (
        lambda value: isinstance(value, str | int | Mapping) and not isinstance(value, bool),
        '"all", "drift", rows, a time or {half_life = rows}',
    ),
    "max_future": (_is_time, 'a time such as "1d"'),
    "classes": (_are_classes, "a list of at least two different texts or integers"),
}


def check_name(name: str) -> str:
    """Return the name of a model; raise SteelyardError if it is not valid."""
    if not _NAME.fullmatch(name):
        raise SteelyardError(
            f"the name of a model must have 1 to 64 letters, digits, dots, dashes or underscores; got "
            f"{name[:80]!r}."
        )
    return name
