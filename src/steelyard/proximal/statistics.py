"""Class statistics: one exact Gram matrix of integers per class; moments of classes in floating point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight, check_array, column_or_1d

from steelyard import _native
from steelyard._deprecation import renamed_attribute, renamed_method
from steelyard._labels import check_sortable, encode_labels, numpy_labels, too_many_rows_error
from steelyard._memory import check_fits_memory
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard._validation import canonical_csr, magnitude_error
from steelyard.base import Batch, Label
from steelyard.exceptions import DataError
from steelyard.params import Integer, Positive
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import serialization
from steelyard.proximal.quantizer import LARGEST_VALUE, Quantizer
from steelyard.proximal.row_ledger import FoldLabel
from steelyard.proximal.serialization import check_format, reading, triangle_size

_FORMAT = "steelyard class statistics"
_VERSION = 2
_FLOAT_VERSION = 1  # message format of version 0.1, with floating-point sums
_MAX_SCALE_FACTOR = 2.0**32  # largest factor accepted by scale()
# Tolerance relative to the diagonal, far above the rounding error of a conversion to double.
_INDEFINITE_TOLERANCE = 1e-8
_TOO_MANY_ROWS = 1  # native error code: more rows to remove than the class has
_NOT_REFUSED = (0, 0, 0.0, 0.0)  # native result of a removal without an error
_MIN_ROWS_FOR_THREADS = 9  # minimum number of rows to add with several threads


class ClassStatistics:
    """Sufficient statistics of a proximal SVM: one Gram matrix of integers per class.

    For each class ``c`` with extended rows ``E_c = [X_c, -1]`` this is the matrix ``E_c' E_c``. A
    :class:`Quantizer` turns values into integers, so sums of products are integers too. Rows are added and
    removed, and statistics of several learners are summed, without rounding. The statistics are always
    bit-identical to those computed from the current rows only.

    Parameters
    ----------
    n_features : int
        Number of features.
    quantizer : Quantizer, optional
        Steps of the features. If not given, the first 256 rows determine them. Until then the rows are
        stored, and all results are computed with the steps that the rows so far determine.

    Notes
    -----
    The rows of a class with few rows are stored individually. Memory is at most
    ``1.5 * 8 * (n_features + 1)**2`` bytes per class for any number of rows, unless a sum needs more than 128
    bits; then all sums of that class get 64 bits more. Integer weights are exact; others are rounded to
    multiples of 2**-20.

    The statistics of a class with fewer rows than features reveal these rows.

    **Detection of rows that were never added.** ``remove`` and ``subtract`` always detect: more rows of a
    class than it has; a class that would be left without rows but with nonzero sums; negative sums of
    squares; a mean that is too large for the sum of squares; a direction in which the matrix is negative by
    more than 1e-8 of its size; a value that is not a multiple of the step, for a feature whose values were
    never rounded; and any unknown row while the rows of the class are stored. If the remaining sums are
    possible sums of rows, only a record of the learned rows detects the mistake
    (``ProximalSVC(track_rows=True)``).

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.proximal import ClassStatistics
    >>> here, there = ClassStatistics(2), ClassStatistics(2)
    >>> here.add([[1.0, 2.0], [3.0, 4.0]], ["ok", "fraud"])
    >>> there.add([[5.0, 6.0]], ["ok"])
    >>> both = here + there
    >>> both.classes
    ['fraud', 'ok']
    >>> both.gram("ok")
    array([[26., 32., -6.],
           [32., 40., -8.],
           [-6., -8.,  2.]])
    >>> there.add([[1.0, 2.0], [3.0, 4.0]], ["ok", "fraud"])
    >>> there.digest() == both.digest()
    True
    """

    def __init__(self, n_features: int, *, quantizer: Quantizer | None = None) -> None:
        if not Integer(1).accepts(n_features):
            raise DataError(
                f"n_features must be {Integer(1).description}; got {n_features!r}.", source="ClassStatistics"
            )
        _check_fits_memory(n_features, 1)
        self.n_features = int(n_features)
        self._sums = _native.ExactSums(self.n_features)
        # Native slot of every known label, including labels without rows: 0, 1, 2, ... in this order.
        self._slots: dict[Label, int] = {}
        self.from_floats = False  # whether the sums come from a version 0.1 file with floating-point sums
        if quantizer is not None:
            if quantizer.n_features != n_features:
                raise DataError(
                    f"the quantizer must have {n_features} features; got one with {quantizer.n_features}.",
                    source="ClassStatistics",
                )
            self._sums.set_quantizer(*quantizer.arrays())

    @classmethod
    def from_sums(
        cls, quantizer: Quantizer, sums: Mapping[Label, Sequence[int]], *, fractions: bool = False
    ) -> ClassStatistics:
        """Return statistics from sums that were computed outside, for example by a database.

        Parameters
        ----------
        quantizer : Quantizer
            Steps of the features.
        sums : mapping of label to sequence of int
            For each class the lower triangle, row by row, of the sum of ``w e e'`` over its rows, with
            weights ``w`` and ``e = [v, 1]``, where ``v`` are the values in steps relative to the origins.
        fractions : bool, default=False
            Whether weights are multiples of 2**-20, because some are not integers.

        Returns
        -------
        ClassStatistics
            Bit-identical to statistics to which the rows were added.

        Examples
        --------
        >>> from steelyard.proximal import ClassStatistics, Quantizer
        >>> from_database = ClassStatistics.from_sums(
        ...     Quantizer([0]), {"ok": [9 + 16, 3 + 4, 2]}
        ... )  # sums over the rows 3 and 4
        >>> from_rows = ClassStatistics(1, quantizer=Quantizer([0]))
        >>> from_rows.add([[3.0], [4.0]], ["ok", "ok"])
        >>> from_database.digest() == from_rows.digest()
        True
        """
        d = quantizer.n_features
        diagonal = [k * (k + 3) // 2 for k in range(d + 1)]
        for label, triangle in sums.items():
            if len(triangle) != triangle_size(d) or min(triangle[place] for place in diagonal) < 0:
                raise DataError(
                    f"the sums of class {label!r} are not those of rows with {d} features.",
                    source="ClassStatistics.from_sums",
                )
        return serialization.from_integer_sums(quantizer, sums, cls, fractions=fractions)

    # -- reading the statistics ---------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Number of changes so far. Cached results are valid for one version."""
        return self._sums.version

    @property
    def classes(self) -> list[Label]:
        """Labels of the classes that have rows, sorted."""
        slots = self._slots
        return sorted(compress(slots, self._sums.has_rows(len(slots))))

    def count(self, label: Label) -> float:
        """Return the number of rows (sum of weights) of a class, 0 for an unknown label."""
        return self._sums.count(self._slots[label]) if label in self._slots else 0.0

    @property
    def n_rows(self) -> float:
        """Number of rows (sum of weights) of all classes."""
        return sum(map(self.count, self.classes))

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self._sums.n_bytes

    @property
    def is_frozen(self) -> bool:
        """Whether the quantizer is fixed."""
        return bool(self._sums.quantizer()[0])

    is_settled = renamed_attribute("is_frozen", "is_settled")

    @property
    def quantizer(self) -> Quantizer:
        """Quantizer of the features; preliminary, fitted to the current rows, until it is fixed."""
        sums = self._sums
        if not self.is_frozen:
            sums = sums.copy()
            sums.freeze_quantizer()
        frozen, exponents, origins, rounds, mixed = sums.quantizer()
        if not frozen:
            return Quantizer(np.zeros(self.n_features), rounds=np.zeros(self.n_features))
        return Quantizer(exponents, origins, rounds, mixed)

    def view(self, groups: Sequence[Sequence[Label]] | None = None) -> _native.ExactView:
        """Return counts, sums and matrices of groups of classes (by default single ones) as doubles."""
        if groups is None:
            groups = [[label] for label in self.classes]
        slots = [[self._slots[label] for label in labels] for labels in groups]
        return _native.ExactView(self._sums, slots, num_threads())

    def slots_of(self, labels: Sequence[Label]) -> tuple[_native.ExactSums, list[int]]:
        """Return the native object with all sums, and the slot of each given class."""
        return self._sums, [self._slots[label] for label in labels]

    def gram(self, label: Label) -> FloatArray:
        """Return the matrix ``E_c' E_c`` of a class in raw coordinates, ``E_c = [X_c, -1]``."""
        if label not in self.classes:
            known, more = ", ".join(map(repr, self.classes[:10])), ", ..." * (len(self.classes) > 10)
            raise DataError(
                f"there is no class {label!r}; there are {known or 'no classes yet'}{more}.",
                source="ClassStatistics.gram",
            )
        view = self.view([[label]])
        lower = view.matrix(0)
        units, origin = np.append(np.ldexp(1.0, view.units), 1.0), view.origin
        full = (lower + np.tril(lower, -1).T) * units * units[:, None]
        sums, count = -full[-1, :-1], full[-1, -1]
        cross = np.outer(sums, origin)
        full[:-1, :-1] += cross + cross.T + count * np.outer(origin, origin)
        full[-1, :-1] = full[:-1, -1] = -(sums + count * origin)
        return full

    def mean_offset(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance of each feature over all rows."""
        view = self.view()
        units, total = np.ldexp(1.0, view.units), max(self.n_rows, 1e-300)
        sums = sum((view.sums(k) for k in range(len(self.classes))), np.zeros(self.n_features))
        return view.origin + sums / total * units, view.variance * np.square(units)

    def digest(self) -> str:
        """Return a hash of the sums. Equal sums have equal digests, independent of the history.

        It depends on the exact counts, sums and sums of products of all classes. It does not depend on the
        origins of the quantizer or on the size of its steps, as long as values were rounded in the same way.
        """
        name = blake2b(f"steelyard class statistics, {self.n_features} features".encode(), digest_size=16)
        view = self.view()
        name.update((view.origin + 0.0).tobytes())  # adding 0.0 turns -0.0 into 0.0
        for k, label in enumerate(self.classes):
            name.update(label_bytes(label))
            name.update(view.canonical(k))
        return name.hexdigest()

    # -- adding and removing rows -------------------------------------------------------------------

    def add(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Add rows; on error nothing changes."""
        batch = _validated_batch(X, y, sample_weight, self.n_features, "ClassStatistics.add")
        check_sortable([*self._slots, *batch.labels], "ClassStatistics.add")
        self.add_batch(batch)

    def remove(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Remove rows that were added before; on error nothing changes."""
        source = "ClassStatistics.remove"
        result = self.copy()
        result.remove_batch(_validated_batch(X, y, sample_weight, self.n_features, source), source)
        self.__dict__ = result.__dict__

    def add_batch(self, batch: Batch) -> None:
        """Add a batch in one native call, which also validates the values; on error nothing changes."""
        slots = self._slots_of(batch)
        try:
            if type(batch.X) is not np.ndarray and sp.issparse(batch.X):
                self._sums.add_sparse(*_sparse_arrays(batch.X), slots, batch.weights)
            else:
                threads = num_threads() if len(slots) >= _MIN_ROWS_FOR_THREADS else 1
                self._sums.add(batch.X, slots, batch.weights, threads)
        except ValueError as error:
            raise _bad_values(batch, error) from error

    def remove_batch(self, batch: Batch, source: str) -> None:
        """Remove a validated batch in place; raise DataError for rows that were never added.

        After an error the statistics may have changed, so callers work on a copy and discard it.
        """
        slots = self._slots_of(batch)
        try:
            if sp.issparse(batch.X):
                refusal = self._sums.remove_sparse(*_sparse_arrays(batch.X), slots, batch.weights)
            else:
                refusal = self._sums.remove(batch.X, slots, batch.weights, num_threads())
        except ValueError as error:
            raise _bad_values(batch, error) from error
        self._check_removal(refusal, batch.labels, source)

    def _slots_of(self, batch: Batch) -> NDArray[np.int32]:
        """Return the slot of every row; new labels get a new slot."""
        known = self._slots
        if len(batch.codes) == len(batch.labels) == 1 and batch.labels[0] in known:  # fast path
            return np.array([known[batch.labels[0]]], dtype=np.int32)
        missing = [label for label in batch.labels if label not in known]
        if missing:
            _check_fits_memory(self.n_features, len(missing))
            # The dict is replaced instead of changed, because other threads may be reading it.
            self._slots = known = _slot_by_label([*known, *missing])
        table = np.array([known[label] for label in batch.labels], dtype=np.int32)
        return table.take(batch.codes)

    def _check_removal(
        self,
        refusal: tuple[int, int, float, float],
        labels: Sequence[Label],
        source: str,
        hint: str | None = None,
    ) -> None:
        """Raise DataError if native code refused a removal, or if no rows can have the sums that remain."""
        kind, refused_slot, wanted, present = refusal
        if kind:
            label = _class_label(list(self._slots)[refused_slot])
            if kind == _TOO_MANY_ROWS:
                raise too_many_rows_error(wanted, present, source, label)
            raise never_learned(source, label, hint)
        for label in labels:
            slot = self._slots[label]
            if self._sums.has_sums(slot):
                view = _native.ExactView(self._sums, [[slot]], num_threads())
                if not view.is_semidefinite(0, _INDEFINITE_TOLERANCE):
                    raise never_learned(source, _class_label(label), hint)

    # -- merging, copying and scaling --------------------------------------------------------------------

    def merge(self, other: ClassStatistics) -> Self:
        """Add the rows of ``other``; ``other`` does not change."""
        self._combine(other, 1)
        return self

    def subtract(self, other: ClassStatistics, source: str = "ClassStatistics.subtract") -> Self:
        """Remove the rows of ``other``, which must have been added before; on error nothing changes."""
        result = self.copy()
        refusal = result._combine(other, -1, checked=True)
        same_steps = (self.quantizer.exponents == other.quantizer.exponents).all()
        hint = "subtract statistics with the same quantizer: quantizer=model.quantizer_"
        result._check_removal(refusal, other.classes, source, None if same_steps else hint)
        self.__dict__ = result.__dict__
        return self

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        return self.copy().merge(other)

    def __sub__(self, other: ClassStatistics) -> ClassStatistics:
        """Return the difference, which gives ``self`` when merged into ``other``; counts may be negative."""
        result = self.copy()
        result._combine(other, -1)
        return result

    def check_learned(self, difference: ClassStatistics, source: str) -> None:
        """Raise DataError if no rows can have these sums, into which ``difference`` has been merged."""
        for label in difference.classes:
            left, change = self.count(label), difference.count(label)
            if left < 0.0:
                raise too_many_rows_error(-change, left - change, source, _class_label(label))
        # fold() adds stored rows of negative weight to the sums.
        self.copy().fold()._check_removal(_NOT_REFUSED, difference.classes, source)

    def _combine(
        self, other: ClassStatistics, sign: int, *, checked: bool = False
    ) -> tuple[int, int, float, float]:
        """Add or, with the sign -1, remove rows in place; return the native result of a checked removal."""
        if not isinstance(other, ClassStatistics):
            raise DataError(
                f"expected ClassStatistics; got {type(other).__name__}.", source="ClassStatistics"
            )
        if other.n_features != self.n_features:
            raise DataError(
                f"both statistics must have the same number of features; got {self.n_features} and "
                f"{other.n_features}; nothing was changed.",
                source="ClassStatistics",
                hint="if features were added at the end, call grow() on the narrower one first",
            )
        labels = [*self._slots, *other._slots]
        check_sortable(labels, "ClassStatistics.merge")
        self._slots = slots = _slot_by_label(labels)
        places = np.array([slots[label] for label in other._slots], dtype=np.int32)
        refusal = self._sums.merge(other._sums, places, sign, checked, num_threads())
        self.from_floats |= other.from_floats
        return refusal

    def regrouped(self, labels: Mapping[Label, Label]) -> ClassStatistics:
        """Return a copy with new labels: equal ones are merged, classes without a new label are dropped."""
        slots = _slot_by_label(labels.values())
        places = np.full(len(self._slots), -1, dtype=np.int32)
        for label, new in labels.items():
            if label in self._slots:
                places[self._slots[label]] = slots[new]
        sums = self._sums
        if not self.is_frozen:  # all subsets share one quantizer, even while it is preliminary
            sums = sums.copy()
            sums.freeze_quantizer()
        result = self.copy()
        result._sums, result._slots = sums.regrouped(places, len(slots), num_threads()), slots
        return result

    def empty(self) -> ClassStatistics:
        """Return statistics without rows; a fixed quantizer is kept."""
        return ClassStatistics(self.n_features, quantizer=self.quantizer if self.is_frozen else None)

    def copy(self) -> ClassStatistics:
        """Return an independent copy; unchanged matrices are shared (copy-on-write)."""
        result = object.__new__(ClassStatistics)
        result.__dict__ = {**self.__dict__, "_sums": self._sums.copy()}
        return result

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> ClassStatistics:
        return self.copy()

    def freeze_quantizer(self) -> Self:
        """Fix the quantizer to fit the current rows, even if there are fewer than 256."""
        self._sums.freeze_quantizer(num_threads())
        return self

    settle = renamed_method("freeze_quantizer", "settle")

    def fold(self) -> Self:
        """Add all stored rows to the sums, so that messages contain no single rows."""
        self._sums.fold_all(num_threads())
        return self

    def scale(self, factor: float) -> Self:
        """Multiply the weights of all rows by a factor (exponential decay).

        The scaled sums are rounded to multiples of 2**-20. A class whose weight becomes zero is removed.
        """
        if not Positive().accepts(factor) or factor > _MAX_SCALE_FACTOR:
            raise DataError(
                f"factor must be a positive number, at most {_MAX_SCALE_FACTOR:g}; got {factor!r}.",
                source="ClassStatistics.scale",
            )
        try:
            self._sums.decay(float(factor), num_threads())
        except (OverflowError, RuntimeError) as error:
            raise DataError(f"{error}; nothing was changed.", source="ClassStatistics.scale") from error
        return self

    def permute_features(self, places: Sequence[int], n_features: int) -> ClassStatistics:
        """Return a copy with feature ``k`` moved to position ``places[k]``; other features are zero."""
        if len(set(places)) != self.n_features or not set(places) <= set(range(n_features)):
            raise DataError(
                f"places must be distinct and below n_features={n_features}; got {places}.",
                source="ClassStatistics.permute_features",
            )
        _check_fits_memory(n_features, 2 * max(1, len(self.classes)))
        sources = np.full(n_features, -1, dtype=np.int64)
        sources[list(places)] = np.arange(self.n_features)
        result = self.copy()
        result.n_features, result._sums = n_features, self._sums.permute_features(sources)
        return result

    def forget_class(self, label: Label) -> Self:
        """Remove all rows of a class, if there are any."""
        if label in self._slots:
            self._sums.drop(self._slots[label])
        return self

    def grow(self, n_features: int) -> Self:
        """Append features that are zero in all rows so far."""
        if not Integer(self.n_features).accepts(n_features):
            raise DataError(
                f"n_features must be at least the current {self.n_features}; got {n_features!r}.",
                source="ClassStatistics.grow",
            )
        if n_features > self.n_features:
            self.__dict__ = self.permute_features(range(self.n_features), int(n_features)).__dict__
        return self

    # -- files and messages -------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the statistics as bytes: the sums of each class, a version and a checksum."""
        return encode({"format": _FORMAT, "version": _VERSION, **serialization.get_state(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> ClassStatistics:
        """Return the statistics that :meth:`to_bytes` wrote; raise FileFormatError for other bytes."""
        source, tree = "ClassStatistics.from_bytes", decode(data)
        check_format(tree, "class statistics", _FORMAT, (_VERSION, _FLOAT_VERSION), source)
        with reading("message", source):
            return serialization.from_state(tree, cls)

    def __reduce__(self) -> tuple[Any, ...]:
        return ClassStatistics.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        classes = self.classes
        counts = {label: self.count(label) for label in classes[:10]}
        more = "" if len(classes) <= 10 else f", and {len(classes) - 10} more classes"
        return f"ClassStatistics(n_features={self.n_features}, counts={counts}{more})"


def never_learned(source: str, label: Label, hint: str | None = None) -> DataError:
    """Return the error for an attempt to forget rows that were never learned."""
    return DataError(
        f"some rows of class {label!r} that were to be forgotten were never learned; nothing was changed.",
        source=source,
        hint=hint or "forget rows with exactly the values, labels and weights with which they were learned",
    )


def _slot_by_label(labels: Iterable[Label]) -> dict[Label, int]:
    """Return the slot of each label. Slots are numbered in the order in which the labels first occur."""
    return {label: slot for slot, label in enumerate(dict.fromkeys(labels))}


def _validated_batch(X: Any, y: Any, sample_weight: Any, n_features: int, source: str) -> Batch:
    """Return a batch with valid shapes and labels; values may still be NaN, infinite or too large."""
    try:
        X = check_array(
            X, accept_sparse="csr", dtype=(np.float64, np.float32), order="C", ensure_all_finite=False
        )
        labels, codes = encode_labels(column_or_1d(numpy_labels(y)))
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"{error}", source=source) from error
    if any(label is None or label != label for label in labels):  # noqa: PLR0124  NaN != NaN
        raise DataError("y has missing values; every row needs a label.", source=source)
    if X.shape[1] != n_features:
        raise DataError(f"X has {X.shape[1]} features, but {n_features} were expected.", source=source)
    if X.shape[0] != len(codes):
        raise DataError(f"X has {X.shape[0]} rows but y has {len(codes)} labels.", source=source)
    return Batch(canonical_csr(X) if sp.issparse(X) else X, labels, codes, sample_weight)


def _bad_values(batch: Batch, error: ValueError) -> DataError:
    """Return the error for values that the native code has rejected."""
    values = batch.X.data if sp.issparse(batch.X) else batch.X
    largest = _native.largest_magnitude(values, num_threads())
    if LARGEST_VALUE < largest < np.inf:
        return magnitude_error(largest, "ClassStatistics", LARGEST_VALUE)
    if not largest < np.inf:  # true for NaN as well
        return DataError("X has NaN or inf; nothing was changed.", source="ClassStatistics")
    return DataError(f"{error}; nothing was changed.", source="ClassStatistics")


def _check_fits_memory(n_features: int, n_matrices: int) -> None:
    """Raise an error, before any allocation, if matrices of this size do not fit in memory."""
    check_fits_memory(
        8 * (n_features + 1) ** 2 * max(n_matrices, 1),
        f"class statistics of {n_features:,} features",
        "use fewer columns: hash them (sklearn.feature_extraction.FeatureHasher) or put "
        "feature_map=RandomFeatures(...) in front, which has a width of your choice",
    )


def _class_label(label: Label) -> Label:
    return label.label if isinstance(label, FoldLabel) else label


def _sparse_arrays(X: Any) -> tuple[FloatArray, Any, Any]:
    return X.data.astype(np.float64, copy=False), X.indices, X.indptr


def label_bytes(label: Label) -> bytes:
    """Return a label as bytes. Equal numbers of different types have equal bytes."""
    if isinstance(label, bool | int) or (isinstance(label, float) and label.is_integer()):
        return f"int:{int(label)};".encode()
    return f"{type(label).__name__}:{label!r};".encode()


@dataclass(frozen=True)
class ClassMoments:
    """Moments of every class: number of rows, sums, and sums of products. Several periods can be added."""

    classes: Mapping[Label, tuple[float, FloatArray, FloatArray]]

    @classmethod
    def of(cls, statistics: ClassStatistics) -> ClassMoments:
        """Convert exact class statistics to moments."""
        grams = {label: statistics.gram(label) for label in statistics.classes}
        return cls({c: (float(gram[-1, -1]), -gram[-1, :-1], gram[:-1, :-1]) for c, gram in grams.items()})

    @classmethod
    def of_rows(cls, X: FloatArray, codes: np.ndarray[Any, Any], labels: Sequence[Label]) -> ClassMoments:
        """Return the moments of rows, where ``labels[codes[i]]`` is the class of row ``i``."""
        parts = {label: X[codes == code] for code, label in enumerate(labels)}
        return cls(
            {c: (float(len(rows)), rows.sum(axis=0), rows.T @ rows) for c, rows in parts.items() if len(rows)}
        )

    def __add__(self, other: ClassMoments) -> ClassMoments:
        joined = {**self.classes, **other.classes}
        for label in self.classes.keys() & other.classes.keys():
            mine, theirs = self.classes[label], other.classes[label]
            joined[label] = mine[0] + theirs[0], mine[1] + theirs[1], mine[2] + theirs[2]
        return ClassMoments(joined)

    @property
    def n_rows(self) -> float:
        """Number of rows of all classes."""
        return sum(count for count, _, _ in self.classes.values())

    def count(self, label: Label) -> float:
        """Return the number of rows of a class."""
        return self.classes[label][0] if label in self.classes else 0.0

    def mean(self, label: Label) -> FloatArray:
        """Return the mean of each column within a class."""
        count, sums, _ = self.classes[label]
        return np.asarray(sums / count)

    def covariance(self, label: Label) -> FloatArray:
        """Return the covariance matrix within a class."""
        count, _, products = self.classes[label]
        mean = self.mean(label)
        return np.asarray(products / count - np.outer(mean, mean))
