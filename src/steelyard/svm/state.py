"""State of the incremental kernel SVM: rows, and the solutions of the binary problems."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import VersionedValue
from steelyard._labels import restored_labels, too_many_rows_error
from steelyard._types import FloatArray
from steelyard._validation import MAX_KERNEL_VALUE
from steelyard.base import Batch, Label, sorted_classes
from steelyard.exceptions import DataError, SolverError
from steelyard.explanation.neighbors import RememberedRows
from steelyard.kernels import Kernel
from steelyard.kernels.expansion import KernelExpansion
from steelyard.kernels.sequences import SequenceStore, is_sequence_kernel, restored_items
from steelyard.params import class_factors
from steelyard.thresholds import smooth_gmean_threshold

# Accepted violation of solutions from files, which may have been saved with a larger tol than now.
_MAX_FILE_VIOLATION = 1e-6

ClassWeight = str | Mapping[Label, float] | None
# Rows for the solver: X, the index of the label of each row, the code of each label, and the weights or None.
CodedRows = tuple[FloatArray, NDArray[np.int32], list[int], FloatArray | None]


class RowLabels(NamedTuple):
    """Labels, codes and counts of the rows. Only ``slide`` changes an instance, by updating the counts."""

    labels: list[Label]  # labels in the order of their codes
    codes: dict[Label, int]
    counts: list[int]  # number of rows of each label
    has_weights: bool  # whether any row, including forgotten ones, has had a weight other than 1
    slide_key: tuple[Any, ...]  # (C, tol) of the last solution if slide() can continue from it, else ()

    @property
    def classes(self) -> list[Label]:
        """Labels that currently have rows, sorted."""
        return sorted(label for label, count in zip(self.labels, self.counts, strict=True) if count)


class Predictor(NamedTuple):
    """Classes and decision functions for predictions, valid for one version of the state."""

    version: int
    threshold: str
    classes: NDArray[Any]
    expansion: KernelExpansion


class SupportState:
    """Rows, labels and solutions of an incremental SVM. :meth:`update` is atomic.

    Labels have codes in the order of their first occurrence. With two classes there is one binary problem,
    whose positive class is the second label in sorted order. With more classes there is one problem per
    class, and with fewer classes there is none.

    One native call changes the solver and its version number. :attr:`labels` belongs to the current version.
    Callers must hold the lock of the learner, except for :attr:`labels` and :meth:`predictor`. The gamma of
    ``kernel`` is a number. ``n_features`` is 1 for sequences, which are represented by their slot in a store.
    """

    def __init__(self, kernel: Kernel, n_features: int, cache_bytes: int) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.catalogue = SequenceStore() if is_sequence_kernel(kernel) else None
        self.cache_bytes = cache_bytes
        samples = np.array if self.catalogue is None else self.catalogue.at  # copies rows of the solver

        def write_block(X: FloatArray, Z: FloatArray, out: FloatArray) -> None:
            out[...] = kernel.block(samples(X), samples(Z))

        spec, function = (kernel.spec(), None) if kernel.is_native else (None, write_block)
        self._solver = _native.IncrementalSvc(n_features, spec, function, cache_bytes)
        empty = RowLabels([], {}, [], has_weights=False, slide_key=())
        self._labels = VersionedValue(-1, empty, empty)
        self._predictor: Predictor | None = None  # created at the first prediction after a change
        self._classes: tuple[Any, tuple[Any, ...]] = None, ()  # cached result of _classes_of()
        # True if kernel values cannot overflow or if the kernel validates them itself.
        self._is_bounded = not kernel.is_native or kernel.kernel in {"rbf", "laplacian"}
        self._problems: tuple[Any, list[int], FloatArray] | None = None

    @property
    def version(self) -> int:
        """Number of changes so far."""
        return self._solver.version

    @property
    def labels(self) -> RowLabels:
        """Labels of the current rows."""
        return self._labels.at(self._solver.version)

    # -- learning and forgetting --------------------------------------------------------------------

    def update(
        self,
        add: Batch | None,
        forget: Batch | None,
        *,
        C: float,
        class_weight: ClassWeight,
        tol: float,
        source: str,
    ) -> None:
        """Learn and forget rows and solve all problems. After an error nothing has changed."""
        before = self.labels
        try:
            labels, codes = before.labels, before.codes
            new = [] if add is None else [label for label in add.labels if label not in codes]
            if new:
                labels = labels + new
                codes = _codes_of(labels)
            counts = before.counts + [0] * (len(labels) - len(before.counts))
            incoming = None if add is None else self._coded(add, codes, counts, 1, source)
            outgoing = None if forget is None else self._coded(forget, codes, counts, -1, source)
            has_weights = before.has_weights or (add is not None and add.weights is not None)
            needs_sums = class_weight is not None and has_weights
            sizes = self._weight_sums(counts, incoming, outgoing) if needs_sums else counts
            positives, bounds = self._binary_problems(labels, counts, sizes, C, class_weight)
            can_slide = class_weight is None and self._is_bounded and self.catalogue is None and positives
            after = RowLabels(labels, codes, counts, has_weights, (C, tol) if can_slide else ())
            self._labels = VersionedValue(self._solver.version, before, after)
            unknown = self._solver.update(incoming, outgoing, positives, bounds, tol)
        except _native.SolverFailure as failure:
            raise SolverError(
                f"the solver did not reach tol={tol:g} ({failure}); nothing was changed.",
                source=source,
                hint="scale the features, choose a smaller C, or raise tol; a kernel given "
                "as a function must be symmetric and positive semi-definite",
            ) from None
        finally:
            if self.catalogue is not None:
                self.catalogue.retain(self._all_rows())
        if unknown is not None and forget is not None:
            raise DataError(
                f"row {unknown} of the rows to forget (label {forget.labels[forget.codes[unknown]]!r}) was "
                "never learned with these values and this weight, or fewer times than it is to be forgotten; "
                "nothing was changed.",
                source=source,
                hint="forget rows with exactly the values with which they were learned",
            )

    def slide(self, add: object, forget: object) -> bool:
        """Learn one row and forget another by one native call, if the set of classes stays the same.

        Return False, without changes, if this is not possible. The caller then uses :meth:`update`.
        """
        labels = self.labels
        return self._solver.slide(add, forget, labels.codes, labels.counts, labels.slide_key[1])

    def _binary_problems(
        self,
        labels: list[Label],
        counts: list[int],
        sizes: list[float] | list[int],
        C: float,
        class_weight: ClassWeight,
    ) -> tuple[list[int], FloatArray]:
        """Return the code of the positive class of each problem, and the bounds of the coefficients.

        There is one bound for each problem and label, that of a row with weight 1. Without class weights, the
        result is cached, because it rarely changes.
        """
        key = (C, [count > 0 for count in counts])
        if class_weight is None and self._problems is not None and self._problems[0] == key:
            return self._problems[1:]
        present = [code for code, count in enumerate(counts) if count]
        present.sort(key=labels.__getitem__)  # validation ensures that labels of one learner are sortable
        positives = present if len(present) > 2 else present[1:]
        bounds = np.full((len(positives), len(labels)), float(C))
        if class_weight == "balanced":
            total = float(sum(sizes))
            for row, positive in zip(bounds, positives, strict=True):
                row[:] = C * (total / (2.0 * (total - sizes[positive])))
                row[positive] = C * (total / (2.0 * sizes[positive]))
        elif isinstance(class_weight, Mapping):
            bounds *= class_factors(class_weight, labels)
        else:
            self._problems = key, positives, bounds
        return positives, bounds

    def _coded(
        self, batch: Batch, codes: Mapping[Label, int], counts: list[int], sign: int, source: str
    ) -> CodedRows:
        """Return a batch in the form that the solver needs, without rows of weight 0. Update ``counts``."""
        X, numbers, weights = batch.X, batch.codes, batch.weights
        if self.catalogue is not None:
            X = self.catalogue.add(X)
        elif type(X) is not np.ndarray or X.dtype != np.float64:
            X = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
        if weights is not None and not weights.all():
            nonzero = weights != 0.0
            X, numbers, weights = X[nonzero], numbers[nonzero], weights[nonzero]
        if not self._is_bounded:
            self._check_range(X, source)
        labels = batch.labels
        changes = [len(X)] if len(labels) == 1 else np.bincount(numbers, minlength=len(labels)).tolist()
        label_codes = []
        for label, change in zip(labels, changes, strict=True):
            code = codes.get(label)
            if code is None or counts[code] + sign * change < 0:
                raise too_many_rows_error(change, 0 if code is None else counts[code], source, label)
            counts[code] += sign * change
            label_codes.append(code)
        return X, numbers, label_codes, weights

    def _check_range(self, X: FloatArray, source: str) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            fits = np.abs(self.kernel.diagonal(X)) <= MAX_KERNEL_VALUE
        if not fits.all():
            raise DataError(
                f"the kernel values of row {int(np.argmin(fits))} of X are beyond "
                f"{MAX_KERNEL_VALUE:g}; nothing was changed.",
                source=source,
                hint="scale the features first",
            )

    def _weight_sums(
        self, counts: list[int], incoming: CodedRows | None, outgoing: CodedRows | None
    ) -> list[float]:
        n = len(counts)
        sums = np.bincount(self._solver.codes(), self._solver.weights(), n).astype(np.float64)
        for sign, rows in ((1.0, incoming), (-1.0, outgoing)):
            if rows is not None:
                X, numbers, label_codes, weights = rows
                sums += sign * np.bincount(
                    np.array(label_codes)[numbers], np.ones(len(X)) if weights is None else weights, n
                )
        return [float(total) if count else 0.0 for total, count in zip(sums, counts, strict=True)]

    # -- results of the solver ---------------------------------------------------------------------------

    @property
    def margin_size(self) -> int:
        """Number of rows in the margin sets of all problems."""
        return sum(self._solver.margin_size(k) for k in range(self._solver.n_problems))

    def violation(self) -> float:
        """Return the largest violation of the optimality conditions over all problems."""
        return max((self._solver.violation(k) for k in range(self._solver.n_problems)), default=0.0)

    def predictor(self, lock: AbstractContextManager[Any], threshold: str) -> Predictor:
        """Return classes and decision functions, cached until the rows or the threshold change."""
        cached = self._predictor
        if cached is None or cached.version != self._solver.version or cached.threshold != threshold:
            with lock:
                if self._solver.n_problems:
                    # One native call replaces ten NumPy calls, which makes predictions of single rows fast.
                    vectors, coef, intercept = self._solver.support()
                    samples = vectors if self.catalogue is None else self.catalogue.at(vectors)
                    expansion = KernelExpansion(self.kernel, samples, coef, intercept)
                    if threshold == "gmean":
                        intercept = intercept - self._gmean_thresholds(expansion)
                        expansion = replace(expansion, intercept=intercept)
                else:
                    no_rows = self._samples()[:0]
                    expansion = KernelExpansion(self.kernel, no_rows, np.empty((1, 0)), np.zeros(1))
                classes = self._classes_of(self.labels)[0]
                cached = self._predictor = Predictor(self._solver.version, threshold, classes, expansion)
        return cached

    def label(self, row: object) -> NDArray[Any] | None:
        """Return the label of a single row at threshold zero, or None if :meth:`predictor` is needed.

        For one row, the score alone is cheaper than an expansion, which the next learned row invalidates.
        """
        version = self._solver.version
        labels, side = self._labels.at(version), self._solver.side(row, version)
        return None if side < 0 else self._classes_of(labels)[side + 1].copy()

    def _classes_of(self, labels: RowLabels) -> tuple[Any, ...]:
        """Return the classes of labels, the first of them and the others, each as an array."""
        # slide() keeps the object of the labels, and the classes are then the same.
        cached = self._classes
        if cached[0] is not labels:
            classes = sorted_classes(labels.classes)
            cached = self._classes = labels, (classes, classes[:1], classes[1:])
        return cached[1]

    def _gmean_thresholds(self, expansion: KernelExpansion) -> FloatArray:
        """Return the threshold with the largest G-mean for each problem."""
        # Thresholds from training scores would be too high. Without the term of the row itself, a score is a
        # lower bound of the leave-one-out margin (Jaakkola and Haussler, 1999).
        rows = self._samples()
        scores, own = expansion.scores(rows), self.kernel.diagonal(rows)
        codes, thresholds = self._solver.codes(), []
        for problem in range(self._solver.n_problems):
            without = scores[:, problem] - self._solver.coefficients(problem) * own
            positive = codes == self._solver.positive(problem)
            thresholds.append(smooth_gmean_threshold(without[~positive], without[positive]))
        return np.array(thresholds)

    def support(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the row numbers of the support vectors of all problems, and the codes of their labels."""
        coefficients = [self._solver.coefficients(k) for k in range(self._solver.n_problems)]
        numbers = np.flatnonzero(np.any(coefficients, axis=0)) if coefficients else np.empty(0, np.int64)
        return numbers, np.asarray(self._solver.codes())[numbers]

    def _samples(self) -> Any:
        """Return all rows, or the sequences of a sequence kernel."""
        rows = self._all_rows()
        return rows if self.catalogue is None else self.catalogue.at(rows)

    def _all_rows(self) -> FloatArray:
        return self._solver.rows(np.arange(len(self._solver)))

    # -- files and copies ---------------------------------------------------------------------------

    def remembered_rows(self) -> RememberedRows:
        """Return all rows with their labels. The caller must hold the lock of the learner."""
        labels = np.array([*self.labels.labels, None], dtype=object)[:-1]
        return RememberedRows(self._samples(), labels[self._solver.codes()])

    def to_tree(self) -> dict[str, Any]:
        """Return the state without its kernel, as arrays and plain values."""
        labels = self.labels
        return {
            "n_features": self.n_features,
            "cache_bytes": self.cache_bytes,
            "labels": list(labels.labels),
            "counts": list(labels.counts),
            "has_weights": labels.has_weights,
            "rows": self._samples(),
            "codes": self._solver.codes(),
            "weights": self._solver.weights(),
            "value_bytes": self._solver.value_bytes,
            "kept": self._solver.kept_rows(),
            "order": self._solver.order(),
            "n_wanted": self._solver.n_wanted_rows,
            "problems": [self._solver.dump_problem(k) for k in range(self._solver.n_problems)],
        }

    @classmethod
    def from_tree(cls, kernel: Kernel, tree: dict[str, Any]) -> SupportState:
        """Restore the state from the result of :meth:`to_tree`. Raise ValueError for invalid values."""
        state = cls(kernel, int(tree["n_features"]), int(tree["cache_bytes"]))
        labels, counts = restored_labels(tree["labels"]), [int(count) for count in tree["counts"]]
        row_labels = RowLabels(labels, _codes_of(labels), counts, bool(tree["has_weights"]), slide_key=())
        state._labels = VersionedValue(-1, row_labels, row_labels)
        codes = np.ascontiguousarray(tree["codes"], dtype=np.int32)
        # A huge code would make bincount allocate too much memory.
        known = not len(codes) or 0 <= codes.min() <= codes.max() < len(labels)
        if not known or len(row_labels.codes) != len(labels):
            raise ValueError("a row has an unknown label")
        if np.bincount(codes, minlength=len(labels)).tolist() != counts:
            raise ValueError("the class counts do not match the rows")
        weights = np.ascontiguousarray(tree["weights"], dtype=np.float64)
        rows = tree["rows"]
        if state.catalogue is not None:
            rows = state.catalogue.add(restored_items(kernel.kernel, rows))
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        if not (np.isfinite(rows).all() and np.isfinite(weights).all() and (weights > 0.0).all()):
            raise ValueError("rows must be finite, and their weights positive")
        kept, order = (np.ascontiguousarray(tree[name], dtype=np.uint32) for name in ("kept", "order"))
        state._solver.load_rows(
            rows, codes, weights, int(tree["value_bytes"]), kept, order, int(tree["n_wanted"])
        )
        for problem in tree["problems"]:
            if len(problem["class_bounds"]) > len(labels):
                raise ValueError("a binary problem has more bounds than there are labels")
            _check_solution(problem)
            state._solver.load_problem(problem)
        return state

    def check_optimal(self, tolerance: float) -> None:
        """Raise ValueError if a solution from a file, which may be damaged or forged, is not optimal."""
        norms = np.sqrt(self.kernel.diagonal(self._samples()))
        for problem in range(self._solver.n_problems):
            sizes = np.abs(self._solver.coefficients(problem)) @ norms
            rounding = np.finfo(float).eps * sizes * norms.max(initial=0.0)
            violation = self._solver.violation(problem)
            if not violation <= max(_MAX_FILE_VIOLATION, tolerance, 64.0 * rounding):
                raise ValueError(f"the solution is not optimal: it violates a condition by {violation:.3g}")

    def __getstate__(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "tree": self.to_tree()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(SupportState.from_tree(state["kernel"], state["tree"]).__dict__)


def _check_solution(problem: Mapping[str, Any]) -> None:
    """Raise ValueError if a solution from a file is inconsistent, as the solver might never terminate."""
    values = {name: np.asarray(value) for name, value in problem.items()}
    if not all(np.isfinite(value).all() for value in values.values()):
        raise ValueError("the coefficients of a solution must be finite")
    y, z, lower, upper = (values[name] for name in ("y", "z", "lower", "upper"))
    if not (np.abs(y) == 1.0).all() or len({len(y), len(z), len(lower), len(upper)}) > 1:
        raise ValueError("a binary problem needs a sign and a coefficient for each row")
    if not ((lower <= z) & (z <= upper)).all():
        raise ValueError("the coefficients of a solution must be within their bounds")


def _codes_of(labels: list[Label]) -> dict[Label, int]:
    return {label: code for code, label in enumerate(labels)}
