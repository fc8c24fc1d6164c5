"""Measures of the scores in a sliding window, and the factory of all streaming metrics."""

from __future__ import annotations

import math
from abc import abstractmethod
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._native import AucWindow
from steelyard.exceptions import DataError, ParameterError
from steelyard.metrics import formulas
from steelyard.metrics._validation import (
    Codes,
    Label,
    check_count,
    check_probabilities,
    check_scores,
    plain,
    plain_labels,
    required,
    sort_labels,
)
from steelyard.metrics.streaming import (
    CumulativeConfusion,
    FadingConfusion,
    RowWindow,
    StreamingMetric,
    WindowConfusion,
    check_codes,
    stored_array,
)


class _ScoredWindow(StreamingMetric):
    """Base class of measures over a sliding window of label codes and scores."""

    _window: Any  # a native counted B-tree or arrays
    _n_columns: int

    def _add(self, labels: list[Label], codes: Codes, **inputs: Any) -> None:
        source = self._source
        if inputs["sample_weight"] is not None:
            raise DataError(
                "every row of the window has weight 1; sample_weight must be None.", source=source
            )
        y_score = required(inputs["y_score"], source, "y_score")
        scores = self._check_scores(y_score, len(codes), source)
        codes_of_labels = self._codes_of(labels)  # this is the last step that can raise an error
        if len(codes):
            self._window.push(codes_of_labels[codes], scores)

    def _check_scores(self, y_score: ArrayLike, n_rows: int, source: str) -> NDArray[np.float64]:
        return check_scores(y_score, n_rows, self._n_columns, source)

    @abstractmethod
    def _codes_of(self, labels: list[Label]) -> NDArray[np.int32]:
        """Return the class code of each label; raise an error for labels that are not allowed."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The native window cannot be pickled, so pickle and copy.deepcopy use to_state().
        return type(self).from_state, (self.to_state(),)

    def _content(self) -> dict[str, Any]:
        codes, scores = self._window.content()
        return {"codes": codes, "scores": scores}

    def _restore(self, state: dict[str, Any]) -> None:
        n_rows = len(state["codes"])
        codes = stored_array(state, "codes", "i", (n_rows,)).astype(np.int32)
        check_codes(codes, max(2, self._n_columns))
        self._window.push(codes, self._check_scores(state["scores"], n_rows, type(self).__name__))


class _BinaryWindow(_ScoredWindow):
    """Base class of the measures of one class against the rest."""

    _n_columns = 1

    def __init__(self, window: int, pos_label: Label | None) -> None:
        self.window = check_count(window, "window", type(self).__name__)
        self.pos_label = plain(pos_label)
        self._labels: list[Label] = []  # labels in order of appearance, used if pos_label is not given

    @property
    def _positive_code(self) -> int:
        """Code of the positive class: 1 if pos_label is given, otherwise the code of the larger label."""
        if self.pos_label is not None:
            return 1
        return int(len(self._labels) > 1 and self._labels[1] > self._labels[0])

    def _codes_of(self, labels: list[Label]) -> NDArray[np.int32]:
        if self.pos_label is not None:
            return np.array([label == self.pos_label for label in labels], dtype=np.int32)
        if not set(labels) <= set(self._labels):
            known = list(dict.fromkeys([*self._labels, *labels]))
            if len(known) > 2:
                raise DataError(
                    f"without pos_label there can be two labels, {known[0]!r} and {known[1]!r}; "
                    f"got {known[2]!r} as well.",
                    source=self._source,
                    hint="pos_label compares one class with the rest, WindowPMAUC all pairs of classes",
                )
            sort_labels(known, self._source)
            self._labels = known
        return np.array([self._labels.index(label) for label in labels], dtype=np.int32)

    def _content(self) -> dict[str, Any]:
        return {"labels": list(self._labels), **super()._content()}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._codes_of(list(state["labels"]))
        if self.pos_label is None:
            check_codes(np.asarray(state["codes"]), len(self._labels))


class WindowAUC(_BinaryWindow):
    r"""Prequential AUC: the area under the ROC curve of the last ``window`` scored rows.

    The value equals :func:`sklearn.metrics.roc_auc_score` on the rows in the window, also with ties. An
    update takes O(log window) per row.

    Parameters
    ----------
    window : int
        Number of rows.
    pos_label : label, optional
        The class to which the scores refer, against all others. By default the larger of the two labels
        in the stream, as in ``decision_function``; a third label then raises an error.

    Notes
    -----
    With :math:`p` positive and :math:`n` negative rows in the window,

    .. math:: AUC = \frac{1}{p\,n} \sum_{i \in +} \sum_{j \in -} [s_i > s_j] + \tfrac12 [s_i = s_j]

    where :math:`s_i` is the score of row :math:`i`. When a row enters or leaves the window, a counted B-tree
    over the scores gives its contribution to the sum. The sum is stored as an integer number of half pairs,
    so no rounding error accumulates.

    Examples
    --------
    >>> from steelyard.metrics import WindowAUC
    >>> auc = WindowAUC(4)
    >>> auc.update([1, 0, 0, 1, 1], y_score=[0.0, 0.1, 0.4, 0.35, 0.8]).get()
    0.75
    """

    _parameters = ("window", "pos_label")

    def __init__(self, window: int, *, pos_label: Label | None = None) -> None:
        super().__init__(window, pos_label)
        self._window = AucWindow(self.window)

    def get(self) -> float:
        n_first, n_second = self._window.counts().tolist()
        doubled_pairs = 2 * n_first * n_second
        if not doubled_pairs:
            return formulas.defined_or_warn("roc_auc", math.nan)
        # Twice the number of pairs in which class code 1 scores higher.
        doubled_wins = int(self._window.doubled_wins()[0, 0])
        return float((doubled_wins if self._positive_code else doubled_pairs - doubled_wins) / doubled_pairs)


class WindowPMAUC(_ScoredWindow):
    """AUC of any number of classes over the last ``window`` scored rows: the mean over pairs of classes.

    The value equals :func:`pmauc_score` on the rows in the window. Each ordered pair of classes has its own
    tree, so an update takes O(n_classes log window) per row.

    Parameters
    ----------
    window : int
        Number of rows.
    labels : array-like of shape (n_classes,)
        The class of each column of the scores; other labels raise an error.

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
        self.window = check_count(window, "window", source)
        self.labels = plain_labels(labels)
        if len(set(self.labels)) != len(self.labels) or not 2 <= len(self.labels) <= self._MAX_CLASSES:
            raise ParameterError(
                f"labels must be from 2 to {self._MAX_CLASSES} distinct labels; got {self.labels!r}.",
                source=source,
            )
        self._n_columns = len(self.labels)
        self._window = AucWindow(self.window, self._n_columns)

    def get(self) -> float:
        n_rows = self._window.counts().astype(np.float64)
        present = np.flatnonzero(n_rows).tolist()
        if len(present) < 2:
            return formulas.defined_or_warn("pmauc", math.nan)
        wins = self._window.doubled_wins()
        pairs = [(wins[i, j] + wins[j, i]) / (4 * n_rows[i] * n_rows[j]) for i, j in combinations(present, 2)]
        return float(np.mean(pairs))

    def _codes_of(self, labels: list[Label]) -> NDArray[np.int32]:
        unknown = [label for label in labels if label not in self.labels]
        if unknown:
            raise DataError(
                f"every label must be one of {self.labels}; got {unknown[0]!r}.",
                source=self._source,
                hint="pass all labels when the metric is created: every class needs a column of scores",
            )
        return np.array([self.labels.index(label) for label in labels], dtype=np.int32)


