"""The state of the proximal learners: class-wise statistics that add, subtract and merge exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from steelyard import _native
from steelyard._labels import check_sortable
from steelyard._memory import check_fits_memory
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.base import Batch, Label
from steelyard.exceptions import DataError
from steelyard.params import Integer, Positive
from steelyard.proximal.state import messages
from steelyard.proximal.state.batches import check_magnitude, checked_batch, one_class, without_zero_weights
from steelyard.proximal.state.moments import Moments, buffer_capacity, symmetric
from steelyard.proximal.state.removal import (
    check_enough,
    check_nothing_left,
    check_semidefinite,
    never_learned,
)

__all__ = ["ClassStatistics"]

_ORIGIN_ROWS = 256  # rows that settle the origin: enough for the neighbourhood of the mean
_FAR = 100.0  # standard deviations from origin to mean at which the origin is moved


class ClassStatistics:
    """Everything a proximal learner keeps of its rows.

    For each class ``c`` with extended rows ``E_c = [X_c, -1]`` this is the matrix ``E_c' E_c``. Adding
    rows adds to it, removing subtracts, and statistics of different places add up, so that at every
    moment it is what a fresh look at all current rows would give.

    Parameters
    ----------
    n_features : int
        Number of features.
    row_tolerance : float, default=0.0
        Relative difference up to which a row to be removed is taken for one that was added. Rows that
        were computed, as by a feature map, may differ in their last bits from one time to the next.

    Notes
    -----
    The matrices are kept relative to an origin near the first rows, so that features with a huge offset
    (timestamps) keep their digits; the origin moves when the data have moved far away from it. A class
    with few rows is kept as these rows. Memory is at most one and a half times
    ``8 * (n_features + 1)**2`` bytes a class, however many rows are added.

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
    """

    def __init__(self, n_features: int, *, row_tolerance: float = 0.0) -> None:
        if not Integer(1).accepts(n_features):
            raise DataError(
                f"n_features must be {Integer(1).description}; got {n_features!r}.", who="ClassStatistics"
            )
        check_statistics_fit(n_features, 1)
        self.n_features = int(n_features)
        self.row_tolerance = float(row_tolerance)
        self.origin: FloatArray | None = None
        self.version = 0  # counts changes: whoever derives something can tell whether it is stale
        self._classes: dict[Label, Moments] = {}
        # Rows that come and go between two looks at how far the mean is from the origin, and so far.
        self.look_after = float(_ORIGIN_ROWS)
        self.touched = 0.0

    # -- what it holds ------------------------------------------------------------------------------

    @property
    def classes(self) -> list[Label]:
        """Labels of the classes that have rows, sorted."""
        return sorted(self._classes)

    def count(self, label: Label) -> float:
        """Number of rows (sum of weights) of a class; 0 for a class without rows."""
        return self._classes[label].count if label in self._classes else 0.0

    @property
    def n_rows(self) -> float:
        """Number of rows (sum of weights) of all classes."""
        return sum(moments.count for moments in self._classes.values())

    @property
    def nbytes(self) -> int:
        """Bytes that the statistics take."""
        return sum(
            (0 if moments.gram is None else moments.gram.nbytes) + moments._rows.nbytes
            for moments in self._classes.values()
        )

    def moments(self, label: Label) -> Moments:
        """What is kept of one class; to be read, not changed."""
        return self._classes[label]

    def set_moments(self, label: Label, moments: Moments) -> None:
        """Put what is known of a class in place, relative to the origin of these statistics."""
        self._classes[label] = moments

    def gram(self, label: Label) -> FloatArray:
        """The matrix ``E_c' E_c`` of a class in raw coordinates, ``E_c = [X_c, -1]``."""
        if label not in self._classes:
            raise DataError(
                f"there is no class {label!r}; there are {_some(self.classes)}.", who="ClassStatistics.gram"
            )
        origin = self._any_origin()
        moved = self._classes[label].copy()
        moved.fold(origin)
        moved.move(-origin)
        assert moved.gram is not None
        return symmetric(moved.gram)

    def _any_origin(self) -> FloatArray:
        return np.zeros(self.n_features) if self.origin is None else self.origin

    # -- adding and removing rows -------------------------------------------------------------------

    def add(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take in rows; on error nothing changes."""
        batch = checked_batch(X, y, sample_weight, self.n_features, "ClassStatistics.add")
        check_sortable([*self._classes, *batch.labels], "ClassStatistics.add")
        self.add_batch(batch)

    def remove(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        """Take out rows that were added before; on error nothing changes."""
        who = "ClassStatistics.remove"
        self.remove_batch(checked_batch(X, y, sample_weight, self.n_features, who), who)

    def add_batch(self, batch: Batch) -> None:
        """Take in rows that were checked before, except for values that are not finite."""
        batch = without_zero_weights(batch)
        check_magnitude(batch)
        waiting, folding = self._split(batch)
        if folding:
            check_statistics_fit(self.n_features, len(folding))
            # Nothing below can fail because of what came.
            self.origin = self._settled_origin(batch.X)
            self._fold_rows(batch, folding)
        for code in waiting:
            part = one_class(batch, code)
            room = self._make_room(batch.labels[code], len(part.codes))
            room.wait(part.X, 1.0 if part.weights is None else part.weights)
        self._changed(float(len(batch.codes)))

    def remove_batch(self, batch: Batch, who: str) -> None:
        """Take out rows that were checked before; refuse what was never there."""
        batch = without_zero_weights(batch)
        check_magnitude(batch)
        after: dict[Label, Moments | None] = {}
        for code, label in enumerate(batch.labels):
            after[label] = self._removed(label, one_class(batch, code), who)
        for label, moments in after.items():
            if moments is None:
                del self._classes[label]
            else:
                self._classes[label] = moments
        if not self._classes:
            self.origin = None
        self._changed(float(len(batch.codes)))

    def _removed(self, label: Label, batch: Batch, who: str) -> Moments | None:
        """The class without these rows, None if nothing is left; refuses rows that were never there."""
        amount = float(len(batch.codes)) if batch.weights is None else float(batch.weights.sum())
        present = self.count(label)
        check_enough(amount, present, who, label)
        moments = self._classes[label].copy()
        dense = _few_dense_rows(batch, moments)
        if dense is not None:
            weights = np.ones(len(dense)) if batch.weights is None else batch.weights
            batch = Batch(
                dense, batch.labels, batch.codes, moments.cancel(dense, weights, self.row_tolerance)
            )
            batch = without_zero_weights(batch)
        if len(batch.codes):
            if moments.gram is None:
                raise never_learned(who, label)
            self._subtract(moments, batch, who, label)
        left = moments.count
        if left > 1e-9 * present:
            return moments
        if moments.gram is not None:
            origin = self._any_origin()
            check_nothing_left(self._classes[label].folded(origin), moments.folded(origin), who, label)
        return None

    def _subtract(self, moments: Moments, batch: Batch, who: str, label: Label) -> None:
        origin = self._any_origin()
        moments.fold(origin)
        assert moments.gram is not None
        before = np.diagonal(moments.gram).copy()
        if sp.issparse(batch.X):
            moments.gram -= self._sparse_gram(batch, 0, origin)
        else:
            weights = np.full(len(batch.codes), -1.0) if batch.weights is None else -batch.weights
            _native.add_class_grams(batch.X, batch.codes, weights, origin, [moments.gram], num_threads())
        check_semidefinite(before, moments.gram, who, label)

    def _split(self, batch: Batch) -> tuple[list[int], list[int]]:
        """Codes of the classes whose rows wait in the buffer, and of those that are folded at once."""
        if sp.issparse(batch.X):
            return [], list(range(len(batch.labels)))
        if len(batch.labels) == 1:
            sizes = [len(batch.codes)]
        else:
            sizes = np.bincount(batch.codes, minlength=len(batch.labels)).tolist()
        waiting: list[int] = []
        folding: list[int] = []
        for code, size in enumerate(sizes):
            (waiting if size <= self._room(batch.labels[code]) else folding).append(code)
        return waiting, folding

    def _room(self, label: Label) -> int:
        """Rows that are better copied into the buffer of a class than folded into its matrix at once."""
        capacity = buffer_capacity(self.n_features)
        moments = self._classes.get(label)
        if moments is None:
            return capacity
        return capacity - moments.n_waiting if moments.gram is None else capacity // 2

    def _make_room(self, label: Label, n_rows: int) -> Moments:
        moments = self._class(label)
        if not moments.has_room(n_rows):
            self.origin = self._settled_origin(moments.rows)
            moments.fold(self.origin, num_threads())
        return moments

    def _class(self, label: Label) -> Moments:
        if label not in self._classes:
            self._classes[label] = Moments(self.n_features)
        return self._classes[label]

    def _fold_rows(self, batch: Batch, codes: list[int]) -> None:
        """Add the rows of some classes to their matrices, in place."""
        assert self.origin is not None
        matrices = [self._class(batch.labels[code]).matrix() for code in codes]
        if sp.issparse(batch.X):
            for code, matrix in zip(codes, matrices, strict=True):
                matrix += self._sparse_gram(batch, code, self.origin)
            return
        renumbered = batch.codes
        if len(codes) < len(batch.labels):
            table = np.full(len(batch.labels), -1, dtype=np.int32)
            table[codes] = np.arange(len(codes))
            renumbered = table[batch.codes]
        _native.add_class_grams(batch.X, renumbered, batch.weights, self.origin, matrices, num_threads())

    def _sparse_gram(self, batch: Batch, code: int, origin: FloatArray) -> FloatArray:
        X = batch.X
        values = X.data.astype(np.float64, copy=False)
        gram = _native.sparse_gram(
            values, X.indices, X.indptr, batch.codes, batch.weights, code, self.n_features
        )
        if not origin.any():
            return gram
        moved = Moments(self.n_features)
        moved.gram = gram
        moved.move(origin)
        return moved.gram

    # -- the origin ---------------------------------------------------------------------------------

    def _settled_origin(self, X: Any) -> FloatArray:
        """The origin, chosen when the first matrix is made; zero for sparse rows."""
        if self.origin is not None:
            return self.origin
        if sp.issparse(X):
            return np.zeros(self.n_features)
        rows = np.asarray(X[:_ORIGIN_ROWS], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = rows.mean(axis=0)
        # A constant feature gets its very value, so that its variance is exactly zero.
        constant = (rows == rows[0]).all(axis=0)
        origin = np.where(constant, rows[0], mean)
        return np.where(np.isfinite(origin), origin, 0.0)

    def _changed(self, amount: float) -> None:
        self.version += 1
        self.touched += amount
        if self.touched > self.look_after:
            self.touched, self.look_after = 0.0, max(float(_ORIGIN_ROWS), self.n_rows)
            if self.origin is not None:
                self._follow_mean()

    def _follow_mean(self) -> None:
        """Move the origin when the rows have moved so far away that digits would be lost."""
        assert self.origin is not None
        shift, variance = self.mean_offset()
        if np.any((np.square(shift) > _FAR**2 * variance) & (variance > 0.0)):
            far = np.square(shift) > variance
            self.move_origin(self.origin + np.where(far, shift, 0.0))

    def move_origin(self, origin: FloatArray) -> None:
        """Express the matrices relative to another origin; what they describe stays the same."""
        if self.origin is not None:
            for moments in self._classes.values():
                moments.move(origin - self.origin)
        self.origin = np.array(origin, dtype=np.float64)

    def mean_offset(self) -> tuple[FloatArray, FloatArray]:
        """Mean of all rows minus the origin, and their variance, feature by feature."""
        origin, n_rows = self._any_origin(), self.n_rows
        sums = sum((m.sums(origin) for m in self._classes.values()), np.zeros(self.n_features))
        squares = sum((m.squares(origin) for m in self._classes.values()), np.zeros(self.n_features))
        if n_rows <= 0.0:
            return sums, squares
        offset = sums / n_rows
        return offset, np.maximum(squares / n_rows - np.square(offset), 0.0)

    # -- whole statistics ---------------------------------------------------------------------------

    def merge(self, other: ClassStatistics) -> Self:
        """Add what ``other`` holds; ``other`` stays as it is."""
        self._combine(other, 1.0)
        return self

    def unmerge(self, other: ClassStatistics, who: str = "ClassStatistics.unmerge") -> Self:
        """Take out what ``other`` holds, rows that were added here before; on error nothing changes."""
        for label in other.classes:
            check_enough(other.count(label), self.count(label), who, label)
        left = self - other
        for label in other.classes:
            left._check_unmerged(label, self, who)
        self.origin = left.origin if left._classes else None
        self._classes, self.version = left._classes, left.version
        self.touched, self.look_after = left.touched, left.look_after
        return self

    def _check_unmerged(self, label: Label, before: ClassStatistics, who: str) -> None:
        """Refuse a difference that no rows could have left; drop a class that has none any more."""
        moments = self._classes.get(label)
        if moments is None:
            return
        if moments.gram is None:
            if (moments.weights < 0.0).any():
                raise never_learned(who, label)
            return
        origin = self._any_origin()
        earlier = before._classes[label].copy()
        if earlier.gram is not None:
            earlier.move(origin - before._any_origin())
        moments.fold(origin)
        check_semidefinite(np.diagonal(earlier.folded(origin)), moments.gram, who, label)
        if moments.count <= 1e-9 * earlier.count:
            check_nothing_left(earlier.folded(origin), moments.gram, who, label)
            del self._classes[label]

    def __add__(self, other: ClassStatistics) -> ClassStatistics:
        return self.copy().merge(other)

    def __sub__(self, other: ClassStatistics) -> ClassStatistics:
        """The change from ``other`` to ``self``: merged into ``other`` it gives ``self``."""
        result = self.copy()
        result._combine(other, -1.0)
        return result

    def _combine(self, other: ClassStatistics, sign: float) -> None:
        if not isinstance(other, ClassStatistics):
            raise DataError(
                f"expected other ClassStatistics; got {type(other).__name__}.", who="ClassStatistics"
            )
        if other.n_features != self.n_features:
            raise DataError(
                f"both sides need the same number of features; got {self.n_features} and "
                f"{other.n_features}; nothing was changed.",
                who="ClassStatistics",
                hint="if features were added at the end, call grow() on the narrower one first",
            )
        check_sortable([*self._classes, *other._classes], "ClassStatistics.merge")
        if self.origin is None and other.origin is not None:
            self.origin = other.origin.copy()
        for label in other.classes:
            theirs = other._classes[label].copy()
            if theirs.gram is not None:
                assert other.origin is not None
                theirs.move(self._any_origin() - other.origin)
            self._combine_class(label, theirs, sign)
        self._changed(other.n_rows)

    def _combine_class(self, label: Label, theirs: Moments, sign: float) -> None:
        mine = self._class(label)
        if theirs.gram is not None:
            gram = sign * theirs.gram
            mine.gram = gram if mine.gram is None else mine.gram + gram
        rows, weights = theirs.rows, sign * theirs.weights
        opposed = weights < 0.0
        if opposed.any():
            left = mine.cancel(rows[opposed], -weights[opposed], self.row_tolerance)
            weights[opposed] = -left
        rows, weights = rows[weights != 0.0], weights[weights != 0.0]
        if len(rows):
            self._make_room(label, len(rows)).wait(rows, weights)
        empty = mine.gram is None or not mine.gram.any()
        if not mine.n_waiting and empty:
            del self._classes[label]

    def empty(self) -> ClassStatistics:
        """Statistics of the same kind without any rows."""
        return ClassStatistics(self.n_features, row_tolerance=self.row_tolerance)

    def copy(self) -> ClassStatistics:
        """An independent copy."""
        twin = self.empty()
        twin.origin = None if self.origin is None else self.origin.copy()
        twin._classes = {label: moments.copy() for label, moments in self._classes.items()}
        twin.version, twin.touched, twin.look_after = self.version, self.touched, self.look_after
        return twin

    def compact(self) -> Self:
        """Fold waiting rows wherever the matrix takes less room, as before sending."""
        for moments in self._classes.values():
            if moments.gram is not None or moments.n_waiting > (self.n_features + 2) // 2:
                self.origin = self._settled_origin(moments.rows)
                moments.fold(self.origin)
        return self

    def scale(self, factor: float) -> Self:
        """Multiply the weight of every row, for memories that fade."""
        if not Positive().accepts(factor):
            raise DataError(f"factor must be a positive number; got {factor!r}.", who="ClassStatistics.scale")
        for moments in self._classes.values():
            moments.scale(factor)
        self._changed(0.0)
        return self

    def rearranged(self, places: Sequence[int], n_features: int) -> ClassStatistics:
        """A copy with feature ``k`` at ``places[k]`` of ``n_features``; the others are zero in all rows."""
        if len(set(places)) != self.n_features or not set(places) <= set(range(n_features)):
            raise DataError(
                f"{places} are no places among {n_features} features.", who="ClassStatistics.rearranged"
            )
        grown = self.copy().grow(n_features)
        spare = sorted(set(range(n_features)) - set(places))
        old = np.argsort([*places, *spare])  # the old place of the feature that comes to each new place
        if grown.origin is not None:
            grown.origin = grown.origin[old]
        for moments in grown._classes.values():
            moments.rearrange(old)
        return grown

    def forget_class(self, label: Label) -> Self:
        """Take out all rows of a class, if there are any."""
        if self._classes.pop(label, None) is not None:
            self.origin = self.origin if self._classes else None
            self._changed(0.0)
        return self

    def grow(self, n_features: int) -> Self:
        """Widen to more features, exact for features that were zero in all rows so far."""
        if not Integer(self.n_features).accepts(n_features):
            raise DataError(
                f"n_features must be at least the present {self.n_features}; got {n_features!r}.",
                who="ClassStatistics.grow",
            )
        check_statistics_fit(n_features, 2 * max(1, len(self._classes)))
        if n_features > self.n_features:
            for moments in self._classes.values():
                moments.grow(n_features)
            if self.origin is not None:
                self.origin = np.pad(self.origin, (0, n_features - self.n_features))
            self.n_features = int(n_features)
            self._changed(0.0)
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
        # The message has half the size of the matrices, which is what copies between processes cost.
        return ClassStatistics.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        counts = {label: self.count(label) for label in self.classes[:10]}
        more = "" if len(self._classes) <= 10 else f", and {len(self._classes) - 10} more classes"
        return f"ClassStatistics(n_features={self.n_features}, counts={counts}{more})"


def check_statistics_fit(n_features: int, n_matrices: int) -> None:
    """Refuse a number of features whose matrices could not be kept, before anything is allocated."""
    check_fits_memory(
        8 * (n_features + 1) ** 2 * max(n_matrices, 1),
        f"class statistics of {n_features:,} features",
        "use fewer columns: hash them (sklearn.feature_extraction.FeatureHasher) or put "
        "feature_map=RandomFeatures(...) in front, which keeps a width of your choice",
    )


def _few_dense_rows(batch: Batch, moments: Moments) -> FloatArray | None:
    """Rows that may be looked up among the waiting ones: all, if the class has nothing else."""
    few = len(batch.codes) <= buffer_capacity(moments.n_features)
    if not moments.n_waiting or not (few or moments.gram is None):
        return None
    X = batch.X.toarray() if sp.issparse(batch.X) else batch.X
    rows: FloatArray = np.asarray(X, dtype=np.float64)
    return rows


def _some(labels: list[Label]) -> str:
    return (
        "no classes yet"
        if not labels
        else ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
    )
