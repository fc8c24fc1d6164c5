"""Combination of the experts' scores: calibration, weights, threshold, and the snapshot that predicts.

Two classes: the recent out-of-sample scores of every expert are calibrated to log-odds by logistic regression
with one slope below and one above the middle between the classes (both classes weighted equally). Calibrated
log-odds are linear up to 1 + log(rows of the class), at most 6, because a few rows do not justify larger
values. Beyond this limit they grow logarithmically: they never saturate, so the order of the highest scores
is kept. The weight of an expert is

    prior * exp(15 * AUC - 5 * L - 10 * N),

where L is the log-loss with both classes weighted equally and N the log-loss with the observed class shares,
divided by the entropy of these shares. N is sensitive to the top of the ranking; its factor is 25 in long
streams. These weights are corrected by a logistic regression with a longer memory, see WeightCorrection.

The combined log-odds are calibrated once more for probabilities, see OnlineCalibration. The loops over rows
are native (``native/ensemble/logistic_fits.cpp``), with bit-identical results on every machine.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import islice, repeat
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from steelyard import _native
from steelyard._labels import winners
from steelyard._threads import num_threads, one_thread
from steelyard._types import FloatArray, IntArray
from steelyard.ensemble.experts.base import Rule
from steelyard.ensemble.multiclass import MulticlassWeights, weigh_classes
from steelyard.ensemble.scores import (
    ScoreBuffer,
    TwoSides,
    WeightCorrection,
    align,
    n_planes,
    with_new_experts,
)
from steelyard.ensemble.settings import SETTINGS
from steelyard.ensemble.views import TransformedRows, Views
from steelyard.thresholds import choose_threshold, mirrored_threshold, signed_scores, unsigned_scores

_MIN_SHARE = 1e-4  # smallest class share in the log-loss at observed shares
_MIN_ROWS_FOR_THREADS = 100  # fewer rows are scored too quickly for a second thread to pay
_MOVED_LOG_ODDS = 1.0  # width of the range beyond the threshold and 0 in which the threshold moves decisions
_NO_TABLE = (np.zeros(1), np.zeros(1))

# Constants of OnlineCalibration.
_HALF_LIVES_ROWS: FloatArray = np.array([300.0, 1000.0, 4000.0, 16_000.0])
_LOSS_HALF_LIFE_ROWS = 4000.0  # half-life of the log-losses by which the calibrations are mixed
_PRIOR_ROWS = 1.0  # strength of the ridge penalty that pulls each calibration towards the identity
_MAX_STEP = 0.5  # larger steps of Newton's method are shortened
_MIN_SLOPE = 0.05  # smallest slope of a calibration
_BLOCK_ROWS = 100  # number of rows per step of Newton's method
_EDGES: FloatArray = np.array(
    [-14.0, -4.0, -2.0, 0.0, 2.0, 4.0, 14.0]
)  # the slope is constant between two edges
_IDENTITIES: FloatArray = np.tile([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0], (len(_HALF_LIVES_ROWS), 1))
_PENALTIES: FloatArray = np.tile(_PRIOR_ROWS * np.eye(len(_EDGES)), (len(_HALF_LIVES_ROWS), 1, 1))
_N_BINS = 15  # number of probabilities at which the mean error is corrected
_BIN_LOG_ODDS: FloatArray = np.log(np.arange(1.0, 2 * _N_BINS, 2) / np.arange(2.0 * _N_BINS - 1, 0, -2))
_BIN_HALF_LIFE_ROWS = 16_000.0
_BIN_PRIOR = 100.0  # shrinkage of the corrections, as a sum of p * (1 - p) over rows
# The corrections keep at least this part of the slope of the log-odds, so probabilities keep their order.
_MIN_CORRECTED_SLOPE = 0.05
# Corrections plus this line must be ascending.
_STEEPEST_CORRECTION: FloatArray = (1.0 - _MIN_CORRECTED_SLOPE) * _BIN_LOG_ODDS


@dataclass(frozen=True)
class ExpertWeights:
    """Calibration and weight of each expert, and the threshold, for two classes."""

    tables: list[tuple[FloatArray, FloatArray]]  # scores (knots) of each expert and their calibrated log-odds
    auc: FloatArray  # recent AUC of each expert; NaN if it is unknown
    weights: FloatArray  # weights of the experts, which sum to one
    threshold: float  # rows with a larger weighted sum of log-odds belong to the second class
    slope: float = 1.0  # slope * sum + bias are the log-odds for equally frequent classes
    bias: float = 0.0
    correction: WeightCorrection | None = None  # the correction that the weights include
    # Whether the threshold follows a target rate. It may then be far from 0, so it decides only the sign of
    # the decisions: see signed_scores().
    is_promised: bool = False

    @cached_property
    def _flat_tables(self) -> tuple[FloatArray, FloatArray, IntArray]:
        knots, values = (np.concatenate(parts) for parts in zip(*self.tables, strict=True))
        return knots, values, np.cumsum([0, *(len(table[0]) for table in self.tables)])

    @cached_property
    def decision_table(self) -> tuple[FloatArray, FloatArray]:
        """Knots and values of the piecewise linear function that converts weighted sums to decisions.

        The decision at the threshold is 0. Beyond the outer knots, decisions equal the sums, so the highest
        decisions can be compared although the threshold moves. The outer knot on the other side of 0 has the
        distance ``max(abs(threshold), 1)`` from 0, so slopes are at least 1/2. The other outer knot is 1
        beyond the threshold.
        """
        size = abs(self.threshold)
        near, far = max(_MOVED_LOG_ODDS, size), size + _MOVED_LOG_ODDS
        low, high = (-near, far) if self.threshold >= 0.0 else (-far, near)
        return np.array([low, self.threshold, high]), np.array([low, 0.0, high])

    def scores(self, raw: FloatArray) -> FloatArray:
        """Return weighted sums of calibrated log-odds. NaN counts as 0.

        ``raw`` has the shape (n_rows, n_experts) or (n_rows, n_experts, 1).
        """
        raw = np.ascontiguousarray(raw).reshape(raw.shape[:2])
        return _native.weigh_lookups(raw, *self._flat_tables, self.weights)

    def expert_log_odds(self, raw: FloatArray) -> FloatArray:
        """Return calibrated log-odds of every expert, 0 for NaN scores and for experts without a table."""
        return _native.apply_lookups(np.ascontiguousarray(raw), *self._flat_tables)

    def decisions(self, totals: FloatArray) -> FloatArray:
        """Return decisions of weighted sums: positive for the second class, increasing with the sum."""
        if self.is_promised:
            return signed_scores(totals, totals > self.threshold)
        # The sign of the difference is exact, that of the interpolation is not.
        return np.copysign(_interpolated(totals, *self.decision_table), totals - self.threshold)

    def totals_of(self, decisions: FloatArray) -> FloatArray:
        """Return the weighted sums that have these :meth:`decisions`."""
        if self.is_promised:
            return unsigned_scores(decisions)
        return _interpolated(decisions, *self.decision_table[::-1])

    def log_odds(self, decisions: FloatArray) -> FloatArray:
        """Convert decisions to log-odds of the second class for equally frequent classes."""
        return self.slope * self.totals_of(decisions) + self.bias

    def get_state(self) -> dict[str, Any]:
        """Return the weights as arrays and plain values."""
        tables = [list(table) for table in self.tables]
        numbers = {"cut": self.threshold, "slope": self.slope, "bias": self.bias}
        numbers["promised"] = self.is_promised
        return {"tables": tables, "auc": self.auc, "weights": self.weights, **numbers}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], n_experts: int) -> ExpertWeights:
        """Restore the weights from the result of :meth:`get_state`; raise ValueError if inconsistent."""
        tables = [(np.array(knots, np.float64), np.array(z, np.float64)) for knots, z in state["tables"]]
        tables += [_NO_TABLE] * (n_experts - len(tables))
        auc = with_new_experts(state["auc"], n_experts, np.nan)
        weights = with_new_experts(state["weights"], n_experts, 0.0)
        if not len(tables) == len(auc) == len(weights) == n_experts:
            raise ValueError("corrupt weights: every field needs one entry per expert")
        if any(knots.ndim != 1 or not len(knots) or knots.shape != z.shape for knots, z in tables):
            raise ValueError("corrupt weights: a table needs one value at each knot")
        cut = float(state["cut"])
        # Files of version 0.2 contain no calibration; a unit slope around the threshold replaces it.
        slope, bias = float(state.get("slope", 1.0)), float(state.get("bias", -cut))
        is_promised = bool(state.get("promised", False))
        return cls(tables, auc, weights, cut, slope, bias, is_promised=is_promised)


def _interpolated(x: FloatArray, knots: FloatArray, values: FloatArray) -> FloatArray:
    """Return a piecewise linear function that is the identity beyond the knots."""
    return np.asarray(np.interp(x, knots, values) + (x - np.clip(x, knots[0], knots[-1])))


@dataclass(frozen=True)
class EnsembleSnapshot:
    """Rules, weights and transformations that belong to one state of the ensemble."""

    classes: list[int]  # class codes in the order of their labels
    labels: NDArray[Any]  # labels of the classes, sorted
    rules: list[Rule | None]  # decision rule of each expert
    weights: ExpertWeights | MulticlassWeights | None  # None while too few rows were scored
    views: Views  # transformations of rows

    def raw_scores(self, X: FloatArray, wide: sp.csr_matrix | None = None) -> FloatArray:
        """Return the scores of every expert, of shape (n_rows, n_experts, n_planes), with NaN if unknown.

        ``wide`` has the rows before hashing, if they are hashed.
        """
        if len(self.classes) != 2 or self.views.layout is not None or not _native.all_finite(X):
            numbers = [number for number, rule in enumerate(self.rules) if rule is not None]
            scores = np.full((len(X), len(self.rules), n_planes(len(self.classes))), np.nan)
            return self._with_rules(numbers, scores, TransformedRows(X, self.views, wide))
        scorer, others = self._native_scorer(X.shape[1])
        n_threads = num_threads() if len(X) >= _MIN_ROWS_FOR_THREADS else 1
        scores, ranks = scorer.scores(X, self._constants, n_threads)
        if self.classes[0] > self.classes[1]:  # codes of rules are in ascending order
            scores = -scores
        if not others:
            return scores
        rows = TransformedRows(X, self.views, wide)
        if self.views.ranks is not None:
            rows.ranks = ranks
        return self._with_rules(others, scores, rows)

    def _native_scorer(self, n_features: int) -> tuple[_native.RowExperts, list[int]]:
        """Return a scorer of all rules that have a native form, and the indices of the other rules."""
        if "_scorer" not in self.__dict__:
            scorer, others = self.views.row_experts(len(self.rules), n_features), []
            classes = sorted(self.classes)
            for number, rule in enumerate(self.rules):
                if rule is None or rule.constant(classes) is not None:
                    continue
                if rule.classes != classes or not rule.add_to(scorer, number):
                    others.append(number)
            self.__dict__["_scorer"] = scorer, others
        found: tuple[_native.RowExperts, list[int]] = self.__dict__["_scorer"]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_scorer"}

    @cached_property
    def _constants(self) -> FloatArray:
        """Scores of the rules that give all rows the same score for two classes; NaN for the other rules."""
        classes, constants = sorted(self.classes), np.full(len(self.rules), np.nan)
        for number, rule in enumerate(self.rules):
            if rule is not None and (constant := rule.constant(classes)) is not None:
                constants[number] = constant
        return constants

    def _with_rules(self, numbers: list[int], scores: FloatArray, rows: TransformedRows) -> FloatArray:
        """Write the scores of some experts, computed by their rules, to ``scores`` and return it."""
        with one_thread():
            for number in numbers:
                rule = self.rules[number]
                assert rule is not None
                scores[:, number] = align(rule.scores(rows), rule.classes, self.classes)
        return scores

    def after_labels(self, codes: list[int]) -> EnsembleSnapshot:
        """Return the snapshot updated with new labels, which only the label frequency rules use."""
        later = replace(self, rules=[rule and rule.after_labels(codes) for rule in self.rules])
        if "_scorer" in self.__dict__:  # it contains no label frequency rules
            later.__dict__["_scorer"] = self.__dict__["_scorer"]
        return later

    def weights_for(self, classes: list[int]) -> ExpertWeights | MulticlassWeights | None:
        """Return the weights for another set of classes, or None if there are none."""
        if isinstance(self.weights, MulticlassWeights) and len(classes) > 2:
            return self.weights.for_classes(classes)
        return None

    def decide(self, raw: FloatArray) -> FloatArray:
        """Return one score per plane: positive for the second class, or largest for the predicted class."""
        weights = self.weights
        if isinstance(weights, ExpertWeights):
            return weights.decisions(weights.scores(raw))[:, None]
        out = _first_known(raw) if weights is None else weights.scores(raw)
        unknown = np.isnan(raw).all(axis=1)
        if unknown.any():  # no expert knows these classes yet, so they get the lowest score
            lowest = np.where(unknown, 0.0, out).min(axis=1, keepdims=True)
            out = np.where(unknown, lowest - 1.0 if out.shape[1] > 1 else 0.0, out)
        return out

    def totals(self, raw: FloatArray) -> FloatArray:
        """Return the combined scores for two classes, without subtracting a threshold."""
        weights = self.weights
        return weights.scores(raw) if isinstance(weights, ExpertWeights) else self.decide(raw)[:, 0]

    @property
    def threshold(self) -> float:
        """Threshold of :meth:`totals` for two classes; NaN before there are weights."""
        return self.weights.threshold if isinstance(self.weights, ExpertWeights) else float("nan")

    def predict_codes(self, raw: FloatArray) -> IntArray:
        """Return the codes of the predicted classes."""
        return np.array(self.classes, dtype=np.int64)[winners(self.decide(raw), len(self.classes))]

    def log_odds(self, decisions: FloatArray) -> FloatArray:
        """Return log-probabilities up to a constant, one column per class, for equally frequent classes."""
        if decisions.shape[1] > 1:
            return decisions
        if isinstance(self.weights, ExpertWeights):
            decisions = self.weights.log_odds(decisions)
        return np.concatenate([np.zeros_like(decisions), decisions], axis=1)


def _first_known(raw: FloatArray) -> NDArray[np.float64]:
    """Return the scores of the first expert that has any. They are used before there are weights."""
    out = raw[:, 0]
    for expert in range(1, raw.shape[1]):
        if not np.isnan(out).any():
            break
        out = np.where(np.isnan(out).all(axis=0), raw[:, expert], out)
    return out


def weigh(
    buffer: ScoreBuffer, threshold: Any, priors: FloatArray, **options: Any
) -> ExpertWeights | MulticlassWeights | None:
    """Return weights from recent scores, or None if there are too few. Experts with prior 0 get weight 0.

    For two classes ``options`` are the keyword parameters of :func:`weigh_experts`.
    """
    if len(buffer.classes) < 2:
        return None
    if len(buffer.classes) > 2:
        return weigh_classes(buffer, threshold, priors)
    (sides,) = buffer.sides()
    return weigh_experts(sides, threshold, priors, **options)


def weigh_experts(
    sides: TwoSides,
    threshold: Any,
    priors: FloatArray,
    *,
    is_long: bool = False,
    is_mirrored: bool = False,
    correction: WeightCorrection | None = None,
) -> ExpertWeights | None:
    """Return the expert weights for two classes, or None if a class has too few recent rows.

    Experts with prior 0 get weight 0. ``is_mirrored`` says that the first class is the positive one, for
    which the threshold is chosen.
    """
    n_positive, n_negative = len(sides.positive), len(sides.negative)
    if not n_positive or not n_negative:
        return None
    scores = np.ascontiguousarray(np.concatenate([sides.positive, sides.negative]))
    fitted = _native.ExpertCalibrations(
        scores, n_positive, priors > 0.0, SETTINGS.min_scored_rows, SETTINGS.linear_log_odds
    )
    if not len(fitted):
        return None
    auc, share = fitted.auc(), min(max(sides.share, _MIN_SHARE), 1.0 - _MIN_SHARE)
    balanced, observed = SETTINGS.balanced_loss_sharpness, SETTINGS.observed_loss_sharpness[is_long]
    sharpness = SETTINGS.auc_sharpness, balanced, observed
    weights = fitted.weights(share, sharpness, SETTINGS.min_relative_weight, priors)
    if correction is not None:
        correction = correction.solved(weights, share)
        is_useful = auc > min(0.5, np.nanmax(auc) - 1e-9)  # better than chance, or the best expert
        weights = correction.apply(weights, is_useful)
    total = fitted.totals(weights)
    choose = mirrored_threshold if is_mirrored and threshold != "gmean" else choose_threshold
    best = choose(total[:n_positive], total[n_positive:], threshold, sides.share)
    if threshold == "gmean":  # the threshold is shrunk towards 0, where both classes are about equally likely
        is_small = min(n_positive, n_negative) < SETTINGS.min_threshold_rows
        best *= 0.0 if is_small else SETTINGS.threshold_trust
    slope, bias = _native.platt_scaling(total, n_positive)
    tables = [fitted.table(expert) for expert in range(len(priors))]
    return ExpertWeights(tables, auc, weights, best, slope, bias, correction)


@dataclass(frozen=True)
class OnlineCalibration:
    """Piecewise linear calibrations with several half-lives, mixed by recent log-loss; immutable.

    A calibration of log-odds has one slope between neighbours of ``_EDGES`` and a bias, which follow the
    labels by Newton's method. Corrections of the mean error near 15 probabilities are added (calibeating,
    Foster and Hart 2023); see the page docs/guarantees.md.
    """

    # Slopes, which are positive, and bias: shape (n_half_lives, n_slopes + 1).
    coefficients: FloatArray = field(default_factory=_IDENTITIES.copy)
    curvature: FloatArray = field(default_factory=_PENALTIES.copy)  # decayed sums of second derivatives
    # Decayed log-losses, shape (n_half_lives,).
    losses: FloatArray = field(default_factory=lambda: np.zeros(len(_HALF_LIVES_ROWS)))
    # Decayed sums of label - p and of p * (1 - p), near each of the `_N_BINS` probabilities.
    bin_errors: FloatArray = field(default_factory=lambda: np.zeros(_N_BINS))
    bin_variances: FloatArray = field(default_factory=lambda: np.zeros(_N_BINS))

    def after(self, log_odds: FloatArray, is_positive: Any) -> OnlineCalibration:
        """Return the calibration updated with labelled rows and their out-of-sample log-odds."""
        fit = self.coefficients, self.curvature, self.losses
        errors, variances = self.bin_errors, self.bin_variances
        for begin in range(0, len(log_odds), _BLOCK_ROWS):
            rows = slice(begin, begin + _BLOCK_ROWS)
            block, labels = log_odds[rows], is_positive[rows]
            calibrated = _native.calibrate(fit[0], fit[2], block, _EDGES)
            fit = _native.learn_calibration(
                *fit, block, labels, _EDGES, _HALF_LIVES_ROWS, _LOSS_HALF_LIFE_ROWS, _PRIOR_ROWS, _MAX_STEP,
                _MIN_SLOPE, _BLOCK_ROWS,
            )  # fmt: skip
            # Rounded to 32 bits, because the last bits of exp() differ between machines.
            p = expit(calibrated).astype(np.float32).astype(np.float64)
            # Each row is shared between the two nearest bins.
            positions = np.interp(calibrated, _BIN_LOG_ODDS, np.arange(_N_BINS))
            low = np.minimum(positions.astype(np.int64), _N_BINS - 2)
            bins = np.concatenate([low, low + 1])
            shares = np.concatenate([low + 1 - positions, positions - low])
            keep = 0.5 ** (len(block) / _BIN_HALF_LIFE_ROWS)
            sums = shares * np.tile(labels - p, 2), shares * np.tile(p * (1.0 - p), 2)
            errors = keep * errors + np.bincount(bins, sums[0], minlength=_N_BINS)
            variances = keep * variances + np.bincount(bins, sums[1], minlength=_N_BINS)
        return OnlineCalibration(*fit, errors, variances)

    @cached_property
    def _corrections(self) -> FloatArray:
        wanted = self.bin_errors / (self.bin_variances + _BIN_PRIOR) + _STEEPEST_CORRECTION
        # The mean of the running maximum from the left and the running minimum from the right is ascending.
        ascending = np.maximum.accumulate(wanted) + np.minimum.accumulate(wanted[::-1])[::-1]
        return np.asarray(0.5 * ascending - _STEEPEST_CORRECTION)

    def log_odds(self, log_odds: FloatArray) -> FloatArray:
        """Return calibrated log-odds."""
        calibrated = _native.calibrate(self.coefficients, self.losses, log_odds, _EDGES)
        return np.asarray(calibrated + np.interp(calibrated, _BIN_LOG_ODDS, self._corrections))

    def get_state(self) -> dict[str, Any]:
        """Return the calibration as arrays."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> OnlineCalibration:
        """Restore a calibration from :meth:`get_state`, or return the identity if the state is None."""
        fresh = cls()
        if state is None:
            return fresh
        # Files of earlier versions have no errors of bins.
        arrays = {
            name: np.asarray(state.get(name, values) if name.startswith("bin_") else state[name], np.float64)
            for name, values in fresh.get_state().items()
        }
        for name, values in arrays.items():
            if values.shape != getattr(fresh, name).shape or not np.isfinite(values).all():
                raise ValueError(f"corrupt calibration: {name}")
        return cls(**arrays)


