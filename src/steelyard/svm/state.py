"""All that an exact kernel SVM keeps: its rows and the solutions of its two-class problems."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard._concurrency import VersionedValue
from steelyard._labels import restored_labels, too_many_rows_error
from steelyard._types import FloatArray
from steelyard._validation import MAX_KERNEL_VALUE
from steelyard.base import Batch, Label, sorted_classes
from steelyard.exceptions import DataError, SolverError
from steelyard.kernels import Kernel
from steelyard.kernels.items import SequenceStore, is_sequence_kernel, restored_items
from steelyard.params import class_factors
from steelyard.svm.expansion import KernelExpansion
from steelyard.thresholds import smooth_gmean_threshold

__all__ = ["SupportState"]

_LEAST_CARE = 1e-6  # a file may have been solved with another tolerance than its learner has now

ClassWeight = str | Mapping[Label, float] | None
# X, for each row the position of its label, codes of the labels, weights or None
CodedRows = tuple[FloatArray, NDArray[np.int32], list[int], FloatArray | None]


class Book(NamedTuple):
    """What is known of the rows besides the solver's numbers; replaced, but for what ``slide`` counts."""

    labels: list[Label]  # in the order of their codes
    codes: dict[Label, int]
    counts: list[int]  # rows of each label
    has_weights: bool  # whether any row ever had a weight other than 1
    # C and tol of the last solve, without class weights, when slide() may go on from it.
    settled: tuple[Any, ...]

    @property
    def classes(self) -> list[Label]:
        """Labels that have rows now, sorted."""
        return sorted(label for label, count in zip(self.labels, self.counts, strict=True) if count)


class Answer(NamedTuple):
    """All that a question needs, of one moment."""

    version: int
    threshold: str
    book: Book
    classes: NDArray[Any]
    expansion: KernelExpansion