SCORE_MEASURES = (
    "average_precision", "precision_at_k", "recall_at_k", *formulas.PROBABILITY_MEASURES,
)  # fmt: skip


class WindowScores(_BinaryWindow):
    """A measure of scores or probabilities over the last ``window`` rows, by name.

    The value equals that of the batch function of the same name on the rows in the window, for example
    :func:`average_precision_score`. An update takes O(1) per row; :meth:`get` takes O(window log window).

    Parameters
    ----------
    window : int
        Number of rows.
    measure : str, default="average_precision"
        ``"average_precision"``, ``"precision_at_k"`` or ``"recall_at_k"`` of any scores; ``"log_loss"``,
        ``"brier"`` or ``"expected_calibration_error"`` of probabilities.
    pos_label : label, optional
        The class to which the scores refer, against all others. By default the larger of the two labels.
    k : int, default=100
        Number of rows for ``"precision_at_k"`` and ``"recall_at_k"``.
    n_bins : int, default=10
        Number of bins for ``"expected_calibration_error"``.

    Examples
    --------
    >>> from steelyard.metrics import WindowScores
    >>> metric = WindowScores(4, "precision_at_k", k=2)
    >>> metric.update([1, 0, 1, 0, 1], y_score=[0.1, 0.2, 0.9, 0.8, 0.7]).get()
    0.5
    """

    _parameters = ("window", "measure", "pos_label", "k", "n_bins")

    def __init__(
        self,
        window: int,
        measure: str = "average_precision",
        *,
        pos_label: Label | None = None,
        k: int = 100,
        n_bins: int = 10,
    ) -> None:
        super().__init__(window, pos_label)
        source = type(self).__name__
        if measure not in SCORE_MEASURES:
            raise ParameterError(
                f"measure must be one of {', '.join(SCORE_MEASURES)}; got {measure!r}.", source=source
            )
        self.measure = measure
        self.k = check_count(k, "k", source)
        self.n_bins = check_count(n_bins, "n_bins", source)
        self._window = RowWindow(self.window, np.zeros(0, dtype=np.int32), np.zeros((0, 1)))

    def get(self) -> float:
        codes, scores = self._window.content()
        value = formulas.score_measure(
            self.measure, codes == self._positive_code, scores[:, 0], k=self.k, n_bins=self.n_bins
        )
        return formulas.defined_or_warn(self.measure, value)

    def _check_scores(self, y_score: ArrayLike, n_rows: int, source: str) -> NDArray[np.float64]:
        scores = super()._check_scores(y_score, n_rows, source)
        is_probability = self.measure in formulas.PROBABILITY_MEASURES
        return check_probabilities(scores, source) if is_probability else scores


