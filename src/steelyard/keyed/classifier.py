"""KeyedClassifier: one small exact model for each key, shrunk towards the model of all rows."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steelyard._concurrency import lock_of
from steelyard._labels import all_forgotten_error, restored_labels
from steelyard._threads import limit_blas
from steelyard._types import FloatArray, IntArray
from steelyard._validation import check_magnitude, check_started, validate_rows, validate_table
from steelyard.base import (
    Batch,
    ForgettingMixin,
    Label,
    MergingMixin,
    Traits,
    fitted_property,
    sorted_classes,
    synchronized,
    transactional,
)
from steelyard.exceptions import DataError, DataTypeError, ParameterError
from steelyard.explanation import RowExplanations
from steelyard.explanation.attribution import Attribution
from steelyard.keyed.planes import GroupSystem
from steelyard.keyed.sums import Key, KeyedRows, KeyedSums, Triangles
from steelyard.params import AnyOf, Instance, Integer, OneOf, Positive, parameter, parametrized
from steelyard.persistence import storable
from steelyard.proximal import ProximalSVC, Quantizer
from steelyard.proximal.serialization import triangle_size

_MAX_WEIGHT = 2.0**40  # larger weights are rejected, because a weight is a number of equal rows
_MAX_EXACT_KEY = 2**53  # largest integer up to which floats represent all integers


@storable("KeyedClassifier")
@parametrized()
class KeyedClassifier(ForgettingMixin, MergingMixin):
    r"""Classifier with one proximal SVM for each key, shrunk towards the model of all rows.

    Every key (such as a customer or a device) has exact integer statistics of its own. At prediction, its
    hyperplane is computed from these statistics and from the statistics of all keys, which are scaled to
    ``borrow`` rows per class. A key without rows has the hyperplane of :class:`~steelyard.ProximalSVC` on all
    rows. The hyperplane of a key with many more rows than ``borrow`` depends almost only on its own rows.

    Parameters
    ----------
    key : str or int, default=0
        Name or position of the column with the keys, which are text or numbers. All other columns are
        features.
    C : float, default=1.0
        Regularization parameter, as in :class:`~steelyard.ProximalSVC`.
    borrow : float or "auto", default="auto"
        Number of rows per class to which the statistics of all keys are scaled. "auto" keeps the sums of each
        key in two folds and selects the number, or the model of all rows, by the error on held-out rows of up
        to 2,000 keys. The number is selected again when the number of rows has doubled or halved. A change
        between "auto" and a number takes effect with the next :meth:`fit`.
    quantizer : Quantizer, optional
        Quantizer that determines the steps to which features are rounded. By default, the first 256 rows
        determine the steps, so that the largest deviation from the median is 4,096 to 8,192 steps. Values of
        more than 2**20 steps are clipped.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes that have rows now.
    keys_ : list
        Keys that have rows now, in arbitrary order.
    borrow_ : float
        The value of ``borrow`` in use. It is infinite if all keys use the model of all rows.
    group_ : ProximalSVC
        The model of all rows.
    quantizer_ : Quantizer
        The quantizer in use; preliminary until 256 rows are learned.
    n_features_in_ : int
        Number of columns, including the key.

    See Also
    --------
    steelyard.ProximalSVC : One model for all rows.
    steelyard.sql.StatisticsCube : Models of slices of a table.

    Notes
    -----
    A key takes ``4 * (d + 1) * (d + 2)`` bytes for each class and fold in which it has rows, with ``d``
    features. Weights must be whole numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from steelyard import KeyedClassifier
    >>> rng = np.random.default_rng(0)
    >>> customers = rng.integers(0, 20, 4000)
    >>> usual = rng.normal(size=20)[customers]
    >>> y = (rng.random(4000) < 0.1).astype(int)
    >>> rows = pd.DataFrame({"customer": customers, "amount": usual + y + 0.3 * rng.normal(size=4000)})
    >>> model = KeyedClassifier(key="customer").partial_fit(rows, y)
    >>> model.borrow_, len(model.keys_)
    (3.0, 20)
    >>> others = rows["customer"] != 7
    >>> without = KeyedClassifier(key="customer", quantizer=model.quantizer_).fit(rows[others], y[others])
    >>> model.forget_key(7).digest() == without.digest()
    True
    """

    _traits = Traits(
        exact=True,
        bounded_memory=False,
        exempt={"merge_equals_learning_together": "only learners with equal quantizers can be merged"},
    )
    _in_place = ("_state",)
    _texts = tuple[str, ...]()  # text keys of the current call; the key column of X contains their indices

    key: str | int = parameter(0, AnyOf(Integer(0), Instance(str, description="the name of a column")))
    _: KW_ONLY
    C: float = parameter(1.0, Positive())
    borrow: float | str = parameter("auto", AnyOf(Positive(), OneOf("auto")))
    quantizer: Quantizer | None = parameter(None, AnyOf(OneOf(None), Instance(Quantizer)))

    # -- learning and forgetting --------------------------------------------------------------------

    def _start(self, batch: Batch) -> None:
        width = batch.X.shape[1]
        self._place = self._key_column(width)
        if width < 2:
            raise DataError(
                "at least one column besides the key is required; got n_features = 1.",
                source="KeyedClassifier.fit",
            )
        if self.quantizer is not None and self.quantizer.n_features != width - 1:
            raise DataError(
                f"the quantizer has {self.quantizer.n_features} features; {width - 1} were expected.",
                source="KeyedClassifier.fit",
            )
        self._has_text_keys = bool(self._texts)
        self._state = KeyedSums(width - 1, 2 if self.borrow == "auto" else 1, self.quantizer)

    def _learn(self, batch: Batch) -> None:
        self._apply(batch, None, "partial_fit")

    def _apply(self, add: Batch | None, forget: Batch | None, method: str) -> None:
        source = f"KeyedClassifier.{method}"
        added, forgotten = (
            None if batch is None else self._keyed_rows(batch, method) for batch in (add, forget)
        )
        if added is not None and forgotten is not None:
            self._state = deepcopy(self._state)  # both changes become visible together or not at all
        if added is not None:
            self._state.add(added, source)
        if forgotten is not None:
            self._state.remove(forgotten, source)
        self._texts = ()
        self._select_borrow()

    @transactional
    def forget_key(self, key: Key) -> Self:
        """Forget all rows of a key.

        Afterwards the :meth:`digest` equals that of a model with the same quantizer that never learned the
        key.

        Parameters
        ----------
        key : str, int or float
            The key.

        Returns
        -------
        self

        Raises
        ------
        DataError
            If the key has no rows. Nothing changes.
        """
        check_started(self, "forget_key")
        self._state.remove_key(_plain_key(key), "KeyedClassifier.forget_key")
        self._select_borrow()
        return self

    @transactional
    def merge(self, other: Self) -> Self:
        """Add all rows that another learner has learned. The other learner does not change.

        Parameters
        ----------
        other : KeyedClassifier
            A learner with the same columns and the same :attr:`quantizer_`.

        Returns
        -------
        self
        """
        self._check_params()
        if not isinstance(other, KeyedClassifier):
            raise DataTypeError(
                f"expected a KeyedClassifier; got {type(other).__name__}.", source="KeyedClassifier.merge"
            )
        check_started(other, "merge")
        if not self._is_started():
            self._set_features(other._features())
            self._has_text_keys, self._place = other._has_text_keys, self._key_column(self.n_features_in_)
            self._state = KeyedSums(other._state.n_features, other._state.n_folds, self.quantizer)
        self._check_same_features(other, "merge")
        self._check_key_type("merge", is_text=other._has_text_keys)
        self._state.merge(other._state, "KeyedClassifier.merge")
        self._select_borrow()
        return self

    # -- conversion of keys ------------------------------------------------------------------------------

    def _encode_table(self, X: Any, source: str, *, reset: bool, learn: bool) -> Any:
        """Return a table with text keys as numbers; the keys become their indices in ``_texts``."""
        table, texts = self._split_texts(X, source, len(self._texts))
        if table is X:
            return None
        self._texts = (*self._texts, *texts)
        return validate_table(self, table, source.rpartition(".")[2], reset=reset, learn=learn)

    def _split_texts(self, X: Any, source: str, begin: int = 0) -> tuple[Any, list[str]]:
        """Replace text keys by consecutive integers starting at ``begin``; return X and the text keys."""
        if hasattr(X, "to_pandas"):
            X = X.to_pandas()
        if not hasattr(X, "iloc") or not isinstance(self.key, str):
            return X, []
        if self.key not in X.columns:
            raise DataError(
                f"the table has no column {self.key!r}; it has {', '.join(map(str, X.columns[:10]))}.",
                source=source,
                hint="set key= to the column that names the customer, device or other key",
            )
        column = X[self.key]
        if column.isna().any():
            raise DataError(
                f"the key column {self.key!r} has missing values; nothing was changed.",
                source=source,
                hint="drop rows without a key, or give them a key of their own",
            )
        if column.dtype.kind in "iuf" and not (np.abs(column.to_numpy()) >= _MAX_EXACT_KEY).any():
            return X, []
        return X.assign(**{self.key: np.arange(begin, begin + len(X), dtype=np.float64)}), [
            str(key) for key in column.tolist()
        ]

    def _key_column(self, width: int) -> int:
        """Return the index of the key column."""
        if isinstance(self.key, str):
            names = self.__dict__.get("feature_names_in_")
            if names is None:
                raise DataTypeError(
                    f"key={self.key!r} is the name of a column, but X has no column names.",
                    source="KeyedClassifier",
                    hint="pass a table, or the position of the key column: key=0",
                )
            return names.tolist().index(self.key)
        if self.key >= width:
            raise DataError(
                f"key={self.key} is not a column of X, which has n_features = {width}.",
                source="KeyedClassifier",
            )
        return int(self.key)

    def _separated(self, X: FloatArray, texts: tuple[str, ...] | list[str]) -> tuple[FloatArray, list[Key]]:
        """Return the features and the keys of validated rows."""
        column = X[:, self._place]
        features = np.ascontiguousarray(np.delete(X, self._place, axis=1), dtype=np.float64)
        if texts:
            return features, [texts[int(position)] for position in column.tolist()]
        whole = np.floor(column) == column
        if whole.all() and (np.abs(column) < _MAX_EXACT_KEY).all():
            return features, column.astype(np.int64).tolist()
        return features, [_plain_key(key) for key in column.tolist()]

    def _keyed_rows(self, batch: Batch, method: str) -> KeyedRows:
        source = f"KeyedClassifier.{method}"
        self._check_key_type(method, is_text=bool(self._texts))
        features, keys = self._separated(batch.X, self._texts)
        check_magnitude(features, source)
        weights = np.ones(len(keys)) if batch.weights is None else batch.weights
        if (weights != np.floor(weights)).any() or (weights > _MAX_WEIGHT).any():
            raise DataError(
                "sample_weight must be whole numbers; nothing was changed.",
                source=source,
                hint="multiply all weights by a common factor and round them",
            )
        labels = [batch.labels[code] for code in batch.codes.tolist()]
        return KeyedRows(features, keys, labels, weights.astype(np.int64))

    def _check_key_type(self, method: str, *, is_text: bool) -> None:
        if is_text != self._has_text_keys:
            kinds = ("numbers", "text")
            raise DataTypeError(
                f"the keys learned so far are {kinds[self._has_text_keys]}, and these are {kinds[is_text]}; "
                "nothing was changed.",
                source=f"KeyedClassifier.{method}",
                hint="convert the key column to one type",
            )

    # -- fitted attributes --------------------------------------------------------------------------

    @fitted_property
    def classes_(self) -> NDArray[Any]:
        with lock_of(self):
            return sorted_classes(self._state.frozen().classes())

    @fitted_property
    def keys_(self) -> list[Key]:
        with lock_of(self):
            return self._state.keys

    @fitted_property
    def quantizer_(self) -> Quantizer:
        with lock_of(self):
            quantizer = self._state.frozen().quantizer
        assert quantizer is not None
        return quantizer

    @fitted_property
    def group_(self) -> ProximalSVC:
        with lock_of(self):
            statistics = self._state.frozen().group_statistics
            return self._state.cached("group", self.C, lambda: ProximalSVC(C=self.C).merge(statistics()))

    @fitted_property
    def borrow_(self) -> float:
        with lock_of(self):
            return self._borrowed()

    @fitted_property
    def nbytes_(self) -> int:
        """Memory of all sums in bytes."""
        return self._state.nbytes

    @synchronized
    def digest(self) -> str:
        """Return a hash of the exact sums of all keys. Equal rounded rows give equal digests.

        After :meth:`forget` and :meth:`forget_key` the digest equals that of a learner with the same
        quantizer that never learned the forgotten rows.

        Returns
        -------
        str
            32 hexadecimal digits.
        """
        check_started(self, "digest")
        return self._state.frozen().digest()

    def _system(self) -> GroupSystem:
        sums = self._state.frozen()
        return self._state.cached("system", self.C, lambda: GroupSystem.of(sums, sums.classes(), self.C))

    def _borrowed(self) -> float:
        """Return the value of ``borrow`` in use."""
        if self.borrow != "auto":
            return float(self.borrow)
        sums = self._state.frozen()
        if sums.n_folds == 1 or len(sums.classes()) < 2:
            return float("inf")
        self._select_borrow()
        if self._state.selected is not None:
            return self._state.selected[0]
        return self._state.cached("borrow", self.C, lambda: self._system().select_borrow())

    def _select_borrow(self) -> None:
        """Select the value of ``borrow`` again if the number of rows has doubled or halved.

        Every call that learns or forgets rows calls this method, so the value does not depend on predictions.
        """
        state = self._state
        if self.borrow != "auto" or state.quantizer is None or state.n_folds == 1:
            return
        n_rows = float(state.n_rows)
        if state.selected is not None and 0.5 * state.selected[1] < n_rows < 2.0 * state.selected[1]:
            return
        is_possible = len(state.classes()) > 1
        state.selected = (self._system().select_borrow(), n_rows) if is_possible else None

    # -- prediction ---------------------------------------------------------------------------------

    decision_function = synchronized(ForgettingMixin.decision_function)

    @synchronized
    def predict_proba(self, X: ArrayLike, *, prior: str | Mapping[Label, float] = "observed") -> FloatArray:
        """Return class probabilities, calibrated by the model of all rows.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows with their keys.
        prior : {"observed", "balanced"} or mapping of label to float, default="observed"
            Assumed class frequencies: those of all rows, equal frequencies, or the given proportions.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores, _ = self._scored(X, "predict_proba")
        return self.group_._probabilities_of(scores, prior)

    def _scored(self, X: Any, method: str) -> tuple[FloatArray, NDArray[Any]]:
        check_started(self, method)
        self._check_params()
        with lock_of(self):
            X, texts = self._split_texts(X, f"KeyedClassifier.{method}")
            rows = validate_rows(self, X, method)
            self._check_key_type(method, is_text=bool(texts))
            features, keys = self._separated(rows, texts)
            return self._scores_of(features, self._state.frozen().numbers(keys), method)

    def _scores_of(
        self, features: FloatArray, numbers: IntArray, method: str
    ) -> tuple[FloatArray, NDArray[Any]]:
        """Return the scores of rows, whose keys are given by number, and the classes."""
        sums = self._state.frozen()
        classes = sums.classes()
        if not classes:
            raise all_forgotten_error(f"KeyedClassifier.{method}")
        if len(classes) == 1:
            return self.group_._scored(features, method)
        with limit_blas(sums.n_features):
            scores = self._system().scores(features, numbers, self._borrowed())
        return scores, sorted_classes(classes)

    # -- explanation --------------------------------------------------------------------------------

    @synchronized
    def explain(
        self, X: ArrayLike, *, background: ArrayLike | None = None, changes: bool | None = None
    ) -> RowExplanations:
        """Explain the predictions of rows by the contributions of the key and of each column to the score.

        The reference is the score of the model of all rows at the mean of all rows. The contribution of the
        key is the difference between the model of the key and the model of all rows at this mean. The
        contribution of a column comes from the difference of its value from the mean. Reference and
        contributions add up to the score.

        Parameters
        ----------
        X : {array-like, table} of shape (n_samples, n_features)
            Rows to explain.
        background : array-like of shape (n_background, n_features), optional
            Rows whose mean replaces the mean of all rows.
        changes : bool, optional
            Must not be True: a search for changes that lead to another prediction is not available.

        Returns
        -------
        RowExplanations
            Contributions, base, score, and the values of the rows with their keys.
        """
        if changes:
            raise ParameterError(
                "changes=True is not available for models per key.",
                source="KeyedClassifier.explain",
                hint="omit changes=True, or explain group_, the model of all rows",
            )
        found = super().explain(X, background=background, changes=False)
        rows, texts = self._split_texts(X, "KeyedClassifier.explain")
        values = found.values.astype(object)
        values[:, self._place] = texts or super()._explained_rows(rows)[:, self._place]
        return replace(found, values=values)

    def _explained_rows(self, X: Any) -> FloatArray:
        """Return validated rows with each key replaced by its internal number."""
        X, texts = self._split_texts(X, "KeyedClassifier.explain")
        rows = super()._explained_rows(X).copy()
        self._check_key_type("explain", is_text=bool(texts))
        rows[:, self._place] = self._state.frozen().numbers(self._separated(rows, texts)[1])
        return rows

    def _explained_scores(self, X: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
        """Return the scores of rows returned by :meth:`_explained_rows`, and the classes."""
        numbers = X[:, self._place].astype(np.intp)
        return self._scores_of(np.delete(X, self._place, axis=1), numbers, "explain")

    def _attribution(self, X: FloatArray, background: FloatArray | None) -> Attribution:
        features, place = np.delete(X, self._place, axis=1), self._place
        if background is None:
            mean = self.group_.statistics_.mean_offset()[0]
        else:
            mean = np.delete(background, place, axis=1).mean(axis=0)
        at_mean = np.tile(mean, (len(X) + 1, 1))
        numbers = np.append(X[:, place], 0.0).astype(np.intp)
        reference = self._scores_of(at_mean, numbers, "explain")[0]
        contributions = np.empty((*X.shape, reference.shape[1]))
        contributions[:, place] = reference[:-1] - reference[-1]
        for column in range(features.shape[1]):
            moved = at_mean[:-1].copy()
            moved[:, column] = features[:, column]
            change = self._scores_of(moved, numbers[:-1], "explain")[0] - reference[:-1]
            contributions[:, column + (column >= place)] = change
        return Attribution(contributions, reference[-1])

    # -- saving and loading -------------------------------------------------------------------------

    def _get_state(self) -> dict[str, Any]:
        if not self._is_started():
            return {}
        sums, early = self._state, self._state.early
        keys, labels, places, columns, triangles = sums.triangles()
        return {
            **self._features(),
            "n_folds": sums.n_folds,
            "quantizer": sums.quantizer,
            "text_keys": self._has_text_keys,
            "keys": _packed(keys),
            "labels": list(labels),
            "places": places.astype(np.int64),
            "columns": columns.astype(np.int64),
            "sums": triangles,
            "early": {**vars(early), "keys": _packed(early.keys)} if sums.quantizer is None else None,
            "selected": sums.selected,
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self._set_features(state)
        self._has_text_keys = bool(state["text_keys"])
        n_features, n_folds = self.n_features_in_ - 1, int(state["n_folds"])
        quantizer = state["quantizer"]
        if n_features < 1 or n_folds not in {1, 2} or not isinstance(quantizer, Quantizer | None):
            raise ValueError("the numbers of features and folds, or the quantizer, are invalid")
        if quantizer is not None and quantizer.n_features != n_features:
            raise ValueError("the quantizer has another number of features")
        self._place = self._key_column(self.n_features_in_)
        keys, labels = _unpacked(state["keys"]), restored_labels(state["labels"])
        places, columns = (np.asarray(state[name], dtype=np.int64) for name in ("places", "columns"))
        triangles = np.array(state["sums"], dtype=np.int64)
        pairs = set(zip(places.tolist(), columns.tolist(), strict=True))
        valid = triangles.shape == (len(places), triangle_size(n_features))
        valid &= len(pairs) == len(places) and len(set(keys)) == len(keys)
        valid &= all(0 <= place < len(keys) and 0 <= c < len(labels) * n_folds for place, c in pairs)
        if not valid:
            raise ValueError("the sums do not match the keys and classes")
        sums = KeyedSums(n_features, n_folds, quantizer)
        sums.add_triangles(Triangles(keys, labels, places, columns, triangles), "KeyedClassifier")
        if quantizer is None:
            if state["early"] is None:
                raise ValueError("the state has neither buffered first rows nor a quantizer")
            sums.early = _restored_rows(state["early"], n_features)
        self._state, selected = sums, state["selected"]
        sums.selected = None if selected is None else (float(selected[0]), float(selected[1]))


def _plain_key(key: Any) -> Key:
    """Return a key as text or number. Equal numbers of different types become the same key."""
    value = key.item() if isinstance(key, np.generic) else key
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value


def _packed(keys: list[Key]) -> Any:
    """Return keys as arrays for files."""
    if keys and isinstance(keys[0], str):
        encoded = [key.encode("utf-8", "surrogatepass") for key in keys]
        data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return {"bytes": data, "lengths": np.array([len(key) for key in encoded], dtype=np.int64)}
    return np.array(keys, dtype=np.float64)


def _unpacked(packed: Any) -> list[Key]:
    if not isinstance(packed, dict):
        values = np.asarray(packed, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("keys must be finite")
        return [_plain_key(value) for value in values.tolist()]
    data, lengths = bytes(np.asarray(packed["bytes"], dtype=np.uint8)), packed["lengths"]
    ends = np.cumsum(lengths)
    if (np.asarray(lengths) < 0).any() or (len(ends) and ends[-1] != len(data)):
        raise ValueError("the arrays of keys have different lengths")
    return [
        data[end - length : end].decode("utf-8", "surrogatepass")
        for end, length in zip(ends.tolist(), np.asarray(lengths).tolist(), strict=True)
    ]


def _restored_rows(state: dict[str, Any], n_features: int) -> KeyedRows:
    keys, labels = _unpacked(state["keys"]), restored_labels(state["labels"])
    X, weights = np.array(state["X"], dtype=np.float64), np.array(state["weights"], dtype=np.int64)
    if X.shape != (len(keys), n_features) or not len(keys) == len(labels) == len(weights):
        raise ValueError("the first rows do not match their keys")
    if not np.isfinite(X).all() or (weights < 0).any():
        raise ValueError("the buffered first rows must be finite")
    return KeyedRows(X, keys, labels, weights)
