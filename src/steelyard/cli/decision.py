"""Which answer to give: the model's own, by a threshold, or by what mistakes cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.options import label_of
from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from steelyard._types import FloatArray
    from steelyard.streams.answers import Answers

__all__ = ["Cost", "Decision", "cost_option", "positive_of", "probabilities"]


@dataclass(frozen=True)
class Cost:
    """What a missed case and a false alarm cost."""

    miss: float
    alarm: float

    @classmethod
    def parse(cls, text: str) -> Cost:
        """Read ``miss=20,alarm=1``; what is not named costs 1."""
        prices = {"miss": 1.0, "alarm": 1.0}
        for part in text.split(","):
            name, equals, price = part.partition("=")
            try:
                prices[name.strip()] = float(price)
            except ValueError:
                equals = ""
            if not equals or set(prices) != {"miss", "alarm"}:
                raise ParameterError(
                    f"--cost: expected miss=A,alarm=B; got {text!r}.", hint="--cost miss=20,alarm=1"
                )
        if not all(math.isfinite(price) and price > 0 for price in prices.values()):
            raise ParameterError(f"--cost: costs must be positive numbers; got {text!r}.")
        return cls(**prices)


def _cost(text: str) -> Cost:
    try:
        return Cost.parse(text)
    except ParameterError as error:
        raise click.BadParameter(str(error)) from error


cost_option: Callable[[Any], Any] = click.option(
    "--cost",
    type=_cost,
    metavar="miss=A,alarm=B",
    help="Answer so that mistakes cost least, if a missed case costs A and a false alarm B.",
)


def positive_of(learner: Any, text: str | None) -> Any:
    """The positive class: the one that was named, else the rarer of two; None where there is none."""
    inner = getattr(learner, "estimator_", learner)
    labels = list(inner.classes_)
    if text is not None:
        return label_of(text, labels)
    counts = getattr(inner, "class_count_", None)
    if len(labels) != 2:
        return None
    return labels[0] if counts is not None and counts[0] < counts[1] else labels[1]


def probabilities(learner: Any, X: FloatArray) -> FloatArray:
    """Probabilities of the classes, which are taken as frequent as the learner has seen them.

    A learner of balanced classes answers as if all were equally frequent; its odds are multiplied by counts.
    """
    if not hasattr(learner, "predict_proba"):
        raise ParameterError(
            f"--proba, --cost: a model of class {type(learner).__name__} gives no probabilities.",
            hint="its scores can be cut with --threshold",
        )
    import numpy as np

    balanced = np.asarray(learner.predict_proba(X), dtype=np.float64)
    counts = getattr(getattr(learner, "estimator_", learner), "class_count_", None)
    if counts is None:
        return balanced
    weighted = balanced * np.asarray(counts, dtype=np.float64)
    sums = weighted.sum(axis=1, keepdims=True)
    return np.divide(weighted, sums, out=balanced, where=sums > 0)


@dataclass(frozen=True)
class Decision:
    """How labels follow from what a model says.

    Parameters
    ----------
    positive : label or None
        The class that alarms are about.
    threshold : float, optional
        An alarm is raised where the score of the positive class is above.
    cost : Cost, optional
        An alarm is raised where it costs less, by the probability of the positive class.
    """

    positive: Any = None
    threshold: float | None = None
    cost: Cost | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and self.cost is not None:
            raise click.UsageError("--threshold and --cost are two ways to say the same; give one of them.")
        if self.positive is None and not self.is_own:
            raise ParameterError(
                "--threshold, --cost: with more than two classes it must be said which one alarms are about.",
                hint="--positive LABEL",
            )

    @property
    def is_own(self) -> bool:
        """Whether the model's own labels are given."""
        return self.threshold is None and self.cost is None

    def labels(self, answers: Answers, chances: FloatArray | None) -> list[Any]:
        """The label of every row; where there is no alarm, the most likely of the other classes."""
        import numpy as np

        if self.is_own:
            return list(answers.labels.tolist())
        place = answers.classes.index(self.positive)
        if self.cost is not None:
            assert chances is not None
            alarm = chances[:, place] * self.cost.miss > (1 - chances[:, place]) * self.cost.alarm
        else:
            assert self.threshold is not None
            alarm = answers.score_of(self.positive) > self.threshold
        others = np.delete(np.arange(len(answers.classes)), place)
        best = others[np.argmax(answers.scores[:, others], axis=1)]
        return [
            answers.classes[place if is_alarm else k]
            for is_alarm, k in zip(alarm, best.tolist(), strict=True)
        ]
