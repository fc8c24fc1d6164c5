"""What ProximalSVC keeps of its rows, and sends: statistics by folds, of rows as they are or mapped."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from steelyard.base import Batch, Label, check_same_features
from steelyard.exceptions import DataError, DataTypeError, FileFormatError
from steelyard.features import RandomFeatures
from steelyard.persistence.tree import decode, encode
from steelyard.proximal.state import messages
from steelyard.proximal.state.batches import BLOCK_ROWS, FoldLabel, fold_numbers
from steelyard.proximal.state.gathering import Gathered
from steelyard.proximal.state.part import Part
from steelyard.proximal.state.quantizer import Quantizer
from steelyard.proximal.state.removal import never_learned
from steelyard.proximal.state.row_ledger import RowLedger
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["FoldedStatistics", "LeftMap"]

_MOST_FOLDS = 100  # that a file may speak of; whatever is asked of a model is done for each
_FEW_ROWS = 512  # that are sooner added to a total of folds than the folds to each other

_FORMAT = "steelyard folded statistics"
_VERSION = 1

T = TypeVar("T")


class LeftMap(NamedTuple):
    """A feature map that did not travel with the statistics: the width of its rows, its digest if known."""

    n_features: int
    digest: str | None


class FoldedStatistics:
    """Class statistics of rows that may pass through a feature map and fall into folds by their values.

    All folds share one grid and one state, so that whatever happens to it happens to all of them at once.

    It is also the one written form of statistics. What :meth:`steelyard.ProximalSVC.statistics` gives knows
    its features and ledger too; messages of one kind (folds, feature map) add up with ``+``, ``-`` takes rows
    out that are in, ``to_bytes`` and ``from_bytes`` carry them, and ``ProximalSVC.merge`` takes them in.

    Parameters
    ----------
    statistics : ClassStatistics
        Of all (mapped) rows; in several folds, classes are called by :class:`FoldLabel`.
    n_folds : int, default=1
        Number of folds.
    feature_map : RandomFeatures, optional
        A settled map that every row passes through first.
    feature_names : ndarray, optional
        Names of the features of the rows; a message has them where the learner does.
    ledger : RowLedger, optional
        Which rows these are; a message has it where the learner keeps one.
    left_map : LeftMap, optional
        The map that the rows passed through, where it is not here.

    Examples
    --------
    >>> from steelyard import ProximalSVC
    >>> from steelyard.proximal import FoldedStatistics
    >>> here = ProximalSVC().fit([[1.0, 2.0], [3.0, 4.0]], ["ok", "fraud"])
    >>> there = ProximalSVC(quantizer=here.quantizer_).fit([[5.0, 6.0]], ["ok"])
    >>> arrived = FoldedStatistics.from_bytes(there.statistics().to_bytes())
    >>> total = here.statistics() + arrived
    >>> ProximalSVC().merge(total).classes_.tolist(), (total - arrived).digest() == here.digest()
    (['fraud', 'ok'], True)
    """

    def __init__(
        self,
        statistics: ClassStatistics,
        n_folds: int = 1,
        feature_map: RandomFeatures | None = None,
        *,
        feature_names: Any = None,
        ledger: RowLedger | None = None,
        left_map: LeftMap | None = None,
    ) -> None:
        self.statistics = statistics
        self.n_folds = n_folds
        self.feature_map = feature_map
        self.feature_names = feature_names
        self.ledger = ledger
        self.left_map = left_map
        self.is_plain = feature_map is None and n_folds == 1  # rows go into a single fold as they are
        self.gathered: Gathered | None = (
            None  # rows that wait for a map; those of a GatheringStatistics alone
        )
        self.choice: Any = None  # of C, as long as rows only come: what is made of these statistics has none
        self.rows_in_turn: Any = None  # the short way of single rows, as long as nothing else comes
        self.asked_at: Any = None  # the version at which a single row was last answered in the long way
        self._derived: dict[str, tuple[Any, Any]] = {}
        self._kept: dict[str, tuple[Any, Any]] = {}

    @classmethod
    def start(
        cls,
        n_features: int,
        n_folds: int,
        feature_map: RandomFeatures | None = None,
        quantizer: Quantizer | None = None,
    ) -> Self:
        """Folds without any rows; the values of a map have a grid of their own."""
        width = n_features if feature_map is None else feature_map.n_components
        if feature_map is not None and quantizer is None:
            quantizer = Quantizer.uniform(width, feature_map.quantum, rounds=False)
        return cls(ClassStatistics(width, quantizer=quantizer), n_folds, feature_map)

    def empty(self) -> FoldedStatistics:
        """The same folds and map without any rows."""
        return self._with(self.statistics.empty())

    def started_on(self, quantizer: Quantizer) -> FoldedStatistics:
        """The same folds and map without any rows, on a grid that is given."""
        return self._with(ClassStatistics(self.statistics.n_features, quantizer=quantizer))

    def copy(self) -> FoldedStatistics:
        """An independent copy, which costs little: whatever does not change is shared."""
        return self._with(self.statistics.copy())

    def _with(self, statistics: ClassStatistics) -> FoldedStatistics:
        return FoldedStatistics(statistics, self.n_folds, self.feature_map, left_map=self.left_map)

    @property
    def n_features(self) -> int:
        """Number of features of the rows, before any map."""
        if self.left_map is not None:
            return self.left_map.n_features
        return (
            self.statistics.n_features if self.feature_map is None else int(self.feature_map.n_features_in_)
        )

    @property
    def is_mapped(self) -> bool:
        """Whether the rows passed through a map, here or elsewhere."""
        return self.feature_map is not None or self.left_map is not None

    @property
    def features(self) -> dict[str, Any]:
        """Number and names of the features of the rows."""
        return {"n_features": self.n_features, "feature_names": self.feature_names}

    @property
    def kind(self) -> tuple[int, str | None]:
        """What must be equal in messages that add up: the number of folds, and the digest of the map."""
        if self.left_map is not None:
            return self.n_folds, self.left_map.digest
        return self.n_folds, None if self.feature_map is None else self.feature_map.digest()

    @property
    def version(self) -> tuple[int, ...]:
        """Tells apart what has been changed in place."""
        return id(self.statistics), self.statistics.version

    # -- rows ---------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Take in rows that were checked before, all or none."""
        if self.is_plain:  # a stream of single rows pays for every call
            self.statistics.add_batch(batch)
            return
        statistics = self.statistics.copy() if self._takes_parts(batch) else self.statistics
        total = None
        for part in self._parts(batch):
            if batch.X.shape[0] <= _FEW_ROWS:  # in a single part
                total = self._total_with(batch, part)
            statistics.add_batch(part)
        self.statistics = statistics
        if total is not None:
            self._derived["total"] = (self.version, None), total

    def _total_with(self, batch: Batch, part: Batch) -> ClassStatistics | None:
        """The total after these rows, where the one before them is remembered."""
        kept = self._derived.pop("total", None)
        if kept is None or kept[0] != (self.version, None) or not self.statistics.is_settled:
            return None
        total: ClassStatistics = kept[1].copy()
        del kept  # unless someone else holds the one before, its sums need no copy
        total.add_batch(Batch(part.X, batch.labels, part.codes // self.n_folds, part.weights))
        return total

    def remove(self, batch: Batch, source: str) -> None:
        """Take out rows that were added before, all or none."""
        statistics = self.statistics.copy() if self._takes_parts(batch) else self.statistics
        for part in self._parts(batch):
            statistics.remove_batch(part, source)
        self.statistics = statistics

    def _takes_parts(self, batch: Batch) -> bool:
        return self.feature_map is not None and batch.X.shape[0] > BLOCK_ROWS

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch as statistics take it: labelled by fold, and mapped some rows at a time."""
        labels, codes = batch.labels, batch.codes
        if self.n_folds > 1:
            labels = [FoldLabel(label, fold) for label in labels for fold in range(self.n_folds)]
            codes = codes * self.n_folds + fold_numbers(batch.X, self.n_folds).astype(np.int32)
        if self.feature_map is None:
            yield Batch(batch.X, labels, codes, batch.weights)
            return
        for begin in range(0, batch.X.shape[0], BLOCK_ROWS):
            part = slice(begin, begin + BLOCK_ROWS)
            weights = None if batch.weights is None else batch.weights[part]
            yield Batch(self.feature_map.map_rows(batch.X[part]), labels, codes[part], weights)

    # -- whole statistics ---------------------------------------------------------------------------

    @property
    def total(self) -> ClassStatistics:
        """The statistics of all rows."""
        if self.n_folds == 1:
            return self.statistics
        return self.derived("total", None, self._merged_folds, nullcontext())

    def _merged_folds(self) -> ClassStatistics:
        return self.statistics.regrouped({key: key.label for key in self.statistics.classes})

    @property
    def folds(self) -> list[ClassStatistics]:
        """The statistics of each fold."""
        if self.n_folds == 1:
            return [self.statistics]
        return [self.statistics.regrouped(self._labels_in({fold})) for fold in range(self.n_folds)]

    def part(self, folds: Container[int]) -> Part:
        """The rows of some folds together, to be looked at."""
        return Part(self.statistics, self._labels_in(folds))

    def _labels_in(self, folds: Container[int]) -> dict[Label, Label]:
        """What classes of statistics in several folds are, of those in some folds."""
        return {key: key.label for key in self.statistics.classes if key.fold in folds}

    def derived(self, name: str, key: Any, make: Callable[[], T], lock: AbstractContextManager[Any]) -> T:
        """What ``make`` derives from the statistics and ``key``, remembered until one of them changes.

        Whoever asks for something that is remembered does not wait for the lock, under which rows come in.
        """
        full_key = (self.version, key)
        kept = self._derived.get(name)
        if kept is None or kept[0] != full_key:
            with lock:
                kept = (self.version, key), make()
                self._derived[name] = kept
        value: T = kept[1]
        return value

    def kept_while(self, name: str, key: Any, make: Callable[[Any], T]) -> T:
        """What ``make`` makes of ``key``, remembered as long as the key stays the same."""
        kept = self._kept.get(name)
        if kept is None or kept[0] != key:
            kept = self._kept[name] = key, make(key)
        value: T = kept[1]
        return value

    def __getstate__(self) -> dict[str, Any]:
        # Remembered answers are no part of a copy.
        return self.__dict__ | {"rows_in_turn": None, "asked_at": None, "_derived": {}, "_kept": {}}

    def digest(self) -> str:
        """A name for the sums of all rows and the map: equal ones give equal names, whatever the folds."""
        total, (_, map_digest) = self.total.digest(), self.kind
        if map_digest is None:
            return total
        name = blake2b(total.encode(), digest_size=16)
        name.update(map_digest.encode())
        return name.hexdigest()

    def merged(self, other: FoldedStatistics) -> FoldedStatistics:
        """What both hold together; rows that wait for a map take that of the other side."""
        if other.gathered is None and self.gathered is None:
            return self._with(self.statistics + other.statistics)
        result, rows = (self, other.gathered) if other.gathered is not None else (other, self.gathered)
        assert rows is not None
        result = result.copy()
        if len(rows):
            result.add(rows.batch())
        return result

    def unmerged(self, other: FoldedStatistics, source: str) -> FoldedStatistics:
        """What is left without the rows of the other; refuses rows that were never here."""
        if other.gathered is not None:
            result = self.copy()
            result.remove(other.gathered.batch(), source)
            return result
        if self.gathered is not None:
            raise never_learned(source, other.total.classes[0] if other.total.classes else None)
        return self._with(self.statistics.copy().subtract(other.statistics, source))

    def grown(self, n_features: int) -> FoldedStatistics:
        """The same with more features at the end, zero in all rows so far."""
        if self.feature_map is not None:
            raise DataError(
                "a feature map has settled the width of the rows, so it cannot grow.",
                source="ProximalSVC.grow",
                hint="give new categories places among the features before the map, such as hashed ones",
            )
        return self._with(self.statistics.copy().grow(n_features))

    def permute_features(self, places: Sequence[int], n_features: int) -> FoldedStatistics:
        """The same with features at other places."""
        if self.feature_map is not None:
            raise DataError(
                "features behind a feature map cannot be moved.", source="ProximalSVC.permute_features"
            )
        return self._with(self.statistics.permute_features(places, n_features))

    def faded(self, factor: float, drop_below: float) -> FoldedStatistics:
        """All weights multiplied, without the classes that then weigh too little."""
        result = self._with(self.statistics.copy().scale(factor))
        total = result.total
        for label in [label for label in total.classes if total.count(label) < drop_below]:
            for fold in range(self.n_folds):
                result.statistics.forget_class(label if self.n_folds == 1 else FoldLabel(label, fold))
        return result

    def check_same_kind(self, other: FoldedStatistics) -> None:
        """Refuse to bring together what passed through different maps, or was sorted differently."""
        mine, theirs = self.feature_map, other.feature_map
        if self.left_map is not None or other.left_map is not None:
            same = self.kind[1] == other.kind[1]
        elif self.gathered is not None or other.gathered is not None:
            # One map is still to be settled: it is enough that both are to be made alike.
            same = mine is not None and theirs is not None and mine.get_params() == theirs.get_params()
        else:
            same = theirs is None if mine is None else mine.same_map(theirs)
        if not same:
            raise _different_maps()
        if self.n_folds != other.n_folds:
            raise _different_folds()

    def check_has_folds(self) -> None:
        """Refuse to serve a learner that chooses C by folds, where there are none."""
        if self.n_folds == 1:
            raise _different_folds()

    # -- messages -----------------------------------------------------------------------------------

    def signed(self, feature_names: Any, ledger: RowLedger | None) -> FoldedStatistics:
        """A copy that says what its learner knows of the rows beside their sums."""
        result = self.copy()
        result.feature_names, result.ledger = feature_names, ledger
        return result

    def without_map(self) -> FoldedStatistics:
        """The same for a place that has the map, or can make it: maps are often larger than the sums."""
        if self.feature_map is None:
            return self
        left = LeftMap(self.n_features, self.feature_map.digest())
        return FoldedStatistics(
            self.statistics,
            self.n_folds,
            feature_names=self.feature_names,
            ledger=self.ledger,
            left_map=left,
        )

    def with_map(self, feature_map: RandomFeatures | None) -> FoldedStatistics:
        """The same with the map that did not travel with it; any other map is refused."""
        if self.left_map is None:
            return self
        if feature_map is None or self.left_map.digest not in {None, feature_map.digest()}:
            raise _different_maps()
        return FoldedStatistics(
            self.statistics,
            self.n_folds,
            feature_map,
            feature_names=self.feature_names,
            ledger=self.ledger,
        )

    def __add__(self, other: FoldedStatistics) -> FoldedStatistics:
        """What both hold together; each stays as it is."""
        names = self._check_addable(other)
        ledger = self.ledger and other.ledger and self.ledger.merged(other.ledger)
        return self.merged(other).signed(names, ledger)

    def __sub__(self, other: FoldedStatistics) -> FoldedStatistics:
        """What is left without the rows of the other; refuses rows that are not in."""
        names, source = self._check_addable(other), "FoldedStatistics"
        ledger = self.ledger and other.ledger and self.ledger.unmerged(other.ledger, source)
        return self.unmerged(other, source).signed(names, ledger)

    def _check_addable(self, other: FoldedStatistics) -> Any:
        """Refuse what does not fit; the names of the features, where one side knows them."""
        if not isinstance(other, FoldedStatistics):
            raise DataTypeError(
                f"expected other FoldedStatistics; got {type(other).__name__}.", source="FoldedStatistics"
            )
        check_same_features(self.features, other.features, "FoldedStatistics")
        try:
            self.check_same_kind(other)
        except DataError as error:
            raise error.with_source("FoldedStatistics") from error
        return other.feature_names if self.feature_names is None else self.feature_names

    def to_bytes(self) -> bytes:
        """A compact message: one triangle for each class and fold, a version and a checksum."""
        return encode(
            {"format": _FORMAT, "version": _VERSION, **messages.maps_as(messages.packed, self.get_state())}
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> FoldedStatistics:
        """The statistics that :meth:`to_bytes` wrote, also bare class statistics; all else is refused."""
        source = "FoldedStatistics.from_bytes"
        tree = decode(data)
        if isinstance(tree, Mapping) and tree.get("format") == _FORMAT:
            return messages.opened(
                tree,
                (_VERSION,),
                lambda state: cls.from_state(messages.maps_as(messages.unpacked, state)),
                source,
            )
        if isinstance(tree, Mapping) and "format" in tree:
            return FoldedStatistics(ClassStatistics.from_bytes(data))
        if isinstance(tree, Mapping) and isinstance(tree.get("statistics"), Mapping):
            return messages.opened({**tree, "version": 0}, (0,), _earlier_message, source)
        raise FileFormatError("these bytes are not statistics.", source=source)

    def get_state(self) -> dict[str, Any]:
        """Everything, as arrays and plain values: what messages and the files of models have in common."""
        return {
            **self.features,
            "map": self.feature_map,
            "left_map": None if self.left_map is None else self.left_map.digest,
            "n_folds": self.n_folds,
            "statistics": messages.get_state(self.statistics),
            "ledger": None if self.ledger is None else self.ledger.to_array(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FoldedStatistics:
        """What such values describe; ValueError if they make no sense."""
        ledger = None if state.get("ledger") is None else RowLedger.of(state["ledger"])
        held = cls._sums_of(state, int(state["n_features"]))
        held.feature_names, held.ledger = state["feature_names"], ledger
        return held

    @classmethod
    def _sums_of(cls, state: Mapping[str, Any], n_features: int) -> Self:
        n_folds = len(state["folds"]) if "folds" in state else int(state["n_folds"])
        if not 1 <= n_folds <= _MOST_FOLDS:
            raise ValueError(f"there are 1 to {_MOST_FOLDS} folds")
        if state.get("gathered") is not None:
            gathered = Gathered.from_state(state["gathered"])
            if gathered.X.shape[1] != n_features:
                raise ValueError("the gathered rows do not have the width of the features")
            from steelyard.proximal.state.waiting import GatheringStatistics  # which is made of this

            return GatheringStatistics.of(gathered, n_folds)  # type: ignore[return-value]
        if "folds" in state:  # written by an earlier version
            statistics = _joined(state["folds"])
        else:
            statistics = messages.from_state(state["statistics"], ClassStatistics)
        left = None if state.get("left_map") is None else LeftMap(n_features, str(state["left_map"]))
        width = n_features if state["map"] is None else state["map"].n_components
        if left is None and statistics.n_features != width:
            raise ValueError("the statistics do not have the width of the features")
        if any(isinstance(key, FoldLabel) != (n_folds > 1) for key in statistics.classes):
            raise ValueError("the statistics are not in so many folds")
        return cls(statistics, n_folds, state["map"], left_map=left)


def _joined(states: Sequence[Mapping[str, Any]]) -> ClassStatistics:
    """Folds that an earlier version kept apart, in one."""
    folds = [messages.from_state(fold, ClassStatistics) for fold in states]
    if len(folds) == 1:
        return folds[0]
    total = ClassStatistics(folds[0].n_features)
    for number, fold in enumerate(folds):
        total.merge(fold.regrouped({label: FoldLabel(label, number) for label in fold.classes}))
    return total


def _earlier_message(tree: Mapping[str, Any]) -> FoldedStatistics:
    """The message of a partition as earlier versions wrote it, which said nothing of the map."""
    names, statistics = tree["feature_names"], tree["statistics"]
    held = FoldedStatistics.from_state(
        {
            **statistics,
            "n_features": statistics["statistics"]["n_features"],
            "feature_names": None if names is None else np.array(names, dtype=object),
            "ledger": tree["ledger"],
        }
    )
    if held.n_features != tree["n_features"]:
        held.left_map = LeftMap(int(tree["n_features"]), None)
    return held


def _different_maps() -> DataError:
    return DataError(
        "the two learners have different feature maps; nothing was changed.",
        source="ProximalSVC.merge",
        hint="settle one map first, RandomFeatures(...).fit(X), and give it to all learners",
    )


def _different_folds() -> DataError:
    return DataError(
        'one learner keeps fold statistics (C="auto") and the other does not.',
        source="ProximalSVC.merge",
        hint='start both with C="auto" or both with a number',
    )