class SupportState:
    """Rows, labels and solutions; :meth:`update` changes all of it or nothing.

    Labels have codes, in the order in which they first came. A two-class learner has one problem (the
    second label, in sorted order, is positive), one with more classes has a problem for each, and with
    fewer there is nothing to solve.

    The solver is changed by one native call, and the book follows it. Whoever calls holds the learner's lock;
    only :attr:`book` and :meth:`answer` are for everybody.

    Parameters
    ----------
    kernel : Kernel
        With a settled gamma.
    n_features : int
        Width of the rows; 1 for sequences, which are rows of one number, their place in a catalogue.
    cache_bytes : int
        How much memory kept rows of the kernel matrix may take.
    """

    def __init__(self, kernel: Kernel, n_features: int, cache_bytes: int) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.catalogue = SequenceStore() if is_sequence_kernel(kernel) else None
        self.cache_bytes = cache_bytes
        self._solver = self._new_solver()
        nothing = Book([], {}, [], has_weights=False, settled=())
        self._books = VersionedValue(-1, nothing, nothing)
        self._answer: Answer | None = None  # made when it is first asked for after a change
        self._sides: tuple[Book, tuple[NDArray[Any], NDArray[Any]]] | None = None  # labels of two classes
        # Kernels whose values cannot overflow, or that check their own.
        self._is_bounded = not kernel.is_native or kernel.kernel in {"rbf", "laplacian"}
        self._plan: tuple[Any, list[int], FloatArray] | None = None

    def _new_solver(self) -> _native.IncrementalSvc:
        if self.kernel.is_native:
            return _native.IncrementalSvc(self.n_features, self.kernel.spec(), None, self.cache_bytes)
        return _native.IncrementalSvc(
            self.n_features, None, _CalledKernel(self.kernel, self.catalogue), self.cache_bytes
        )

    @property
    def version(self) -> int:
        """Counts changes."""
        return self._solver.version

    @property
    def book(self) -> Book:
        """What is known of the rows now."""
        return self._books.at(self._solver.version)

    # -- change -------------------------------------------------------------------------------------

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
        """Learn and forget rows and solve all problems, or raise and change nothing."""
        book = self.book
        try:
            labels, codes = _with_new_labels(book, add)
            counts = book.counts + [0] * (len(labels) - len(book.counts))
            incoming = None if add is None else self._coded(add, codes, counts, 1, source)
            outgoing = None if forget is None else self._coded(forget, codes, counts, -1, source)
            has_weights = book.has_weights or (add is not None and add.weights is not None)
            if class_weight is None:
                positives, bounds = self._plain_problems(labels, counts, C)
            else:
                sizes = self._weight_sums(counts, incoming, outgoing) if has_weights else counts
                positives = _positive_codes(labels, counts)
                bounds = _class_bounds(labels, sizes, positives, C, class_weight)
            is_plain = class_weight is None and self._is_bounded and self.catalogue is None
            after = Book(labels, codes, counts, has_weights, (C, tol) if is_plain and positives else ())
            self._books = VersionedValue(self._solver.version, book, after)
            stranger = self._solver.update(incoming, outgoing, positives, bounds, tol)
        except _native.SolverFailure as failure:
            raise _unsolved_error(source, tol, failure) from None
        finally:
            if self.catalogue is not None:
                self.catalogue.retain(self._all_rows())
        if stranger is not None:
            raise _stranger_error(source, forget.labels[forget.codes[stranger]] if forget else None, stranger)

    def slide(self, add: object, forget: object) -> bool:
        """Learn one row and forget another, quickly, where neither changes what the problems are.

        False where that is not so, or anything else is out of the ordinary; nothing has changed then, and
        :meth:`update` does it or says why not.
        """
        book = self.book
        return self._solver.slide(add, forget, book.codes, book.counts, book.settled[1])

    def _plain_problems(
        self, labels: list[Label], counts: list[int], C: float
    ) -> tuple[list[int], FloatArray]:
        """Problems and bounds without class weights: nearly always the same as at the call before."""
        key = (C, [count > 0 for count in counts])
        if self._plan is None or self._plan[0] != key:
            positives = _positive_codes(labels, counts)
            self._plan = key, positives, _class_bounds(labels, counts, positives, C, None)
        return self._plan[1:]

    def _coded(
        self, batch: Batch, codes: Mapping[Label, int], counts: list[int], sign: int, source: str
    ) -> CodedRows:
        """The batch as the solver takes it; rows of weight 0 are no rows. Counts follow."""
        dense = _dense if self.catalogue is None else self.catalogue.add
        X, numbers, weights = dense(batch.X), batch.codes, batch.weights
        if weights is not None and not weights.all():
            heavy = weights != 0.0
            X, numbers, weights = X[heavy], numbers[heavy], weights[heavy]
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
                f"row {int(np.argmin(fits))} of X is so large that its kernel values are beyond "
                f"{MAX_KERNEL_VALUE:g}; nothing was changed.",
                source=source,
                hint="bring the features to a common scale first",
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

    # -- what was learned ---------------------------------------------------------------------------

    @property
    def margin_size(self) -> int:
        """Rows in the margin sets of all problems."""
        return sum(self._solver.margin_size(k) for k in range(self._solver.n_problems))

    def violation(self) -> float:
        """The largest violation of the optimality conditions over all problems."""
        return max((self._solver.violation(k) for k in range(self._solver.n_problems)), default=0.0)

    def answer(self, lock: AbstractContextManager[Any], threshold: str = "zero") -> Answer:
        """The classes and what tells them apart, kept until rows come or go or the cut is another."""
        answer = self._answer
        if answer is None or answer.version != self._solver.version or answer.threshold != threshold:
            with lock:  # whoever learns holds it
                book, expansion = self.book, self._expand()
                if threshold == "gmean" and self._solver.n_problems:
                    expansion = replace(expansion, intercept=expansion.intercept - self._cuts(expansion))
                # As long as a window slides the book and with it the classes are the same.
                is_same = answer is not None and answer.book is book
                classes = answer.classes if answer and is_same else sorted_classes(book.classes)
                answer = self._answer = Answer(self._solver.version, threshold, book, classes, expansion)
        return answer

    def label(self, row: object) -> NDArray[Any] | None:
        """Return the label of one row at threshold zero, or None if :meth:`answer` has to be used.

        None is returned while another call changes the state. A stream of single rows predicts before each
        row, and an expansion that the next row makes stale costs more than the score.
        """
        version = self._solver.version
        book, sides = self._books.at(version), self._sides
        side = self._solver.side(row, version)
        if side < 0:
            return None
        if sides is None or sides[0] is not book:
            classes = sorted_classes(book.classes)
            sides = self._sides = book, (classes[:1], classes[1:])
        return sides[1][side].copy()

    def _cuts(self, expansion: KernelExpansion) -> FloatArray:
        """Where the G-mean of the rows is largest, each scored without its own say.

        Taking the term ``z_i k(x_i, x_i)`` of a row out of its score is a lower bound of the margin that it
        would have, had it not been learned (Jaakkola and Haussler, 1999). Scores with it would be those of
        rows that were learned, and cut too high.
        """
        rows = self._samples(np.arange(len(self._solver)))
        scores, own = expansion.scores(rows), self.kernel.diagonal(rows)
        codes, cuts = self._solver.codes(), []
        for problem in range(self._solver.n_problems):
            without = scores[:, problem] - self._solver.coefficients(problem) * own
            positive = codes == self._solver.positive(problem)
            cuts.append(smooth_gmean_threshold(without[~positive], without[positive]))
        return np.array(cuts)

    def _expand(self) -> KernelExpansion:
        """The decision functions of the problems; a constant 0 when there is nothing to tell apart."""
        n_problems = self._solver.n_problems
        if n_problems == 0:
            return KernelExpansion(self.kernel, self._samples([]), np.empty((1, 0)), np.zeros(1))
        # A stream of single questions comes here after every row: one call costs less than ten of NumPy's.
        vectors, coef, intercept = self._solver.support()
        samples = vectors if self.catalogue is None else self.catalogue.at(vectors)
        return KernelExpansion(self.kernel, samples, coef, intercept)

    def support(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Numbers of the rows with a coefficient other than zero in any problem, and their codes."""
        coefficients = [self._solver.coefficients(k) for k in range(self._solver.n_problems)]
        numbers = (
            np.flatnonzero(np.any(coefficients, axis=0)) if coefficients else np.empty(0, dtype=np.int64)
        )
        return numbers, np.asarray(self._solver.codes())[numbers]

    def _samples(self, numbers: Any) -> Any:
        """What was learned as these rows."""
        rows = self._solver.rows(np.asarray(numbers, dtype=np.int64))
        return rows if self.catalogue is None else self.catalogue.at(rows)

    def _all_rows(self) -> FloatArray:
        return self._solver.rows(np.arange(len(self._solver)))

    # -- files and copies ---------------------------------------------------------------------------

    def to_tree(self) -> dict[str, Any]:
        """Everything as arrays and plain values, but for the kernel."""
        book = self.book
        return {
            "n_features": self.n_features,
            "cache_bytes": self.cache_bytes,
            "labels": list(book.labels),
            "counts": list(book.counts),
            "has_weights": book.has_weights,
            "rows": self._samples(np.arange(len(self._solver))),
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
        """Become what :meth:`to_tree` described; ValueError if that makes no sense."""
        state = cls(kernel, int(tree["n_features"]), int(tree["cache_bytes"]))
        labels, counts = restored_labels(tree["labels"]), [int(count) for count in tree["counts"]]
        book = Book(labels, _codes_of(labels), counts, bool(tree["has_weights"]), settled=())
        state._books = VersionedValue(-1, book, book)
        codes = np.ascontiguousarray(tree["codes"], dtype=np.int32)
        known = not len(codes) or 0 <= codes.min() <= codes.max() < len(labels)  # else counting takes memory
        if not known or len(book.codes) != len(labels):
            raise ValueError("a row has a label that is not there")
        if np.bincount(codes, minlength=len(labels)).tolist() != counts:
            raise ValueError("the counts are not those of the rows")
        weights = np.ascontiguousarray(tree["weights"], dtype=np.float64)
        rows = tree["rows"]
        if state.catalogue is not None:
            rows = state.catalogue.add(restored_items(kernel, rows))
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        if not (np.isfinite(rows).all() and np.isfinite(weights).all() and (weights > 0.0).all()):
            raise ValueError("rows must be finite, and their weights positive")
        kept, order = (np.ascontiguousarray(tree[name], dtype=np.uint32) for name in ("kept", "order"))
        state._solver.load_rows(
            rows, codes, weights, int(tree["value_bytes"]), kept, order, int(tree["n_wanted"])
        )
        for problem in tree["problems"]:
            if len(problem["class_bounds"]) > len(labels):
                raise ValueError("a problem has more bounds than there are labels")
            _check_solution(problem)
            state._solver.load_problem(problem)
        return state

    def check_optimal(self, tolerance: float) -> None:
        """ValueError unless the conditions of the optimum hold, by sums that are made anew.

        For solutions that come from a file: whoever can write it can write down any numbers. A copy in
        memory needs no such look, which costs as much as asking for all rows.
        """
        norms = np.sqrt(self.kernel.diagonal(self._samples(np.arange(len(self._solver)))))
        for problem in range(self._solver.n_problems):
            sizes = np.abs(self._solver.coefficients(problem)) @ norms
            rounding = np.finfo(float).eps * sizes * norms.max(initial=0.0)
            violation = self._solver.violation(problem)
            if not violation <= max(_LEAST_CARE, tolerance, 64.0 * rounding):
                raise ValueError(f"the solution is none: its conditions hold only to {violation:.3g}")

    def __getstate__(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "tree": self.to_tree()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(SupportState.from_tree(state["kernel"], state["tree"]).__dict__)


class _CalledKernel:
    """A kernel given as a function, as the solver calls it: it never keeps hold of the solver's memory."""

    def __init__(self, kernel: Kernel, catalogue: SequenceStore | None) -> None:
        self.kernel = kernel
        self.catalogue = catalogue

    def __call__(self, X: FloatArray, Z: FloatArray, out: FloatArray) -> None:
        samples = np.array if self.catalogue is None else self.catalogue.at
        out[...] = self.kernel.block(samples(X), samples(Z))


def _check_solution(problem: Mapping[str, Any]) -> None:
    """Refuse a problem from a file that no solver can have left: going on from it might never end."""
    values = {name: np.asarray(value) for name, value in problem.items()}
    if not all(np.isfinite(value).all() for value in values.values()):
        raise ValueError("a solution must be finite")
    y, z, lower, upper = (values[name] for name in ("y", "z", "lower", "upper"))
    if not (np.abs(y) == 1.0).all() or len({len(y), len(z), len(lower), len(upper)}) > 1:
        raise ValueError("a problem must have a sign and a number for each row")
    if not ((lower <= z) & (z <= upper)).all():
        raise ValueError("a solution must lie within its bounds")


def _codes_of(labels: list[Label]) -> dict[Label, int]:
    return {label: code for code, label in enumerate(labels)}


def _with_new_labels(book: Book, add: Batch | None) -> tuple[list[Label], dict[Label, int]]:
    new = [] if add is None else [label for label in add.labels if label not in book.codes]
    if not new:
        return book.labels, book.codes
    labels = book.labels + new
    return labels, _codes_of(labels)


def _dense(X: Any) -> FloatArray:
    if type(X) is np.ndarray:
        return X if X.dtype == np.float64 else X.astype(np.float64)
    return np.ascontiguousarray(X.toarray(), dtype=np.float64)


def _positive_codes(labels: list[Label], counts: list[int]) -> list[int]:
    present = [code for code, count in enumerate(counts) if count]
    if len(present) < 2:
        return []
    present.sort(key=labels.__getitem__)  # labels of one learner sort, or the batch was refused
    return present[1:] if len(present) == 2 else present


def _class_bounds(
    labels: list[Label],
    sizes: list[float] | list[int],
    positives: list[int],
    C: float,
    class_weight: ClassWeight,
) -> FloatArray:
    """For every problem, the bound of a row of weight 1 of every label."""
    bounds = np.full((len(positives), len(labels)), float(C))
    if class_weight == "balanced":
        total = float(sum(sizes))
        for row, positive in zip(bounds, positives, strict=True):
            row[:] = C * (total / (2.0 * (total - sizes[positive])))
            row[positive] = C * (total / (2.0 * sizes[positive]))
    elif isinstance(class_weight, Mapping):
        bounds *= class_factors(class_weight, labels)
    return bounds


def _stranger_error(source: str, label: Label, row: int) -> DataError:
    return DataError(
        f"row {row} of the rows to forget (label {label!r}) was never learned with these values and "
        "this weight, or not as often; nothing was changed.",
        source=source,
        hint="forget() takes rows that were learned before, with exactly the same values",
    )


def _unsolved_error(source: str, tol: float, failure: Exception) -> SolverError:
    return SolverError(
        f"no solution was found to the accuracy of tol={tol:g} ({failure}); nothing changed, "
        "the model is as it was before.",
        source=source,
        hint="bring the features to a common scale, choose a smaller C, or raise tol; a kernel given "
        "as a function must be symmetric and positive semi-definite",
    )
