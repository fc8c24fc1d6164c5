"""AUC over the last rows of a stream, for two classes and for more."""

from __future__ import annotations

import math
from abc import abstractmethod
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from steelyard._native import AucWindow
from steelyard.exceptions import DataError, ParameterError
from steelyard.metrics import formulas
from steelyard.metrics.labels import Label, check_scores, encode, plain, sort_labels
from steelyard.metrics.plain_values import (
    StreamingMetric,
    check_codes,
    check_window,
    column,
    need,
    plain_labels,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["WindowAUC", "WindowPMAUC"]


class _AucOverWindow(StreamingMetric):
    """Rows go to the native window as (label code, scores)."""

    _window: AucWindow
    _n_columns: int

    def update(
        self,
        y_true: ArrayLike,
        y_pred: ArrayLike | None = None,  # noqa: ARG002  one call serves all measures
        y_score: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Take in the next scored rows.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or label
            True labels, or the one of a single row.
        y_pred : ignored
            Here so that one call serves all measures.
        y_score : array-like
            Finite scores of the rows, or of a single one.
        sample_weight : None
            Refused: in the window a row counts one.

        Returns
        -------
        self
        """
        if sample_weight is not None:
            raise DataError(
                "every row of the window counts one; sample_weight must be None.", source=self._source
            )
        labels, rows = encode(y_true, self._source, "y_true")
        y_score = need(y_score, self._source, "y_score")
        scores = check_scores(y_score, len(rows), self._n_columns, self._source)
        codes = self._codes_of(labels)  # the last that can fail
        if len(rows):
            self._window.push(codes[rows], scores)
        return self

    @abstractmethod
    def _codes_of(self, labels: list[Label]) -> NDArray[np.int32]:
        """The class number of each label; refuses those it cannot place."""

    def reset(self) -> Self:
        """Forget all rows."""
        self._window.clear()
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The native window has no copy of its own; the state serves copy.deepcopy and worker processes.
        return type(self).from_state, (self.to_state(),)

    def _content(self) -> dict[str, Any]:
        codes, scores = self._window.content()
        return {"codes": codes, "scores": scores}

    def _restore(self, state: dict[str, Any]) -> None:
        n_rows = len(state["codes"])
        codes = column(state, "codes", "i", (n_rows,)).astype(np.int32)
        check_codes(codes, len(self._window.counts()))
        self._window.push(codes, check_scores(state["scores"], n_rows, self._n_columns, type(self).__name__))


class WindowAUC(_AucOverWindow):
    r"""Prequential AUC: the area under the ROC curve of the last ``window`` scored rows.

    Exact with ties, equal to :func:`sklearn.metrics.roc_auc_score` on the content of the window, and
    updated in O(log window) a row.

    Parameters
    ----------
    window : int
        Number of rows.
    pos_label : label, optional
        The class that the scores speak for, against all others. By default the larger of the two labels
        that have come, as in ``decision_function``; a third label is then refused.

    Notes
    -----
    With :math:`p` positive and :math:`n` negative rows in the window,

    .. math:: AUC = \frac{1}{p\,n} \sum_{i \in +} \sum_{j \in -} [s_i > s_j] + \tfrac12 [s_i = s_j]

    A counted B-tree over the scores tells how many pairs a row wins when it comes and when it leaves. The
    sum is a whole number (of half pairs), so it never drifts.

    Examples
    --------
    >>> from steelyard.metrics import WindowAUC
    >>> auc = WindowAUC(4)
    >>> auc.update([1, 0, 0, 1, 1], y_score=[0.0, 0.1, 0.4, 0.35, 0.8]).get()
    0.75
    """

    _parameters = ("window", "pos_label")
    _n_columns = 1

    def __init__(self, window: int, *, pos_label: Label | None = None) -> None:
        self.window = check_window(window, type(self).__name__)
        self.pos_label = plain(pos_label)
        self._window = AucWindow(self.window)
        self._labels: list[Label] = []  # without pos_label: the labels that have come, in that order

    def get(self) -> float:
        """The AUC of the window; ``nan`` with a warning while it holds fewer than two classes.

        Returns
        -------
        float
        """
        n_first, n_second = self._window.counts().tolist()
        doubled_pairs = 2 * n_first * n_second
        if not doubled_pairs:
            formulas.warn_undefined("roc_auc")
            return math.nan
        doubled_wins = int(self._window.doubled_wins()[0, 0])  # of code 1
        if self.pos_label is None and self._labels[0] > self._labels[1]:
            doubled_wins = doubled_pairs - doubled_wins
        return float(doubled_wins / doubled_pairs)

    def reset(self) -> Self:
        """Forget all rows and labels."""
        self._labels = []
        return super().reset()

    def _codes_of(self, labels: list[Label]) -> NDArray[np.int32]:
        if self.pos_label is not None:
            return np.array([label == self.pos_label for label in labels], dtype=np.int32)
        known = self._labels if set(labels) <= set(self._labels) else self._with_new(labels)
        self._labels = known
        return np.array([known.index(label) for label in labels], dtype=np.int32)

    def _with_new(self, labels: list[Label]) -> list[Label]:
        known = list(dict.fromkeys([*self._labels, *labels]))
        if len(known) > 2:
            raise DataError(
                f"without pos_label there can be two labels, {known[0]!r} and {known[1]!r}; "
                f"got {known[2]!r} as well.",
                source=self._source,
                hint="pos_label sets one class against the rest, WindowPMAUC looks at all pairs of classes",
            )
        sort_labels(known, self._source)
        return known

    def _content(self) -> dict[str, Any]:
        return {"labels": list(self._labels), **super()._content()}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._codes_of(list(state["labels"]))
        counts = self._window.counts()
        if self.pos_label is None and len(self._labels) <= int(counts.nonzero()[0].max(initial=-1)):
            raise ValueError("a label is missing")


class WindowPMAUC(_AucOverWindow):
    """AUC of any number of classes over the last ``window`` scored rows: the mean over pairs of classes.

    Equal to :func:`pmauc_score` on the content of the window. Each ordered pair of classes keeps a tree of
    its own, so that a row costs O(n_classes log window).

    Parameters
    ----------
    window : int
        Number of rows.
    labels : array-like of shape (n_classes,)
        The class of each column of the scores; other labels are refused.

    Examples
    --------
    >>> from steelyard.metrics import WindowPMAUC
    >>> stream = WindowPMAUC(3, labels=["a", "b", "c"])
    >>> stream.update("a", y_score=[0, 1, 1])
    WindowPMAUC(window=3, labels=['a', 'b', 'c'])
    >>> scores = [[2.0, 0.1, 0.3], [0.5, 1.0, 0.2], [0.1, 1.5, 1.4]]
    >>> stream.update(["a", "b", "c"], y_score=scores).get()
    0.833...
    """

    _parameters = ("window", "labels")
    _MAX_CLASSES = 512

    def __init__(self, window: int, *, labels: ArrayLike) -> None:
        source = type(self).__name__
        self.window = check_window(window, source)
        self.labels = plain_labels(labels)
        if len(set(self.labels)) != len(self.labels) or not 2 <= len(self.labels) <= self._MAX_CLASSES:
            raise ParameterError(
                f"labels must be from 2 to {self._MAX_CLASSES} distinct labels; got {self.labels!r}.",
                source=source,
            )
        self._n_columns = len(self.labels)
        self._window = AucWindow(self.window, self._n_columns)

    def get(self) -> float:
        """Mean over the pairs of classes in the window; ``nan`` with a warning when there is no pair.

        Returns
        -------
        float
        """
        n_rows = self._window.counts().astype(np.float64)
        present = np.flatnonzero(n_rows).tolist()
        if len(present) < 2:
            formulas.warn_undefined("pmauc")
            return math.nan
        wins = self._window.doubled_wins()
        pairs = [(wins[i, j] + wins[j, i]) / (4 * n_rows[i] * n_rows[j]) for i, j in combinations(present, 2)]
        return float(np.mean(pairs))

    def _codes_of(self, labels: list[Label]) -> NDArray[np.int32]:
        unknown = [label for label in labels if label not in self.labels]
        if unknown:
            raise DataError(
                f"every label must be one of {self.labels}; got {unknown[0]!r}.",
                source=self._source,
                hint="a class that comes later needs a column of scores: start with all labels",
            )
        return np.array([self.labels.index(label) for label in labels], dtype=np.int32)
