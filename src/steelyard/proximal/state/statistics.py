"""The state of the proximal learners: class-wise statistics that add, subtract and merge to the last bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from steelyard import _native
from steelyard._labels import check_sortable, too_many_rows_error
from steelyard._memory import check_fits_memory
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch, Label
from steelyard.exceptions import DataError
from steelyard.params import Integer, Positive
from steelyard.proximal.state import messages
from steelyard.proximal.state.batches import FoldLabel, check_magnitude, checked_batch
from steelyard.proximal.state.quantizer import Quantizer
from steelyard.proximal.state.removal import INDEFINITE, OTHER_GRID, TOO_MANY, never_learned

__all__ = ["ClassStatistics"]

_LARGEST_FACTOR = 2.0**32  # of one call of scale()


class ClassStatistics:
    """Everything a proximal learner keeps of its rows.

    For each class ``c`` with extended rows ``E_c = [X_c, -1]`` this is the matrix ``E_c' E_c``, in whole
    numbers: values are counted in the steps of a :class:`Quantizer`, and sums of products of whole numbers are
    whole. Adding rows adds to it, removing subtracts, and statistics of different places add up, without
    any rounding, so that at every moment it is, bit for bit, what a fresh look at all current rows gives.

    Parameters
    ----------
    n_features : int
        Number of features.
    grid : Quantizer, optional
        The steps in which values are counted. If not given, the first 256 rows settle it; until then they
        are kept as they are, and questions are answered as if the rows so far were all.

    Notes
    -----
    A class with few rows is kept as these rows. Memory is at most one and a half times
    ``8 * (n_features + 1)**2`` bytes a class, however many rows are added, unless numbers outgrow 128 bits,
    when all numbers of the class get 64 more. Whole weights are exact; others are taken in steps of 2**-20.

    The statistics of a class with fewer rows than features reveal these rows.

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
        check_statistics_fit(n_features, 1)
        self._sums = _native.ExactSums(int(n_features))
        self._slots: dict[Label, int] = {}  # of every label that ever came; those without rows are no classes
        self.from_floats = False  # whether sums of floating-point numbers, of an earlier version, are in it
        if quantizer is not None:
            if quantizer.n_features != n_features:
                raise DataError(
                    f"the quantizer has {quantizer.n_features} features; {n_features} were expected.",
                    source="ClassStatistics",
                )
            self._sums.settle_as(*quantizer.arrays())

    @classmethod
    def from_sums(
        cls, quantizer: Quantizer, sums: Mapping[Label, Sequence[int]], *, fractions: bool = False
    ) -> ClassStatistics:
        """Statistics whose sums were taken elsewhere, such as in a database.

        Parameters
        ----------
        grid : Quantizer
            The steps in which values were counted.
        sums : mapping of label to sequence of int
            For each class the lower triangle, row after row, of the sum of ``w e e'`` over its rows, with
            weights ``w`` and ``e = [v, 1]``, where ``v`` are the values in quanta relative to the origins.
        fractions : bool, default=False
            Whether weights were counted in steps of 2**-20, because some are not whole.

        Returns
        -------
        ClassStatistics
            Equal in every bit to those that were given the rows.

        Examples
        --------
        >>> from steelyard.proximal import ClassStatistics, Quantizer
        >>> taken = ClassStatistics.from_sums(
        ...     Quantizer([0]), {"ok": [9 + 16, 3 + 4, 2]}
        ... )  # of the rows 3 and 4
        >>> given = ClassStatistics(1, quantizer=Quantizer([0]))
        >>> given.add([[3.0], [4.0]], ["ok", "ok"])
        >>> taken.digest() == given.digest()
        True
        """
        return messages.from_sums(quantizer, sums, cls, fractions=fractions)

    # -- what it holds ------------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._sums.n_features

    @property
    def version(self) -> int:
        """Counts changes: whoever derives something can tell whether it is stale."""
        return self._sums.version

    @property
    def classes(self) -> list[Label]:
        """Labels of the classes that have rows, sorted."""
        slots = self._slots
        present = self._sums.has_rows(len(slots))
        if all(present):
            return sorted(slots)
        return sorted(label for label, slot in slots.items() if present[slot])

    def count(self, label: Label) -> float:
        """Number of rows (sum of weights) of a class; 0 for a class without rows."""
        return self._sums.count(self._slots[label]) if label in self._slots else 0.0

    @property
    def n_rows(self) -> float:
        """Number of rows (sum of weights) of all classes."""
        return sum(map(self.count, self.classes))

    @property
    def nbytes(self) -> int:
        """Bytes that the statistics take."""
        return self._sums.n_bytes

    @property
    def is_settled(self) -> bool:
        """Whether the grid is fixed."""
        return bool(self._sums.grid()[0])

    @property
    def quantizer(self) -> Quantizer:
        """The grid; before it is settled, the one that the rows so far would give."""
        sums = self._sums
        if not self.is_settled:
            sums = sums.copy()
            sums.settle()
        settled, exponents, origins, rounds, mixed = sums.grid()
        if not settled:
            return Quantizer(np.zeros(self.n_features), rounds=np.zeros(self.n_features))
        return Quantizer(exponents, origins, rounds, mixed)

    def view(self, labels: Sequence[Label] | None = None) -> _native.ExactView:
        """Counts, sums and matrices of some classes, or of all, in doubles that are rounded once."""
        sums, slots = self.slots_of(self.classes if labels is None else labels)
        return _native.ExactView(sums, [[slot] for slot in slots], num_threads())

    def slots_of(self, labels: Sequence[Label]) -> tuple[_native.ExactSums, list[int]]:
        """The native sums, and where in them these classes are."""
        return self._sums, [self._slots[label] for label in labels]

    def gram(self, label: Label) -> FloatArray:
        """The matrix ``E_c' E_c`` of a class in raw coordinates, ``E_c = [X_c, -1]``."""
        if label not in self.classes:
            raise DataError(
                f"there is no class {label!r}; there are {_some(self.classes)}.",
                source="ClassStatistics.gram",
            )
        view = self.view([label])
        lower = view.matrix(0)
        units, origin = np.append(np.ldexp(1.0, view.units), 1.0), view.origin
        full = (lower + np.tril(lower, -1).T) * units * units[:, None]
        sums, count = -full[-1, :-1], full[-1, -1]
        cross = np.outer(sums, origin)
        full[:-1, :-1] += cross + cross.T + count * np.outer(origin, origin)
        full[-1, :-1] = full[:-1, -1] = -(sums + count * origin)
        return full

    def mean_offset(self) -> tuple[FloatArray, FloatArray]:
        """Mean of all rows, and their variance, feature by feature."""
        view = self.view()
        units, total = np.ldexp(1.0, view.units), max(self.n_rows, 1e-300)
        sums = sum((view.sums(k) for k in range(len(self.classes))), np.zeros(self.n_features))
        return view.origin + sums / total * units, view.variance * np.square(units)

    def digest(self) -> str:
        """A name for what it holds: equal sums give equal names, after whatever history.

        The exact counts, sums and sums of products of all classes go into it, as numbers: neither the origin
        of the grid nor how fine its quanta are plays a part, as long as values were rounded alike.
        """
        name = blake2b(f"steelyard class statistics, {self.n_features} features".encode(), digest_size=16)
        classes = self.classes
        view = self.view(classes)
        name.update((view.origin + 0.0).tobytes())  # + 0.0 turns -0.0 into 0.0
        for k, label in enumerate(classes):
            name.update(_written(label))
            name.update(view.canonical(k))
        return name.hexdigest()

    # -- adding and removing rows -------------------------------------------------------------------

    def add(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in rows; on error nothing changes."""
        batch = checked_batch(X, y, sample_weight, self.n_features, "ClassStatistics.add")
        check_sortable([*self._slots, *batch.labels], "ClassStatistics.add")
        self.add_batch(batch)

    def remove(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take out rows that were added before; on error nothing changes."""
        source = "ClassStatistics.remove"
        self.remove_batch(checked_batch(X, y, sample_weight, self.n_features, source), source)

    def add_batch(self, batch: Batch) -> None:
        """Take in rows that were checked before, except for the size of values, in one step."""
        slots = self._slots_of(batch)
        try:
            if type(batch.X) is not np.ndarray and sp.issparse(batch.X):
                self._sums.add_sparse(*_sparse_arrays(batch.X), slots, batch.weights)
            else:
                threads = num_threads() if len(slots) > 8 else 1
                self._sums.add(batch.X, slots, batch.weights, threads)
        except ValueError as error:
            raise _bad_values(batch, error) from error

    def remove_batch(self, batch: Batch, source: str) -> None:
        """Take out rows that were checked before, in one step; refuse what was never there."""
        slots = self._slots_of(batch)
        left = self._sums.copy()
        try:
            if sp.issparse(batch.X):
                reason = left.remove_sparse(*_sparse_arrays(batch.X), slots, batch.weights)
            else:
                reason = left.remove(batch.X, slots, batch.weights, num_threads())
        except ValueError as error:
            raise _bad_values(batch, error) from error
        self._check_removed(reason, source)
        self._check_left(left, batch.labels, source)
        self._sums = left

    def _check_left(
        self, left: _native.ExactSums, labels: Sequence[Label], source: str, hint: str | None = None
    ) -> None:
        """Refuse sums of products that no rows could have left, as some directions show."""
        for label in labels:
            slot = self._slots[label]
            if left.has_sums(slot):
                view = _native.ExactView(left, [[slot]], num_threads())
                if not view.is_semidefinite(0, INDEFINITE):
                    raise never_learned(source, _plain(label), hint)

    def _slots_of(self, batch: Batch) -> NDArray[np.int32]:
        """The slot of every row; labels that are new get one."""
        known = self._slots
        if (
            len(batch.codes) == len(batch.labels) == 1 and batch.labels[0] in known
        ):  # a stream of single rows pays for every call
            return np.array([known[batch.labels[0]]], dtype=np.int32)
        missing = [label for label in batch.labels if label not in known]
        if missing:
            check_statistics_fit(self.n_features, len(missing))
            # A dict of its own, put in place at once: others may be reading.
            self._slots = {**known, **{label: len(known) + k for k, label in enumerate(missing)}}
            known = self._slots
        if len(batch.labels) == 1:
            return np.full(len(batch.codes), known[batch.labels[0]], dtype=np.int32)
        table = np.array([known[label] for label in batch.labels], dtype=np.int32)
        slots: NDArray[np.int32] = table.take(batch.codes)
        return slots

    def _check_removed(
        self, reason: tuple[int, int, float, float], source: str, hint: str | None = None
    ) -> None:
        kind, slot, wanted, present = reason
        if not kind:
            return
        label = next(label for label, place in self._slots.items() if place == slot)
        label = _plain(label)
        if kind == TOO_MANY:
            raise too_many_rows_error(wanted, present, source, label)
        raise never_learned(source, label, hint)

    # -- whole statistics ---------------------------------------------------------------------------

    def merge(self, other: ClassStatistics) -> Self:
        """Add what ``other`` holds; ``other`` stays as it is."""
        self._combine(other, 1, None)
        return self

    def subtract(self, other: ClassStatistics, source: str = "ClassStatistics.subtract") -> Self:
        """Take out what ``other`` holds, rows that were added here before; on error nothing changes."""
        self._combine(other, -1, source)
        return self

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        return self.copy().merge(other)

    def __sub__(self, other: ClassStatistics) -> ClassStatistics:
        """The change from ``other`` to ``self``: merged into ``other`` it gives ``self``."""
        result = self.copy()
        result._combine(other, -1, None)
        return result

    def _combine(self, other: ClassStatistics, sign: int, source: str | None) -> None:
        if not isinstance(other, ClassStatistics):
            raise DataError(
                f"expected other ClassStatistics; got {type(other).__name__}.", source="ClassStatistics"
            )
        if other.n_features != self.n_features:
            raise DataError(
                f"both sides need the same number of features; got {self.n_features} and "
                f"{other.n_features}; nothing was changed.",
                source="ClassStatistics",
                hint="if features were added at the end, call grow() on the narrower one first",
            )
        theirs = other._slots
        check_sortable([*self._slots, *theirs], "ClassStatistics.merge")
        mine = self._slots
        new = [label for label in theirs if label not in mine]
        mine = {**mine, **{label: len(mine) + k for k, label in enumerate(new)}}
        places = np.array([mine[label] for label in theirs], dtype=np.int32)
        checked = source is not None
        sums = self._sums.copy() if checked else self._sums
        self._slots = mine
        reason = sums.merge(other._sums, places, sign, checked, num_threads())
        if checked:
            hint = OTHER_GRID if (self.quantizer.exponents != other.quantizer.exponents).any() else None
            self._check_removed(reason, str(source), hint)
            self._check_left(sums, other.classes, str(source), hint)
            self._sums = sums
        self.from_floats |= other.from_floats

    def regrouped(self, labels: Mapping[Label, Label]) -> ClassStatistics:
        """A copy in which classes have other labels, several perhaps the same; others are left out."""
        slots = {label: k for k, label in enumerate(dict.fromkeys(labels.values()))}
        places = np.full(len(self._slots), -1, dtype=np.int32)  # of few classes out of very many
        for label, new in labels.items():
            if label in self._slots:
                places[self._slots[label]] = slots[new]
        sums = self._sums
        if not self.is_settled:  # parts of one whole share its grid, also one for the time being
            sums = sums.copy()
            sums.settle()
        twin = self._with(sums.regrouped(places, len(slots), num_threads()))
        twin._slots = slots
        return twin

    def _with(self, sums: _native.ExactSums) -> ClassStatistics:
        twin = object.__new__(ClassStatistics)
        twin._sums, twin._slots, twin.from_floats = sums, self._slots, self.from_floats
        return twin

    def empty(self) -> ClassStatistics:
        """Statistics on the same grid, if it is settled, without any rows."""
        return ClassStatistics(self.n_features, quantizer=self.quantizer if self.is_settled else None)

    def copy(self) -> ClassStatistics:
        """An independent copy, which costs little: what does not change is shared."""
        return self._with(self._sums.copy())

    def __copy__(self) -> ClassStatistics:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> ClassStatistics:
        return self.copy()

    def settle(self) -> Self:
        """Fix the grid by the rows that are here, also if there are fewer than 256."""
        self._sums.settle(num_threads())
        return self

    def fold(self) -> Self:
        """Bring all rows into the sums, so that none is kept as it came: what is sent to strangers."""
        self._sums.fold_all(num_threads())
        return self

    def scale(self, factor: float) -> Self:
        """Multiply the weight of every row, for memories that fade.

        Sums are rounded to steps of 2**-20 of a weight of 1; a class whose weight rounds to zero is gone.
        """
        if not Positive().accepts(factor) or factor > _LARGEST_FACTOR:
            raise DataError(
                f"factor must be a positive number, at most {_LARGEST_FACTOR:g}; got {factor!r}.",
                source="ClassStatistics.scale",
            )
        try:
            self._sums.fade(float(factor), num_threads())
        except (OverflowError, RuntimeError) as error:
            raise DataError(f"{error}; nothing was changed.", source="ClassStatistics.scale") from error
        return self

    def permute_features(self, places: Sequence[int], n_features: int) -> ClassStatistics:
        """A copy with feature ``k`` at ``places[k]`` of ``n_features``; the others are zero in all rows."""
        if len(set(places)) != self.n_features or not set(places) <= set(range(n_features)):
            raise DataError(
                f"{places} are no places among {n_features} features.", source="ClassStatistics.rearranged"
            )
        check_statistics_fit(n_features, 2 * max(1, len(self.classes)))
        sources = np.full(n_features, -1, dtype=np.int64)
        sources[list(places)] = np.arange(self.n_features)
        return self._with(self._sums.rearranged(sources))

    def forget_class(self, label: Label) -> Self:
        """Take out all rows of a class, if there are any."""
        if label in self._slots:
            self._sums.drop(self._slots[label])
        return self

    def grow(self, n_features: int) -> Self:
        """Widen to more features, exact for features that were zero in all rows so far."""
        if not Integer(self.n_features).accepts(n_features):
            raise DataError(
                f"n_features must be at least the present {self.n_features}; got {n_features!r}.",
                source="ClassStatistics.grow",
            )
        if n_features > self.n_features:
            self._sums = self.permute_features(range(self.n_features), int(n_features))._sums
        return self

    # -- files and messages -------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """A compact message: one triangle a class, a version and a checksum."""
        return messages.to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> ClassStatistics:
        """The statistics that :meth:`to_bytes` wrote; anything else is refused with a sentence."""
        return messages.from_bytes(data, cls)

    def __reduce__(self) -> tuple[Any, ...]:
        return ClassStatistics.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        classes = self.classes
        counts = {label: self.count(label) for label in classes[:10]}
        more = "" if len(classes) <= 10 else f", and {len(classes) - 10} more classes"
        return f"ClassStatistics(n_features={self.n_features}, counts={counts}{more})"


def check_statistics_fit(n_features: int, n_matrices: int) -> None:
    """Refuse a number of features whose matrices could not be kept, before anything is allocated."""
    check_fits_memory(
        8 * (n_features + 1) ** 2 * max(n_matrices, 1),
        f"class statistics of {n_features:,} features",
        "use fewer columns: hash them (sklearn.feature_extraction.FeatureHasher) or put "
        "feature_map=RandomFeatures(...) in front, which keeps a width of your choice",
    )


def _plain(label: Label) -> Label:
    return label.label if isinstance(label, FoldLabel) else label


def _sparse_arrays(X: Any) -> tuple[FloatArray, Any, Any]:
    return X.data.astype(np.float64, copy=False), X.indices, X.indptr


def _bad_values(batch: Batch, error: ValueError) -> DataError:
    """The sentence for what native code has refused."""
    try:
        check_magnitude(batch)
    except DataError as refusal:
        return refusal
    return DataError(f"{error}; nothing was changed.", source="ClassStatistics")


def _written(label: Label) -> bytes:
    """A label as bytes; numbers that are equal are written alike."""
    if isinstance(label, bool | int) or (isinstance(label, float) and label.is_integer()):
        return f"int:{int(label)};".encode()
    return f"{type(label).__name__}:{label!r};".encode()


def _some(labels: list[Label]) -> str:
    return (
        "no classes yet"
        if not labels
        else ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
    )
