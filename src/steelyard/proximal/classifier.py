"""ProximalSVC: the proximal SVM that learns, forgets and merges exactly."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._concurrency import lock_of, snapshot_read
from steelyard._deprecation import renamed_attribute, renamed_method, renamed_parameters
from steelyard._dict_rows import DictRowsMixin
from steelyard._native import RowsInTurn
from steelyard._types import FloatArray
from steelyard._validation import check_finite, check_started, validate_rows
from steelyard.base import (
    Label,
    Traits,
    sorted_classes,
    transactional,
)
from steelyard.exceptions import ParameterError
from steelyard.features import RandomFeatures
from steelyard.params import AnyOf, ClassWeight, Constraint, Instance, OneOf, Positive, Switch, prior_factors
from steelyard.persistence import storable
from steelyard.proximal.certificate import Certificate
from steelyard.proximal.learning import StatisticsLearner
from steelyard.proximal.rule.answers import Answer, Classes
from steelyard.proximal.rule.native_solver import is_small, native_rule
from steelyard.proximal.rule.planes import Planes
from steelyard.proximal.rule.rule import Rule
from steelyard.proximal.rule.selection import Choice
from steelyard.proximal.rule.validation import validate_folds
from steelyard.proximal.state.batches import blocks
from steelyard.proximal.state.folds import FoldedStatistics
from steelyard.proximal.state.quantizer import Quantizer

__all__ = ["ProximalSVC"]


@renamed_parameters(grid="quantizer", ledger="track_rows")
@storable("ProximalSVC", former_parameters={"grid": "quantizer", "ledger": "track_rows"})
class ProximalSVC(DictRowsMixin, StatisticsLearner):
    r"""Proximal support vector machine that learns, forgets and merges exactly.

    A plane is fitted to each class against the rest by (weighted) least squares. All it needs of the
    rows are class-wise sums of products, kept as whole numbers, so rows can be added, taken out again and
    brought together from several places, and at every moment the planes are, bit for bit, those of a fresh
    fit on the current rows (and the same :attr:`quantizer_`), with class weights that follow the current counts.

    Parameters
    ----------
    C : float or "auto", default=1.0
        Weight of the errors against the penalty on the planes. "auto" keeps statistics of five folds
        (rows fall into folds by their values, so forgetting and merging stay exact) and takes the C of
        a fixed grid that does best on rows left out, without a second look at any row. The choice is made
        when an answer is asked for, and again when rows were forgotten or merged, a parameter was changed,
        :meth:`refresh` was called, or the rows have doubled since.
    class_weight : "balanced", None or dict, default="balanced"
        "balanced" gives both sides of a plane the same total weight, as the counts are now; None counts
        every row once; a dict gives each label a factor of its own (1 where it has none).
    standardize : bool, default=True
        Whether features are brought to mean 0 and variance 1, as of all current rows. It equals a
        ``StandardScaler`` that sees all current rows, followed by a fresh fit. Features that a feature
        map makes are never standardized: their scale is part of the map.
    objective : {"margin", "auc"}, default="margin"
        "margin" is the proximal SVM. "auc" minimises the squared loss over all pairs of rows from both
        sides, which aims at the area under the ROC curve; class weights then play no part.
    threshold : {"zero", "gmean"}, default="zero"
        Where scores are cut: at zero, or where a normal model of the scores of both sides has the
        largest product of hit rates; of two classes, scores as they would be of rows left out. The cut is
        part of ``intercept_``.
    penalize_intercept : bool, default=True
        Whether the intercept counts in the penalty, as in the proximal SVM.
    feature_map : RandomFeatures, optional
        A random map in front makes the learner nonlinear and keeps every exactness. It is settled by
        the rows given to :meth:`fit`, or by the first 1,000 rows of a stream, and then stays; a map that
        is settled already is taken as it is.
    grid : Quantizer, optional
        The steps in which values are counted; see :class:`~steelyard.proximal.Quantizer`. If not given, the first
        256 rows settle it. Learners on equal grids that hold equal rows are equal to the last bit.
    track_rows : bool, default=False
        Whether to keep, in eight bytes a row, which rows are in. Rows that were never learned, wrong labels
        and the second delivery of rows to forget are then refused always, before anything changes; without
        it, only when counts or sums of products show it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows now.
    class_count_ : ndarray of shape (n_classes,)
        Rows of each class now (sums of weights).
    coef_ : ndarray of shape (n_planes, n_features)
        Normals of the planes in units of the raw features; one plane for two classes.
    intercept_ : ndarray of shape (n_planes,)
        ``X @ coef_.T + intercept_`` is the decision function when there is no feature map.
    statistics_ : ClassStatistics
        All that is kept of the rows.
    quantizer_ : Quantizer
        The steps in which values are counted.
    feature_map_ : RandomFeatures or None
        The settled feature map.
    C_ : float
        The C in use.
    n_folds : int
        Folds that ``C="auto"`` keeps from the first rows on, 5 unless set before these come.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when all names are strings.

    See Also
    --------
    steelyard.proximal.ClassStatistics : The state, on its own.
    steelyard.proximal.FoldedStatistics : What :meth:`message` gives and :meth:`merge` takes.
    steelyard.RandomFeatures : Maps that make it nonlinear.

    Notes
    -----
    With :math:`E_c = [X_c, -e]`, :math:`M_c = E_c^\top E_c`, :math:`v_c = E_c^\top e`, counts
    :math:`l_c` and sums over classes :math:`M, v, l`, the balanced plane of class :math:`j` is

    .. math::

        \Bigl(\tfrac{1}{C} I + \tfrac{l_j}{l} M + \tfrac{l - 2 l_j}{l} M_j\Bigr)
        \begin{bmatrix} w_j \\ b_j \end{bmatrix} = v_j - \tfrac{l_j}{l} v,
        \qquad f_j(x) = x^\top w_j - b_j .

    Planes are computed when they are first asked for after a change. Parameters other than
    ``feature_map`` may be changed at any time with :meth:`set_params`, and need no second fit; only a
    change to ``C="auto"`` must come before the first rows.

    ``predict_proba`` treats classes as equally frequent, as the balanced weights do, and models the
    scores of both sides as normal.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.02).astype(int)
    >>> X = rng.normal(size=(2000, 3)) + 2.0 * y[:, None]
    >>> model = ProximalSVC().partial_fit(X[:1000], y[:1000])
    >>> model = model.update(add=(X[1000:], y[1000:]), retire=(X[:500], y[:500]))
    >>> fresh = ProximalSVC(quantizer=model.quantizer_).fit(X[500:], y[500:])
    >>> bool((model.coef_ == fresh.coef_).all()), model.digest() == fresh.digest()
    (True, True)
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "C": AnyOf(Positive(), OneOf("auto")),
        "class_weight": ClassWeight(),
        "standardize": Switch(),
        "objective": OneOf("margin", "auc"),
        "threshold": OneOf("zero", "gmean"),
        "penalize_intercept": Switch(),
        "feature_map": AnyOf(OneOf(None), Instance(RandomFeatures)),
        "quantizer": AnyOf(OneOf(None), Instance(Quantizer)),
        "track_rows": Switch(),
    }
    _traits = Traits(exact=True, bounded_memory=True)
    _accepts_sparse = True
    _finds_nonfinite = True

    def __init__(
        self,
        C: float | str = 1.0,
        *,
        class_weight: str | dict[Label, float] | None = "balanced",
        standardize: bool = True,
        objective: str = "margin",
        threshold: str = "zero",
        penalize_intercept: bool = True,
        feature_map: RandomFeatures | None = None,
        quantizer: Quantizer | None = None,
        track_rows: bool = False,
    ) -> None:
        self.C = C
        self.class_weight = class_weight
        self.standardize = standardize
        self.objective = objective
        self.threshold = threshold
        self.penalize_intercept = penalize_intercept
        self.feature_map = feature_map
        self.quantizer = quantizer
        self.track_rows = track_rows

    # -- learning and forgetting --------------------------------------------------------------------

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        # As all learners do; single rows, once the first of them has paved the way, by one native call.
        attributes = self.__dict__
        if classes is not None or sample_weight is not None or "_state" not in attributes:
            return super().partial_fit(X, y, classes, sample_weight)
        rows: RowsInTurn | None = attributes["_state"].rows_in_turn
        if rows is not None and rows.learn(self, attributes, X, y):  # the one moment
            return self
        super().partial_fit(X, y)
        if self._ledger is None and type(X) is np.ndarray and len(X) == 1 and X.dtype.char == "d":
            self._shorten_the_way()
        return self

    def forget(  # type: ignore[override]  # a certificate in place of the learner, where one is wanted
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        certificate: bool = False,
    ) -> Self | Certificate:
        """Unlearn rows that were learned before: the model is, to the bit, as if they had never come.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows with exactly the values with which they were learned.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            The weights with which they were learned.
        certificate : bool, default=False
            Whether to return a :class:`~steelyard.proximal.Certificate`, with which others can repeat the
            proof, in place of the learner.

        Returns
        -------
        self, or Certificate

        Raises
        ------
        DataError
            If it shows that some of the rows were never learned, or not as often. Nothing changes.
        """
        if not certificate:
            return super().forget(X, y, sample_weight)
        check_started(self, "forget")
        with lock_of(self):
            after = copy.copy(self)
            after.forget(X, y, sample_weight)
            gone = ProximalSVC(quantizer=after.quantizer_, feature_map=after.feature_map_)
            paper = Certificate.of(self, gone.fit(X, y, sample_weight), after)
            self.__dict__.update({"_state": after._state, "_ledger": after._ledger})
        return paper

    # -- what was learned ---------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that have rows now."""
        self._need("classes_")
        state = self._state
        return state.derived("classes", None, lambda: sorted_classes(state.total.classes), lock_of(self))

    @property
    def coef_(self) -> FloatArray:
        """Normals of the planes in units of the raw (or mapped) features."""
        self._need("coef_")
        return self._planes().coef

    @property
    def intercept_(self) -> FloatArray:
        """Intercepts of the planes, with the threshold counted in."""
        self._need("intercept_")
        return self._planes().intercept

    @property
    def C_(self) -> float:
        """The C in use."""
        self._need("C_")
        return self._planes().C

    def cross_validate(self, statistics: FoldedStatistics) -> dict[str, Any]:
        """Measure the parameters of this learner on rows left out, fold by fold; no row is seen again.

        Parameters
        ----------
        statistics : FoldedStatistics
            Of the rows, in several folds: the :meth:`message` of a learner with ``C="auto"``.

        Returns
        -------
        dict of str to ndarray of shape (n_folds,)
            :func:`steelyard.proximal.rule.validation.validate_folds` says what is exact among these.
        """
        statistics.check_has_folds()
        return validate_folds(self._rule(statistics), statistics)

    def _rule(self, state: FoldedStatistics | None = None) -> Rule:
        self._check_params()
        weights = self.class_weight
        held = self._state if state is None else state
        standardize = self.standardize and not held.is_mapped
        others = self.objective, self.threshold, self.penalize_intercept
        if isinstance(weights, Mapping):
            return Rule(self.C, dict(weights), standardize, *others)
        return _rule_of(self.C, weights, standardize, *others)

    def _planes(self) -> Planes:
        return self._answer().planes

    def _answer(self) -> Answer:
        """All that a question needs, of one moment."""
        rule, state = self._rule(), self._state

        def make() -> Answer:
            total = state.total
            C = rule.chosen_C(total, state) if rule.C != "auto" else self._choice(rule, state).C
            classes = self._classes(state)
            return Answer(classes, rule.planes(total, C, classes.labels), state.feature_map)

        return state.derived("answer", rule, make, lock_of(self))

    @staticmethod
    def _classes(state: FoldedStatistics) -> Classes:
        return state.kept_while("classes", state.total.classes, Classes)

    def _choice(self, rule: Rule, state: FoldedStatistics) -> Choice:
        """The choice of C that holds for these rows, made anew where none does."""
        n_rows = state.statistics.n_rows
        if state.choice is None or not state.choice.holds(rule, n_rows):
            state.choice = Choice(rule.chosen_C(state.total, state), rule, n_rows)
        choice: Choice = state.choice
        return choice

    fade = renamed_method("decay", "fade")
    grid_ = renamed_attribute("quantizer_", "grid_")
    message = renamed_method("statistics", "message")
    rearranged = renamed_method("permute_features", "rearranged")
    refresh = renamed_method("reselect_C", "refresh")
    unmerge = renamed_method("subtract", "unmerge")

    @transactional
    def reselect_C(self) -> Self:
        """Choose C anew from all current rows at the next answer; without ``C="auto"`` it changes nothing.

        Returns
        -------
        self
        """
        check_started(self, "refresh")
        self._state = self._state.copy()  # which has no choice
        return self

    def regularization_path(self, Cs: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Planes for a whole grid of C, from one decomposition where the planes share their matrix.

        Parameters
        ----------
        Cs : array-like of shape (n_Cs,)
            Positive numbers.

        Returns
        -------
        coefs : ndarray of shape (n_Cs, n_planes, n_features)
            ``coef_`` for every C.
        intercepts : ndarray of shape (n_Cs, n_planes)
            ``intercept_`` for every C.
        """
        check_started(self, "regularization_path")
        try:
            quantizer = np.asarray(Cs, dtype=np.float64)
        except (TypeError, ValueError):
            quantizer = np.array([])  # said below
        if (
            quantizer.ndim != 1
            or not len(quantizer)
            or not (np.isfinite(quantizer).all() and (quantizer > 0.0).all())
        ):
            raise ParameterError(
                f"Cs must be positive, finite numbers; got {Cs!r}.", source="ProximalSVC.regularization_path"
            )
        with lock_of(self):
            planes = self._rule().path(self._state.total, quantizer)
        return np.array([p.coef for p in planes]), np.array([p.intercept for p in planes])

    # -- answering ----------------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        # As all learners do; labels are written natively, and of single rows without a detour.
        attributes = self.__dict__
        state = attributes.get("_state")
        if state is not None and state.rows_in_turn is not None:
            label: NDArray[Any] | None = state.rows_in_turn.label(attributes, X)
            if label is not None:
                return label
        return self._labels(X)

    @snapshot_read
    def _labels(self, X: ArrayLike) -> NDArray[Any]:
        rows, answer = self._validated_rows(X, "predict"), self._answer()
        classes, planes = answer.classes, answer.planes
        labels = np.empty(rows.shape[0], dtype=np.uint64)
        if answer.feature_map is None:
            finite = planes.write_labels(rows, classes.codes, labels)
        else:
            finite = True
            for part, mapped in self._blocks(rows, answer, "predict"):
                finite &= planes.write_labels(mapped, classes.codes, labels[part])
        self._check_scored(rows, planes, "predict", finite=finite)
        if len(labels) == 1:
            self._shorten_the_way()
        return classes.read(labels)

    def _shorten_the_way(self) -> None:
        """Let single rows be answered and learned natively from here on, as long as nothing else comes."""
        if type(self) is not ProximalSVC or not isinstance(self.class_weight, (str, dict, NoneType)):
            return  # a subclass may see rows otherwise, and another mapping may change without notice
        # Where a ledger is kept only answers become shorter, which pays from the second question on.
        keeps_ledger, asked = self._ledger is not None, self._state
        if keeps_ledger and asked.asked_at != asked.statistics.version:
            asked.asked_at = asked.statistics.version
            return
        with lock_of(self):
            rule, state = self._rule(), self._state
            if not state.is_plain or rule.C == "auto":
                return
            version, classes = state.statistics.version, self._classes(state)
            labels = classes.labels
            if not is_small(rule, state.statistics.n_features, len(labels)):
                return
            sums, slots = state.statistics.slots_of(labels)
            state.rows_in_turn = RowsInTurn(
                sums,
                version,
                slots,
                [classes.array[k : k + 1].copy() for k in range(len(labels))],
                {} if keeps_ledger else dict(zip(labels, slots, strict=True)),
                {name: self.__dict__[name] for name in self._constraints},
                "feature_names_in_",
                *native_rule(rule, float(rule.C), labels),
            )

    @snapshot_read
    def predict_proba(self, X: ArrayLike, *, prior: str | Mapping[Label, float] = "balanced") -> FloatArray:
        """Probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.
        prior : {"balanced", "observed"} or mapping of label to float, default="balanced"
            How frequent the classes are taken to be: equally, as the balanced weights have it and as the cut
            at zero supposes; as among the rows now; or in these proportions.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores, answer = self._scores(X, "predict_proba")
        labels = answer.classes.array.tolist()
        if len(labels) == 1:
            return np.ones((len(scores), 1))
        factors = prior_factors(
            prior,
            labels,
            lambda: np.array([self._state.total.count(label) for label in labels]),
            "ProximalSVC.predict_proba",
        )
        chances = answer.planes.probabilities(scores)
        if factors is None:
            return chances
        chances = chances * factors
        result: FloatArray = chances / chances.sum(axis=1, keepdims=True)
        return result

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        scores, answer = self._scores(X, method)
        return scores, answer.classes.array

    def _scores(self, X: Any, method: str) -> tuple[FloatArray, Answer]:
        X, answer = self._validated_rows(X, method), self._answer()
        planes = answer.planes
        scores = np.empty((X.shape[0], len(planes.coef)))
        finite = [planes.write_scores(rows, scores[part]) for part, rows in self._blocks(X, answer, method)]
        self._check_scored(X, planes, method, finite=all(finite))
        return scores, answer

    def _validated_rows(self, X: Any, method: str) -> Any:
        rows = validate_rows(self, X, method)
        # Prediction may select C and keep it, so invalid rows are rejected before.
        return check_finite(self, rows, method) if self.C == "auto" else rows

    def _blocks(self, X: Any, answer: Answer, method: str) -> Iterator[tuple[slice, Any]]:
        """The rows that meet the planes, and where in X they stand."""
        if answer.feature_map is not None:
            self._check_range(X, method)
        return blocks(X, answer.feature_map)

    def _check_scored(self, X: Any, planes: Planes, method: str, *, finite: bool) -> None:
        """A value that is not finite makes its row's score so: looking at scores is cheaper than at rows."""
        if not finite or np.count_nonzero(planes.coef) < planes.coef.size:
            check_finite(self, X, method)

    # -- files --------------------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        choice = self._state.choice
        kept = choice is not None and choice.rule == self._rule()
        return {
            **self.statistics().get_state(),
            "choice": {"C": choice.C, "n_rows": choice.n_rows} if kept else None,
            "keys": list(self.__dict__.get("_keys", {})),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        if not state:
            return
        message = FoldedStatistics.from_state(state)
        self._set_features(message.features)
        self._state, self._ledger = message.signed(None, None), message.ledger
        if state.get("keys"):
            self._keys = {name: place for place, name in enumerate(state["keys"])}
        if state.get("choice") is not None:
            choice = state["choice"]
            self._state.choice = Choice(float(choice["C"]), self._rule(), float(choice["n_rows"]))


@lru_cache(maxsize=64, typed=True)
def _rule_of(*parameters: Any) -> Rule:
    """The rule of parameters that cannot change: a stream of single rows asks for it at every row."""
    return Rule(*parameters)