def streaming_metric(
    measure: str,
    *,
    window: int | None = None,
    factor: float | None = None,
    half_life: float | None = None,
    pos_label: Label | None = None,
    beta: float = 1.0,
    labels: ArrayLike | None = None,
    k: int = 100,
    n_bins: int = 10,
) -> StreamingMetric:
    """Return a streaming metric by the name of its measure.

    Parameters
    ----------
    measure : str
        ``"roc_auc"``, ``"pmauc"``, any measure of :class:`WindowScores`, or any measure of
        :meth:`ConfusionStream.get`.
    window : int, optional
        Number of most recent rows that count. Required for measures of scores.
    factor, half_life : float, optional
        Exponential decay, see :class:`FadingConfusion`. If neither these nor ``window`` are given, all rows
        count equally.
    pos_label : label, optional
        The positive class.
    beta : float, default=1.0
        Parameter of ``"f_beta"``.
    labels : array-like, optional
        For ``"pmauc"``: the class of each column of the scores.
    k : int, default=100
        Number of highest scores for ``"precision_at_k"`` and ``"recall_at_k"``.
    n_bins : int, default=10
        Number of bins for ``"expected_calibration_error"``.

    Returns
    -------
    StreamingMetric

    Examples
    --------
    >>> from steelyard.metrics import streaming_metric
    >>> streaming_metric("g_mean", window=500)
    WindowConfusion(window=500, measure='g_mean', pos_label=None, beta=1.0)
    >>> streaming_metric("roc_auc", window=500, pos_label="fraud")
    WindowAUC(window=500, pos_label='fraud')
    """
    decays = factor is not None or half_life is not None
    if window is not None and decays:
        raise ParameterError("use either a window or exponential decay; got both.", source="streaming_metric")
    if measure in {"roc_auc", "pmauc", *SCORE_MEASURES}:
        if window is None:
            raise ParameterError(f"{measure} needs a window; got None.", source="streaming_metric")
        if measure == "roc_auc":
            return WindowAUC(window, pos_label=pos_label)
        if measure != "pmauc":
            return WindowScores(window, measure, pos_label=pos_label, k=k, n_bins=n_bins)
        if labels is None:
            raise ParameterError(
                "pmauc needs labels, one for each column of scores; got None.", source="streaming_metric"
            )
        return WindowPMAUC(window, labels=labels)
    if window is not None:
        return WindowConfusion(window, measure, pos_label=pos_label, beta=beta)
    if decays:
        return FadingConfusion(factor, half_life=half_life, measure=measure, pos_label=pos_label, beta=beta)
    return CumulativeConfusion(measure, pos_label=pos_label, beta=beta)
