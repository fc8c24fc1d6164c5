"""Sequence kernels, and the store of sequences for native learners.

A sequence kernel is a function of two collections that returns the matrix of their kernel values. Every
kernel learner accepts a sequence kernel as ``kernel``. Its parameters follow the conventions of
scikit-learn, so it can be tuned, cloned and saved. Both kernels sum over *all* alignments, which makes them
positive definite by construction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, clone

from steelyard import _native
from steelyard._threads import num_threads
from steelyard._types import FloatArray
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.params import (
    AnyOf,
    Constraint,
    Integer,
    NonNegative,
    OneOf,
    Positive,
    Switch,
    check_params,
    parameter,
    parametrized,
)
from steelyard.persistence import storable

if TYPE_CHECKING:
    from steelyard.kernels.kernel import Kernel

__all__ = ["EditKernel", "GlobalAlignmentKernel", "SequenceKernel", "sequence_key"]

_MAX_MEDIAN_ELEMENTS = 1000  # this many pairs of elements estimate the median distance to about 1 %


class _Packed(NamedTuple):
    """Concatenated sequences in the memory layout of the native loops."""

    elements: NDArray[Any]
    offsets: NDArray[np.int64]  # start of each sequence, and the number of all elements

    @property
    def n_items(self) -> int:
        return len(self.offsets) - 1


class _Loops(NamedTuple):
    """Native loops of one kernel, which compute logarithms of its values."""

    matrix: Callable[..., None]
    block: Callable[..., None]
    diagonal: Callable[..., None]


class StoredKernel(BaseEstimator):
    """Kernel that model files can store. It has parameters but no learned state."""

    def _get_state(self) -> dict[str, Any]:
        return {}

    def _set_state(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"a {type(self).__name__} has no learned state; got {sorted(state)}")


class SequenceKernel(StoredKernel):
    """Base class of sequence kernels. Subclasses pack sequences and name their native loops."""

    takes_collections = True  # learners pass collections of samples to the kernel unchanged
    _loops: ClassVar[_Loops]
    _no_elements: ClassVar[NDArray[Any]]  # elements of an empty collection
    _constraints: ClassVar[dict[str, Constraint]] = {}
    normalize: bool

    def __call__(self, X: Any, Z: Any) -> FloatArray:
        """Return the kernel values of every sequence of ``X`` with every sequence of ``Z``."""
        check_params(self, self._constraints)
        left = self._pack(X)
        if Z is X:
            values = np.empty((left.n_items, left.n_items))
            self._loops.matrix(*self._numbers(), *left, values, num_threads())
            own = values.diagonal().copy()
            return self._finish(values, own, own)
        right = self._pack(Z)
        if left.n_items and right.n_items and left.elements.shape[1:] != right.elements.shape[1:]:
            raise self._width_error([left.elements, right.elements])
        values = np.empty((left.n_items, right.n_items))
        if values.size:
            self._loops.block(*self._numbers(), *left, *right, values, num_threads())
        return self._finish(values, *map(self._log_diagonal, (left, right)))

    def diagonal(self, X: Any) -> FloatArray:
        """Return the kernel value of every sequence with itself, which is 1 for a normalized kernel."""
        check_params(self, self._constraints)
        packed = self._pack(X)
        if self.normalize:
            return np.ones(packed.n_items)
        with np.errstate(over="ignore"):
            return self._finite(np.exp(self._log_diagonal(packed)))

    def check(self, X: Any, source: str) -> list[Any]:
        """Return copies of valid sequences, which can be stored and compared with others. Raise otherwise."""
        check_params(self, self._constraints)
        items = []
        for position, x in enumerate(_items(X, source)):
            elements = self._elements(x, position, source)
            items.append(x if isinstance(x, str | bytes) else np.array(elements))
        self._pack(items)  # raises an error unless all elements have the same number of components
        if not self.normalize:  # by the Cauchy-Schwarz inequality, the diagonal bounds all kernel values
            self.resolve(items).diagonal(items)
        return items

    def width(self, items: list[Any]) -> int:  # noqa: ARG002 - symbols are numbers
        """Return the number of components of an element of a sequence."""
        return 1

    def resolve(self, X: Any) -> Self:  # noqa: ARG002 - the default has no parameter that depends on data
        """Return this kernel with parameters such as "median" replaced by numbers computed from ``X``."""
        return self

    def _log_diagonal(self, packed: _Packed) -> FloatArray:
        values = np.empty(packed.n_items)
        if self.normalize or packed.n_items:
            self._loops.diagonal(*self._numbers(), *packed, values, num_threads())
        return values

    def _finish(self, values: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
        if self.normalize:
            # Each term is halved before the sum, so that (x, z) and (z, x) are rounded identically.
            values -= 0.5 * left[:, None] + 0.5 * right
            np.minimum(values, 0.0, out=values)
        with np.errstate(over="ignore"):
            return self._finite(np.exp(values, out=values))

    def _finite(self, values: FloatArray) -> FloatArray:
        if not np.isfinite(values).all():
            raise DataError(
                "the sums over alignments of such long sequences exceed the range of float64.",
                source=type(self).__name__,
                hint="use normalize=True: values are then computed in logarithms and lie between 0 and 1",
            )
        return values

    def _pack(self, X: Any) -> _Packed:
        source = type(self).__name__
        arrays = [self._elements(x, position, source) for position, x in enumerate(_items(X, source))]
        try:
            elements = np.concatenate(arrays) if arrays else self._no_elements
        except ValueError:
            raise self._width_error(arrays) from None
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        return _Packed(np.ascontiguousarray(elements), offsets)

    def _width_error(self, arrays: Sequence[NDArray[Any]]) -> DataError:
        """Return the error for sequences whose elements have different numbers of dimensions."""
        widths = sorted({array.shape[1] for array in arrays})
        return DataError(
            f"all trajectories must have the same number of dimensions; got {widths}.",
            source=type(self).__name__,
        )

    @abstractmethod
    def _elements(self, x: Any, position: int, source: str) -> NDArray[Any]:
        """Return the elements of a sequence in the form that the native loops use."""

    @abstractmethod
    def _numbers(self) -> tuple[float, float]:
        """Return the parameters in the form that the native loops use."""


@storable("GlobalAlignmentKernel")
@parametrized()
class GlobalAlignmentKernel(SequenceKernel):
    r"""Global alignment kernel of trajectories: the sum over all alignments of their scores.

    Dynamic time warping uses the single best alignment. This kernel sums over all alignments, which makes it
    smooth and positive definite. Trajectories may have any length; all have the same number of dimensions.

    Parameters
    ----------
    gamma : float or "median", default="median"
        Two elements have the similarity :math:`\exp(-\gamma \lVert x_i - z_j \rVert^2)`. For "median",
        :meth:`resolve`, which learners call, sets :math:`\gamma = 1 / (2 m^2 L)` with the median distance m
        between elements and the median length L.
    band : int, optional
        Width of the alignment band: elements whose positions differ by ``band`` or more are never aligned,
        and the weight of others decreases linearly with the difference. Trajectories whose lengths differ by
        ``band`` or more have kernel value 0. A smaller band is faster. With None there is no band.
    normalize : bool, default=True
        Whether every trajectory has similarity 1 with itself.

    Notes
    -----
    With :math:`w_{ij} = \max(0, 1 - |i - j| / band) \exp(-\gamma \lVert x_i - z_j \rVert^2)` the sum over
    all alignments of the product of :math:`w_{ij} / (2 - w_{ij})` follows from

    .. math:: M_{ij} = \frac{w_{ij}}{2 - w_{ij}} (M_{i-1,j} + M_{i,j-1} + M_{i-1,j-1}).

    The kernel is positive definite by construction. The recursion stores exponents separately, so long
    trajectories neither overflow nor underflow.

    References
    ----------
    M. Cuturi, "Fast global alignment kernels", ICML 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from steelyard.kernels import GlobalAlignmentKernel
    >>> there = np.linspace([0.0, 0.0], [1.0, 1.0], 20)
    >>> slowly, back = np.linspace([0.0, 0.0], [1.0, 1.0], 25), there[::-1]
    >>> GlobalAlignmentKernel(gamma=1.0)([there], [there, slowly, back]).round(3)
    array([[1.   , 0.651, 0.   ]])
    """

    _loops = _Loops(_native.log_alignment_matrix, _native.log_alignment_block, _native.log_alignment_diagonal)
    _no_elements = np.empty((0, 1))

    gamma: float | str = parameter("median", AnyOf(Positive(), OneOf("median")))
    _: KW_ONLY
    band: int | None = parameter(None, AnyOf(OneOf(None), Integer(1)))
    normalize: bool = parameter(True, Switch())

    def resolve(self, X: Any) -> Self:
        """Return this kernel with gamma computed from the trajectories ``X``."""
        check_params(self, self._constraints)
        resolved: Self = clone(self)
        if self.gamma == "median":
            packed = self._pack(X)
            elements = packed.elements
            n_chosen = min(len(elements), _MAX_MEDIAN_ELEMENTS)
            chosen = elements[np.linspace(0, max(0, len(elements) - 1), n_chosen).astype(np.intp)]
            distance = float(np.median(pdist(chosen))) if n_chosen > 1 else 0.0
            scale = 2.0 * distance**2 * float(np.median(np.diff(packed.offsets))) if packed.n_items else 0.0
            resolved.gamma = 1.0 / scale if scale > 0 else 1.0
        return resolved

    def _numbers(self) -> tuple[float, int]:
        if isinstance(self.gamma, str):
            raise ParameterError(
                f"gamma={self.gamma!r} has not been computed from data.",
                source="GlobalAlignmentKernel",
                hint="call kernel = kernel.resolve(X) first, or pass gamma as a number",
            )
        return float(self.gamma), int(self.band or 0)

    def _elements(self, x: Any, position: int, source: str) -> FloatArray:
        try:
            values = np.asarray(x, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataTypeError(
                f"trajectory {position} is not an array of numbers: {error}.", source=source
            ) from error
        if values.ndim == 1:
            values = values[:, None]
        if values.ndim != 2 or not values.size:
            raise DataError(
                "a trajectory must be an array of at least one row, one column per dimension; "
                f"trajectory {position} has shape {values.shape}.",
                source=source,
            )
        if not np.isfinite(values).all():
            raise DataError(f"trajectory {position} contains values that are not finite.", source=source)
        return values

    def width(self, items: list[Any]) -> int:
        """Return the number of dimensions of the trajectories."""
        return int(items[0].shape[1]) if items else 1


@storable("EditKernel")
@parametrized()
class EditKernel(SequenceKernel):
    r"""Edit kernel of strings: the sum over all edit scripts of their weights.

    The edit distance is the cost of the cheapest script, and :math:`\exp(-\gamma\, distance)` is not positive
    definite. The sum over all scripts is positive definite, and for large ``gamma`` it approaches
    :math:`\exp(-\gamma\, distance)`.

    Parameters
    ----------
    gamma : float, default=1.0
        An edit of cost c has weight :math:`\exp(-\gamma c)`.
    substitution : float, default=1.0
        Cost of replacing a symbol by another one.
    gap : float, default=1.0
        Cost of deleting or inserting a symbol.
    normalize : bool, default=True
        Whether every string has similarity 1 with itself.

    Notes
    -----
    Strings are Python strings, bytes, or one-dimensional arrays of integers. Between two aligned symbols,
    deletions precede insertions, so each script counts once. The sum runs over all pairs of subsequences of
    equal length, with a positive definite similarity of symbols and a weight :math:`e^{-\gamma\, gap}` for
    each symbol outside of the pair. The kernel is therefore positive definite.

    Examples
    --------
    >>> from steelyard.kernels import EditKernel
    >>> words = ["kitten", "sitting", "banana"]
    >>> EditKernel(gamma=2.0)(words, words).round(3)
    array([[1.   , 0.004, 0.   ],
           [0.004, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    """

    _loops = _Loops(_native.log_edit_matrix, _native.log_edit_block, _native.log_edit_diagonal)
    _no_elements = np.empty(0, np.int32)

    gamma: float = parameter(1.0, Positive())
    _: KW_ONLY
    substitution: float = parameter(1.0, NonNegative())
    gap: float = parameter(1.0, NonNegative())
    normalize: bool = parameter(True, Switch())

    def _numbers(self) -> tuple[float, float]:
        # The native loops do not handle weights of exactly 0; 1e-300 has no visible effect.
        smallest = 1e-300
        weights = np.exp([-self.gamma * self.substitution, -self.gamma * self.gap])
        return float(max(smallest, weights[0])), float(max(smallest, weights[1]))

    def _elements(self, x: Any, position: int, source: str) -> NDArray[np.int32]:
        if isinstance(x, str):
            return np.frombuffer(x.encode("utf-32-le"), dtype="<i4").astype(np.int32)
        if isinstance(x, bytes):
            return np.frombuffer(x, dtype=np.uint8).astype(np.int32)
        values = np.asarray(x)
        if values.ndim != 1 or (values.dtype.kind not in "iu" and values.size):
            raise DataTypeError(
                f"a string must be a str, bytes or a one-dimensional array of integers; "
                f"item {position} is {type(x).__name__} of shape {values.shape} and type {values.dtype}.",
                source=source,
            )
        limits = np.iinfo(np.int32)
        if values.size and not limits.min <= int(values.min()) <= int(values.max()) <= limits.max:
            raise DataError(
                f"symbols must fit in 32 bits; item {position} has larger symbols.", source=source
            )
        return values.astype(np.int32)


def sequence_key(item: Any) -> Any:
    """Return a hashable key of a sequence. Keys are equal only for equal sequences."""
    if isinstance(item, str | bytes):
        return item
    return item.shape, item.dtype.str, (item + 0).tobytes()  # -0.0 + 0 is 0.0


def _items(X: Any, source: str) -> list[Any]:
    if isinstance(X, str | bytes) or not hasattr(X, "__len__"):
        raise DataTypeError(
            f"expected a collection of sequences; got {type(X).__name__}.",
            source=source,
            hint="pass a single sequence as [sequence]",
        )
    return list(X)


# -- collections of sequences ----------------------------------------------------------------------------


def is_sequence_kernel(kernel: object) -> bool:
    """Return whether a kernel compares sequences."""
    return isinstance(getattr(kernel, "kernel", kernel), SequenceKernel)


def restored_items(kernel: object, items: Any) -> list[Any]:
    """Validate sequences read from a file. Raise ValueError if they are not valid."""
    if not (isinstance(items, list) and isinstance(kernel, SequenceKernel)):
        raise ValueError("the model file contains no list of sequences")  # noqa: TRY004 - a file is invalid
    return kernel.check(items, "a model file") if items else []


def take(X: Any, chosen: NDArray[Any] | slice) -> Any:
    """Return rows of a matrix or items of a list, selected by a slice, by indices or by a mask."""
    if not isinstance(X, list) or isinstance(chosen, slice):
        return X[chosen]
    positions = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
    return [X[position] for position in positions]


def distinct(items: list[Any], weights: FloatArray) -> tuple[list[Any], FloatArray]:
    """Return distinct sequences and their total weights, in an order that depends only on the sequences."""
    sums: dict[Any, tuple[Any, float]] = {}
    for item, weight in zip(items, weights.tolist(), strict=True):
        key = sequence_key(item)
        sums[key] = item, sums.get(key, (item, 0.0))[1] + weight
    order = sorted(
        (key for key, (_, weight) in sums.items() if weight > 0.0),
        key=lambda key: blake2b(repr(key).encode("utf-8", "surrogatepass")).digest(),
    )
    return [sums[key][0] for key in order], np.array([sums[key][1] for key in order])


class SequenceStore:
    """Store of distinct sequences in numbered slots, for learners whose rows are numbers.

    A native learner represents a sequence by a row with one number, its slot. Equal sequences share a slot,
    so ``forget`` finds them again. Slots of removed sequences are reused. The store also contains the values
    of the given kernels for all pairs of its sequences.
    """

    def __init__(self, kernels: Sequence[Kernel] = ()) -> None:
        self._items: list[Any] = []
        self._slots: dict[Any, int] = {}
        self._free: list[int] = []
        self._kernels = list(kernels)
        self._tables = [_native.KernelTable() for _ in kernels]
        self._values = [np.empty((0, 0)) for _ in kernels]

    def __len__(self) -> int:
        return len(self._slots)

    def copy(self) -> SequenceStore:
        """Return an independent copy with the same sequences in the same slots."""
        copied = SequenceStore(self._kernels)
        copied._items, copied._slots, copied._free = list(self._items), dict(self._slots), list(self._free)
        copied._set_values([values.copy() for values in self._values])
        return copied

    def specs(self) -> list[_native.KernelSpec]:
        """Return native kernels that read their values from this store."""
        return [_native.KernelSpec.lookup(table) for table in self._tables]

    def add(self, items: list[Any]) -> FloatArray:
        """Add sequences that are not stored yet. Return the slots of all given sequences as one column."""
        keys, new = list(map(sequence_key, items)), []
        for key, item in zip(keys, items, strict=True):
            if key not in self._slots:
                slot = self._slots[key] = self._free.pop() if self._free else len(self._items)
                self._items[slot : slot + 1] = [item]
                new.append(slot)
        if new and self._kernels:
            self._add_values(sorted(new))
        return np.array([self._slots[key] for key in keys], dtype=np.float64).reshape(-1, 1)

    def _add_values(self, new: list[int]) -> None:
        """Compute the kernel values of new sequences with all sequences."""
        old = sorted(set(self._slots.values()).difference(new))
        capacity = len(self._values[0])
        if len(self._items) > capacity:
            more = max(len(self._items), 2 * capacity) - capacity
            self._set_values([np.pad(values, (0, more)) for values in self._values])
        added, others = self.at(np.array(new)), self.at(np.array(old))
        for kernel, values in zip(self._kernels, self._values, strict=True):
            values[np.ix_(new, new)] = kernel.block(added)
            if others:
                block = kernel.block(added, others)
                values[np.ix_(new, old)] = block
                values[np.ix_(old, new)] = block.T

    def _set_values(self, values: list[FloatArray]) -> None:
        self._values = values
        for table, matrix in zip(self._tables, values, strict=True):
            table.set(matrix)

    def at(self, rows: NDArray[Any]) -> list[Any]:
        """Return the sequences whose slots are given."""
        return [self._items[int(slot)] for slot in np.ravel(rows)]

    def retain(self, rows: NDArray[Any]) -> None:
        """Remove all sequences except those whose slots are given."""
        retained = {int(slot) for slot in np.ravel(rows)}
        for key, slot in [(k, s) for k, s in self._slots.items() if s not in retained]:
            del self._slots[key]
            self._items[slot] = None
            self._free.append(slot)