class _PredictedBatch(NamedTuple):
    """Scores of rows that were predicted together."""

    classes: list[int]
    scores: FloatArray
    first: int  # number of rows that were predicted before


class PredictedScores:
    """Raw scores of a limited number of predicted rows, kept by row hash until their labels arrive.

    With delayed labels the experts are weighted by the scores that they gave when a row was predicted. Saved
    and copied models do not contain these scores; they score such rows again when the labels arrive. The
    scores of the last batch also serve a second call with the same rows, such as ``predict_proba`` after
    ``predict``. ``delay_rows`` is the delay of the last labels: the number of rows that were predicted after
    the newest of the rows that got them.
    """

    __slots__ = ("_last", "_lock", "_n_predicted", "_new", "_scores", "delay_rows")

    def __init__(self) -> None:
        self._scores: dict[int, tuple[_PredictedBatch, int]] = {}  # batch of each row, and index in the batch
        # Hashes and scores of the last batch until its rows are added to `_scores`. A batch that is learned
        # as a whole before the next one is predicted need not be added.
        self._new: tuple[NDArray[np.uint64], _PredictedBatch] | None = None
        self._n_predicted = self.delay_rows = 0
        self._last: tuple[weakref.ref[Any], NDArray[np.uint64], FloatArray] | None = None
        self._lock = threading.Lock()

    def last(self, snapshot: Any, keys: NDArray[np.uint64]) -> FloatArray | None:
        """Return the scores of the last batch if it had these rows and this snapshot scored it."""
        if self._last is None:
            return None
        scored_by, known, scores = self._last
        return scores if scored_by() is snapshot and np.array_equal(known, keys) else None

    def keep(
        self,
        keys: NDArray[np.uint64],
        classes: list[int],
        scores: FloatArray,
        snapshot: Any = None,
    ) -> None:
        """Store the scores of a batch; the oldest rows are dropped if there are too many.

        With the ``snapshot`` that computed the scores, :meth:`last` returns them.
        """
        limit = SETTINGS.predicted_rows
        self._last = None
        if snapshot is not None and len(keys) <= limit:
            self._last = weakref.ref(snapshot), keys, scores
        # Best effort: the thread does not wait for the lock, which a forked child might never get.
        if len(keys) > limit or not self._lock.acquire(blocking=False):
            return
        try:
            self._add_new()
            known, rows = self._scores, set(keys.tolist())
            self._n_predicted += len(rows.difference(known))  # a row may be predicted several times
            self._new = keys, _PredictedBatch(classes, scores, self._n_predicted - len(keys))
            if known or len(rows) < len(keys):
                self._add_new()
            for key in list(islice(known, max(0, len(known) - limit))):
                del known[key]
        finally:
            self._lock.release()

    def _add_new(self) -> None:
        """Add the rows of the last batch to those that are found by their hashes."""
        if self._new is not None:
            (keys, batch), self._new = self._new, None
            self._scores.update(zip(keys.tolist(), zip(repeat(batch), range(len(keys))), strict=False))

    def take(self, keys: NDArray[np.uint64], classes: list[int], out: FloatArray) -> NDArray[np.bool_]:
        """Remove the scores of rows and write them, for given classes, to ``out``.

        Return which rows have no scores; their part of ``out`` does not change.
        """
        n = len(keys)
        if not (self._scores or self._new) or not self._lock.acquire(blocking=False):
            return np.ones(n, dtype=bool)
        try:
            if self._new is not None and np.array_equal(self._new[0], keys):
                batch, self._new, self.delay_rows = self._new[1], None, 0
                out[:] = align(batch.scores, batch.classes, classes)
                return np.zeros(n, dtype=bool)
            self._add_new()
            entries = [self._scores.pop(key, None) for key in keys.tolist()]
            numbers = [batch.first + row for batch, row in filter(None, entries)]
            self.delay_rows = max(0, self._n_predicted - 1 - max(numbers)) if numbers else 0
        finally:
            self._lock.release()
        found: dict[int, tuple[_PredictedBatch, list[int], list[int]]] = {}
        for place, entry in enumerate(entries):
            if entry is not None:
                batch, places, rows = found.setdefault(id(entry[0]), (entry[0], [], []))
                places.append(place)
                rows.append(entry[1])
        is_missing = np.ones(n, dtype=bool)
        for batch, places, rows in found.values():
            # Most batches are predicted and then learned as a whole; slices are faster than lists of indices.
            is_whole = len(rows) == n and rows == list(range(rows[0], rows[0] + n))
            scores = batch.scores[rows[0] : rows[0] + n] if is_whole else batch.scores[rows]
            selected: Any = slice(None) if is_whole else places
            out[selected], is_missing[selected] = align(scores, batch.classes, classes), False
        return is_missing

    def __reduce__(self) -> tuple[type[PredictedScores], tuple[()]]:
        return PredictedScores, ()
