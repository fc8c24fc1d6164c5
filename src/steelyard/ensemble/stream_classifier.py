"""StreamClassifier: an ensemble of experts for imbalanced streams that needs no tuning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import timedelta
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from steelyard._concurrency import FrozenState, lock_of, shallow_copy
from steelyard._deprecation import renamed_parameters
from steelyard._labels import all_forgotten_error
from steelyard._types import FloatArray, IntArray
from steelyard._validation import (
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
    fitted_property,
    snapshot_read,
    transactional,
)
from steelyard.ensemble.decision import DecisionState, ThresholdedClassifier
from steelyard.ensemble.expert_ensemble import EnsembleParams, ExpertEnsemble
from steelyard.ensemble.experts.incremental import LinearExpert
from steelyard.ensemble.explanation import (
    attribution,
    explain_ensemble,
    labelled_report,
    remembered_rows,
    unlabelled_report,
    with_table_values,
)
from steelyard.ensemble.online_threshold import Combine
from steelyard.ensemble.row_buffer import Block
from steelyard.ensemble.state import get_state, restored_ensemble
from steelyard.ensemble.views import RowInput, has_feature_names, row_keys
from steelyard.exceptions import SteelyardError
from steelyard.explanation.attribution import Attribution
from steelyard.explanation.neighbors import RememberedRows
from steelyard.explanation.rows import explain_rows
from steelyard.params import (
    AnyOf,
    Constraint,
    Integer,
    LabelOrNone,
    OneOf,
    Positive,
    absent_parameters,
    parameter,
    parametrized,
    prior_factors,
)
from steelyard.persistence import storable
from steelyard.proximal import DriftReport, ProximalSVC
from steelyard.tables.schema import Schema
from steelyard.thresholds import ThresholdChoice, signed_scores
from steelyard.windowing.sliding import window_size

_FORMER_PARAMETERS = {"memory": "window", "budget": "compute_budget"}


def _is_window(value: Any) -> bool:
    if isinstance(value, str) and value == "auto":
        return True
    try:
        window_size(value)  # raises an error for invalid values
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
@parametrized(kw_only=True)
class StreamClassifier(ThresholdedClassifier, ForgettingMixin):
    r"""Ensemble of experts for imbalanced streams.

    The experts differ in their memory (all rows, the last 20,000, 5,000, 1,000 or 200 rows, the last labels)
    and in their model (proximal SVMs, a kernel SVM, boosted trees). Experts that have predicted recent rows
    well get large weights, and the decision threshold follows the recent scores.

    Parameters
    ----------
    threshold : "gmean", "kappa", "f1" or dict, default="gmean"
        Goal of the decision threshold: the largest geometric mean of the recalls, Cohen's kappa or F1 score;
        the lowest total cost for ``{"miss": 20, "alarm": 1}``, the costs of both errors; or the largest
        recall with a share of alarms such as ``{"alarms": 0.01}``. An alarm is a prediction of the class
        ``positive_``, a miss is a row of that class without an alarm. With more than two classes, "gmean"
        means the largest mean recall, and the other goals apply to every class against the rest.
    window : "auto", int, timedelta or str, default="auto"
        Number of rows, or duration, after which rows are forgotten. "auto" lets each expert choose its own
        memory, the longest of which covers all rows. A duration such as "30d" needs ``time`` in
        :meth:`partial_fit`.
    compute_budget : "auto" or float, default="auto"
        Approximate computing time per row on a typical machine, in microseconds. "auto" is 120 for the first
        20,000 rows and 80 afterwards. Costs are computed from the numbers of rows, columns and classes and
        never measured, so the same rows give the same model everywhere. With a larger budget, trees are
        refitted and linear systems are solved more often; with a budget below 120 the kernel SVM learns a
        sample of the rows, below 66 it is disabled. :meth:`explain` lists all restrictions. Experts are
        updated in parallel on the available cores (environment variable STEELYARD_NUM_THREADS); results are
        bit-identical for any number of threads.
    random_state : int, default=0
        Seed of the random features and of the samples that boosted trees remember.
    positive : label or None, default=None
        The positive class, if there are two classes; its predictions are alarms. None selects 1, True or "1"
        if the other label is 0, -1 or False, otherwise the rarer class so far. That class stays the positive
        one until it has twice as many rows as the other.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows in the window.
    class_count_ : ndarray of shape (n_classes,)
        Number of rows of each class in the window.
    realised_rates_ : list of RealisedRate
        Observed rates of alarms, recall and precision with intervals, if the threshold has a target rate.
    drift_events_ : list of dict
        Drifts found so far: ``row``, ``cause`` ("prior", "features" or "concept"), ``columns``, ``further``
        causes and ``text``.
    drift_evidence_ : float
        Evidence for a drift since the last one, from 0 to 1; at 1 a new event is recorded.
    linear_ : ProximalSVC
        A copy of the linear expert over all rows, which shows the effect of each feature. Its classes are
        integers: the labels of the stream, numbered in the order of their first occurrence.
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
    :meth:`predict_proba` before keep the scores of that call (up to 100,000 rows), so that with delayed
    labels experts are weighted by their predictions at that time. A chunk delays the labels of its rows, so
    the same rows in chunks of another size give other weights.

    Recent scores are kept for about 1,000 rows, at least 100 of each class. Each expert's scores are
    calibrated to log-odds, which keeps the order of the highest scores, and weighted by AUC and log-loss.
    With two classes the weights are corrected by a logistic regression on the log-odds of 5,000 rows.
    Before two rows of each class are scored, the linear expert over all rows predicts alone.
    :meth:`decision_function` is 0 at the threshold. Farther than 1 from both the threshold and 0, on the
    other side of 0 farther than the threshold, it does not depend on the threshold. With a target rate only
    its sign depends on the threshold: of equally predicted rows, those with larger log-odds score higher.

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

    describes_itself = True  # explain() can be called without rows and then describes the model

    _traits = Traits(
        exact=False,
        bounded_memory=True,
        exempt={
            "chunk_borders_do_not_matter": (
                "a chunk is scored before it is learned, and weights and threshold depend on these scores, "
                "so the labels of a row arrive later in a larger chunk"
            ),
            "data_frames": "columns of a table are matched by name, in any order",
        },
    )
    _accepts_sparse = True
    _finds_nonfinite = True  # RowInput.dense checks the rows
    _input: RowInput = field(init=False)
    _ensemble: ExpertEnsemble = field(init=False)

    threshold: str | dict[str, float] = parameter("gmean", ThresholdChoice())
    window: str | int | timedelta = parameter(
        "auto",
        Constraint(
            '"auto", a whole number of rows, a timedelta, or text such as "30d" (units s, m, h, d, w)',
            _is_window,
        ),
    )
    compute_budget: str | float = parameter("auto", AnyOf(OneOf("auto"), Positive()))
    random_state: int = parameter(0, Integer(0))
    positive: Label | None = parameter(None, LabelOrNone())

    def __getattr__(self, name: str) -> Any:
        if name in {"merge", "subtract"}:  # raised as AttributeError, so that hasattr() returns False
            raise AttributeError(
                f"StreamClassifier has no {name}(): its experts depend on the order of the rows. "
                "ProximalSVC and TableModel(ProximalSVC()) can be merged."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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
        """Score the given rows and then learn them.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows, oldest first.
        y : array-like of shape (n_samples,)
            Labels of the rows; a label never seen before becomes a class.
        classes : array-like, optional
            Labels that may occur, as in scikit-learn. The parameter is never required.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row; 1 when not given.
        time : array-like of shape (n_samples,), optional
            Times of the rows in seconds, ascending; required if ``window`` is a duration, and for alarms per
            day.
        sample_cost : array-like of shape (n_samples,), optional
            Factor by which the cost of a miss is multiplied for each row, such as the amount of a payment.
            The threshold uses the mean factor of recent positive rows.

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
            ensemble = self._ensemble = self._copied_ensemble()
            costs = ensemble.decision.row_costs.after(sample_cost, y, f"{type(self).__name__}.partial_fit")
            ensemble.decision = replace(ensemble.decision, row_costs=costs)
        self._apply(batch, None, "partial_fit", time)
        return self

    def _start(self, batch: Batch) -> None:
        width = batch.X.shape[1]
        self._input = self._input.started(width, self.random_state, self.__dict__.get("feature_names_in_"))
        self._ensemble = ExpertEnsemble(width, self._ensemble_params(), self._input)

    def _ensemble_params(self) -> EnsembleParams:
        return EnsembleParams(
            self.threshold, self.window, self.compute_budget, self.random_state, self.positive
        )

    def _copied_ensemble(self) -> ExpertEnsemble:
        """Return a copy of the ensemble with the current parameters."""
        ensemble = shallow_copy(self._ensemble)
        ensemble.params, ensemble.input = self._ensemble_params(), self._input
        return ensemble

    def _encode_table(self, X: Any, source: str, *, reset: bool, learn: bool) -> FloatArray | None:
        """Return a table as coded rows; with ``learn``, extend the schema by new columns and categories."""
        known = RowInput() if reset else self._input
        extended, coded = known.encode(X, None if reset else self.n_features_in_, source, learn=learn)
        if learn:
            self._input = extended
        if extended is not known and extended.schema is not None:
            self.n_features_in_ = len(extended.schema.names)
            self.__dict__.pop("feature_names_in_", None)
            if has_feature_names(X):
                self.feature_names_in_ = np.array(extended.schema.names, dtype=object)
        return coded

    @property
    def _schema(self) -> Schema | None:
        """Columns of the learned tables; None for arrays of numbers."""
        return self._input.schema

    def reads_table(self, rows: Any) -> bool:
        """Return whether the model can learn rows of a table without conversion to numbers.

        Models of version 0.2 may need the conversion, because they have learned categories as hash features.
        """
        if not self._is_started() or self._schema is not None:
            return True
        return isinstance(rows, np.ndarray) and rows.shape[1] == self.n_features_in_

    @transactional
    def erase_categories(self, categories: Iterable[tuple[str, str]]) -> None:
        """Erase the texts of categories, given as pairs (column, text), that no remembered row has.

        A text that is learned again later is a new category.
        """
        if self._is_started() and self._schema is not None:
            self._input = replace(self._input, schema=self._schema.without_texts(categories))
            self._ensemble = self._copied_ensemble()

    def _learn(self, batch: Batch) -> None:
        self._apply(batch, None, "fit")

    def _apply(
        self, add: Batch | None, forget: Batch | None, method: str, time: ArrayLike | None = None
    ) -> None:
        try:
            ensemble = self._ensemble = self._copied_ensemble()
            known, n_before = ensemble.decision.online_threshold, len(ensemble.snapshot.classes)
            added = None if add is None else self._block(add, method, time)
            forgotten = None if forget is None else self._block(forget, "forget")
            if isinstance(self.threshold, Mapping) or ensemble.decision.online_threshold is not None:
                ensemble.decision = ensemble.decision.with_goal(
                    self.threshold, ensemble.decision.is_mirrored(ensemble.snapshot.labels)
                )
            promise = ensemble.decision.online_threshold
            if promise is not None and added is not None and time is not None:
                promise.log.note_times(checked_times(time, len(added)), predicted=False)
            ensemble.change(added, forgotten)
            if (n_classes := len(ensemble.snapshot.classes)) > 2:
                self._warn_without_rate(known, n_before, n_classes)
        except SteelyardError as error:
            raise error.with_source(f"{type(self).__name__}.{method}") from None

    def _block(self, batch: Batch, method: str, time: ArrayLike | None = None) -> Block:
        """Return the rows of a batch with class codes; labels never seen before get new codes."""
        ensemble, forgets = self._ensemble, method == "forget"
        codes = ensemble.codes_of(batch.labels, learn=not forgets)[batch.codes]
        times = None
        if method not in {"forget", "fit"} and (time is not None or self.window != "auto"):
            times = ensemble.times_for_window(time, len(codes))
        X, wide = self._input.dense(batch.X, self, method)
        if forgets:
            self._input.check_known_categories(X)
        else:
            ensemble.extend_layout(X)
        block = Block.from_rows(X, codes, batch.weights, times, layout=ensemble.views.layout, wide=wide)
        if batch.weights is not None and not (batch.weights > 0.0).all():
            return block.take(batch.weights > 0.0)
        return block

    # -- predicting ---------------------------------------------------------------------------------

    @fitted_property
    @snapshot_read
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that have rows in the window."""
        return self._ensemble.snapshot.labels.copy()

    @fitted_property
    @snapshot_read
    def positive_(self) -> Label | None:
        """Positive class, or None if there are not exactly two classes."""
        return self._copied_ensemble().find_positive()

    @fitted_property
    @snapshot_read
    def linear_(self) -> ProximalSVC:
        """Copy of the linear expert on all rows in the window."""
        ensemble = self._copied_ensemble()
        expert = next(expert for expert in ensemble.copied_experts() if expert.config.name == "linear")
        expert.update(ensemble.stream())  # some rows may not be learned yet
        assert isinstance(expert, LinearExpert)
        learner = expert.learner()
        if learner is None:
            raise AttributeError("StreamClassifier has no linear_ while its linear expert has no rows.")
        return learner

    @fitted_property
    @snapshot_read
    def class_count_(self) -> NDArray[np.int64]:
        """Number of rows of each class in the window."""
        ensemble = self._ensemble
        pending = np.bincount(ensemble.pending.codes(), minlength=len(ensemble.labels)).astype(np.int64)
        return (ensemble.counts + pending)[ensemble.snapshot.classes]

    def _decided(self, raw: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        snapshot, promise = self._ensemble.snapshot, self._ensemble.decision.online_threshold
        decisions = snapshot.decide(raw)
        # A target precision needs tests of recent scores. Before there are any, no row is an alarm.
        is_untested = snapshot.weights is None and promise is not None and promise.levels is not None
        if promise is not None and is_untested and len(snapshot.classes) == 2:
            decisions = signed_scores(decisions, promise.sign < 0.0)
        return decisions, snapshot.labels

    def _raw_scores(self, X: Any, method: str, **_: bool) -> tuple[FloatArray, NDArray[np.uint64]]:
        """Return raw scores and row hashes; store the scores until the labels arrive."""
        rows = validate_rows(self, X, method)
        ensemble, snapshot = self._ensemble, self._ensemble.snapshot
        X, wide = self._input.dense(rows, self, method)
        if not snapshot.classes:
            raise all_forgotten_error(f"{type(self).__name__}.{method}")
        keys = row_keys(X, ensemble.views.layout, wide)
        raw = ensemble.predicted.last(snapshot, keys)
        if raw is None:
            raw = snapshot.raw_scores(X, wide)
            if len(snapshot.classes) > 1:
                ensemble.predicted.keep(keys, snapshot.classes, raw, snapshot)
        return raw, keys

    def _decision_state(self) -> DecisionState:
        return self._ensemble.decision

    def _combination(self) -> tuple[Combine, float]:
        return self._ensemble.snapshot.totals, self._ensemble.snapshot.threshold

    def _probabilities(self, X: Any, prior: str | Mapping[Label, float]) -> FloatArray:
        ensemble, snapshot = self._ensemble, self._ensemble.snapshot
        scores = snapshot.decide(self._raw_scores(X, "predict_proba")[0])
        labels = ensemble.labels_of(snapshot.classes)
        factors = prior_factors(prior, labels, ensemble.shares, f"{type(self).__name__}.predict_proba")
        if len(labels) == 1:
            return np.ones((len(scores), 1))
        log_odds = ensemble.log_odds(scores)
        powers = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
        powers = powers if factors is None else powers * factors
        result: FloatArray = powers / powers.sum(axis=1, keepdims=True)
        return result

    def _log_odds(self, X: Any, method: str) -> tuple[FloatArray, tuple[FloatArray, IntArray] | None]:
        snapshot, recent = self._ensemble.snapshot, self._ensemble.recent_scores
        decisions = snapshot.decide(self._raw_scores(X, method)[0])
        if len(snapshot.classes) == 1 or recent.classes != snapshot.classes:
            return np.zeros((len(decisions), len(snapshot.classes))), None
        places, raw = recent.recent()
        return snapshot.log_odds(decisions), (snapshot.log_odds(snapshot.decide(raw)), places)

    # -- explanation --------------------------------------------------------------------------------

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
            Whether to search for changes that lead to another prediction, by default if X has up to 20 rows.

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
            return found if self._schema is None else with_table_values(found, self._schema, X)
        return explain_ensemble(self._copied_ensemble())

    def _explained_rows(self, X: Any) -> FloatArray:
        if sp.issparse(X):
            return super()._explained_rows(X)
        rows = np.ascontiguousarray(validate_rows(self, X, "explain"), dtype=np.float64)
        check_not_infinite(self, rows, "explain")
        return rows

    def _explained_names(self, n_columns: int) -> list[str]:
        schema = self._schema
        return super()._explained_names(n_columns) if schema is None else schema.coded_names[:n_columns]

    def _explained_scores(self, X: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        snapshot = self._ensemble.snapshot
        if not snapshot.classes:
            raise all_forgotten_error(f"{type(self).__name__}.explain")
        rows, wide = self._input.dense(X, self, "explain")
        return self._decided(snapshot.raw_scores(rows, wide))

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        others = None if background is None else self._input.dense(background, self, "explain")[0]
        rows, wide = self._input.dense(X, self, "explain")
        return attribution(self._ensemble, X, rows, wide, others)

    def _remembered_rows(self) -> RememberedRows | None:
        return remembered_rows(self._ensemble, lambda X: self._input.dense(X, self, "explain")[0])

    @snapshot_read
    def drift_report(self, X: ArrayLike | None = None) -> DriftReport:
        """Return a report of recent changes and their causes: class frequencies, columns, or the concept.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features), optional
            Recent rows whose labels are not known yet. Their columns and the scores that the model gives them
            are compared with the rows of the row buffer.

        Returns
        -------
        DriftReport
            Without ``X``, the last 3,000 labelled rows are compared with the rows before them, back to the
            last drift; ``events`` lists the drifts that anytime-valid tests have found. With ``X``, the only
            possible cause is "features", and the column "score" is the score of the model.

        Notes
        -----
        Without drift, and if rows are exchangeable, there is on average at most one event in 100,000 rows. A
        column that causes more than three events, such as the hour of the day, is ignored afterwards.
        :meth:`forget` restarts the tests.
        """
        check_started(self, "drift_report")
        if X is None:
            return labelled_report(self._ensemble, self.class_count_)
        rows, _ = self._input.dense(validate_rows(self, X, "drift_report"), self, "drift_report")
        return unlabelled_report(self._ensemble, rows)

    @fitted_property
    @snapshot_read
    def drift_events_(self) -> list[dict[str, Any]]:
        """Detected drifts, each with row, cause, columns and text."""
        return self._ensemble.changes.event_list()

    @fitted_property
    @snapshot_read
    def drift_evidence_(self) -> float:
        """Evidence of a drift since the last one, from 0 to 1. A value of 1 records a new event."""
        return self._ensemble.changes.evidence()

    # -- files and copies ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        with lock_of(self):
            state = super().__getstate__()
            if self._is_started():
                state["_ensemble"] = FrozenState(self._ensemble)
            return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _get_state(self) -> dict[str, Any]:
        return {**self._features(), **get_state(self._ensemble)} if self._is_started() else {}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._set_features(state)
        row_input = RowInput(Schema.from_state(state["schema"]) if state.get("schema") else None)
        width = int(state.get("first_width", self.n_features_in_))
        if row_input.schema is None and width != self.n_features_in_:
            raise ValueError("all rows of arrays must have the same number of columns")
        names, keeps_wide = state["feature_names"], bool(state.get("wide", False))
        self._input = row_input.started(width, self.random_state, names, keeps_wide=keeps_wide)
        self._ensemble = restored_ensemble(state, self._ensemble_params(), self._input)
