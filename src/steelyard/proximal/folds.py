"""Statistics of a ProximalSVC by class and fold: its learned state, and the message for other learners."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from steelyard import _native
from steelyard.base import Batch, Label, check_same_features, sorted_classes
from steelyard.exceptions import DataError, DataTypeError
from steelyard.features import RandomFeatures
from steelyard.persistence.tree import decode, encode
from steelyard.proximal import serialization
from steelyard.proximal.buffering import BufferedRows, batch_rows
from steelyard.proximal.quantizer import Quantizer
from steelyard.proximal.row_ledger import FoldLabel, RowLedger, batch_hashes, fold_numbers
from steelyard.proximal.statistics import ClassStatistics, never_learned

if TYPE_CHECKING:
    from steelyard.proximal.model_selection import SelectedC

_BLOCK_ROWS = 2048  # number of rows that a feature map transforms at a time
_MAX_FOLDS = 100  # largest number of folds that is read from a file; the cost of selecting C grows with it
# Batch size up to which adding a batch to the total is faster than summing the folds.
_MAX_ROWS_FOR_TOTAL_UPDATE = 512

_FORMAT = "steelyard folded statistics"
_VERSION = 1

_MAP_HINT = "fit one feature map first, RandomFeatures(...).fit(X), and pass it to all learners"

T = TypeVar("T")


def mapped_blocks(X: Any, feature_map: RandomFeatures | None) -> Iterator[tuple[slice, Any]]:
    """Yield pairs of a slice of X and its mapped rows; without a feature map, one pair with all of X."""
    if feature_map is None:
        yield slice(None), X
        return
    for begin in range(0, X.shape[0], _BLOCK_ROWS):
        block = slice(begin, begin + _BLOCK_ROWS)
        yield block, feature_map.map_rows(X[block])


class ClassLabels:
    """Sorted labels of the classes and the 8-byte codes by which native code represents them."""

    def __init__(self, labels: list[Label]) -> None:
        self.labels = labels
        self.array = sorted_classes(labels)
        # A numeric label of eight bytes is its own code. The code of any other label is its index.
        self._is_code = self.array.dtype.kind in "iuf" and self.array.itemsize == 8
        codes = self.array.view(np.uint64) if self._is_code else np.arange(len(labels), dtype=np.uint64)
        # If there is only one class, it is the positive and the negative class of the plane.
        self.codes = np.repeat(codes, 2) if len(codes) == 1 else codes

    def decode(self, codes: NDArray[np.uint64]) -> NDArray[Any]:
        """Convert codes to labels."""
        return codes.view(self.array.dtype) if self._is_code else self.array.take(codes.view(np.int64))


class OmittedMap(NamedTuple):
    """Placeholder for a feature map that was left out of a message; its digest may be unknown."""

    n_features: int
    digest: str | None


class FoldedStatistics:
    """Statistics of all rows of a ProximalSVC by class and fold, with its feature map and row ledger.

    They are the state of a learner. :meth:`steelyard.ProximalSVC.statistics` returns a copy as a message,
    which :meth:`steelyard.ProximalSVC.merge` accepts. Messages with equal feature maps and numbers of folds
    can be added with ``+``; ``-`` removes the rows of another message; :meth:`to_bytes` and
    :meth:`from_bytes` send messages over a network. A message is immutable.

    Parameters
    ----------
    statistics : ClassStatistics
        Statistics of all (mapped) rows; with several folds, the class keys are pairs of label and fold.
    n_folds : int, default=1
        Number of folds.
    feature_map : RandomFeatures, optional
        The fitted map that transforms every row.
    feature_names : ndarray, optional
        Names of the features, if the learner knows them.
    ledger : RowLedger, optional
        Hashes of the rows, if the learner tracks rows.

    Examples
    --------
    >>> from steelyard import ProximalSVC
    >>> from steelyard.proximal import FoldedStatistics
    >>> here = ProximalSVC().fit([[1.0, 2.0], [3.0, 4.0]], ["ok", "fraud"])
    >>> there = ProximalSVC(quantizer=here.quantizer_).fit([[5.0, 6.0]], ["ok"])
    >>> received = FoldedStatistics.from_bytes(there.statistics().to_bytes())
    >>> total = here.statistics() + received
    >>> ProximalSVC().merge(total).classes_.tolist(), (total - received).digest() == here.digest()
    (['fraud', 'ok'], True)
    """

    # All folds share one ClassStatistics, so one native call changes all of them. Only _add and _remove
    # change an object in place. While `buffer` has the first rows of a stream, the feature map is
    # preliminary, and the statistics are those of the buffered rows. Until the buffer is full, the result
    # depends neither on the sizes of the batches nor on the values of forgotten rows.

    def __init__(
        self,
        statistics: ClassStatistics,
        n_folds: int = 1,
        feature_map: RandomFeatures | None = None,
        *,
        feature_names: Any = None,
        ledger: RowLedger | None = None,
    ) -> None:
        self.statistics = statistics
        self.n_folds = n_folds
        self.feature_map = feature_map
        self.feature_names = feature_names  # only messages have names, the state of a learner has none
        self.ledger = ledger
        self.is_difference = False  # whether difference() returned this message
        self.omitted_map: OmittedMap | None = None
        self.is_plain = feature_map is None and n_folds == 1
        self.buffer: BufferedRows | None = None
        self.selected_C: SelectedC | None = None  # stays valid while rows are added but not removed
        # Native model for calls with one row. It returns None or False if the call needs the general path: X
        # is not an array with one row of doubles, the label is new, a parameter has changed, another thread
        # is learning, or the statistics have been changed by anything but this model.
        self.single_row: _native.SingleRowModel | None = None
        self.last_predict_version: int | None = None  # version at the last prediction of a single row
        self._cache: dict[str, tuple[Any, Any]] = {}
        self._class_labels: ClassLabels | None = None

    @classmethod
    def start(
        cls,
        n_features: int,
        n_folds: int = 1,
        feature_map: RandomFeatures | None = None,
        quantizer: Quantizer | None = None,
    ) -> Self:
        """Return statistics without rows. The default quantizer has the step of the feature map, if any."""
        width = n_features if feature_map is None else feature_map.n_components
        if feature_map is not None and quantizer is None:
            quantizer = Quantizer.uniform(width, feature_map.step, rounds=False)
        return cls(ClassStatistics(width, quantizer=quantizer), n_folds, feature_map)

    @classmethod
    def _of_buffer(cls, buffer: BufferedRows, n_folds: int) -> Self:
        """Return the statistics of buffered rows; the feature map is final if the buffer is full."""
        result = cls.start(buffer.X.shape[1], n_folds, buffer.fitted_map())
        if len(buffer):
            result._add(buffer.batch())
        result.buffer = None if buffer.is_full else buffer
        return result

    def _empty(self, quantizer: Quantizer | None) -> FoldedStatistics:
        """Return statistics without rows with the same folds, feature map and (unless given) quantizer."""
        if quantizer is not None:
            return self.start(self.n_features, self.n_folds, self.feature_map, quantizer)
        if self.buffer is not None:
            empty = BufferedRows.start(self.buffer.unfitted_map, self.n_features)
            return self._of_buffer(empty, self.n_folds)
        return self.copy(self.statistics.empty())

    def copy(self, statistics: ClassStatistics | None = None) -> FoldedStatistics:
        """Return an independent copy (copy-on-write) without names, with other statistics if given."""
        if statistics is None:
            statistics = self.statistics.copy()
        result = FoldedStatistics(statistics, self.n_folds, self.feature_map, ledger=self.ledger)
        result.omitted_map, result.buffer = self.omitted_map, self.buffer
        result._class_labels = self._class_labels
        return result

    def _with_names(self, feature_names: Any) -> FoldedStatistics:
        self.feature_names = feature_names
        return self

    @property
    def n_features(self) -> int:
        """Number of features of the rows before the feature map is applied."""
        if self.omitted_map is not None:
            return self.omitted_map.n_features
        feature_map = self.feature_map
        return self.statistics.n_features if feature_map is None else int(feature_map.n_features_in_)

    @property
    def features(self) -> dict[str, Any]:
        """Number and names of the features of the rows."""
        return {"n_features": self.n_features, "feature_names": self.feature_names}

    @property
    def kind(self) -> tuple[int, str | None]:
        """Number of folds and digest of the feature map. Only messages of the same kind can be added."""
        if self.omitted_map is not None:
            return self.n_folds, self.omitted_map.digest
        return self.n_folds, None if self.feature_map is None else self.feature_map.digest()

    @property
    def _version(self) -> tuple[int, ...]:
        """Identifier of the contents, which changes whenever the statistics change in place."""
        return id(self.statistics), self.statistics.version

    # -- adding and removing rows ------------------------------------------------------------------------

    def _add(self, batch: Batch) -> None:
        """Add a validated batch in place; on error nothing changes. The ledger does not change."""
        if self.is_plain:  # fast path for single rows
            self.statistics.add_batch(batch)
            return
        if self.buffer is not None:
            self._add_to_buffer(self.buffer, batch)
            return
        n_rows = batch.X.shape[0]
        one_block = self.feature_map is None or n_rows <= _BLOCK_ROWS
        statistics = self.statistics if one_block else self.statistics.copy()
        total = None
        for block in self._blocks(batch):
            if n_rows <= _MAX_ROWS_FOR_TOTAL_UPDATE:
                total = self._updated_total(batch, block)
            statistics.add_batch(block)
        self.statistics = statistics
        if total is not None:
            self._cache["total"] = (self._version, None), total

    def _add_to_buffer(self, before: BufferedRows, batch: Batch) -> None:
        """Add the first rows of a batch to the buffer, and the others to the state that follows from it."""
        n = min(before.capacity, batch.X.shape[0])
        first = batch_rows(batch, slice(0, n))
        buffer = before.with_rows(first)
        if buffer.is_full or buffer.n_preliminary != before.n_preliminary:
            result = self._of_buffer(buffer, self.n_folds)
        else:
            result = self.copy()
            result.buffer = None
            result._add(first)
            result.buffer = buffer
        if n < batch.X.shape[0]:
            result._add(batch_rows(batch, slice(n, None)))
        self._replace_by(result)

    def _replace_by(self, other: FoldedStatistics) -> None:
        selected_C = self.selected_C if other.feature_map is self.feature_map else None
        # A single assignment is atomic for other threads.
        self.__dict__ = {**other.__dict__, "selected_C": selected_C, "ledger": self.ledger}

    def _updated_total(self, batch: Batch, block: Batch) -> ClassStatistics | None:
        """Return the total with a batch added, or None if the total is not cached."""
        entry = self._cache.pop("total", None)
        if entry is None or entry[0] != (self._version, None) or not self.statistics.is_frozen:
            return None
        total: ClassStatistics = entry[1].copy()
        del entry  # the old total has no other reference now, so native code can change its matrices in place
        total.add_batch(Batch(block.X, batch.labels, block.codes // self.n_folds, block.weights))
        return total

    def _remove(self, batch: Batch, source: str) -> None:
        """Remove a validated batch in place; raise DataError for rows that were never added.

        After an error the state may have changed, so callers work on a copy and discard it.
        """
        if self.ledger is not None:
            self.ledger = self.ledger.without_hashes(batch_hashes(batch), source)
        if self.buffer is not None:
            self._replace_by(self._of_buffer(self.buffer.without_rows(batch, source), self.n_folds))
            return
        for block in (batch,) if self.is_plain else self._blocks(batch):
            self.statistics.remove_batch(block, source)

    def _blocks(self, batch: Batch) -> Iterator[Batch]:
        """Yield blocks of mapped rows of a batch, with one class code for each pair of label and fold."""
        labels, codes = batch.labels, batch.codes
        if self.n_folds > 1:
            labels = [FoldLabel(label, fold) for label in labels for fold in range(self.n_folds)]
            codes = codes * self.n_folds + fold_numbers(batch.X, self.n_folds).astype(np.int32)
        for rows, X in mapped_blocks(batch.X, self.feature_map):
            yield Batch(X, labels, codes[rows], None if batch.weights is None else batch.weights[rows])

    # -- views of the statistics --------------------------------------------------------------------

    @property
    def total(self) -> ClassStatistics:
        """Statistics of all rows by class."""
        if self.n_folds == 1:
            return self.statistics
        return self._cached("total", None, lambda state: state._subset(range(state.n_folds)), nullcontext())

    @property
    def folds(self) -> list[ClassStatistics]:
        """Statistics of each fold."""
        return [self._subset({fold}) for fold in range(self.n_folds)]

    def _subset(self, folds: Container[int]) -> ClassStatistics:
        """Return the statistics of the rows of some folds."""
        if self.n_folds == 1:
            return self.statistics
        return self.statistics.regrouped(
            {key: key.label for key in self.statistics.classes if key.fold in folds}
        )

    def _labels(self) -> ClassLabels:
        """Return the class labels; the same object is returned until the classes change."""
        labels = self.total.classes
        if self._class_labels is None or self._class_labels.labels != labels:
            self._class_labels = ClassLabels(labels)
        return self._class_labels

    def _cached(self, name: str, key: Any, make: Callable[[Self], T], lock: AbstractContextManager[Any]) -> T:
        """Return ``make(self)``; the result is cached until the statistics or ``key`` change.

        A valid cache entry is returned without the lock, so it does not wait for calls that learn.
        """
        entry = self._cache.get(name)
        if entry is None or entry[0] != (self._version, key):
            with lock:
                entry = (self._version, key), make(self)
                self._cache[name] = entry
        return entry[1]

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles are made without cached results.
        without = dict.fromkeys(("single_row", "last_predict_version", "_class_labels"))
        return {**self.__dict__, **without, "_cache": {}}

    def digest(self) -> str:
        """Return a hash of the sums of all rows and of the feature map, independent of the folds."""
        total, (_, map_digest) = self.total.digest(), self.kind
        if map_digest is None:
            return total
        return blake2b((total + map_digest).encode(), digest_size=16).hexdigest()

    # -- sums and differences -----------------------------------------------------------------------

    def __add__(self, other: FoldedStatistics) -> FoldedStatistics:
        """Return the message that contains the rows of both messages."""
        names = self._check_addable(other)
        return self._merged(other)._with_names(names)

    def __sub__(self, other: FoldedStatistics) -> FoldedStatistics:
        """Return this message without the rows of ``other``; raise DataError for unknown rows."""
        names = self._check_addable(other)
        return self._subtracted(other, "FoldedStatistics")._with_names(names)

    def difference(self, other: FoldedStatistics) -> FoldedStatistics:
        """Return a message that, when merged, adds the rows of this message and removes those of ``other``.

        Algorithm 4 of Zhu et al., "Distributed Incremental wLPSVM Learning", sends this message: one set of
        sums instead of two. Counts may be negative. The message has no ledger, so ``merge`` of a learner that
        tracks rows rejects it.

        Parameters
        ----------
        other : FoldedStatistics
            The rows to be forgotten. The learner that merges the message must have learned these rows.

        Returns
        -------
        FoldedStatistics

        Examples
        --------
        >>> from steelyard import ProximalSVC
        >>> master = ProximalSVC().fit([[1.0], [2.0], [3.0]], [0, 1, 1])
        >>> new = ProximalSVC(quantizer=master.quantizer_).fit([[4.0]], [0])
        >>> old = ProximalSVC(quantizer=master.quantizer_).fit([[3.0]], [1])
        >>> master.merge(new.statistics().difference(old.statistics())).class_count_.tolist()
        [2.0, 1.0]
        """
        names = self._check_addable(other)
        if self.buffer is not None or other.buffer is not None:
            raise DataError(
                "a difference needs two messages with a final feature map; the first rows of one message are "
                "still buffered.",
                source="FoldedStatistics.difference",
                hint=_MAP_HINT,
            )
        result = self.copy(self.statistics - other.statistics)._with_names(names)
        result.ledger, result.is_difference = None, True
        return result

    def _check_addable(self, other: FoldedStatistics) -> Any:
        """Raise an error if two messages cannot be added; return the feature names, if known."""
        if not isinstance(other, FoldedStatistics):
            raise DataTypeError(
                f"expected FoldedStatistics; got {type(other).__name__}.", source="FoldedStatistics"
            )
        check_same_features(self.features, other.features, "FoldedStatistics")
        self._check_same_kind(other, "FoldedStatistics")
        return other.feature_names if self.feature_names is None else self.feature_names

    def _check_same_kind(self, other: FoldedStatistics, source: str) -> None:
        """Raise DataError if the feature maps or the numbers of folds differ."""
        mine, theirs = self.feature_map, other.feature_map
        if self.buffer is not None or other.buffer is not None:
            # If a feature map is preliminary, equal map parameters are sufficient.
            same = mine is not None and theirs is not None and mine.get_params() == theirs.get_params()
        else:
            same = self.kind[1] == other.kind[1]
        if not same:
            raise _different_maps(source)
        if self.n_folds != other.n_folds:
            raise DataError(
                'one learner keeps fold statistics (C="auto") and the other does not.',
                source=source,
                hint='start both with C="auto" or both with a number',
            )

    def _merged(self, other: FoldedStatistics) -> FoldedStatistics:
        """Return the sum of states of one kind, with a ledger if both have one.

        Buffered rows of one state are learned by the other.
        """
        if other.buffer is None and self.buffer is None:
            result = self.copy(self.statistics + other.statistics)
        else:
            result, rows = (self, other.buffer) if other.buffer is not None else (other, self.buffer)
            assert rows is not None
            result = result.copy()
            if len(rows):
                result._add(rows.batch())
        result.ledger = self.ledger and other.ledger and self.ledger.with_hashes(other.ledger.to_array())
        return result

    def _subtracted(self, other: FoldedStatistics, source: str) -> FoldedStatistics:
        """Return the difference of states of one kind; raise DataError for unknown rows.

        It has a ledger if both states have one.
        """
        result = self.copy()
        ledger = self.ledger and other.ledger and self.ledger.without_hashes(other.ledger.to_array(), source)
        result.ledger = None
        if other.buffer is not None:
            result._remove(other.buffer.batch(), source)
        elif self.buffer is not None:
            raise never_learned(source, other.total.classes[0] if other.total.classes else None)
        else:
            result.statistics.subtract(other.statistics, source)
        result.ledger = ledger
        return result

    def _decayed(self, factor: float, drop_below: float) -> FoldedStatistics:
        """Return the state with weights times ``factor``, without classes of weight below ``drop_below``."""
        result = self.copy(self.statistics.copy().scale(factor))
        total = result.total
        for label in [label for label in total.classes if total.count(label) < drop_below]:
            for fold in range(self.n_folds):
                result.statistics.forget_class(label if self.n_folds == 1 else FoldLabel(label, fold))
        if result.buffer is not None:
            result.buffer = result.buffer.decayed(factor, result.total.classes)
        if self.selected_C is not None:
            result.selected_C = self.selected_C._replace(n_rows=factor * self.selected_C.n_rows)
        return result

    def _check_has_folds(self, source: str) -> None:
        """Raise DataError if there is only one fold, because C="auto" needs several."""
        if self.n_folds == 1:
            raise DataError(
                'the statistics have one fold, and C="auto" needs several.',
                source=source,
                hint='use the statistics of a learner with C="auto"',
            )

    # -- messages and files -------------------------------------------------------------------------

    def without_map(self) -> FoldedStatistics:
        """Return the message without its (often large) feature map, for a receiver that has the map."""
        if self.feature_map is None:
            return self
        return self._with_other_map(None, OmittedMap(self.n_features, self.feature_map.digest()))

    def with_map(self, feature_map: RandomFeatures | None) -> FoldedStatistics:
        """Return the message with the given feature map; raise DataError if another map was omitted."""
        if self.omitted_map is None:
            return self
        if feature_map is None or self.omitted_map.digest not in {None, feature_map.digest()}:
            raise _different_maps("ProximalSVC.merge")
        return self._with_other_map(feature_map, None)

    def _with_other_map(
        self, feature_map: RandomFeatures | None, omitted_map: OmittedMap | None
    ) -> FoldedStatistics:
        result = FoldedStatistics(self.statistics, self.n_folds, feature_map, ledger=self.ledger)
        result.feature_names, result.omitted_map = self.feature_names, omitted_map
        result.is_difference = self.is_difference
        return result

    def to_bytes(self) -> bytes:
        """Return the message as bytes: the sums of each class and fold, a version and a checksum."""
        state = serialization.convert_maps(serialization.map_to_array, self.get_state())
        return encode({"format": _FORMAT, "version": _VERSION, **state})

    @classmethod
    def from_bytes(cls, data: bytes) -> FoldedStatistics:
        """Return the message written by :meth:`to_bytes` or ``ClassStatistics.to_bytes``."""
        source = "FoldedStatistics.from_bytes"
        tree = decode(data)
        form = tree.get("format") if isinstance(tree, Mapping) else None
        if form is not None and form != _FORMAT:
            return cls(ClassStatistics.from_bytes(data))
        with serialization.reading("message", source):
            if isinstance(tree, Mapping) and form is None and "statistics" in tree:
                return _partition_message(tree)
            what = "statistics of a ProximalSVC"
            serialization.check_format(tree, what, _FORMAT, (_VERSION,), source)
            return cls.from_state(serialization.convert_maps(serialization.map_from_array, tree))

    def get_state(self) -> dict[str, Any]:
        """Return the message as arrays and plain values, as model files store it."""
        state = {
            **self.features,
            "map": self.feature_map,
            "left_map": None if self.omitted_map is None else self.omitted_map.digest,
            "n_folds": self.n_folds,
            "statistics": serialization.get_state(self.statistics),
        }
        if self.buffer is not None:
            state["gathered"] = self.buffer.get_state()
        state["ledger"] = None if self.ledger is None else self.ledger.to_array()
        return {**state, "is_difference": True} if self.is_difference else state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FoldedStatistics:
        """Restore statistics from the result of :meth:`get_state`; raise ValueError for invalid values."""
        n_features = int(state["n_features"])
        n_folds = len(state["folds"]) if "folds" in state else int(state["n_folds"])
        if not 1 <= n_folds <= _MAX_FOLDS:
            raise ValueError(f"the number of folds must be from 1 to {_MAX_FOLDS}")
        if state.get("gathered") is not None:
            buffer = BufferedRows.from_state(state["gathered"])
            if buffer.X.shape[1] != n_features:
                raise ValueError("the buffered rows do not have one column per feature")
            result = cls._of_buffer(buffer, n_folds)
        else:
            feature_map = state["map"]
            result = cls(_restored_statistics(state), n_folds, feature_map)
            width = n_features if feature_map is None else feature_map.n_components
            if state.get("left_map") is not None:
                result.omitted_map = OmittedMap(n_features, str(state["left_map"]))
            elif result.statistics.n_features != width:
                raise ValueError("the width of the statistics does not match the number of features")
            if any(isinstance(key, FoldLabel) != (n_folds > 1) for key in result.statistics.classes):
                raise ValueError("the number of folds does not match the statistics")
        result.ledger = None if state.get("ledger") is None else RowLedger.of(state["ledger"])
        result.is_difference = bool(state.get("is_difference", False))
        result.feature_names = state["feature_names"]
        return result


def _restored_statistics(state: Mapping[str, Any]) -> ClassStatistics:
    if "folds" not in state:
        return serialization.from_state(state["statistics"], ClassStatistics)
    # Version 0.1 wrote one statistics object per fold.
    folds = [serialization.from_state(fold, ClassStatistics) for fold in state["folds"]]
    if len(folds) == 1:
        return folds[0]
    total = ClassStatistics(folds[0].n_features)
    for number, fold in enumerate(folds):
        total.merge(fold.regrouped({label: FoldLabel(label, number) for label in fold.classes}))
    return total


def _partition_message(tree: Mapping[str, Any]) -> FoldedStatistics:
    """Read the statistics of a partition written by version 0.1, which did not store the feature map."""
    names, statistics = tree["feature_names"], tree["statistics"]
    message = FoldedStatistics.from_state(
        {
            **statistics,
            "n_features": statistics["statistics"]["n_features"],
            "feature_names": None if names is None else np.array(names, dtype=object),
            "ledger": tree["ledger"],
        }
    )
    if message.n_features != tree["n_features"]:
        message.omitted_map = OmittedMap(int(tree["n_features"]), None)
    return message


def _different_maps(source: str) -> DataError:
    return DataError(
        "the two learners have different feature maps; nothing was changed.", source=source, hint=_MAP_HINT
    )
