"""Choice of labels in ``predict`` by the model, a threshold or the lowest cost, and the positive class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.files import inner_learner
from steelyard.cli.options import option
from steelyard.cli.registry import parse_goal, parse_pairs
from steelyard.exceptions import DataError, ParameterError

if TYPE_CHECKING:
    from steelyard._types import FloatArray
    from steelyard.ensemble.online_threshold import OnlineThreshold
    from steelyard.evaluation import PrequentialEvaluator
    from steelyard.streams.chunks import Chunk
    from steelyard.streams.predictions import Predictions

_MAX_LISTED_LABELS = 20


@dataclass(frozen=True)
class Cost:
    """Costs of a missed positive row and of a false alarm.

    The cost of a missed row is a number, or the name of a column that contains this cost for each row.
    """

    miss: float | str
    alarm: float

    @classmethod
    def parse(cls, text: str) -> Cost:
        """Parse ``miss=20,alarm=1`` or ``miss=amount,alarm=5``. A cost that is not given is 1."""
        costs: dict[str, Any] = {"miss": 1.0, "alarm": 1.0, **parse_pairs(text)}
        if set(costs) != {"miss", "alarm"} or costs["miss"] == "" or isinstance(costs["alarm"], str):
            raise click.BadParameter(
                f"expected miss=A,alarm=B; got {text!r}.\n"
                "hint: for example --cost miss=20,alarm=1, or with a column --cost miss=amount,alarm=5"
            )
        numbers = [cost for cost in costs.values() if not isinstance(cost, str)]
        if not all(math.isfinite(cost) and cost > 0 for cost in numbers):
            raise click.BadParameter(f"costs must be positive numbers; got {text!r}.")
        return cls(**costs)

    @property
    def column(self) -> str | None:
        """Name of the column with the cost of missing each row, or None if the cost is a number."""
        return self.miss if isinstance(self.miss, str) else None

    @property
    def prices(self) -> dict[str, float]:
        """Costs as a value of the parameter ``threshold``. If a column contains the costs, ``miss`` is 1."""
        return {"miss": 1.0 if isinstance(self.miss, str) else self.miss, "alarm": self.alarm}

    def of_rows(self, chunk: Chunk, feature_names: Sequence[str] = ()) -> Any:
        """Return the cost of missing each row of a chunk, from a kept column or a feature."""
        import numpy as np

        if self.column is None:
            return self.miss
        if self.column in chunk.kept:
            values = chunk.kept[self.column]
        elif self.column in feature_names:
            values = chunk.X[:, list(feature_names).index(self.column)]
        else:
            raise ParameterError(f"--cost: there is no column {self.column!r}.")
        try:
            costs = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"--cost: column {self.column!r} must contain numbers.") from None
        is_valid = np.isfinite(costs) & (costs >= 0.0)
        if not is_valid.all():
            index = int(is_valid.argmin())
            row, found = chunk.first_row + index, costs[index]
            raise DataError(
                f"--cost: column {self.column!r} must contain a number of at least 0 in every row; got "
                f"{'no value' if np.isnan(found) else format(found, 'g')} in row {row:,}."
            )
        return costs


cost_option: Any = option(
    "Choose the label with the lowest expected cost: A for a missed positive row, B for a false alarm. "
    "A may be the name of a column, such as the amount of a payment: miss=amount,alarm=5.",
    "miss=A,alarm=B",
    type=Cost.parse,
)


def online_or_fixed_threshold(text: str) -> float | OnlineThreshold:
    """Parse ``--threshold``: a score, or a target share of alarms such as ``alarms=0.01``."""
    from steelyard.ensemble.online_threshold import OnlineThreshold
    from steelyard.thresholds import ThresholdChoice

    try:
        return float(text)
    except ValueError:
        goal = parse_goal(text)
    if not isinstance(goal, dict) or not ThresholdChoice().accepts(goal) or set(goal) != {"alarms"}:
        raise click.BadParameter(
            f"expected a score or alarms=SHARE; got {text!r}.\n"
            "hint: goals that need labels or times are set when the model learns: "
            "--set threshold=recall=0.95, precision=0.9, alarms_per_day=100 or miss=20,alarm=1"
        )
    return OnlineThreshold(goal)


threshold_option: Any = option(
    "Predict the positive class if its score is greater than X. With alarms=SHARE, the threshold adapts "
    "after each row, so that SHARE of the rows are predicted positive.",
    "X",
    type=online_or_fixed_threshold,
)


def probabilities(learner: Any, X: FloatArray, prior: str | None = None) -> FloatArray:
    """Return the class probabilities of rows at the class frequencies of the learned rows, or at `prior`."""
    if not hasattr(learner, "predict_proba"):
        raise ParameterError(
            f"--proba, --cost: a model of class {type(learner).__name__} has no probabilities.",
            hint="use --threshold, which applies to the scores",
        )
    if prior is not None and "prior" not in signature(learner.predict_proba).parameters:
        raise ParameterError(
            f"--prior: the probabilities of {type(learner).__name__} assume the class frequencies of the "
            f"learned rows; got --prior {prior}.",
            hint="leave --prior out",
        )
    import numpy as np

    options = {} if prior is None else {"prior": prior}
    return np.asarray(learner.predict_proba(X, **options), dtype=np.float64)


@dataclass(frozen=True)
class Decision:
    """Choice of labels from the scores or probabilities of a model."""

    positive: Any = None
    threshold: float | OnlineThreshold | None = None  # rows with a higher score are labelled positive
    cost: Cost | None = None  # rows are labelled positive if this label has the lower expected cost

    def __post_init__(self) -> None:
        if self.threshold is not None and self.cost is not None:
            raise click.UsageError("--threshold and --cost cannot be combined; give one of them.")
        if self.positive is None and not self.is_default:
            raise ParameterError(
                "--threshold, --cost: with more than two classes the positive class must be given.",
                hint="--positive LABEL",
            )

    @property
    def is_default(self) -> bool:
        """Whether the labels of the model are used unchanged."""
        return self.threshold is None and self.cost is None

    def labels(
        self, answers: Predictions, probabilities: FloatArray | None, miss_cost: Any = None
    ) -> list[Any]:
        """Return the label of every row. A row that is not positive gets the best of the other classes.

        ``miss_cost`` is the cost of a missed positive row: one number, or one number per row.
        """
        import numpy as np

        if self.is_default:
            return list(answers.labels.tolist())
        index = answers.classes.index(self.positive)
        if self.cost is not None:
            assert probabilities is not None
            p = probabilities[:, index]
            is_positive = p * miss_cost > (1 - p) * self.cost.alarm
        elif not isinstance(self.threshold, float):
            from steelyard.ensemble.online_threshold import plain_scores

            assert self.threshold is not None
            scores, keys = answers.score_of(self.positive), np.arange(len(answers), dtype=np.uint64)
            is_positive = self.threshold.alarms(scores[:, None, None], keys, plain_scores)
        else:
            is_positive = answers.score_of(self.positive) > self.threshold
        others = np.delete(np.arange(len(answers.classes)), index)
        best_other = others[np.argmax(answers.scores[:, others], axis=1)]
        return [answers.classes[k] for k in np.where(is_positive, index, best_other).tolist()]


# -- positive class -----------------------------------------------------------------------------------


def positive_of(learner: Any, text: str | None) -> Any:
    """Return the positive class, or None if it is not given and there are more than two classes."""
    inner = inner_learner(learner)
    labels = list(inner.classes_)
    from steelyard._labels import label_named, positive_class

    if text is not None:
        label = label_named(labels, text)
        if label is None:
            raise _unknown_label(text, labels)
        return label
    if getattr(inner, "positive_", None) is not None:
        return inner.positive_
    counts = list(getattr(inner, "class_count_", [1] * len(labels)))
    return positive_class(dict(zip(labels, map(float, counts), strict=True)))


def check_positive(source: str, target: str, text: str | None, limit: int | None) -> None:
    """Raise an error if no row of a file has the positive class.

    Only the label column is read, up to the first row with the label. Pipes and databases are not read by
    this function, because they would be read twice. For them :func:`positive_error` reports a missing class
    at the end of the run.
    """
    from steelyard.tables.table_stream import has_label

    if text is None or not Path(source).is_file():
        return
    found, labels = has_label(source, target, text, limit)
    if not found:
        raise _unknown_label(text, labels)


def positive_error(evaluator: PrequentialEvaluator, text: str | None) -> ParameterError | None:
    """Return an error if no row of a finished run had the positive class."""
    if text is None or evaluator.positive in evaluator.labels:
        return None
    return _unknown_label(text, list(evaluator.labels))


def _unknown_label(text: str, labels: list[Any]) -> ParameterError:
    n_more = len(labels) - _MAX_LISTED_LABELS
    shown = ", ".join(map(str, labels[:_MAX_LISTED_LABELS])) + (f" and {n_more:,} more" if n_more > 0 else "")
    return ParameterError(f"--positive: there is no class {text!r}; the classes are {shown}.")
