"""AlignedSVC: a support vector machine with kernel boundary alignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.svm import SVC

from steelyard import _native
from steelyard._concurrency import snapshot_read
from steelyard._deprecation import renamed_parameters
from steelyard._memory import check_fits_memory
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard._validation import check_finite, check_started, validate_rows
from steelyard.alignment.boundary import (
    DEFAULT_COSTS,
    LOSSES,
    VARIANT,
    Costs,
    blocks,
    check_number,
    input_distances,
)
from steelyard.alignment.machine import Machine, Problem, Round, deal_splits, train_machine
from steelyard.base import Batch, BatchLearner, Traits, sorted_classes
from steelyard.exceptions import DataError, ParameterError
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels.kernel import GAMMA, KERNEL, Kernel, check_kernel_range, count
from steelyard.kernels.sequences import take
from steelyard.params import (
    AnyOf,
    ClassWeight,
    Fraction,
    Function,
    Integer,
    NonNegative,
    OneOf,
    PairOf,
    Positive,
    RandomSeed,
    Switch,
    class_factors,
    parameter,
    parametrized,
)
from steelyard.persistence import storable

_GRADIENT_STEP = 1e-4  # step of the central differences, relative to the kernel width 1 / sqrt(gamma)


@renamed_parameters(reading="variant", pairs="pairing", costs="class_costs")
@storable("AlignedSVC", former_parameters={"reading": "variant", "pairs": "pairing", "costs": "class_costs"})
@parametrized()
class AlignedSVC(BatchLearner):
    r"""Support vector machine with kernel boundary alignment (KBA).

    On imbalanced classes, an SVM places its boundary too close to the rarer class. Each round of this learner
    estimates on held-out rows how far the boundary should move, places points along the moved boundary, and
    magnifies the feature space around these points: the kernel becomes :math:`D(x) D(z) k(x, z)`. Rounds
    continue while the AUC of held-out rows improves. Finally the decision function is shifted to the largest
    G-mean of the smoothed held-out scores. Only kernel values are needed, so sequences can be learned too.

    Parameters
    ----------
    C : float, default=1.0
        Regularization parameter: penalty of misclassified rows and of rows inside the margin.
    kernel : str or callable, default="rbf"
        "linear", "polynomial", "rbf", "laplacian", "sigmoid", "precomputed", or a function that takes two
        collections of samples and returns the matrix of their kernel values, such as
        :class:`~steelyard.kernels.GlobalAlignmentKernel`, which takes lists of trajectories. With
        "precomputed", ``fit`` takes the square kernel matrix of the training rows, and ``predict`` takes one
        row per new sample: its kernel values with *all* training rows and, in one more column at the end,
        with itself. The last column may be omitted if k(x, x) is the same for all training rows; new samples
        are then assumed to have the same value.
    gamma : float or {"scale", "auto", "median"}, default="scale"
        Kernel coefficient, see :class:`~steelyard.kernels.Kernel`.
    class_weight : {"balanced", None} or dict, default=None
        Factor by which C is multiplied for each class; 0 ignores the rows of a class. "balanced" gives both
        classes of a binary problem the same total weight.
    alignment : {"kba", "act", None}, default="kba"
        "kba" is kernel boundary alignment. "act" is the earlier adaptive conformal transformation, which puts
        Gaussian bumps on the support vectors in input space and needs numeric features. None is a plain SVC
        without held-out rows, transformation or shift.
    norm : {"l2", "l1"}, default="l2"
        Distance in the exponents of the bumps with ``alignment="act"``: "l2" is squared Euclidean, "l1" the
        sum of absolute differences.
    variant : {"adapted", "printed"} or dict, default="adapted"
        Variant of KBA. "printed" follows equations 5 and 7 of the paper: the mean of the bumps, widths from
        boundary points whose squared distance is below the margin, no floor, no scale. "adapted" uses the
        maximum, the five nearest points, a floor of 0.3, and preserves the trace of the kernel matrix. A dict
        replaces some settings of "adapted": ``combine`` ("max", "mean", "sum"), ``neighbours`` ("nearest",
        "printed", "margin", "all"), ``floor`` (0 to 1) and ``normalize`` ("trace", "peak", None).
    class_costs : pair of str or callable, default=("exponential", "logistic")
        c_p and c_n, each "exponential", "logistic", "hinge" or a function: the costs of missed rows of the
        rarer class and of false alarms, as decreasing functions of their margins. Functions map an array to
        an array.
    pairing : {"nearest", "all"}, default="nearest"
        Pairs of support rows that define boundary points: each support row with its nearest opposite row, or
        all opposite pairs (2,000 evenly spaced pairs if there are more).
    shift : bool, default=True
        Whether to shift the decision function to the largest G-mean of the held-out scores, smoothed by a
        kernel density estimate per class.
    max_iter : int, default=5
        Maximum number of rounds. With 0, the boundary is shifted and the kernel stays unchanged.
    tol : float, default=1e-3
        Minimum decrease of the validation loss (the fraction of pairs in the wrong order) for a round to be
        kept. The decrease must also exceed its standard error, because held-out rows can be few.
    early_stopping : bool, default=True
        Whether rounds end when the validation loss no longer falls. With False there are always ``max_iter``
        rounds.
    validation_fraction : float, default=0.2
        Fraction of the rows held out by one split. If these contain fewer than 60 rows of the rarer class,
        more disjoint splits are added and evaluated together. A class of one row cannot be held out; the
        model is then a plain SVC.
    random_state : int, generator or None, default=None
        Seed of the order in which rows are split. None splits the rows at regular intervals, which is also
        reproducible.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    rounds_ : list of Round
        Result of each round: ``eta``, ``beta``, ``n_support``, ``validation_loss``, ``kept``. For more than
        two classes a list of such lists, one per one-vs-rest problem.
    n_iter_ : int
        Number of rounds tried, including the plain SVM before any transformation. For more than two classes
        it is the maximum over all classes.
    shift_ : float or ndarray of shape (n_classes,)
        Shift added to the scores. A positive shift favours the rarer class.
    svc_ : sklearn.svm.SVC
        The SVM of the last round kept, trained on the transformed kernel with the rarer class as +1. For more
        than two classes it is a list of SVMs, with None for a class whose rows all have weight 0. It is not
        saved.
    n_features_in_ : int
        Number of features. For trajectories it is the dimension of their elements, and for strings it is 1.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when all names are strings.

    Notes
    -----
    With support rows :math:`x_+` of the rarer and :math:`x_-` of the other class, a round computes

    .. math::

        \eta^* &= \arg\min_{0 \le \eta \le 1} \sum_{+} e^{-(f + \eta)} + \sum_{-} \ln(1 + e^{f + \eta}),
        \qquad \beta = (1 + \eta^*) / 2 \\
        \phi_b &= (1 - \beta)\, \phi(x_+) + \beta\, \phi(x_-) \\
        D(x) &= s\, \bigl(c + (1 - c) \max_b e^{-\lVert \phi(x) - \phi_b \rVert^2 / \tau_b^2}\bigr)

    where the sums run over held-out rows misclassified inside the margin and :math:`\tau_b^2` is the mean
    squared distance to the five nearest boundary points that do not coincide with b. ``variant="printed",
    early_stopping=False, max_iter=1, shift=False`` is KBA as in the paper. The documentation page explains
    the differences and shows measurements.

    References
    ----------
    G. Wu and E. Y. Chang, "Aligning boundary in kernel space for learning imbalanced dataset", ICDM 2004;
    "KBA: kernel boundary alignment considering imbalanced data distribution", IEEE Transactions on Knowledge
    and Data Engineering 17, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard import AlignedSVC
    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(600) < 0.05).astype(int)
    >>> X = rng.normal(size=(600, 2)) + 1.5 * y[:, None]
    >>> plain = AlignedSVC(alignment=None).fit(X[:300], y[:300])
    >>> aligned = AlignedSVC().fit(X[:300], y[:300])
    >>> rare = y[300:] == 1
    >>> float(plain.predict(X[300:])[rare].mean()), float(aligned.predict(X[300:])[rare].mean())
    (0.5, 0.8)
    """

    _traits = Traits(bounded_memory=False)
    _accepts_sparse = True

    C: float = parameter(1.0, Positive())
    _: KW_ONLY
    kernel: str | Callable[[Any, Any], Any] = parameter("rbf", KERNEL)
    gamma: float | str = parameter("scale", GAMMA)
    class_weight: str | dict[Any, float] | None = parameter(None, ClassWeight())
    alignment: str | None = parameter("kba", OneOf("kba", "act", None))
    norm: str = parameter("l2", OneOf("l2", "l1"))
    variant: str | dict[str, Any] = parameter("adapted", VARIANT)
    class_costs: Costs = parameter(
        DEFAULT_COSTS, PairOf(AnyOf(OneOf(*LOSSES), Function("a function of margins")))
    )
    pairing: str = parameter("nearest", OneOf("nearest", "all"))
    shift: bool = parameter(True, Switch())
    max_iter: int = parameter(5, Integer(0))
    tol: float = parameter(1e-3, NonNegative())
    early_stopping: bool = parameter(True, Switch())
    validation_fraction: float = parameter(0.2, Fraction(ends=False))
    random_state: int | np.random.Generator | np.random.RandomState | None = parameter(None, RandomSeed())

    def _start(self, batch: Batch) -> None:
        if self.alignment == "act" and not (isinstance(self.kernel, str) and self.kernel != "precomputed"):
            raise ParameterError(
                "alignment='act' works in input space and needs a kernel given by name, not 'precomputed'; "
                f"got kernel={self.kernel!r}.",
                source="AlignedSVC",
                hint="alignment='kba' works with precomputed kernels",
            )
        n_present = len(np.unique(batch.codes[self._row_weights(batch) > 0]))
        if n_present < 2:
            raise DataError(
                "at least two classes with rows of positive weight are needed; got "
                f"{n_present} class{'es' if n_present == 0 else ''}.",
                source="AlignedSVC.fit",
            )
        self.classes_ = sorted_classes(batch.labels)

    def _learn(self, batch: Batch) -> None:
        X = batch.X
        if not isinstance(X, list):
            X = X.astype(np.float64, copy=False)
        n_rows = len(batch.codes)
        purpose = f"AlignedSVC.fit: the kernel matrix of {n_rows} rows and a copy"
        check_fits_memory(2 * 8 * n_rows**2, purpose, "learn fewer rows")
        kernel = Kernel(self.kernel, gamma=self.gamma).resolve(X)
        check_kernel_range([kernel], X, "AlignedSVC.fit")
        matrix = _check_matrix(X) if self.kernel == "precomputed" else kernel.block(X)
        weights = self._row_weights(batch)
        distances = input_distances(X, X, self.norm) if self.alignment == "act" else None
        positives = range(1, 2) if len(self.classes_) == 2 else range(len(self.classes_))
        trained = [self._train_target(matrix, batch, weights, positive, distances) for positive in positives]
        machines, rounds, svcs = map(list, zip(*trained, strict=True))
        # Only the training rows that the binary models use are stored, so these get new indices.
        needed = np.unique(np.concatenate([machine.reference for machine in machines]))
        self._machines = [replace(m, reference=np.searchsorted(needed, m.reference)) for m in machines]
        self._kernel = kernel
        self._reference = needed if self.kernel == "precomputed" else take(X, needed)
        diagonal = matrix.diagonal()
        is_constant = np.ptp(diagonal) <= 1e-9 * max(1.0, float(np.abs(diagonal).max()))
        self._self_similarity = float(diagonal.mean()) if is_constant else None
        self._set_attributes(rounds)
        self.svc_: Any = svcs if len(svcs) > 1 else svcs[0]

    def _train_target(
        self, matrix: FloatArray, batch: Batch, weights: FloatArray, positive: int, distances: Any
    ) -> tuple[Machine, list[Round], SVC | None]:
        """Train the one-vs-rest model of one class. The rarer of the two classes has sign +1."""
        signs = np.where(batch.codes == positive, 1.0, -1.0)
        active = np.flatnonzero(weights > 0)
        if np.ptp(signs[active]) == 0.0:
            side = float(signs[active][0])  # the model always predicts the only class with rows
            constant = Machine(active[:1], [], [np.ones(1)], np.zeros(1), side, 0.0)
            return constant, [Round(None, None, (0, 0), None)], None
        if (signs[active] > 0).sum() > (signs[active] < 0).sum():
            signs = -signs
        if self.class_weight == "balanced":  # both classes get the same total weight
            total = weights.sum()
            shares = [total / (2.0 * weights[signs == sign].sum()) for sign in (1.0, -1.0)]
            weights = weights * np.where(signs > 0, *shares)
        problem = Problem(matrix, signs, weights, distances)
        splits = []
        if self.alignment is not None and (self.shift or self.max_iter):
            random: Any = self.random_state
            if random is not None and not hasattr(random, "permutation"):
                random = np.random.default_rng(random)
            splits = deal_splits(signs, active, self.validation_fraction, random)
        machine, rounds, svc = train_machine(problem, active, splits, self)
        return replace(machine, sign=float(signs[batch.codes == positive][0])), rounds, svc

    def _row_weights(self, batch: Batch) -> FloatArray:
        """Return the row weights, multiplied by class factors if ``class_weight`` is a dict."""
        weights = np.ones(len(batch.codes)) if batch.weights is None else batch.weights
        if self.class_weight is None or isinstance(self.class_weight, str):
            return weights
        return weights * class_factors(self.class_weight, batch.labels)[batch.codes]

    def _set_attributes(self, rounds: list[list[Round]]) -> None:
        """Set the public attributes: one value for two classes, else one value per class."""
        shifts = [machine.shift for machine in self._machines]
        self.rounds_: Any = rounds if len(rounds) > 1 else rounds[0]
        self.shift_: Any = np.array(shifts) if len(shifts) > 1 else shifts[0]
        self.n_iter_ = max(map(len, rounds))

    # -- prediction ---------------------------------------------------------------------------------

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        return self._evaluate(X, method, Machine.scores), self.classes_

    def _remembered_rows(self) -> RememberedRows:
        """Return the stored training rows. For two classes, return the support rows with their labels."""
        reference: Any = self._reference
        rows = reference.toarray() if sp.issparse(reference) else reference
        if len(self._machines) > 1 or len(self.classes_) < 2:
            return RememberedRows(rows)
        machine = self._machines[0]
        is_support = machine.dual != 0.0
        positive = (machine.sign * machine.dual[is_support] > 0.0).astype(int)
        return RememberedRows(rows[machine.reference[is_support]], self.classes_[positive])

    @snapshot_read
    def alignment_factor(self, X: ArrayLike) -> FloatArray:
        """Return the magnification D(x) at each row, the product of the conformal factors of all rounds.

        Parameters
        ----------
        X : as in :meth:`decision_function`

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        factors = self._evaluate(X, "alignment_factor", Machine.factor)
        return factors[:, 0] if len(self._machines) == 1 else factors

    @snapshot_read
    def magnification(self, X: ArrayLike) -> FloatArray:
        r"""Return the Riemannian magnification: the factor by which KBA enlarges a small volume at each row.

        KBA should give large values along the class boundary.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows; the kernel must be "rbf".

        Returns
        -------
        ndarray of shape (n_samples,)
            Ratio of the volume elements with and without transformation; 1 if no round was kept.

        Notes
        -----
        Equation 2 of the paper defines the metric
        :math:`g_{ij} = \partial^2 k(x, z) / \partial x_i \partial z_j` at z = x. The metric of the Gaussian
        kernel is :math:`2 \gamma I`; that of the kernel D(x) D(z) k(x, z) is
        :math:`2 \gamma D^2 I + \nabla D \nabla D^\top`. The volume element is the square root of the
        determinant of the metric, so the ratio is :math:`D^d \sqrt{1 + |\nabla D|^2 / (2 \gamma D^2)}`.
        """
        check_started(self, "magnification")
        if self.kernel != "rbf" or len(self._machines) > 1:
            raise DataError(
                'the magnification is defined here for kernel="rbf" and two classes; got '
                f"kernel={self.kernel!r} and {len(self.classes_)} classes.",
                source="AlignedSVC.magnification",
                hint="alignment_factor(X) returns D(x) for every kernel and any number of classes",
            )
        rows = validate_rows(self, X, "magnification")
        rows = np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)
        gamma = float(self._kernel.gamma)
        step = _GRADIENT_STEP / np.sqrt(gamma)
        D, squares = self.alignment_factor(rows), np.zeros(len(rows))
        for shift in step * np.eye(rows.shape[1]):
            difference = self.alignment_factor(rows + shift) - self.alignment_factor(rows - shift)
            squares += np.square(difference / (2.0 * step))
        return np.asarray(D ** rows.shape[1] * np.sqrt(1.0 + squares / (2.0 * gamma * np.square(D))))

    @snapshot_read
    def kernel_target_alignment(self, X: ArrayLike, y: ArrayLike) -> tuple[float, float]:
        """Return the kernel-target alignment of some rows before and after KBA.

        The alignment is the cosine of the angle between the kernel matrix and the matrix of all products of
        two labels, where labels are +1 and -1.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or list of sequences
            Rows; the kernel must not be "precomputed".
        y : array-like of shape (n_samples,)
            Labels of two classes.

        Returns
        -------
        tuple of float
            Alignment of the plain kernel and alignment of the transformed kernel.
        """
        check_started(self, "kernel_target_alignment")
        if self.kernel == "precomputed" or len(self._machines) > 1:
            raise DataError(
                "the alignment is defined only for two classes and for kernels other than 'precomputed'.",
                source="AlignedSVC.kernel_target_alignment",
            )
        factors = self.alignment_factor(X)
        rows = validate_rows(self, X, "kernel_target_alignment")
        K = self._kernel.block(rows if isinstance(rows, list) else rows.astype(np.float64, copy=False))
        signs = np.where(np.asarray(y) == self.classes_[1], 1.0, -1.0)
        if len(signs) != len(K):
            raise DataError(
                f"expected one label for each of {len(K)} rows; got {len(signs)}.",
                source="AlignedSVC.kernel_target_alignment",
            )
        return _target_alignment(K, signs), _target_alignment(K * np.outer(factors, factors), signs)

    def _evaluate(self, X: Any, method: str, function: Callable[..., FloatArray]) -> FloatArray:
        """Call ``function`` for every binary model on the given rows. Return one column per model."""
        check_started(self, method)
        if self.kernel == "precomputed":
            rows, diagonal = self._precomputed_rows(X, method)
            n_values = self.n_features_in_
        else:
            rows, diagonal = validate_rows(self, X, method), None
            n_values = count(self._reference)
        results = []
        for block in blocks(count(rows), n_values):
            chunk = take(rows, block)
            if not isinstance(chunk, list):
                chunk = chunk.astype(np.float64, copy=False)
            if diagonal is None:
                values, own = self._kernel.block(chunk, self._reference), self._kernel.diagonal(chunk)
            else:
                values, own = chunk.take(self._reference, axis=1), diagonal[block]
            columns = []
            for machine in self._machines:
                reference, distances = machine.reference, None
                if self.alignment == "act":
                    distances = input_distances(chunk, self._reference[reference], self.norm)
                columns.append(function(machine, values.take(reference, axis=1), own, distances))
            results.append(np.column_stack(columns))
        return np.concatenate(results)

    def _precomputed_rows(self, X: Any, method: str) -> tuple[FloatArray, FloatArray]:
        """Return the kernel values of new samples with the training rows, and with themselves."""
        n_learned = self.n_features_in_
        values = X.toarray() if sp.issparse(X) else np.asarray(X)
        if values.ndim == 2 and values.shape[1] == n_learned + 1:
            diagonal = check_finite(self, values[:, -1:].astype(np.float64), method)[:, 0]
            return validate_rows(self, values[:, :-1], method), diagonal
        if self._self_similarity is None:
            raise DataError(
                f"k(x, x) differs between the training rows, so each new sample needs {n_learned} kernel "
                f"values with them and one more with itself; got shape {values.shape}.",
                source=f"AlignedSVC.{method}",
                hint="append the column k(x, x), or normalize the kernel",
            )
        return validate_rows(self, values, method), np.full(len(values), self._self_similarity)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        several = len(self._machines) > 1
        return {
            **self._features(),
            "classes": self.classes_,
            "gamma": self._kernel.gamma,
            "kernel": None if isinstance(self._kernel.kernel, str) else self._kernel.kernel,
            "reference": _packed(self._reference),
            "self_similarity": self._self_similarity,
            "machines": [machine.to_tree() for machine in self._machines],
            "rounds": [
                [{**vars(one), "n_support": list(one.n_support)} for one in rounds]
                for rounds in (self.rounds_ if several else [self.rounds_])
            ],
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self._check_params()
        self._set_features(state)
        self.classes_ = state["classes"]
        if not isinstance(self.classes_, np.ndarray) or self.classes_.ndim != 1:
            raise ValueError("the classes are not a one-dimensional array")
        kernel = self.kernel if state["kernel"] is None else state["kernel"]
        self._kernel = Kernel(kernel, gamma=state["gamma"])
        self._reference = _unpacked(state["reference"])
        similarity = state["self_similarity"]
        self._self_similarity = None if similarity is None else check_number(similarity, "self_similarity")
        n_reference = count(self._reference)
        self._machines = [Machine.from_tree(tree, n_reference) for tree in state["machines"]]
        rounds = [
            [Round(**{**tree, "n_support": tuple(tree["n_support"])}) for tree in trees]
            for trees in state["rounds"]
        ]
        if len(self._machines) != (1 if len(self.classes_) == 2 else len(self.classes_)):
            raise ValueError("the number of binary models does not match the number of classes")
        self._set_attributes(rounds)


def _target_alignment(K: FloatArray, signs: FloatArray) -> float:
    """Return <K, yy'> / (n |K|) for the n labels y, with the Frobenius norm |K|."""
    norm = float(np.linalg.norm(K))
    return float(signs @ K @ signs) / (len(signs) * norm) if norm else 0.0


def _check_matrix(K: Any) -> FloatArray:
    """Return a precomputed kernel as a square, symmetric float64 array."""
    if K.shape[0] != K.shape[1]:
        raise DataError(
            "a precomputed kernel must be a square matrix, one row and one column for each "
            f"sample; got shape {K.shape}.",
            source="AlignedSVC.fit",
        )
    matrix: FloatArray = np.asarray(K.toarray() if sp.issparse(K) else K, dtype=np.float64)
    scale = max(float(np.abs(matrix.diagonal()).max()), float(np.abs(matrix[0]).max()))
    # The tolerance permits float32 rounding errors.
    position = _native.find_asymmetry(matrix, 1e-6 * scale, num_threads())
    if position is not None:
        i, j = position
        raise DataError(
            f"a precomputed kernel must be symmetric; entry ({i}, {j}) is "
            f"{matrix[i, j]:.6g} but ({j}, {i}) is {matrix[j, i]:.6g}.",
            source="AlignedSVC.fit",
        )
    lowest = int(matrix.diagonal().argmin())
    if matrix[lowest, lowest] < 0:
        raise DataError(
            "k(x, x) of a precomputed kernel must not be negative; entry "
            f"({lowest}, {lowest}) is {matrix[lowest, lowest]:.6g}.",
            source="AlignedSVC.fit",
        )
    return matrix


def _packed(X: Any) -> Any:
    """Return rows as a tree of arrays for a model file."""
    if sp.issparse(X):
        return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "n_columns": int(X.shape[1])}
    return X


def _unpacked(tree: Any) -> Any:
    """Restore rows from the result of :func:`_packed`. Raise ValueError if the tree is not valid."""
    if not isinstance(tree, dict):
        return tree
    indptr = tree["indptr"]
    rows = sp.csr_matrix(
        (tree["data"], tree["indices"], indptr), shape=(len(indptr) - 1, int(tree["n_columns"]))
    )
    rows.check_format()
    return rows
