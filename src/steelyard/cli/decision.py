"""Decision rule of ``predict``: the labels of the model, a threshold on its scores, or the lowest cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from steelyard.exceptions import ParameterError

if TYPE_CHECKING:
    from steelyard._types import FloatArray
    from steelyard.streams.predictions import Predictions

__all__ = ["Cost", "Decision", "cost_option", "probabilities"]


@dataclass(frozen=True)
class Cost:
    """Costs of a missed positive row and of a false alarm."""

    miss: float
    alarm: float

    @classmethod
    def parse(cls, text: str) -> Cost:
        """Parse ``miss=20,alarm=1``; a cost that is not given is 1."""
        costs = {"miss": 1.0, "alarm": 1.0}
        for part in text.split(","):
            name, equals, cost = part.partition("=")
            try:
                costs[name.strip()] = float(cost)
            except ValueError:
                equals = ""
            if not equals or set(costs) != {"miss", "alarm"}:
                raise click.BadParameter(
                    f"expected miss=A,alarm=B; got {text!r}.\nhint: for example --cost miss=20,alarm=1"
                )
        if not all(math.isfinite(cost) and cost > 0 for cost in costs.values()):
            raise click.BadParameter(f"costs must be positive numbers; got {text!r}.")
        return cls(**costs)


cost_option: Callable[[Any], Any] = click.option(
    "--cost",
    type=Cost.parse,
    metavar="miss=A,alarm=B",
    help="Choose labels with the lowest expected cost: A for a missed positive row, B for a false alarm.",
)


def probabilities(learner: Any, X: FloatArray) -> FloatArray:
    """Return the class probabilities of rows, for the class frequencies that the learner has seen."""
    if not hasattr(learner, "predict_proba"):
        raise ParameterError(
            f"--proba, --cost: a model of class {type(learner).__name__} has no probabilities.",
            hint="use --threshold, which applies to the scores",
        )
    import numpy as np

    return np.asarray(learner.predict_proba(X), dtype=np.float64)


@dataclass(frozen=True)
class Decision:
    """Rule that derives labels from the scores or probabilities of a model.

    Parameters
    ----------
    positive : label or None
        The positive class.
    threshold : float, optional
        Rows whose score for the positive class is higher are labelled positive.
    cost : Cost, optional
        Rows are labelled positive if the positive label has the lower expected cost.
    """

    positive: Any = None
    threshold: float | None = None
    cost: Cost | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and self.cost is not None:
            raise click.UsageError("--threshold and --cost exclude each other; give one of them.")
        if self.positive is None and not self.is_default:
            raise ParameterError(
                "--threshold, --cost: with more than two classes the positive class must be given.",
                hint="--positive LABEL",
            )

    @property
    def is_default(self) -> bool:
        """Whether the labels of the model are used unchanged."""
        return self.threshold is None and self.cost is None

    def labels(self, answers: Predictions, probabilities: FloatArray | None) -> list[Any]:
        """Return the label of every row; a row that is not positive gets the best of the other classes."""
        import numpy as np

        if self.is_default:
            return list(answers.labels.tolist())
        index = answers.classes.index(self.positive)
        if self.cost is not None:
            assert probabilities is not None
            p = probabilities[:, index]
            is_positive = p * self.cost.miss > (1 - p) * self.cost.alarm
        else:
            assert self.threshold is not None
            is_positive = answers.score_of(self.positive) > self.threshold
        others = np.delete(np.arange(len(answers.classes)), index)
        best_other = others[np.argmax(answers.scores[:, others], axis=1)]
        return [answers.classes[k] for k in np.where(is_positive, index, best_other).tolist()]
