"""StreamClassifier: an ensemble of experts for imbalanced streams, without parameters that must be chosen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from steelyard import _native
from steelyard._concurrency import FrozenState, lock_of
from steelyard._deprecation import renamed_parameters
from steelyard._labels import all_forgotten_error, positive_class, winners
from steelyard._threads import one_thread
from steelyard._types import FloatArray, IntArray
from steelyard._validation import (
    check_finite,
    check_not_infinite,
    check_started,
    checked_times,
    validate_batch,
    validate_rows,
)
from steelyard.base import (
    Batch,
    ForgettingMixin,
    Label,
    Traits,
    snapshot_read,
    sorted_classes,
    transactional,
)
from steelyard.ensemble.calibration import OnlineCalibration
from steelyard.ensemble.change_monitor import ChangeMonitor
from steelyard.ensemble.cost import CostBudget
from steelyard.ensemble.drift import DriftDetector
from steelyard.ensemble.experts import EXPERTS, Expert, Stream
from steelyard.ensemble.experts.linear import LinearExpert, MappedLinearExpert
from steelyard.ensemble.explanation import explain_ensemble
from steelyard.ensemble.layout import Layout
from steelyard.ensemble.mixing import ExpertWeights, weigh
from steelyard.ensemble.multiclass import MulticlassWeights
from steelyard.ensemble.online_threshold import OnlineThreshold, RealisedRate, continue_log, is_promise
from steelyard.ensemble.parallel import run_tasks
from steelyard.ensemble.pending import PendingRows
from steelyard.ensemble.prediction_sets import check_coverage, prediction_sets
from steelyard.ensemble.row_buffer import Block, RowBuffer, row_keys
from steelyard.ensemble.row_costs import RowCosts, cost_alarms, is_prices
from steelyard.ensemble.row_explanation import explain_snapshot, unhashed, with_table_values
from steelyard.ensemble.score_buffer import PredictedScores, ScoreBuffer, align
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.snapshot import EnsembleSnapshot
from steelyard.ensemble.stacking import WeightCorrection
from steelyard.ensemble.state import get_state, set_state
from steelyard.ensemble.views import HashedTable, HashedView, TransformedRows, Views
from steelyard.exceptions import DataError, SteelyardError
from steelyard.explanation.attribution import Attribution, sampled_rows
from steelyard.explanation.explain import dense_rows, explain_rows
from steelyard.explanation.neighbors import RememberedRows
from steelyard.params import (
    AnyOf,
    Constraint,
    Integer,
    LabelOrNone,
    OneOf,
    Positive,
    absent_parameters,
    prior_factors,
)
from steelyard.persistence import storable
from steelyard.proximal import DriftReport, ProximalSVC
from steelyard.proximal.drift_report import ClassMoments, compare_moments
from steelyard.tables.frames import is_table
from steelyard.tables.schema import Schema
from steelyard.thresholds import ThresholdChoice, alarm_indices
from steelyard.windowing.sliding import window_size

__all__ = ["StreamClassifier"]

_EXPLAINED_RECENT_ROWS = 1000  # remembered rows that explanations compare with
_EXPLAINED_ROWS_OF_CLASS = 200  # minimum per class, if there are that many
_MIN_SHARE = 1e-6  # smallest share of a class in the prior log-odds
_FORMER_PARAMETERS = {"memory": "window", "budget": "compute_budget"}


class _WindowChoice:
    """Constraint of ``window=``."""

    description = '"auto", a whole number of rows, a timedelta, or text such as "30d" (units s, m, h, d, w)'

    def accepts(self, value: object) -> bool:
        if isinstance(value, str) and value == "auto":
            return True
        try:
            window_size(value)  # type: ignore[arg-type]  # it raises for values that are no window
        except SteelyardError:
            return False
        return True


@absent_parameters(
    class_weight=(
        "classes count equally by default, because the threshold is chosen for the largest G-mean.",
        'for other costs of errors use threshold={"miss": 20, "alarm": 1}',
    )
)
@renamed_parameters(**_FORMER_PARAMETERS)
@storable("StreamClassifier", former_parameters=_FORMER_PARAMETERS)
class StreamClassifier(ForgettingMixin):
    r"""Ensemble of experts for imbalanced streams.

    The experts differ in their memory (all rows, the last 20,000, 5,000, 1,000 or 200 rows, the last labels)
    and in their model (proximal SVMs, a kernel SVM, boosted trees). Experts that have predicted recent rows
    well get large weights, and the decision threshold follows the recent scores.

    Parameters
    ----------
    threshold : "gmean", "kappa", "f1" or dict, default="gmean"
        Goal of the decision threshold: the largest geometric mean of the recalls, Cohen's kappa or F1 score;
        the lowest cost for prices such as ``{"miss": 20, "alarm": 1}``; or the largest recall with a budget
        of alarms such as ``{"alarms": 0.01}`` (share of all rows). An alarm is a prediction of the class
        ``positive_``, a miss is a row of that class without an alarm. With more than two classes, "gmean"
        means the largest mean recall, and the other goals apply to every class against the rest.
    window : "auto", int, timedelta or str, default="auto"
        Rows or time after which rows are forgotten. "auto" lets each expert choose its own memory, the
        longest of which covers all rows. A length of time such as "30d" needs ``time`` in
        :meth:`partial_fit`.
    compute_budget : "auto" or float, default="auto"
        Microseconds that a row may cost, approximately, on a common machine. "auto" is 120 for the first
        20,000 rows and 80 afterwards. Costs are computed from the numbers of rows, columns and classes and
        never measured, so the same rows give the same model everywhere. A larger budget refits trees and
        solves linear systems more often; with a budget below 120 the kernel SVM learns a sample of the rows,
        below 66 it is disabled. :meth:`explain` lists all restrictions. Experts are updated in parallel on
        the available cores (environment variable STEELYARD_NUM_THREADS) without changing any bit of the
        result.
    random_state : int, default=0
        Seed of the random features and of the samples that boosted trees remember.
    positive : label or None, default=None
        The class that alarms are about, if there are two classes. None: 1, True or "1" if the other label is
        0, -1 or False; otherwise the rarer class so far, until it has twice as many rows as the other.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows in the window.
    class_count_ : ndarray of shape (n_classes,)
        Rows of each class in the window.
    realised_rates_ : list of RealisedRate
        Realised rates of alarms, recall and precision with intervals, if a rate is promised.
    drift_events_ : list of dict
        Drifts found so far: ``row``, ``cause`` ("prior", "features" or "concept"), ``columns``, ``further``
        causes and ``text``.
    drift_evidence_ : float
        Evidence for a drift since the last one, from 0 to 1; at 1 there is a new event.
    linear_ : ProximalSVC
        A copy of the linear expert over all rows, which shows the effect of each feature. Its labels are
        integers that number the labels of the stream in the order of their first occurrence.
    positive_ : label or None
        The positive class; None if there are not exactly two classes. As in scikit-learn,
        ``decision_function`` is greater than 0 for the second class of ``classes_``, whichever is positive.
    n_features_in_ : int
        Number of features or columns seen.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when all names are strings.

    See Also
    --------
    steelyard.AdaptiveThresholdClassifier : The adaptive threshold for any other classifier.

    Notes
    -----
    :meth:`partial_fit` scores the rows before it learns them. These out-of-sample scores determine weights,
    threshold and probabilities. Rows that were passed to :meth:`predict`, :meth:`decision_function` or
    :meth:`predict_proba` before keep the scores given then (up to 100,000 rows), so that with delayed labels
    experts are weighted by their predictions at that time. A chunk delays the labels of its rows, so the same
    rows in chunks of another size give other weights.

    Recent scores are kept for about 1,000 rows, at least 100 of each class. Each expert's scores are
    calibrated to log-odds, which keeps the order of the highest scores, and weighted by AUC and log-loss.
    With two classes the weights are corrected by a logistic regression on the log-odds of 5,000 rows.
    Before two rows of both classes are scored, the linear expert over all rows predicts alone.

    :meth:`forget` removes rows exactly from every expert that remembers them, and from the recent scores.
    The scores of other rows, the rank transformation and the random map (fitted on the first 1,000 rows) do
    not change. Boosted trees that are too large to be refitted at once have no weight until the next
    :meth:`partial_fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import StreamClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(3000) < 0.05).astype(int)
    >>> X = rng.normal(size=(3000, 4)) * np.where(y, 0.5, 2.0)[:, None]
    >>> model = StreamClassifier()
    >>> for begin in range(0, 2000, 100):
    ...     _ = model.partial_fit(X[begin : begin + 100], y[begin : begin + 100])
    >>> hits = model.predict(X[2000:]) == y[2000:]
    >>> bool(min(hits[y[2000:] == 0].mean(), hits[y[2000:] == 1].mean()) > 0.8)
    True
    """

    takes_time = predict_takes_time = True
    describes_itself = True  # explain() without rows describes the model

    _constraints: ClassVar[dict[str, Constraint]] = {
        "threshold": ThresholdChoice(),
        "window": _WindowChoice(),
        "compute_budget": AnyOf(OneOf("auto"), Positive()),
        "random_state": Integer(0),
        "positive": LabelOrNone(),
    }
    _traits = Traits(
        exact=False,
        bounded_memory=True,
        exempt={
            "chunk_borders_do_not_matter": (
                "a chunk is scored before it is learned, and weights and threshold depend on these scores; "
                "so the size of the chunks is the delay of the labels"
            ),
            "data_frames": "columns of a table are matched by name, in any order",
        },
    )
    _accepts_sparse = True
    _finds_nonfinite = True  # the method _dense checks the rows
    _row_costs: RowCosts

    def __getattr__(self, name: str) -> Any:
        if name in {"merge", "subtract"}:  # an AttributeError, so hasattr() is False
            raise AttributeError(
                f"StreamClassifier has no {name}(): its experts depend on the order of the rows. "
                "ProximalSVC and TableModel(ProximalSVC()) can be merged."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __init__(
        self,
        *,
        threshold: str | dict[str, float] = "gmean",
        window: str | int | timedelta = "auto",
        compute_budget: str | float = "auto",
        random_state: int = 0,
        positive: Label | None = None,
    ) -> None:
        self.threshold = threshold
        self.window = window
        self.compute_budget = compute_budget
        self.random_state = random_state
        self.positive = positive

    # -- learning -----------------------------------------------------------------------------------

    @transactional
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        time: ArrayLike | None = None,
        sample_cost: ArrayLike | None = None,
    ) -> Self:
        """Score these rows, then learn them.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Their labels; a label never seen before becomes a class.
        classes : array-like, optional
            Labels that may occur, as in scikit-learn. It is never needed.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row; 1 when not given.
        time : array-like of shape (n_samples,), optional
            Times of the rows in seconds, ascending; needed for a window of time and for alarms per day.
        sample_cost : array-like of shape (n_samples,), optional
            Factor of the price of a miss for each row, such as the amount of a payment. The threshold uses
            its recent mean over the positive rows.

        Returns
        -------
        self
        """
        self._check_params()
        first = not self._is_started()
        batch = validate_batch(self, X, y, sample_weight, "partial_fit", reset=first)
        if classes is not None:
            self._check_known(batch.labels, classes)
        if first:
            self._start(batch)
        if sample_cost is not None:
            self._row_costs = self._row_costs.after(sample_cost, y, f"{type(self).__name__}.partial_fit")
        self._apply(batch, None, "partial_fit", time)
        return self

    def _start(self, batch: Batch) -> None:
        width = batch.X.shape[1]
        self._first_width = width  # coded columns of the first rows
        self._hashed = self._hashed_view(width)
        self._labels: list[Label] = []  # label of each class code, in the order of first occurrence
        self._code_of: dict[Label, int] = {}
        self._counts: IntArray = np.zeros(0, dtype=np.int64)  # rows of each class in the window
        self._n_seen = 0
        self._low = 0  # number of the oldest row in the window
        self._positive: Label | None = None
        self._weighed_at = self._views_at = 0  # rows seen when experts were weighed, and views fitted
        self._rows = RowBuffer.empty(min(width, SETTINGS.max_columns))
        self._recent_scores = ScoreBuffer(len(EXPERTS))
        self._views = Views()  # its layout is that of plain numbers until the first gap or category
        self._experts: list[Expert] = [config.make(config) for config in EXPERTS]
        self._snapshot = EnsembleSnapshot([], [None] * len(EXPERTS), None, self._views)
        self._predicted = PredictedScores()
        self._online_threshold = OnlineThreshold.updated(None, self.threshold)
        self._calibration = OnlineCalibration()
        self._row_costs = RowCosts()
        self._pending = PendingRows()
        self._drift = DriftDetector()
        self._correction = WeightCorrection.none(len(EXPERTS))
        self._changes = ChangeMonitor()

    def _hashed_view(self, width: int) -> HashedView | HashedTable | None:
        n_columns = SETTINGS.max_columns
        if width <= n_columns:
            return None
        if self._schema is not None:
            return HashedTable(n_columns, self.random_state, width)
        return HashedView(width, n_columns, self.random_state)

    # -- tables -------------------------------------------------------------------------------------

    def _encode_table(self, X: Any, source: str, *, reset: bool, learn: bool) -> FloatArray | None:
        """Return a table as coded rows, and extend the schema by new columns and categories if ``learn``."""
        schema: Schema | None = None if reset else self.__dict__.get("_schema")
        if not is_table(X):
            self._schema = schema
            return None if schema is None else self._positional(X, schema, source)
        if schema is None and not reset:
            return self._unnamed(X, source)
        schema = Schema() if schema is None else schema.copy() if learn else schema
        coded = schema.encode(X, source, learn=learn)
        if learn:
            self._schema = schema
            self.n_features_in_ = len(schema.names)
            self.__dict__.pop("feature_names_in_", None)
            if not isinstance(X, np.ndarray | list | tuple) or isinstance(X[0], Mapping):
                self.feature_names_in_ = np.array(schema.names, dtype=object)
        return coded

    def reads_table(self, rows: Any) -> bool:
        """Return whether rows of a table can be learned as they are.

        Models of version 0.2 have learned categories as hash features.
        """
        if not self._is_started() or self._schema is not None:
            return True
        return not isinstance(rows, Mapping) and rows.shape[1] == self.n_features_in_

    def _positional(self, X: Any, schema: Schema, source: str) -> FloatArray:
        """Return an array of numbers as rows of the table that was learned before."""
        rows = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != schema.width or schema.width != len(schema.names):
            raise DataError(
                f"the model has learned tables with the columns {', '.join(map(repr, schema.names[:8]))}"
                f"{', ...' if len(schema.names) > 8 else ''}; got an array of shape {rows.shape}.",
                source=source,
                hint="pass a table with these columns",
            )
        if schema.categorical:
            raise DataError(
                f"column {schema.coded_names[schema.categorical[0]]!r} contains categories; got an array of "
                "numbers.",
                source=source,
                hint="pass a table with the same columns",
            )
        return np.ascontiguousarray(rows)

    def _unnamed(self, X: Any, source: str) -> FloatArray:
        """Return a table as rows of a model that has learned arrays: columns are matched by position."""
        schema = Schema()
        coded = schema.encode(X, source, learn=True)
        text = next((name for name, kind in schema.kinds.items() if kind not in {"number", "unknown"}), None)
        if text is not None:
            raise DataError(
                f"the model has learned arrays of numbers; column {text!r} contains no numbers.",
                source=source,
                hint="learn tables from the first call on",
            )
        if coded.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {coded.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input.",
                source=source,
            )
        return coded

    def _extend_layout(self, X: FloatArray) -> None:
        """Take notice of new columns, gaps and categories in rows that will be learned."""
        layout = self._views.layout
        categorical = self._categorical()
        if layout is None:
            if not categorical and X.shape[1] == self._rows.n_columns and _native.all_finite(X):
                return
            first = self._rows.block.X if self._n_seen or len(self._pending) else X
            layout = Layout.of_rows(first, categorical if first is X else ())
        if X.shape[1] > self._rows.n_columns:
            self._rows = self._rows.widened(X.shape[1])
            self._pending = self._pending.widened(X.shape[1])
        earlier = self._rows.block.X
        layout = layout.extended(X, earlier, categorical)
        if layout is not self._views.layout:
            self._views = self._views.with_layout(layout)
            self._snapshot = replace(self._snapshot, views=self._views)

    def _categorical(self) -> tuple[int, ...]:
        return () if self._schema is None or self._hashed is not None else self._schema.categorical

    def _learn(self, batch: Batch) -> None:
        self._apply(batch, None, "fit")

    def _apply(
        self, add: Batch | None, forget: Batch | None, method: str, time: ArrayLike | None = None
    ) -> None:
        try:
            added = None if add is None else self._block(add, method, time)
            self._online_threshold = OnlineThreshold.updated(self._online_threshold, self.threshold)
            if added is not None:
                self._note_times(time, len(added))
            if forget is None and added is not None and self._add_pending(added):
                if len(self._pending) < SETTINGS.pending_rows:
                    return
                added = None
            self._recent_scores = self._recent_scores.copy()
            self._experts = self._copied_experts()
            if len(self._pending):
                pending, self._pending = self._pending.together(), PendingRows()
                self._learn_block(*pending)
            forgotten = None if forget is None else self._block(forget, "forget")
            if forgotten is not None:
                self._check_forget(added, forgotten)
            if added is not None:
                self._learn_blocks(added)
            if forgotten is not None:
                self._forget_block(forgotten)
        except SteelyardError as error:
            raise error.with_source(f"{type(self).__name__}.{method}") from None

    def _note_times(self, time: ArrayLike | None, n_rows: int) -> None:
        """Measure the rate of the rows, for a promised number of alarms per day."""
        if time is not None and self._online_threshold is not None:
            self._online_threshold.log.note_times(checked_times(time, n_rows), predicted=False)

    def _block(self, batch: Batch, method: str, time: ArrayLike | None = None) -> Block:
        """Return the rows of a batch with class codes; labels never seen before get new codes."""
        codes = self._code_of
        new = [label for label in batch.labels if label not in codes]
        if new:
            if method == "forget":
                raise DataError(f"no rows of class {new[0]!r} were ever learned; nothing was changed.")
            self._labels = [*self._labels, *new]
            codes = self._code_of = {label: code for code, label in enumerate(self._labels)}
        row_codes = np.array([codes[label] for label in batch.labels], dtype=np.int64)[batch.codes]
        times = self._checked_times(time, len(row_codes), method)
        X = self._dense(batch.X, method)
        if method == "forget":
            self._check_known_categories(X)
        else:
            self._extend_layout(X)
        wide = self._wide(batch.X)
        block = Block.from_rows(X, row_codes, batch.weights, times, n_first=self._n_first(), wide=wide)
        if batch.weights is not None and not (batch.weights > 0.0).all():
            return block.take(batch.weights > 0.0)
        return block

    def _check_known_categories(self, X: FloatArray) -> None:
        """Raise DataError for categories that were never learned."""
        for column in self._categorical():
            if (X[:, column] < 0).any():
                assert self._schema is not None
                name, row = self._schema.coded_names[column], int((X[:, column] < 0).argmax())
                raise DataError(
                    f"row {row} has a value in column {name!r} that was never learned; nothing was changed."
                )

    def _n_first(self) -> int | None:
        return None if self._views.layout is None else self._views.layout.n_first

    def _dense(self, X: Any, method: str) -> FloatArray:
        """Return dense rows of finite numbers or NaN with at most `max_columns` columns."""
        if sp.issparse(X):
            X = check_finite(self, X, method)
        else:
            X = np.ascontiguousarray(X, dtype=np.float64)
            if not _native.all_finite(X):
                check_not_infinite(self, X, method)
        if isinstance(self._hashed, HashedTable):
            assert self._schema is not None
            return self._hashed.apply(X, self._schema.categorical)
        if self._hashed is not None:
            return self._hashed.apply(X)
        X = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        n_columns = self._rows.n_columns
        if X.shape[1] < n_columns:  # a positional array after a table
            X = np.pad(X, ((0, 0), (0, n_columns - X.shape[1])), constant_values=np.nan)
        return X

    def _wide(self, X: Any) -> sp.csr_matrix | None:
        """Return the rows before hashing; None if they are not hashed."""
        return None if self._hashed is None else self._hashed.wide(X)

    def _checked_times(self, time: ArrayLike | None, n_rows: int, method: str) -> FloatArray | None:
        if method in {"forget", "fit"} or self.window == "auto" or isinstance(self._window_size(), int):
            times = np.zeros(0) if time is None else np.asarray(time, dtype=np.float64)
            # Without a window of time only the change monitor uses times.
            return times if times.shape == (n_rows,) and np.isfinite(times).all() else None
        if time is None:
            raise DataError(
                "a window of time needs the times of the rows; got none.",
                hint="pass time= to partial_fit(), or give the window as a number of rows",
            )
        times = checked_times(time, n_rows)
        if (np.diff(np.concatenate([self._rows.block.times[-1:], times])) < 0).any():
            raise DataError("the times of the rows must not decrease; nothing was changed.")
        return times

    def _window_size(self) -> int | timedelta | None:
        """Return the window in rows or time; None for all rows."""
        return None if self.window == "auto" else window_size(self.window)

    def _add_pending(self, block: Block) -> bool:
        """Buffer a few rows until there are more; only the label frequency experts use them immediately."""
        snapshot = self._snapshot
        n = len(block)
        if not (
            len(self._pending) + n <= min(SETTINGS.pending_rows, self._n_seen // 20)
            and n < SETTINGS.pending_rows
            and len(snapshot.classes) > 1
            and self.window == "auto"
            and self._counts.size == len(self._labels)
            and self._counts[block.codes].all()
        ):
            return False
        scores = self._score(block)
        assert scores is not None
        self._pending = self._pending.added(block, scores)
        self._snapshot = snapshot.after_labels(block.codes.tolist())
        return True

    def _copied_experts(self) -> list[Expert]:
        return [expert.copy(self._rows, self._views) for expert in self._experts]

    def _learn_blocks(self, block: Block) -> None:
        begin = 0
        while begin < len(block):
            size = min(SETTINGS.max_block_rows, max(SETTINGS.first_block_rows, self._n_seen))
            part = block.take(slice(begin, begin + size))
            self._learn_block(part, self._score(part))
            begin += size

    def _learn_block(self, block: Block, scores: FloatArray | None) -> None:
        """Learn rows that :meth:`_score` has scored: record, update, weigh, publish."""
        stream = self._record(block, scores)
        self._update(stream, partial(self._monitor, block))
        weights = self._weigh(stream)
        self._publish(stream, weights)

    def _score(self, block: Block) -> FloatArray | None:
        """Return the scores of all experts before the rows are learned; None while there is one class.

        Rows that were predicted before keep the scores given then.
        """
        snapshot = self._snapshot
        if len(snapshot.classes) < 2:
            return None
        given = self._predicted.take(block.keys, snapshot.classes)
        missing = [row for row, scores in enumerate(given) if scores is None]
        if len(missing) == len(given):
            return snapshot.raw_scores(block.X, block.wide)
        if missing:
            part = block.take(missing)
            for row, scores in zip(missing, snapshot.raw_scores(part.X, part.wide), strict=True):
                given[row] = scores
        return np.stack(given)  # type: ignore[arg-type]  # every row has scores now

    def _record(self, block: Block, scores: FloatArray | None) -> Stream:
        """Add the rows to the row buffer, their scores to the recent scores, and adjust window and views."""
        n_before, old_classes = self._n_seen, self._snapshot.classes
        self._n_seen += len(block)
        if scores is not None and len(old_classes) == 2:
            self._learn_labels(block, scores)
        if scores is not None:
            hit = self._snapshot.predict_codes(scores) == block.codes
            self._drift = self._drift.after(block.codes, hit, len(self._labels), self._n_seen)
        block = block.numbered(n_before)
        self._count(block, 1)
        self._rows = self._rows.append(block)
        low = self._window_begin()
        if low > self._low:
            self._count(self._rows.between(self._low, low), -1)
            self._low = low
        classes, budget = self._class_codes(), self._budget()
        self._select_experts(budget)
        self._fit_views(budget)
        stream = Stream(
            self._rows,
            self._low,
            self._n_seen,
            n_before,
            self._views,
            budget,
            self.random_state,
            classes != old_classes,
        )
        for expert in self._experts:
            if expert.is_enabled:
                expert.observe(block, stream)
        self._record_scores(block, scores, classes if budget.weighs_experts else [])
        return stream

    def _monitor(self, block: Block) -> None:
        """Test the columns and class frequencies of new rows for changes."""
        self._changes = self._changes.after(
            self._monitored(block.X), block.codes, self._labels, self._column_names(), block.times
        )

    def _learn_labels(self, block: Block, scores: FloatArray) -> None:
        """Update the online threshold and the calibration by out-of-sample scores of two classes."""
        snapshot = self._snapshot
        totals, threshold = snapshot.score_and_threshold(scores)
        promise = self._online_threshold
        if promise is not None:
            is_positive = block.codes == snapshot.classes[0 if promise.sign < 0.0 else 1]
            promise.learn(totals, threshold, block.keys, is_positive)
        if isinstance(snapshot.weights, ExpertWeights):
            log_odds = snapshot.weights.slope * totals + snapshot.weights.bias + self._prior_log_odds()
            is_second = block.codes == snapshot.classes[1]
            self._calibration = self._calibration.after(log_odds, is_second)

    def _prior_log_odds(self) -> float:
        """Return the log-odds of the second of two classes among recent rows."""
        first, second = np.maximum(self._shares(), _MIN_SHARE)
        return float(np.log(second / first))

    def _record_scores(self, block: Block, scores: FloatArray | None, classes: list[int]) -> None:
        recent = self._recent_scores
        recent.set_classes(classes)
        if not classes:
            return
        if scores is not None:
            scores = align(scores, self._snapshot.classes, classes)
            if len(block) > SETTINGS.max_label_history_block_rows:
                # Label frequency experts give all rows of a block the same score. The recent scores of a rare
                # class come from more blocks than those of a frequent class, so comparing both would reward
                # chance.
                uses_labels = np.array([expert.view == "labels" for expert in self._experts])
                scores = np.where(uses_labels[:, None], np.nan, scores)
        place_of = np.full(len(self._labels), -1)
        place_of[classes] = np.arange(len(classes))
        if scores is not None:
            self._record_log_odds(block, scores, classes)
        recent.push(place_of[block.codes], scores, block.keys, block.weights)
        # A short score buffer helps after a rare drift, but not in a stream that changes all the time.
        drifts = self._drift.drifts
        is_rare = len(drifts) < 2 or drifts[-1] - drifts[-2] >= SETTINGS.min_rows_between_drifts
        if is_rare and self._drift.is_within(SETTINGS.short_after_drift_rows, self._n_seen):
            recent.shorten()

    def _record_log_odds(self, block: Block, scores: FloatArray, classes: list[int]) -> None:
        """Record the calibrated scores of these rows, by which the weights of two classes are corrected."""
        weights = self._snapshot.weights
        if len(classes) != 2 or classes != self._snapshot.classes:
            self._correction = WeightCorrection.none(len(EXPERTS))
        elif isinstance(weights, ExpertWeights):
            log_odds = weights.expert_log_odds(scores[:, :, 0])
            places = (block.codes == classes[1]).astype(np.int64)
            self._correction = self._correction.after(log_odds, places, block.keys)

    def _update(self, stream: Stream, monitor: Callable[[], None]) -> None:
        """Update the experts that are due, expensive ones in parallel, and derive their rules.

        ``monitor`` needs no expert and runs beside them.
        """
        ready = [expert for expert in self._experts if expert.is_ready(stream.views)]
        due = {expert for expert in ready if stream.new_class or expert.is_due(stream)}

        def update(experts: list[Expert]) -> None:
            for expert in experts:
                if expert in due:
                    expert.update(stream)
                if expert.needs_rule(stream):
                    expert.refresh_rule(stream)

        expensive = [expert for expert in ready if expert in due and expert.is_expensive]
        # Experts that are updated in place come first, because the calling thread runs the first task: no
        # other thread may change them after the call ended. Of the others the longest comes first, so that
        # no thread waits for a long task that began late: refits, and of those the one with the most rows.
        expensive.sort(key=lambda e: (not e.updates_in_place, not e.refits, -e.n_rows))
        cheap = [expert for expert in ready if expert not in expensive]

        def update_cheap() -> None:
            with one_thread():
                update(cheap)

        tasks: list[Callable[[], None]] = [partial(update, [expert]) for expert in expensive]
        n_new = stream.n_seen - stream.n_before
        is_parallel = bool(tasks) and n_new >= SETTINGS.min_rows_for_threads
        run_tasks([*tasks, update_cheap, monitor], parallel=is_parallel)

    def _weigh(self, stream: Stream) -> ExpertWeights | MulticlassWeights | None:
        """Return new weights if there were enough rows since the last weighing, else the current weights."""
        budget, classes = stream.budget, self._class_codes()
        waited = self._n_seen - self._weighed_at
        wait = float(SETTINGS.weigh_min_rows)
        if not self._drift.is_within(SETTINGS.short_after_drift_rows, self._n_seen):
            wait = max(wait, budget.batch_rows, budget.weigh_rows)
        wait = min(wait, 1 + self._n_seen * budget.n_planes // 20) / (10.0 if stream.new_class else 1.0)
        if waited < wait and not (stream.new_class and len(classes) <= 3):
            return self._snapshot.weights_for(classes)
        self._weighed_at = self._n_seen
        return self._new_weights()

    def _new_weights(self) -> ExpertWeights | MulticlassWeights | None:
        """Return weights from the recent scores; experts without a rule get none."""
        priors = np.array([0.0 if expert.rule is None else expert.config.prior for expert in self._experts])
        is_long = self._n_seen >= SETTINGS.long_stream_rows
        self._positive = self._find_positive()
        classes = self._recent_scores.classes
        is_mirrored = self._is_mirrored(classes)
        self._online_threshold = OnlineThreshold.updated(
            self._online_threshold, self.threshold, -1.0 if is_mirrored else 1.0
        )
        goal: Any = self._online_threshold or self.threshold
        if is_prices(goal) and len(classes) == 2:
            goal = self._row_costs.prices(goal, self._labels[classes[0 if is_mirrored else 1]])
        if isinstance(goal, OnlineThreshold) and len(classes) > 2:
            goal = goal.per_row
        weights = weigh(
            self._recent_scores,
            goal,
            priors,
            is_long=is_long,
            is_mirrored=is_mirrored,
            correction=self._correction,
        )
        if isinstance(weights, ExpertWeights) and weights.correction is not None:
            self._correction = weights.correction
        return weights

    def _is_mirrored(self, classes: list[int]) -> bool:
        """Return whether the first of two classes is the positive one."""
        return len(classes) == 2 and bool(self._labels[classes[0]] == self._positive)

    def _find_positive(self) -> Label | None:
        """Return the positive class of two classes."""
        counts = {self._labels[code]: int(self._counts[code]) for code in self._class_codes()}
        if len(counts) != 2:
            return None
        if self.positive is not None and positive_class(counts, self.positive) not in counts:
            return None  # the given class has no rows yet
        return positive_class(counts, self.positive, self._positive)

    def _publish(self, stream: Stream, weights: ExpertWeights | MulticlassWeights | None) -> None:
        """Make the new rules and weights visible to predictions, and drop rows that no expert needs."""
        rules = [expert.rule for expert in self._experts]
        if self._online_threshold is not None and isinstance(weights, ExpertWeights):
            weights = replace(weights, threshold=self._online_threshold.threshold(weights.totals))
        self._snapshot = EnsembleSnapshot(self._class_codes(), rules, weights, stream.views)
        self._trim(stream.budget)

    def _trim(self, budget: CostBudget) -> None:
        held = [numbers for expert in self._experts for numbers in expert.held_rows()]
        if self.window == "auto":
            n_kept = SETTINGS.buffer_rows + 2 * SETTINGS.buffer_rows_of_classes + sum(map(len, held))
            if len(self._rows) <= (1.0 + SETTINGS.slack) * n_kept:
                return
            per_class = SETTINGS.buffer_rows_of_classes // max(budget.n_classes, 2)
            numbers, slack = self._rows.last(SETTINGS.buffer_rows, per_class), SETTINGS.slack
        else:
            first = [row for expert in self._experts if (row := expert.first_row()) is not None]
            numbers, slack = self._rows.last(len(self._rows), low=min([self._low, *first])), 0.0
        self._rows = self._rows.keep(np.unique(np.concatenate([numbers, *held])), slack)

    def _budget(self) -> CostBudget:
        n_classes, known = int(np.count_nonzero(self._counts)), self.__dict__.get("_known_budget")
        is_long = self._n_seen >= SETTINGS.long_stream_rows
        is_long = is_long and not self._drift.is_within(SETTINGS.long_after_drift_rows, self._n_seen)
        if known is None or not known.is_for(self.compute_budget, n_classes, is_long):
            known = self._known_budget = CostBudget(self.compute_budget, n_classes, is_long)
        return known

    def _select_experts(self, budget: CostBudget) -> None:
        """Disable experts that the budget does not cover, and enable them again when it does."""
        for expert in self._experts:
            is_affordable = expert.is_affordable(budget)
            if expert.is_enabled and not is_affordable:
                expert.disable()
            elif is_affordable and not expert.is_enabled and expert.can_return:
                expert.is_enabled = True

    def _fit_views(self, budget: CostBudget) -> None:
        """Fit the rank transformation and the random map after 100 rows, and again after 1,000."""
        if not any(self._views_at < n <= self._n_seen for n in SETTINGS.view_rows):
            return
        n_mapped = MappedLinearExpert.n_mapped(budget.n_classes)
        block = self._rows.block
        self._views = self._views.fit(block.X, block.codes, n_mapped, self.random_state)
        self._views_at = self._n_seen
        # Experts on ranks or mapped rows restart; the row buffer still has all rows that they had learned.
        self._experts = [
            expert if expert.view in {"rows", "labels"} else expert.restart() for expert in self._experts
        ]

    def _window_begin(self) -> int:
        """Return the number of the oldest row in the window."""
        size = self._window_size()
        if size is None:
            return 0
        if isinstance(size, int):
            return max(self._low, self._n_seen - size)
        rows = self._rows.block
        begin = int(np.searchsorted(rows.times, rows.times[-1] - size.total_seconds(), side="right"))
        return max(self._low, int(rows.numbers[begin]))

    def _count(self, block: Block, sign: int) -> None:
        counts = sign * np.bincount(block.codes, minlength=len(self._labels))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def _class_codes(self) -> list[int]:
        """Return the codes of the classes that have rows, in the order of their labels."""
        codes: list[int] = np.flatnonzero(self._counts).tolist()
        return codes if len(codes) < 2 else sorted(codes, key=self._labels.__getitem__)

    def _stream(self) -> Stream:
        """Return the stream as it is between two calls."""
        n = self._n_seen
        return Stream(self._rows, self._low, n, n, self._views, self._budget(), self.random_state)

    # -- forgetting ---------------------------------------------------------------------------------

    def _check_forget(self, add: Block | None, forget: Block) -> None:
        """Raise DataError for rows that were never learned, before any expert changes."""
        if self.window == "auto":
            linear = self._experts[0]
            assert isinstance(linear, LinearExpert)
            linear.check_forget(add, forget, self._stream())
            return
        rows = self._rows if add is None else self._rows.append(add.numbered(self._n_seen))
        places = rows.find(forget)
        if (places < 0).any() or (rows.numbers[places] < self._low).any():
            raise DataError("some of the rows to be forgotten are not remembered; nothing was changed.")

    def _forget_block(self, block: Block) -> None:
        stream = self._stream()
        for expert in self._experts:  # experts unlearn rows that they have learned
            if expert.is_ready(stream.views) and not expert.refits:
                expert.update(stream)
        places = self._rows.find(block)
        found = places >= 0
        numbers = np.full(len(block), -1)
        numbers[found] = self._rows.numbers[places[found]]
        self._rows = self._rows.without(places[found])
        block = replace(block, numbers=numbers)
        self._count(block, -1)
        self._select_experts(self._budget())
        stream = self._stream()
        for expert in self._experts:
            if expert.is_enabled:
                expert.forget(block, stream)
        for code in np.unique(block.codes).tolist():
            keys = block.keys[block.codes == code]
            self._recent_scores.drop(code, keys)
            if code in self._snapshot.classes[:2]:
                self._correction = self._correction.without(self._snapshot.classes.index(code), keys)
        if self._online_threshold is not None:
            self._online_threshold.log.drop(block.keys)
        for expert in self._experts:
            if expert.is_ready(stream.views):
                expert.refresh_rule(stream)
        self._changes = self._changes.forgotten()
        self._recent_scores.set_classes(self._class_codes() if stream.budget.weighs_experts else [])
        self._weighed_at = self._n_seen
        self._publish(stream, self._new_weights())

    # -- predicting ---------------------------------------------------------------------------------

    @property
    @snapshot_read
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that have rows in the window."""
        self._need("classes_")
        return self._classes_of(self._snapshot)

    @property
    @snapshot_read
    def positive_(self) -> Label | None:
        """The positive class of two classes; None if there are more, or fewer."""
        self._need("positive_")
        return self._find_positive()

    def _classes_of(self, snapshot: EnsembleSnapshot) -> NDArray[Any]:
        return sorted_classes([self._labels[code] for code in snapshot.classes])

    @property
    @snapshot_read
    def linear_(self) -> ProximalSVC:
        """A copy of the linear expert over all rows in the window."""
        self._need("linear_")
        expert = self._experts[0].copy(self._rows, self._views)
        expert.update(self._stream())  # some rows may not have been learned yet
        assert isinstance(expert, LinearExpert)
        if expert.learner is None:
            raise AttributeError("StreamClassifier has no linear_ while its linear expert has no rows.")
        return copy.deepcopy(expert.learner)

    @property
    @snapshot_read
    def class_count_(self) -> NDArray[np.int64]:
        """Rows of each class in the window."""
        self._need("class_count_")
        pending = np.bincount(self._pending.codes(), minlength=len(self._labels)).astype(np.int64)
        return (self._counts + pending)[self._snapshot.classes]

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        """Return scores minus threshold, or log-probabilities of more than two classes; and the classes."""
        snapshot, scores = self._decide(X, method)
        return scores, self._classes_of(snapshot)

    def _decide(self, X: Any, method: str) -> tuple[EnsembleSnapshot, FloatArray]:
        snapshot, raw, keys = self._raw_scores(X, method)
        promise = self._online_threshold
        decisions = snapshot.decide(raw)
        if promise is None or promise.decides_rows or len(snapshot.classes) != 2:
            return snapshot, decisions
        if method not in {"predict", "decision_function"}:
            return snapshot, decisions
        promise.record(*snapshot.score_and_threshold(raw), raw, keys, snapshot.totals)
        return snapshot, decisions if snapshot.weights is not None else promise.without_threshold(decisions)

    def _raw_scores(self, X: Any, method: str) -> tuple[EnsembleSnapshot, FloatArray, NDArray[np.uint64]]:
        """Return the snapshot, the scores of its experts and the hashes of the rows; keep the scores."""
        rows = validate_rows(self, X, method)
        X, wide = self._dense(rows, method), self._wide(rows)
        snapshot = self._snapshot
        if not snapshot.classes:
            raise all_forgotten_error(f"{type(self).__name__}.{method}")
        raw, keys = snapshot.raw_scores(X, wide), row_keys(X, self._n_first(), wide)
        if len(snapshot.classes) > 1:
            self._predicted.keep(keys, snapshot.classes, raw)
        return snapshot, raw, keys

    @property
    def labels_follow_scores(self) -> bool:  # type: ignore[override]
        """Whether predict() is the sign or argmax of decision_function(); not for a promised alarm rate."""
        return not (is_promise(self.threshold) and {"alarms", "alarms_per_day"} & set(self.threshold))

    @snapshot_read
    def predict(
        self, X: ArrayLike, *, time: ArrayLike | None = None, sample_cost: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Return the predicted labels of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows, oldest first.
        time : array-like of shape (n_samples,), optional
            Times of the rows in seconds, for ``threshold={"alarms_per_day": ...}``. Without times the rows
            are assumed to arrive at the recent rate.
        sample_cost : array-like of shape (n_samples,), optional
            Factor of the price of a miss for each row. A row is an alarm if this has the lower expected cost
            by :meth:`predict_proba`. The goal ``threshold`` must be prices.

        Returns
        -------
        ndarray of shape (n_samples,)

        Notes
        -----
        With a promised rate of alarms every row that is passed to this method counts, in this order, and
        each decision depends on the alarms before. Use :meth:`decision_function` to score rows without
        counting them.
        """
        if sample_cost is not None:
            source = f"{type(self).__name__}.predict"
            is_mirrored = self._is_mirrored(self._snapshot.classes) if self._is_started() else False
            probabilities = self.predict_proba(X)
            alarms = cost_alarms(probabilities, sample_cost, self.threshold, source, is_mirrored=is_mirrored)
            return self.classes_[alarm_indices(alarms, is_mirrored=is_mirrored)]
        promise = self._online_threshold if self._is_started() else None
        if promise is None or not promise.decides_rows or len(self._snapshot.classes) != 2:
            scores, classes = self._scored(X, "predict")
            return classes[winners(scores, len(classes))]
        snapshot, raw, keys = self._raw_scores(X, "predict")
        times = None if time is None else checked_times(time, len(keys))
        totals, _ = snapshot.score_and_threshold(raw)
        alarms = promise.alarms(totals, raw, keys, snapshot.totals, times)
        return self._classes_of(snapshot)[alarm_indices(alarms, is_mirrored=promise.sign < 0.0)]

    @snapshot_read
    def predict_proba(self, X: ArrayLike, *, prior: str | Mapping[Label, float] = "observed") -> FloatArray:
        """Return the probabilities of the classes, calibrated on recent out-of-sample scores.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.
        prior : {"observed", "balanced"} or mapping of label to float, default="observed"
            Class frequencies: those of recent rows, equal ones, or the given proportions.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        snapshot, scores = self._decide(X, "predict_proba")
        labels = [self._labels[code] for code in snapshot.classes]
        factors = prior_factors(prior, labels, self._shares, f"{type(self).__name__}.predict_proba")
        if len(labels) == 1:
            return np.ones((len(scores), 1))
        log_odds = self._log_odds(snapshot, scores)
        powers = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
        powers = powers if factors is None else powers * factors
        result: FloatArray = powers / powers.sum(axis=1, keepdims=True)
        return result

    def _log_odds(self, snapshot: EnsembleSnapshot, decisions: FloatArray) -> FloatArray:
        """Return calibrated log-probabilities up to a constant, for equally frequent classes."""
        log_odds = snapshot.log_odds(decisions)
        if isinstance(snapshot.weights, ExpertWeights):
            shift = self._prior_log_odds()
            log_odds[:, 1] = self._calibration.log_odds(log_odds[:, 1] + shift) - shift
        return log_odds

    @snapshot_read
    def predict_set(self, X: ArrayLike, *, coverage: float = 0.95) -> NDArray[np.bool_]:
        """Return prediction sets: the classes that cannot be ruled out, for every row.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.
        coverage : float, default=0.95
            Wanted probability that the set contains the true class, for every class.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Whether each class of ``classes_`` belongs to the set. A class with fewer than
            ``1 / (1 - coverage)`` recent rows belongs to all sets.
        """
        source = f"{type(self).__name__}.predict_set"
        coverage = check_coverage(coverage, source)
        snapshot, decisions = self._decide(X, "predict_set")
        n_classes, recent = len(snapshot.classes), self._recent_scores
        if n_classes == 1 or recent.classes != snapshot.classes:
            return np.ones((len(decisions), n_classes), dtype=bool)
        places, raw = recent.recent()
        log_odds = snapshot.log_odds(snapshot.decide(raw))
        return prediction_sets(log_odds, places, snapshot.log_odds(decisions), coverage)

    def _shares(self) -> FloatArray:
        """Return the class shares among recent rows, or among all rows if there are too many classes."""
        if self._recent_scores.classes == self._snapshot.classes:
            return self._recent_scores.shares()
        counts = self._counts[self._snapshot.classes].astype(np.float64)
        return counts / max(counts.sum(), 1.0)

    def _continue_predictions(self, predecessor: Any) -> None:
        """Count further predictions together with those of an earlier copy of this model."""
        if isinstance(predecessor, StreamClassifier) and self._is_started() and predecessor._is_started():
            continue_log(self._online_threshold, predecessor._online_threshold)

    @property
    @snapshot_read
    def realised_rates_(self) -> list[RealisedRate]:
        """Realised rates of alarms, recall and precision, if a rate is promised; otherwise empty."""
        self._need("realised_rates_")
        return [] if self._online_threshold is None else self._online_threshold.realised()

    @snapshot_read
    def explain(
        self,
        X: ArrayLike | None = None,
        *,
        background: ArrayLike | None = None,
        changes: bool | None = None,
    ) -> Any:
        """Explain the predictions of rows; without rows, describe the model.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), optional
            Rows to explain. Without rows, the result has weight, memory and recent quality of each expert,
            the threshold, and the restrictions by the compute budget.
        background : array-like of shape (n_background, n_features), optional
            Rows to compare with; a sample of the recent rows by default.
        changes : bool, optional
            Whether to search for changes that lead to another prediction. By default for at most 20 rows.

        Returns
        -------
        Explanation or RowExplanations
            A description of the model; or, for each row, contributions of the columns that add up to the
            score, the nearest remembered rows, and changes. Both print as text, show as a table in a
            notebook, and draw themselves with ``plot()``.

        Notes
        -----
        Contributions are sums over the experts: exact for linear experts, TreeSHAP for boosted trees, Shapley
        values for kernels. Label frequencies do not depend on the row and are part of the base. More than 256
        columns are hashed for all experts but "wide"; contributions of hashed columns are divided among the
        original columns in proportion to the absolute values of the row.
        """
        check_started(self, "explain")
        if X is not None:
            found = explain_rows(self, X, background, changes)
            return found if self._schema is None else with_table_values(found, self._schema)
        return explain_ensemble(
            self._snapshot,
            self._experts,
            [self._labels[code] for code in self._snapshot.classes],
            self._shares(),
            self._stream(),
            threshold=self.threshold,
            n_pending=len(self._pending),
            drifts=self._drift.drifts,
            promise=self._online_threshold,
            positive=self._find_positive(),
        )

    def _explained_rows(self, X: Any) -> FloatArray:
        if sp.issparse(X):
            return dense_rows(self, X)
        rows = np.ascontiguousarray(validate_rows(self, X, "explain"), dtype=np.float64)
        check_not_infinite(self, rows, "explain")
        return rows

    def _explained_names(self, n_columns: int) -> list[str]:
        schema = self._schema
        return super()._explained_names(n_columns) if schema is None else schema.coded_names[:n_columns]

    def _explained_scores(self, X: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        snapshot = self._snapshot
        if not snapshot.classes:
            raise all_forgotten_error(f"{type(self).__name__}.explain")
        raw = snapshot.raw_scores(self._dense(X, "explain"), self._wide(X))
        return snapshot.decide(raw), self._classes_of(snapshot)

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        if isinstance(self._hashed, HashedTable):
            raise DataError(
                f"rows of tables with more than {SETTINGS.max_columns} columns cannot be explained.",
                source="StreamClassifier.explain",
                hint="select the columns that matter before learning",
            )
        rows, wide, snapshot = self._dense(X, "explain"), self._wide(X), self._snapshot
        others = self._recent_rows().X if background is None else self._dense(background, "explain")
        raw, others = snapshot.raw_scores(rows, wide), sampled_rows(others)
        unhash = None if self._hashed is None else partial(unhashed, X=X, view=self._hashed)
        return explain_snapshot(snapshot, rows, others, raw, wide=wide, unhash=unhash)

    def _recent_rows(self) -> Block:
        """Return the last rows, and the last rows of each class, in the row buffer."""
        numbers = self._rows.last(_EXPLAINED_RECENT_ROWS, _EXPLAINED_ROWS_OF_CLASS, self._low)
        recent = self._rows.at(numbers)
        return recent if len(recent) else self._rows.block

    def _remembered_rows(self) -> RememberedRows | None:
        recent, views = self._recent_rows(), self._views
        labels = np.array([*self._labels, None], dtype=object)[:-1][recent.codes]

        def ranks(rows: FloatArray) -> FloatArray:
            return rows if views.ranks is None else TransformedRows(rows, views).ranks

        def compare(X: FloatArray) -> FloatArray:
            return ranks(self._dense(X, "explain"))

        has_values = self._hashed is None
        rows = recent.X if has_values else ranks(recent.X)
        return RememberedRows(rows, labels, recent.numbers, compare, has_values)

    @snapshot_read
    def drift_report(self, X: ArrayLike | None = None) -> DriftReport:
        """Return what changed recently and why: class frequencies, columns, or the concept.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), optional
            Recent rows whose labels are not known yet. Their columns and the scores that the model gives them
            are compared with the rows of the row buffer.

        Returns
        -------
        DriftReport
            Without ``X``, the last 3,000 labelled rows are compared with the rows before them, back to the
            last drift; ``events`` lists the drifts that tests valid at any time have found. With ``X``, the
            only possible cause is "features", and the column "score" is the score of the model.

        Notes
        -----
        Without drift, and if rows are exchangeable, there is on average at most one event in 100,000 rows. A
        column that causes more than three events, such as the hour of the day, is ignored afterwards.
        :meth:`forget` restarts the tests.
        """
        check_started(self, "drift_report")
        if X is not None:
            rows = validate_rows(self, X, "drift_report")
            return self._unlabelled_report(self._dense(rows, "drift_report"))
        report = self._changes.report(self._column_names())
        if report is None:
            counts = self.class_count_.astype(np.float64)
            shares = (counts / max(counts.sum(), 1.0)).tolist()
            both = {x: (share, share) for x, share in zip(self.classes_.tolist(), shares, strict=True)}
            return DriftReport([], {}, [], both, (float(counts.sum()), 0.0), None, self._changes.event_list())
        return report

    @property
    @snapshot_read
    def drift_events_(self) -> list[dict[str, Any]]:
        """Drifts found so far: row, cause, columns and text of each."""
        self._need("drift_events_")
        return self._changes.event_list()

    @property
    @snapshot_read
    def drift_evidence_(self) -> float:
        """Evidence for a drift since the last one, from 0 to 1; at 1 there is a new event."""
        self._need("drift_evidence_")
        return self._changes.evidence()

    def _unlabelled_report(self, X: FloatArray) -> DriftReport:
        """Compare rows without labels, and their scores, with the rows in the row buffer."""
        known, snapshot = self._rows.block.X, self._snapshot
        both = [known, X]
        known, X = map(self._monitored, both)
        names = self._column_names() or [f"x{k}" for k in range(X.shape[1])]
        if len(snapshot.classes) == 2:
            scores = [snapshot.decide(snapshot.raw_scores(rows)) for rows in both]
            known, X = np.hstack([known, scores[0]]), np.hstack([X, scores[1]])
            names = [*names, "score"]
        before, after = (ClassMoments.of_rows(rows, np.zeros(len(rows), int), ["all"]) for rows in (known, X))
        return compare_moments(before, after, names)

    def _monitored(self, X: FloatArray) -> FloatArray:
        """Return the columns of the first rows for the tests of drift; a missing value counts as 0.

        Columns of times count as 0 too, because time always moves on.
        """
        X = X[:, : min(self._first_width, X.shape[1])]
        X = np.nan_to_num(X) if self._views.layout is not None else X
        schema = self._schema
        if schema is not None and self._hashed is None and "time" in schema.kinds.values():
            times = [place for (name, _), place in schema.places.items() if schema.kinds[name] == "time"]
            X = X.copy()
            X[:, [place for place in times if place < X.shape[1]]] = 0.0
        return np.ascontiguousarray(X)

    def _column_names(self) -> list[str] | None:
        """Return the names of the monitored columns; None if there are none or columns are hashed."""
        if self._hashed is not None:
            return None
        if self._schema is not None:
            return self._schema.coded_names[: self._first_width]
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(map(str, names))

    # -- files and copies ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        with lock_of(self):
            state = super().__getstate__()
            if self._is_started():
                state["_experts"] = [FrozenState(expert) for expert in self._copied_experts()]
            return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _get_state(self) -> dict[str, Any]:
        return get_state(self) if self._is_started() else {}

    def _set_state(self, state: dict[str, Any]) -> None:
        set_state(self, state)
