"""What a model of the service is: its columns, its learner, what it remembers and what is kept of rows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import steelyard
from steelyard.exceptions import ParameterError, SteelyardError
from steelyard.features import RandomFeatures
from steelyard.windowing import AdaptiveWindows, ExponentialDecay
from steelyard.windowing.sliding import window_size

__all__ = ["LEARNERS", "Spec"]

LEARNERS = (
    "StreamClassifier",
    "ProximalSVC",
    "IncrementalSVC",
    "KOIL",
    "MultiKernelKOIL",
    "EnclosingClassifier",
)
_KEPT = ("none", "until labelled", "window")
_MISSING = ("refuse", "mean", "zero")
_KINDS = ("number", "category")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_WHO = "the spec"
_SEED = 0  # where none is said: a recovery replays events and must draw the same numbers
# What may change later: it needs no second look at rows.
_CHANGEABLE = frozenset({"learner", "memory", "rows"})
_CHANGEABLE_PARAMETERS = {
    "ProximalSVC": frozenset({"C", "class_weight", "objective", "threshold", "penalize_intercept"})
}


@dataclass(frozen=True)
class Spec:
    """A model, as it stands in a TOML file or a JSON body.

    Parameters
    ----------
    target : str
        The column of labels.
    time : str, optional
        The column that says when a row happened; by default the time of arrival.
    subject : str, optional
        The column that says whose row it is, so that it can be forgotten by that.
    id : str, optional
        The column with a row's own identifier.
    columns : "auto" or mapping of str to {"number", "category"}
        The features. "auto" settles them by the first rows.
    learner : mapping
        ``class`` and its parameters; ``features = 300`` puts a random feature map in front.
    memory : "all", "drift", int, str or mapping
        All rows, windows that follow drift, the last so many rows, the last "30d", or {half_life = 20000}.
    rows : {"none", "until labelled", "window"}
        What is kept of rows: nothing; rows that wait for their labels; these and all that count now.
    missing : {"refuse", "mean", "zero"}
        What becomes of missing values.
    sites : bool
        Whether the model is pooled from the bulletins of several places instead of learning rows.
    """

    target: str
    time: str | None = None
    subject: str | None = None
    id: str | None = None
    columns: str | Mapping[str, str] = "auto"
    learner: Mapping[str, Any] | None = None
    memory: str | int | Mapping[str, Any] = "all"
    rows: str = "window"
    missing: str = "refuse"
    sites: bool = False

    @classmethod
    def from_mapping(cls, values: Any) -> Spec:
        """A spec from what a file or a request says; anything odd is refused with a sentence."""
        if not isinstance(values, Mapping):
            raise ParameterError(f"expected a table of settings; got {type(values).__name__}.", source=_WHO)
        known = list(inspect.signature(cls).parameters)
        strange = [name for name in values if name not in known]
        if strange:
            raise ParameterError(
                f"there is no setting {strange[0]!r}; there are {', '.join(known)}.", source=_WHO
            )
        if "target" not in values:
            raise ParameterError("target, the column of labels, is missing.", source=_WHO)
        if values.get("sites") is True:
            values = {"rows": "none", **values}
        spec = cls(**values)
        spec._check()
        return spec

    def _check(self) -> None:
        for name in ("target", "time", "subject", "id"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value) and not (value is None and name != "target"):
                raise ParameterError(f"{name} must be the name of a column; got {value!r}.", source=_WHO)
        special = [name for name in (self.target, self.time, self.subject, self.id) if name is not None]
        if len(set(special)) < len(special):
            raise ParameterError("target, time, subject and id must be different columns.", source=_WHO)
        if self.rows not in _KEPT:
            raise ParameterError(f"rows must be one of {', '.join(_KEPT)}; got {self.rows!r}.", source=_WHO)
        if self.missing not in _MISSING:
            raise ParameterError(
                f"missing must be one of {', '.join(_MISSING)}; got {self.missing!r}.", source=_WHO
            )
        if self.columns != "auto":
            self._check_columns(special)
        if not isinstance(self.learner, Mapping | None):
            raise ParameterError(f"learner must be a table of settings; got {self.learner!r}.", source=_WHO)
        if isinstance(self.memory, bool) or not isinstance(self.memory, str | int | Mapping):
            raise ParameterError(
                f'memory must be "all", "drift", rows, a time or {{half_life = rows}}; got {self.memory!r}.',
                source=_WHO,
            )
        self._check_learner()
        self._check_sites()
        if self.window is not None and self.rows != "window":
            raise ParameterError(
                f"a memory of {self.memory!r} must know the rows that leave it; rows is {self.rows!r}.",
                source=_WHO,
                hint='set rows = "window"',
            )

    def _check_learner(self) -> None:
        """What would be refused with the first rows is refused now."""
        learner = self.make_learner()
        for one in (learner, getattr(learner, "estimator", None)):
            check = getattr(one, "_check_params", None)
            if check is not None:
                check()

    def _check_sites(self) -> None:
        """A model that is pooled from bulletins sees no row: what speaks of rows makes no sense."""
        if not isinstance(self.sites, bool):
            raise ParameterError(f"sites must be true or false; got {self.sites!r}.", source=_WHO)
        if not self.sites:
            return
        plain = Spec(self.target, learner=self.learner, rows="none", sites=True)
        odd = [name for name in vars(self) if getattr(self, name) != getattr(plain, name)]
        if odd:
            raise ParameterError(
                f"a model with sites = true sees no rows, so {odd[0]} = {getattr(self, odd[0])!r} means "
                "nothing.",
                source=_WHO,
                hint="what it can have beside target and sites: learner",
            )
        settings = dict(self.learner or {"class": "ProximalSVC"})
        if settings.get("class") != "ProximalSVC" or {"features", "feature_map"} & set(settings):
            raise ParameterError(
                "sites publish the statistics of a ProximalSVC without features.", source=_WHO
            )
        if settings.get("C") == "auto":
            raise ParameterError("statistics of folds are not published; C must be a number.", source=_WHO)

    def _check_columns(self, special: list[str]) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise ParameterError(
                f'columns must be "auto" or a table of names and kinds; got {self.columns!r}.', source=_WHO
            )
        for name, kind in self.columns.items():
            if kind not in _KINDS:
                raise ParameterError(
                    f"column {name!r} must be number or category; got {kind!r}.", source=_WHO
                )
            if name in special:
                raise ParameterError(f"column {name!r} cannot be a feature too.", source=_WHO)

    # -- what it means ------------------------------------------------------------------------------

    @property
    def window(self) -> int | timedelta | None:
        """Rows or time after which rows are forgotten one by one; None where they are not."""
        if isinstance(self.memory, int) or (
            isinstance(self.memory, str) and self.memory not in {"all", "drift"}
        ):
            size: int | timedelta = window_size(self.memory)
            return size
        return None

    @property
    def keeps_rows(self) -> bool:
        """Whether rows that count stay in the store."""
        return self.rows == "window"

    @property
    def _kind_of_memory(self) -> str:
        if isinstance(self.memory, Mapping):
            return "fading"
        return str(self.memory) if self.window is None else "window"

    def make_learner(self) -> Any:
        """A fresh learner, with what surrounds it."""
        settings = dict(self.learner or {"class": "ProximalSVC"})
        name = settings.pop("class", None)
        maker = getattr(steelyard, name, None) if name in LEARNERS else None
        if maker is None:
            raise ParameterError(
                f"learner.class must be one of {', '.join(LEARNERS)}; got {name!r}.", source=_WHO
            )
        features = settings.pop("features", None)
        if features is not None:
            settings["feature_map"] = RandomFeatures(features, random_state=_SEED)
        known = inspect.signature(maker).parameters
        if "random_state" in known and settings.get("random_state") is None:
            settings["random_state"] = _SEED
        strange = [key for key in settings if key not in known]
        if strange:
            raise ParameterError(
                f"{name} has no parameter {strange[0]!r}; it has {', '.join(known)}.", source=_WHO
            )
        return self._remembering(maker(**settings))

    def _remembering(self, learner: Any) -> Any:
        if isinstance(self.memory, Mapping):
            if set(self.memory) != {"half_life"}:
                raise ParameterError(
                    f"memory as a table must be {{half_life = rows}}; got {dict(self.memory)!r}.", source=_WHO
                )
            half_life = self.memory["half_life"]
            if isinstance(half_life, bool) or not isinstance(half_life, int | float) or not half_life > 0:
                raise ParameterError(f"half_life must be a number of rows; got {half_life!r}.", source=_WHO)
            return ExponentialDecay(learner, half_life)
        if self.memory == "drift":
            return AdaptiveWindows(learner)
        if self.window is not None and not hasattr(learner, "forget"):
            raise ParameterError(
                f"{type(learner).__name__} cannot forget rows, so it cannot keep a window.", source=_WHO
            )
        return learner

    # -- changes ------------------------------------------------------------------------------------

    def check_change(self, other: Spec) -> None:
        """Refuse a change that would need a second look at rows that are gone."""
        mine, theirs = self.as_dict(), other.as_dict()
        changed = [name for name in mine if mine[name] != theirs[name]]
        frozen = [name for name in changed if name not in _CHANGEABLE]
        if frozen:
            raise ParameterError(
                f"{frozen[0]} cannot be changed once a model is there: it was {mine[frozen[0]]!r} and would "
                f"be {theirs[frozen[0]]!r}.",
                source=_WHO,
                hint="make a new model under another name",
            )
        if "learner" in changed:
            self._check_learner_change(mine["learner"], theirs["learner"])
        if "rows" in changed and other.keeps_rows:
            raise ParameterError(
                f"rows cannot change from {self.rows!r} to {other.rows!r}: what was learned before could not "
                "be found when it is to be forgotten.",
                source=_WHO,
                hint="make a new model under another name",
            )
        if "memory" in changed and self._kind_of_memory != other._kind_of_memory:
            raise ParameterError(
                f"memory cannot change from {self.memory!r} to {other.memory!r}: that needs rows that are "
                "not kept, or another kind of learner.",
                source=_WHO,
            )

    @staticmethod
    def _check_learner_change(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
        name = mine.get("class", "ProximalSVC")
        allowed = _CHANGEABLE_PARAMETERS.get(name, frozenset())
        for key in {*mine, *theirs} - allowed:
            if mine.get(key) != theirs.get(key):
                raise ParameterError(
                    f"learner.{key} cannot be changed once a model is there.",
                    source=_WHO,
                    hint=f"what can be changed: {', '.join(sorted(allowed)) or 'nothing'}",
                )

    def as_dict(self) -> dict[str, Any]:
        """The spec as plain values."""
        values = asdict(self)
        values["learner"] = dict(self.learner or {"class": "ProximalSVC"})
        return values

    def settled(self, columns: Mapping[str, str]) -> Spec:
        """The same with the columns that the first rows have settled."""
        return replace(self, columns=dict(columns))


def check_name(name: str) -> str:
    """A name that a model may have."""
    if not _NAME.fullmatch(name):
        raise SteelyardError(
            f"a model's name has up to 64 letters, digits, dots, dashes or underscores; got {name[:80]!r}."
        )
    return name
