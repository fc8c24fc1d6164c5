"""ProximalSVC: the proximal SVM that learns, forgets and merges exactly."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from steelyard import _native
from steelyard._concurrency import lock_of, snapshot_read
from steelyard._deprecation import renamed_attribute, renamed_method, renamed_parameters, warn_renamed
from steelyard._dict_rows import DictRowsMixin
from steelyard._labels import check_sortable
from steelyard._memory import check_fits_memory, warn_of_large_memory
from steelyard._types import FloatArray
from steelyard._validation import (
    check_finite,
    check_magnitude,
    check_started,
    nonfinite_error,
    validate_rows,
)
from steelyard.base import (
    Batch,
    ForgettingMixin,
    GrowingMixin,
    Label,
    MergingMixin,
    Traits,
    check_same_features,
    transactional,
)
from steelyard.exceptions import DataError, ParameterError
from steelyard.explanation.attribution import Attribution, explain_linear
from steelyard.features import RandomFeatures
from steelyard.params import (
    AnyOf,
    ClassWeight,
    Constraint,
    Instance,
    Integer,
    ListOf,
    OneOf,
    Positive,
    Switch,
    prior_factors,
)
from steelyard.persistence import storable
from steelyard.proximal.buffering import BufferedRows
from steelyard.proximal.certificate import Certificate
from steelyard.proximal.drift_report import DriftReport, compare_statistics
from steelyard.proximal.folds import FoldedStatistics, mapped_blocks
from steelyard.proximal.model_selection import SelectedC, validate_folds
from steelyard.proximal.planes import PlaneRule, Planes, Predictor
from steelyard.proximal.quantizer import LARGEST_VALUE, Quantizer
from steelyard.proximal.row_ledger import FoldLabel, RowLedger, batch_hashes
from steelyard.proximal.statistics import ClassStatistics

_MIN_WIDE_FEATURES = 1000  # with fewer features, the matrices are small and available memory is not checked
_WIDE_HINT = (
    "use fewer columns, for example HashingVectorizer(n_features=1000); or feature_map=RandomFeatures(...), "
    "which has a width of your choice; StreamClassifier and steelyard.online.AROW learn sparse rows directly"
)


@renamed_parameters(grid="quantizer", ledger="track_rows")
@storable("ProximalSVC", former_parameters={"grid": "quantizer", "ledger": "track_rows"})
@dataclass(eq=False, repr=False)
class ProximalSVC(DictRowsMixin, GrowingMixin, ForgettingMixin, MergingMixin):
    r"""Proximal support vector machine that learns, forgets and merges exactly.

    For each class, a plane is fitted to the class against the rest by (weighted) least squares. The planes
    depend on class-wise sums of products only. These sums are integers, so rows can be added, forgotten and
    merged from several learners without rounding. At any time the planes are bit-identical to those of a new
    learner that is fitted to the current rows (with the same :attr:`quantizer_`), and class weights follow
    the current class counts.

    Parameters
    ----------
    C : float or "auto", default=1.0
        Regularization parameter: weight of the errors relative to the penalty on the planes. "auto" keeps
        statistics in ``n_folds`` folds and selects the C of a fixed grid with the smallest error in
        cross-validation, without another pass over the rows. The values of a row determine its fold, so
        forgetting and merging stay exact. The selection happens at the next prediction, and again after rows
        were forgotten or merged, after a parameter has changed, after :meth:`reselect_C`, and when the number
        of rows has doubled.
    class_weight : "balanced", None or dict, default="balanced"
        "balanced" gives the positive and the negative rows of each plane the same total weight, computed from
        the current counts. None gives every row the weight 1. A dict gives each label a weight, which is 1
        for labels that it does not contain.
    standardize : bool, default=True
        Whether to scale features to mean 0 and variance 1 over all current rows. The result is that of a
        ``StandardScaler`` fitted to all current rows, followed by a new fit. Features of a feature map are
        never standardized, because their scale belongs to the map.
    objective : {"margin", "auc"}, default="margin"
        "margin" is the proximal SVM. "auc" minimizes the squared loss over all pairs of a positive and a
        negative row, a surrogate of the area under the ROC curve; it does not use class weights.
    threshold : {"zero", "gmean"}, default="zero"
        Threshold of the scores: zero, or the threshold with the largest G-mean under the assumption that the
        scores of positive and of negative rows are normally distributed. With two classes, their means and
        variances are those of leave-one-out scores. The threshold is included in ``intercept_``.
    penalize_intercept : bool, default=True
        Whether the penalty includes the intercept, as in the proximal SVM.
    feature_map : RandomFeatures, optional
        A random feature map that makes the learner nonlinear; learning, forgetting and merging stay exact.
        The map is fitted to the rows given to :meth:`fit`, or to the first 1,000 rows of a stream, and then
        never changes. A fitted map is used without fitting it again.
    quantizer : Quantizer, optional
        Steps to which feature values are rounded; see :class:`~steelyard.proximal.Quantizer`. If not given,
        the first 256 rows determine them. Learners with equal quantizers and equal rows are bit-identical.
    track_rows : bool, default=False
        Whether to keep a ledger: a record of the learned rows, with a hash of eight bytes for each row. With
        a ledger, :meth:`forget` always raises for rows that were never learned, wrong labels, and rows that
        were already forgotten. Without a ledger it raises only if the counts or sums prove such a mistake.
    n_folds : int, default=5
        Number of folds of ``C="auto"``. It takes effect with the first rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows now.
    class_count_ : ndarray of shape (n_classes,)
        Number of rows of each class now (sums of weights).
    coef_ : ndarray of shape (n_planes, n_features)
        Normals of the planes in units of the raw (or mapped) features; one plane for two classes.
    intercept_ : ndarray of shape (n_planes,)
        ``X @ coef_.T + intercept_`` is the decision function if there is no feature map.
    statistics_ : ClassStatistics
        Sufficient statistics of the current rows.
    quantizer_ : Quantizer
        Steps to which feature values are rounded; preliminary for the first 256 rows unless given.
    feature_map_ : RandomFeatures or None
        The fitted feature map.
    C_ : float
        The C in use.
    n_features_in_ : int
        Number of features seen.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if all names are strings.

    See Also
    --------
    steelyard.proximal.ClassStatistics : The sufficient statistics.
    steelyard.proximal.FoldedStatistics : The message of :meth:`statistics`, accepted by :meth:`merge`.
    steelyard.RandomFeatures : Feature maps that make the learner nonlinear.

    Notes
    -----
    With :math:`E_c = [X_c, -e]`, :math:`M_c = E_c^\top E_c`, :math:`v_c = E_c^\top e`, counts
    :math:`l_c` and sums over classes :math:`M, v, l`, the balanced plane of class :math:`j` is

    .. math::

        \Bigl(\tfrac{1}{C} I + \tfrac{l_j}{l} M + \tfrac{l - 2 l_j}{l} M_j\Bigr)
        \begin{bmatrix} w_j \\ b_j \end{bmatrix} = v_j - \tfrac{l_j}{l} v,
        \qquad f_j(x) = x^\top w_j - b_j .

    In the literature, ``ProximalSVC(class_weight=None, standardize=False)`` is LPSVM, IncLPSVM and
    McIncLPSVM, and ``ProximalSVC(standardize=False)`` is wLPSVM and DCIL-IncLPSVM [1]_ [2]_.

    Planes are computed at the first prediction after a change. All parameters except ``feature_map`` can be
    changed at any time with :meth:`set_params` and need no new fit; only a change to ``C="auto"`` must come
    before the first rows.

    ``predict_proba`` assumes that the scores of positive and of negative rows are normally distributed and,
    by default, uses the class frequencies of the current rows. ``predict`` uses the class weights instead,
    which are balanced by default.

    References
    ----------
    .. [1] L. Zhu, "Dynamic Class Imbalance Learning for Incremental LPSVM", thesis, Unitec Institute of
       Technology, 2012.
    .. [2] L. Zhu, T. Ban, K. Ikeda, P. Pang and A. Sarrafzadeh, "Distributed Incremental wLPSVM Learning".

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import ProximalSVC
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(2000) < 0.02).astype(int)
    >>> X = rng.normal(size=(2000, 3)) + 2.0 * y[:, None]
    >>> model = ProximalSVC().partial_fit(X[:1000], y[:1000])
    >>> model = model.update(add=(X[1000:], y[1000:]), forget=(X[:500], y[:500]))
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
        "n_folds": Integer(2),
    }
    _traits = Traits(exact=True, bounded_memory=True)
    _accepts_sparse = True
    _finds_nonfinite = True
    _max_feature: ClassVar[float] = LARGEST_VALUE
    _in_place = ("_state",)

    C: float | str = 1.0
    _: KW_ONLY
    class_weight: str | dict[Label, float] | None = "balanced"
    standardize: bool = True
    objective: str = "margin"
    threshold: str = "zero"
    penalize_intercept: bool = True
    feature_map: RandomFeatures | None = None
    quantizer: Quantizer | None = None
    track_rows: bool = False
    n_folds: int = 5

    # -- learning and forgetting --------------------------------------------------------------------

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        # Learning a single row after the first one takes one native call.
        attributes = self.__dict__
        if classes is not None or sample_weight is not None or "_state" not in attributes:
            return super().partial_fit(X, y, classes, sample_weight)
        single_row: _native.SingleRowModel | None = attributes["_state"].single_row
        if single_row is not None and single_row.learn(self, attributes, X, y):
            return self
        super().partial_fit(X, y)
        if self._state.ledger is None and type(X) is np.ndarray and len(X) == 1 and X.dtype.char == "d":
            self._enable_single_row_path()
        return self

    def _start_stream(self, batch: Batch) -> None:
        features = self.feature_map
        if (
            features is None
            or features.is_fitted
            or not isinstance(features.gamma, str)
            or self.quantizer is not None
        ):
            self._start(batch)
            return
        self._check_range(batch.X, "partial_fit")
        buffer = BufferedRows.start(features, batch.X.shape[1])
        self._set_empty(FoldedStatistics._of_buffer(buffer, self.n_folds if self.C == "auto" else 1))

    def _start(self, batch: Batch) -> None:
        feature_map = self.feature_map
        if feature_map is not None:
            self._check_range(batch.X, "fit")
            feature_map = feature_map.fitted_on(batch.X)
        n_folds = self.n_folds if self.C == "auto" else 1
        self._set_empty(FoldedStatistics.start(batch.X.shape[1], n_folds, feature_map, self.quantizer))

    def _set_empty(self, state: FoldedStatistics) -> None:
        state.ledger = RowLedger() if self.track_rows else None
        self._state = state

    def _learn(self, batch: Batch) -> None:
        state = self._state
        if state.ledger is not None:  # a copy is changed, so that sums and ledger are replaced together
            state = state.copy()
            state.selected_C = self._state.selected_C
        self._add(state, batch, "partial_fit")
        self._state = state

    def _add(self, state: FoldedStatistics, batch: Batch, method: str) -> None:
        if state.statistics.n_features >= _MIN_WIDE_FEATURES:
            self._warn_of_wide_rows(state, batch)
        if not state.is_plain:  # rows are learned block by block, so all values are checked before
            self._check_range(batch.X, method)
        try:
            state._add(batch)
        except DataError:
            raise nonfinite_error(self, batch.X, method) from None
        if state.ledger is not None:
            state.ledger = state.ledger.with_hashes(batch_hashes(batch))

    def _warn_of_wide_rows(self, state: FoldedStatistics, batch: Batch) -> None:
        """Warn if the matrices of new classes need much memory; raise an error if they do not fit."""
        width = state.statistics.n_features
        known = {label.label if isinstance(label, FoldLabel) else label for label in state.statistics.classes}
        n_classes = len(known.union(batch.labels))
        if n_classes == len(known):
            return
        # One matrix per class and fold; computing the planes takes two more per class, and two for all.
        n_matrices = n_classes * state.n_folds + 2 * n_classes + 2
        n_bytes = 8 * (width + 1) ** 2 * n_matrices
        what = f"ProximalSVC: {n_matrices} dense matrices of {width:,} x {width:,} for {n_classes} classes"
        check_fits_memory(n_bytes, what, _WIDE_HINT)
        warn_of_large_memory(n_bytes, what, _WIDE_HINT, is_sparse=sp.issparse(batch.X))

    def _check_range(self, X: Any, method: str) -> None:
        """Raise an error for NaN, infinity and values that could overflow, before any state changes."""
        check_finite(self, X, method)
        check_magnitude(X, f"ProximalSVC.{method}", self._max_feature)

    def forget(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        certificate: bool = False,
    ) -> Self:
        if certificate:
            old = "the parameter 'certificate' of ProximalSVC.forget"
            warn_renamed(old, "certify_forget()", stacklevel=3)
            return self.certify_forget(X, y, sample_weight)  # type: ignore[return-value]
        return self._change(None, (X, y, sample_weight), "forget")

    def certify_forget(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Certificate:
        """Forget rows like :meth:`forget`, and return a certificate that a third party can verify.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`forget`.

        Returns
        -------
        Certificate
        """
        check_started(self, "certify_forget")
        with lock_of(self):
            after = copy.copy(self)
            after.forget(X, y, sample_weight)
            forgotten = ProximalSVC(quantizer=after.quantizer_, feature_map=after.feature_map_)
            certificate = Certificate.of(self, forgotten.fit(X, y, sample_weight), after)
            self._state = after._state
        return certificate

    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        # A copy of the state is changed and then replaces the state. After an error the copy is discarded.
        state = self._state.copy()
        if add is not None:
            self._add(state, add, method)
        if forget is not None:
            try:
                state._remove(forget, f"ProximalSVC.{method}")
            except DataError:
                self._check_range(forget.X, method)  # invalid values are reported before any other error
                raise
        self._state = state

    @transactional
    def decay(self, factor: float, *, drop_below: float = 0.0) -> Self:
        """Multiply the weights of all rows learned so far by ``factor`` (exponential decay).

        Parameters
        ----------
        factor : float
            A positive number; a factor below 1 gives old rows less weight than new ones.
        drop_below : float, default=0.0
            A class with a smaller total weight is forgotten.

        Returns
        -------
        self
        """
        check_started(self, "decay")
        self._check_no_ledger("decay", "rows in a ledger cannot decay")
        self._state = self._state._decayed(factor, drop_below)
        return self

    def _grow(self, n_features: int) -> None:
        if self._state.feature_map is not None:
            raise DataError(
                "the feature map fixes the number of features, so features cannot be added.",
                source="ProximalSVC.grow",
                hint="reserve features for new categories before the map, for example by hashing",
            )
        self._state = self._state.copy(self._state.statistics.copy().grow(n_features))

    def permute_features(self, places: Sequence[int], n_features: int) -> Self:
        """Return a copy with permuted features, bit-identical to a learner of permuted rows.

        Parameters
        ----------
        places : sequence of int
            For each feature, its new position.
        n_features : int
            The new number of features; features at all other positions are zero in all rows.

        Returns
        -------
        ProximalSVC
        """
        check_started(self, "permute_features")
        self._check_no_ledger("permute_features", "features of rows in a ledger cannot be permuted")
        if self._state.feature_map is not None:
            raise DataError(
                "the order of features before a feature map cannot change.",
                source="ProximalSVC.permute_features",
            )
        result: Self = clone(self)
        result.n_features_in_ = int(n_features)
        result._state = self._state.copy(self._state.statistics.permute_features(places, n_features))
        return result

    def _check_no_ledger(self, method: str, message: str) -> None:
        if self._state.ledger is not None:
            raise DataError(
                f"{message}: the ledger has hashes of the rows as they were learned.",
                source=f"ProximalSVC.{method}",
                hint="use track_rows=False, and keep track of the learned rows yourself",
            )

    # -- merging ------------------------------------------------------------------------------------

    def statistics(self) -> FoldedStatistics:
        """Return all learned sums as a message for :meth:`merge` of another learner.

        Returns
        -------
        FoldedStatistics
            A copy that also contains the feature names and the ledger. ``to_bytes()`` serializes it.
        """
        check_started(self, "statistics")
        with lock_of(self):
            return self._state.copy()._with_names(self._features()["feature_names"])

    def drift_report(self, before: Self | FoldedStatistics | ClassStatistics) -> DriftReport:
        """Compare the statistics with those of an earlier period; return which columns changed and why.

        Parameters
        ----------
        before : ProximalSVC, FoldedStatistics or ClassStatistics
            A learner of the rows of an earlier period, its :meth:`statistics`, or class statistics alone.
            It may be a sum over machines or sites. This learner should not contain the rows of that period;
            :meth:`subtract` removes them.

        Returns
        -------
        DriftReport
            Causes (class frequencies, columns, concept), columns and p-values.
        """
        check_started(self, "drift_report")
        names = self._features()["feature_names"]
        total = before if isinstance(before, ClassStatistics) else _message(before).total
        return compare_statistics(total, self.statistics_, None if self.feature_map_ is not None else names)

    def merge(self, other: Self | FoldedStatistics | ClassStatistics) -> Self:
        """Learn all rows of another learner; the other learner does not change.

        Parameters
        ----------
        other : ProximalSVC, FoldedStatistics or ClassStatistics
            A learner of the same features, with the same feature map and the same kind of C ("auto" or
            a number), its :meth:`statistics`, or class statistics alone.

        Returns
        -------
        self
        """
        return self._merge(_message(other))

    @transactional
    def _merge(self, other: Any) -> Self:
        theirs = self._mergeable(other)
        check_sortable([*self._state.total.classes, *theirs.total.classes], "ProximalSVC.merge")
        self._state = self._state._merged(theirs)
        statistics = theirs.statistics
        is_difference = isinstance(other, FoldedStatistics) and other.is_difference
        if is_difference or any(statistics.count(label) < 0.0 for label in statistics.classes):
            self._state.statistics.check_learned(statistics, "ProximalSVC.merge")
        return self

    def subtract(self, other: Self | FoldedStatistics | ClassStatistics) -> Self:
        """Forget all rows of another learner. This learner must have learned them too.

        Parameters
        ----------
        other : ProximalSVC, FoldedStatistics or ClassStatistics
            As for :meth:`merge`.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the counts or sums prove that some of the rows were never learned. Nothing changes.
        """
        return self._subtract(_message(other))

    @transactional
    def _subtract(self, other: Any) -> Self:
        check_started(self, "subtract")
        self._state = self._state._subtracted(self._mergeable(other), "ProximalSVC.subtract")
        return self

    def _mergeable(self, other: Any) -> FoldedStatistics:
        """Return the validated state of ``other``. A learner without rows adopts its features and folds."""
        self._check_params()
        theirs = self._compatible(other)
        if self._state.ledger is not None and theirs.ledger is None:
            raise DataError(
                "this learner keeps a ledger of its rows, and the other learner has none; nothing was "
                "changed.",
                source="ProximalSVC.merge",
                hint="set track_rows=True in both learners, or in neither",
            )
        return theirs

    def _compatible(self, other: Any) -> FoldedStatistics:
        """Return the state of ``other``; raise DataError if its rows cannot be added to those of this one."""
        if isinstance(other, ClassStatistics):
            if not self._is_started():
                self.n_features_in_ = other.n_features
                self._set_empty(FoldedStatistics.start(other.n_features, 1, quantizer=self.quantizer))
            if not self._state.is_plain or self.C == "auto":
                raise DataError(
                    "class statistics have neither folds nor a feature map, but this learner needs them.",
                    source="ProximalSVC.merge",
                    hint="merge the learner that computed the statistics instead",
                )
            return FoldedStatistics(other)
        if not isinstance(other, FoldedStatistics):
            raise DataError(
                f"expected a ProximalSVC, FoldedStatistics or ClassStatistics; got {type(other).__name__}.",
                source="ProximalSVC.merge",
            )
        theirs = other
        if other.omitted_map is not None:
            theirs = other.with_map(self._map_for(other.n_features))
        if not self._is_started():
            if self.C == "auto":
                theirs._check_has_folds("ProximalSVC.merge")
            self._set_features(other.features)
            if self.quantizer is None:
                self._set_empty(theirs._empty())
            else:
                width = theirs.statistics.n_features
                statistics = ClassStatistics(width, quantizer=self.quantizer)
                self._set_empty(FoldedStatistics(statistics, theirs.n_folds, theirs.feature_map))
        check_same_features(self._features(), other.features, "ProximalSVC.merge")
        self._state._check_same_kind(theirs, "ProximalSVC.merge")
        return theirs

    def _map_for(self, n_features: int) -> RandomFeatures | None:
        """Return the feature map of this learner, for a message that was sent without its map."""
        if self._is_started():
            return self._state.feature_map
        return None if self.feature_map is None else self.feature_map.fitted_for(n_features)

    # -- fitted attributes --------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        self._need("classes_")
        return self._state._labels().array

    @property
    def class_count_(self) -> FloatArray:
        self._need("class_count_")
        with lock_of(self):
            statistics = self._state.total
            return np.array([statistics.count(label) for label in statistics.classes])

    @property
    def coef_(self) -> FloatArray:
        self._need("coef_")
        return self._predictor().planes.coef

    @property
    def intercept_(self) -> FloatArray:
        self._need("intercept_")
        return self._predictor().planes.intercept

    @property
    def C_(self) -> float:
        self._need("C_")
        return self._predictor().planes.C

    @property
    def statistics_(self) -> ClassStatistics:
        self._need("statistics_")
        return self._state.total

    @property
    def feature_map_(self) -> RandomFeatures | None:
        self._need("feature_map_")
        return self._state.feature_map

    @property
    def quantizer_(self) -> Quantizer:
        self._need("quantizer_")
        return self._state.statistics.quantizer

    def digest(self) -> str:
        """Return a hash of the learned state: the exact sums of all rows, and the feature map.

        Two learners with equal rows, rounded in the same way, have equal digests, whatever their histories.
        After :meth:`forget` the digest equals that of a learner that never learned those rows. The digest
        does not depend on parameters, nor on the folds of ``C="auto"``, which follow from the rows.

        Returns
        -------
        str
            32 hexadecimal digits.
        """
        check_started(self, "digest")
        return self._state.digest()

    # -- model selection ----------------------------------------------------------------------------

    def cross_validate(self, statistics: FoldedStatistics) -> dict[str, Any]:
        """Cross-validate the parameters of this learner from its statistics, without reading the rows again.

        Parameters
        ----------
        statistics : FoldedStatistics
            Statistics in several folds: the :meth:`statistics` of a learner with ``C="auto"``.

        Returns
        -------
        dict of str to ndarray of shape (n_folds,)
            ``test_squared_error`` is exact: the mean of ``(score - target)**2`` with the targets +1 and -1,
            and equal total weights of positive and negative rows. ``test_auc``, ``test_sensitivity``,
            ``test_specificity`` and ``test_gmean`` assume normally distributed scores, with the exact means
            and variances of positive and negative rows. All measures are means over the planes, and ``nan``
            if a fold has no positive or no negative rows. ``test_rows`` is the number of rows of the fold,
            and ``C`` the regularization parameter.
        """
        statistics._check_has_folds("ProximalSVC.cross_validate")
        if self.C == "auto" and statistics.n_folds == 2:
            raise DataError(
                'the statistics have two folds, and C="auto" needs two besides the tested one.',
                source="ProximalSVC.cross_validate",
                hint="use a number for C, or statistics with n_folds=3 or more",
            )
        return validate_folds(self._rule(statistics), statistics)

    @transactional
    def reselect_C(self) -> Self:
        """Select C again from all current rows at the next prediction. Only useful with ``C="auto"``.

        Returns
        -------
        self
        """
        check_started(self, "reselect_C")
        self._state = self._state.copy()  # a copy has no selected C
        return self

    def regularization_path(self, Cs: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the planes for several values of C. Planes with the same matrix share one decomposition.

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
        values = np.asarray(Cs)
        if not ListOf(Positive()).accepts(values.tolist()):
            raise ParameterError(
                f"Cs must be positive, finite numbers; got {Cs!r}.", source="ProximalSVC.regularization_path"
            )
        with lock_of(self):
            planes = self._rule().path(self._state.total, values.astype(np.float64))
        return np.array([p.coef for p in planes]), np.array([p.intercept for p in planes])

    def _rule(self, state: FoldedStatistics | None = None) -> PlaneRule:
        self._check_params()
        weights, state = self.class_weight, self._state if state is None else state
        standardize = self.standardize and state.feature_map is None and state.omitted_map is None
        others = self.objective, self.threshold, self.penalize_intercept
        if isinstance(weights, Mapping):
            return PlaneRule(self.C, dict(weights), standardize, *others)
        return _cached_rule(self.C, weights, standardize, *others)

    def _predictor(self) -> Predictor:
        """Return planes and classes of the current rows, cached for the current version of the state."""
        rule, state = self._rule(), self._state
        return state._cached("predictor", rule, rule.predictor, lock_of(self))

    # -- prediction ---------------------------------------------------------------------------------

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        # Native code writes the labels; a single row needs one native call.
        attributes = self.__dict__
        state = attributes.get("_state")
        if state is not None and state.single_row is not None:
            label: NDArray[Any] | None = state.single_row.label(attributes, X)
            if label is not None:
                return label
        return self._predict(X)

    @snapshot_read
    def _predict(self, X: ArrayLike) -> NDArray[Any]:
        rows, predictor = self._validated_rows(X, "predict"), self._predictor()
        classes, planes = predictor.classes, predictor.planes
        codes = np.empty(rows.shape[0], dtype=np.uint64)
        finite = [
            planes.write_labels(mapped, classes.codes, codes[block])
            for block, mapped in mapped_blocks(rows, predictor.feature_map)
        ]
        self._check_scores(rows, planes, "predict", finite=all(finite))
        if len(codes) == 1:
            self._enable_single_row_path()
        return classes.decode(codes)

    def _enable_single_row_path(self) -> None:
        """Create the native single-row model if this learner supports it."""
        # A subclass may override methods, and changes inside mappings other than dict go undetected.
        is_supported = type(self) is ProximalSVC and isinstance(self.class_weight, (str, dict, NoneType))
        state, version = self._state, self._state.statistics.version
        if not is_supported or not state.is_plain or self.C == "auto":
            return
        if state.ledger is not None and state.last_predict_version != version:
            # With a ledger, the model can only predict, and it is discarded whenever a row is learned. So it
            # is created at the second of two predictions between which nothing was learned.
            state.last_predict_version = version
            return
        with lock_of(self):
            state = self._state
            version, classes = state.statistics.version, state._labels()
            arguments = self._rule().native_arguments(state.statistics, float(self.C), classes.labels)
            if arguments is None:
                return
            sums, slots, rule = arguments
            labels = [classes.array[k : k + 1].copy() for k in range(len(slots))]
            # Without labels to learn, the model only predicts.
            known = {} if state.ledger is not None else dict(zip(classes.labels, slots, strict=True))
            parameters = {name: self.__dict__[name] for name in self._constraints}
            state.single_row = _native.SingleRowModel(
                sums, version, slots, labels, known, parameters, "feature_names_in_", *rule
            )

    @snapshot_read
    def predict_proba(self, X: ArrayLike, *, prior: str | Mapping[Label, float] = "observed") -> FloatArray:
        """Return the probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix, table} of shape (n_samples, n_features)
            Rows.
        prior : {"observed", "balanced"} or mapping of label to float, default="observed"
            Class frequencies. "observed" are those of the current rows. "balanced" are equal frequencies,
            which balanced weights and the threshold zero assume. A mapping gives the proportions.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return self._probabilities_of(self._scored(X, "predict_proba")[0], prior)

    def _probabilities_of(self, scores: FloatArray, prior: str | Mapping[Label, float]) -> FloatArray:
        """Return class probabilities for scores with one column per plane."""
        predictor = self._predictor()
        labels = predictor.classes.array.tolist()
        if len(labels) == 1:
            return np.ones((len(scores), 1))
        count = self._state.total.count
        source = "ProximalSVC.predict_proba"
        factors = prior_factors(prior, labels, lambda: np.array([count(label) for label in labels]), source)
        probabilities = predictor.planes.probabilities(scores)
        if factors is None:
            return probabilities
        probabilities = probabilities * factors
        result: FloatArray = probabilities / probabilities.sum(axis=1, keepdims=True)
        return result

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        predictor = self._predictor()
        planes, feature_map = predictor.planes, predictor.feature_map
        if feature_map is None:
            mean = self.statistics_.mean_offset()[0] if background is None else background.mean(axis=0)
            return explain_linear(X, planes.coef, planes.intercept, mean)
        rows = feature_map.typical_rows() if background is None else background
        return feature_map.explain_intermediates(
            X, feature_map.map_.coef_of_intermediates(planes.coef), planes.intercept, rows
        )

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        X, predictor = self._validated_rows(X, method), self._predictor()
        planes = predictor.planes
        scores = np.empty((X.shape[0], len(planes.coef)))
        finite = [
            planes.write_scores(mapped, scores[block])
            for block, mapped in mapped_blocks(X, predictor.feature_map)
        ]
        self._check_scores(X, planes, method, finite=all(finite))
        return scores, predictor.classes.array

    def _validated_rows(self, X: Any, method: str) -> Any:
        rows = validate_rows(self, X, method)
        if self._state.feature_map is not None:
            self._check_range(rows, method)  # a map could hide NaN, infinity and overflow
        elif self.C == "auto":
            check_finite(self, rows, method)  # predicting may select and store C, so rows are checked before
        return rows

    def _check_scores(self, X: Any, planes: Planes, method: str, *, finite: bool) -> None:
        """Raise an error for NaN or infinity in X. If all scores are finite, X is not read."""
        if not finite or np.count_nonzero(planes.coef) < planes.coef.size:
            check_finite(self, X, method)

    # -- files and deprecated names -----------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        selected = self._state.selected_C
        is_current = selected is not None and selected.rule == self._rule()
        return {
            **self.statistics().get_state(),
            "choice": {"C": selected.C, "n_rows": selected.n_rows} if selected and is_current else None,
            "keys": list(self.__dict__.get("_keys", {})),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        message = FoldedStatistics.from_state(state)
        self._set_features(message.features)
        self._state = message
        if state.get("keys"):
            self._keys = {name: place for place, name in enumerate(state["keys"])}
        if state.get("choice") is not None:
            choice = state["choice"]
            self._state.selected_C = SelectedC(float(choice["C"]), self._rule(), float(choice["n_rows"]))

    fade = renamed_method("decay", "fade")
    grid_ = renamed_attribute("quantizer_", "grid_")
    message = renamed_method("statistics", "message")
    rearranged = renamed_method("permute_features", "rearranged")
    refresh = renamed_method("reselect_C", "refresh")
    unmerge = renamed_method("subtract", "unmerge")


# Every row of a stream needs the plane parameters.
_cached_rule = lru_cache(maxsize=64, typed=True)(PlaneRule)


def _message(other: Any) -> Any:
    """Return the statistics of the learner ``other``, or ``other`` itself if it is not a learner."""
    if not isinstance(other, ProximalSVC):
        return other
    check_started(other, "merge")
    return other.statistics()  # only the lock of `other` is held here, to avoid deadlocks
