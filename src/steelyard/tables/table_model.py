"""Classifier for tables: an estimator together with the encoder of its columns."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import column_or_1d

from steelyard._concurrency import snapshot_read, state_without_lock, transactional
from steelyard._deprecation import renamed_method, renamed_parameters
from steelyard._labels import numpy_labels
from steelyard.base import BatchLearner, estimator_has
from steelyard.exceptions import DataError, FileFormatError, NotFittedError, SteelyardError
from steelyard.explanation import RowExplanations
from steelyard.params import check_not_class
from steelyard.persistence import from_bytes, storable, to_bytes
from steelyard.proximal import Certificate, DriftReport, ProximalSVC, compare_statistics
from steelyard.streams.chunks import Chunk
from steelyard.streams.predictions import Predictions, is_ready, learn_chunk, predict_chunk, rows_for_model
from steelyard.tables import frames
from steelyard.tables.column_checks import warn_of_sentences
from steelyard.tables.columns import ColumnBatch, Place
from steelyard.tables.encoding import LabelReader, TableEncoder
from steelyard.tables.explanation import explain_encoded
from steelyard.tables.row_digest import RowDigest
from steelyard.tables.source import TableSource
from steelyard.tables.table_stream import TableStream, open_stream

_MAX_ROWS_PER_CHUNK = 1 << 20  # chunk size for tables in memory


@storable("TableModel", former_parameters={"learner": "estimator"})
@renamed_parameters(learner="estimator")
class TableModel(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Classifier for tables: an estimator, the encoder of its columns, and a history of its operations.

    All methods accept pandas, polars and pyarrow tables, lists of dictionaries and arrays, with text,
    categories, booleans, dates and missing values. Columns are matched by name. If a later table lacks a
    column, its values are missing. If a later table has a new column, estimators that can add features, such
    as ProximalSVC, learn it exactly as if it had been empty before. Other estimators learn only its
    categories, and only if the first table had categories.

    Parameters
    ----------
    estimator : Learner
        The inner classifier; it is trained in place, not copied.
    encoder : TableEncoder, optional
        Encoder of the columns; by default ``TableEncoder()``, which learns from missing values.
    target : str, default="label"
        The column of labels.
    time : str, optional
        The column with the time of each row.

    Attributes
    ----------
    history_ : list of dict
        Operations on this model, with the keys ``what`` (the operation), ``source``, ``rows`` (their number),
        ``when`` and, if it is known, ``id``: the digest of the rows
        (:class:`~steelyard.tables.row_digest.RowDigest`).

    Examples
    --------
    >>> import pandas as pd
    >>> from steelyard import ProximalSVC
    >>> from steelyard.tables import TableModel
    >>> frame = pd.DataFrame({"amount": [1.0, 9.0, 2.0, 8.0], "country": ["NZ", "AU", "NZ", "AU"]})
    >>> model = TableModel(ProximalSVC()).fit(frame, ["no", "yes", "no", "yes"])
    >>> model.predict(pd.DataFrame({"amount": [7.5], "country": ["a new one"]})).tolist()
    ['yes']
    """

    __getstate__ = state_without_lock

    def __init__(
        self,
        estimator: Any,
        encoder: TableEncoder | None = None,
        target: str = "label",
        time: str | None = None,
    ) -> None:
        self.estimator = estimator
        self.encoder = TableEncoder() if encoder is None else encoder
        self.target = target
        self.time = time

    @property
    def history(self) -> list[dict[str, Any]]:
        """Operations on this model, oldest first."""
        entries: list[dict[str, Any]] = self.__dict__.setdefault("history_", [])
        return entries

    def note(self, what: str, source: str, rows: int, rows_id: str | None = None) -> Self:
        """Add an entry to the history."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"what": what, "source": source, "rows": int(rows), "when": when}
        self.history.append(entry if rows_id is None else {**entry, "id": rows_id})
        return self

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return the history entries of row sets that were learned and not forgotten, by digest."""
        current: dict[str, dict[str, Any]] = {}
        for entry in self.history:
            if "id" not in entry:
                continue
            if entry["what"] == "forgot":
                current.pop(entry["id"], None)
            else:
                current[entry["id"]] = entry
        return current

    def unnamed(self) -> list[str]:
        """Return the sources whose rows have no digest, so overlaps with other models are not detected."""
        return [entry["source"] for entry in self.history if entry["rows"] and "id" not in entry]

    @property
    def feature_names(self) -> list[str]:
        """Names of the features of the estimator."""
        schema = self._schema()
        if schema is not None:
            return list(schema.names)
        can_grow = hasattr(self.estimator, "grow")
        return self.encoder.feature_names if can_grow else self.encoder.fixed_names

    def _schema(self) -> Any:
        """Return the schema of an estimator that reads tables itself, such as StreamClassifier, or None."""
        return getattr(self.estimator, "_schema", None)

    def open(self, source: Any, *, labelled: bool, chunk: int = 1000, **options: Any) -> TableStream:
        """Open a table as a stream with the columns of this model."""
        return open_stream(
            source,
            self.target if labelled else None,
            time=self.time if labelled else None,
            encoder=self.encoder,
            chunk=chunk,
            **options,
        )

    # -- scikit-learn interface for data frames ------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the learned classes."""
        return np.asarray(self.estimator.classes_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.encoder.missing != "refuse"
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return is_ready(self.estimator)

    @property
    def n_features_in_(self) -> int:
        """Number of columns of the table."""
        return len(self.feature_names_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns of the table."""
        if not self.encoder.is_fitted:
            raise AttributeError("TableModel has no feature_names_in_ before it has seen rows.")
        return np.array(self.encoder.columns_, dtype=object)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Return the names of the features of the estimator, such as ``country=NZ``.

        Parameters
        ----------
        input_features : None
            Ignored, as in scikit-learn.

        Returns
        -------
        ndarray of str
        """
        if not self.encoder.is_fitted:
            raise _not_fitted("get_feature_names_out")
        names = self.feature_names if self._schema() is None else self.encoder.feature_names
        return np.array(names, dtype=object)

    @snapshot_read
    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the features of the rows of a table, as they are passed to the estimator.

        After ``set_output(transform="pandas")`` or ``"polars"`` the result is a table with the names of
        :meth:`get_feature_names_out`. For an estimator that reads tables itself, such as StreamClassifier,
        the result is the growing encoding of :class:`TableEncoder`.

        Parameters
        ----------
        X : table, list of dict or array
            Rows with the learned columns; a row with an unknown category is 0 in all features of the column.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
        """
        parts = self._chunks_for_prediction(X, "transform")
        fixed = self._schema() is None and not hasattr(self.estimator, "grow")
        return np.concatenate([part.fixed if fixed and part.fixed is not None else part.X for part in parts])

    @transactional
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Discard the learned state and fit the model to a table.

        Parameters
        ----------
        X : table, list of dict or array
            Columns of numbers, text, booleans, dates and times.
        y : array-like of shape (n_rows,), optional
            Labels; by default the column ``target`` of the table.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row; 1 if not given.

        Returns
        -------
        self
        """
        fresh = clone(self)
        fresh._learn_table(X, y, sample_weight, "fit")
        self.estimator, self.encoder, self.history_ = fresh.estimator, fresh.encoder, fresh.history
        return self

    @transactional
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn the rows of a table; a failing call changes nothing.

        Parameters
        ----------
        X : table, list of dict or array
            Columns as before; new columns and categories are allowed.
        y, sample_weight : array-like of shape (n_rows,), optional
            As for :meth:`fit`.
        classes : array-like, optional
            All labels, for estimators that need them in the first call.

        Returns
        -------
        self
        """
        self._copy_state()
        self._learn_table(X, y, sample_weight, "partial_fit", classes)
        return self

    def _copy_state(self) -> None:
        """Copy the state that a call changes, so that the change is atomic."""
        self.estimator, self.encoder = deepcopy(self.estimator), self.encoder.copy()
        self.history_ = list(self.history)

    @snapshot_read
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of the rows of a table.

        Parameters
        ----------
        X : table, list of dict or array
            Rows with the learned columns; an unknown category is treated as missing.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        return np.asarray(self.estimator.predict(self._rows_for_prediction(X, "predict")))

    @estimator_has("decision_function")
    @snapshot_read
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the estimator for the rows of a table.

        Parameters
        ----------
        X : table, list of dict or array
            Rows with the learned columns.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        return np.asarray(self.estimator.decision_function(self._rows_for_prediction(X, "decision_function")))

    @estimator_has("predict_proba")
    @snapshot_read
    def predict_proba(self, X: Any, *, prior: Any = None) -> NDArray[np.float64]:
        """Return the class probabilities of the estimator for the rows of a table.

        Parameters
        ----------
        X : table, list of dict or array
            Rows with the learned columns.
        prior : {"observed", "balanced"} or mapping of label to float, optional
            Class frequencies to assume, for estimators with this option; by default the estimator's own.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        options = {} if prior is None else {"prior": prior}
        return np.asarray(
            self.estimator.predict_proba(self._rows_for_prediction(X, "predict_proba"), **options)
        )

    @snapshot_read
    def explain(self, X: Any = None, *, changes: bool | None = None) -> Any:
        """Explain the predictions for the rows of a table; without rows, describe the estimator.

        Parameters
        ----------
        X : table, list of dict or array, optional
            Rows with the learned columns.
        changes : bool, optional
            Whether to search for changes of numbers that lead to another prediction. By default the search
            takes place if there are at most 20 rows.

        Returns
        -------
        RowExplanations or object
            The columns are those of the table; the contributions of all categories of a column are summed.
            Without rows, the result of the estimator's ``explain()``.
        """
        if X is None:
            if not getattr(self.estimator, "describes_itself", False):
                raise DataError(
                    f"a model of class {type(self.estimator).__name__} can explain only rows; got no rows.",
                    source="TableModel.explain",
                    hint="pass a table: explain(X)",
                )
            return self.estimator.explain()
        return self.explain_chunk(self._chunks_for_prediction(X, "explain", keeps=True)[0], changes)

    def explain_chunk(self, chunk: Chunk, changes: bool | None = None) -> RowExplanations:
        """Explain the predictions for a chunk of :meth:`rows`, read with all columns in ``keep``."""
        rows = rows_for_model(self.estimator, chunk)
        if isinstance(rows, ColumnBatch):  # the estimator reads tables itself
            explained: RowExplanations = self.estimator.explain(rows, changes=changes)
            return explained
        is_fixed = not hasattr(self.estimator, "grow")
        return explain_encoded(self.estimator, self.encoder, rows, chunk.kept, changes, is_fixed=is_fixed)

    def _rows_for_prediction(self, X: Any, method: str) -> Any:
        """Return the rows of a table in the form that the estimator accepts. The encoder does not change."""
        parts = self._chunks_for_prediction(X, method)
        return frames.concat_tables([rows_for_model(self.estimator, part) for part in parts])

    def _chunks_for_prediction(self, X: Any, method: str, *, keeps: bool = False) -> list[Chunk]:
        """Return the rows of a table as chunks; with ``keeps``, chunks of files also contain the columns."""
        if not is_ready(self.estimator):
            raise _not_fitted(method)
        if _is_source(X):
            kept = self.encoder.columns_ if keeps else ()
            return list(self.rows(X, chunk=_MAX_ROWS_PER_CHUNK, labelled=False, keep=kept))
        return [self._memory_chunk(X, None, method, learn=False)]

    def _memory_chunk(self, X: Any, y: Any, method: str, *, learn: bool) -> Chunk:
        """Return a table in memory as one encoded chunk. If ``y`` is None, all labels are 0."""
        source, encoder = f"TableModel.{method}", self.encoder
        known = encoder.columns_ if encoder.is_fitted else ()
        try:
            X, times = self._without_time(X, source)
            batch = frames.memory_batch(X, source, known, extend=learn)
        except (TypeError, ValueError) as error:
            if isinstance(error, SteelyardError):
                raise
            raise DataError(f"{error}", source=source) from error
        if learn or not known:
            self._add_columns(batch)
        batch = encoder.complete(batch)
        labels = np.zeros(batch.n_rows) if y is None else column_or_1d(numpy_labels(y), warn=True)
        if len(labels) != batch.n_rows:
            raise DataError(f"X has {batch.n_rows} rows but y has {len(labels)} labels.", source=source)
        try:
            rows, fixed, columns = encoder.encode_all(
                batch, Place(source), 0, learn=learn, named=frames.is_table(X)
            )
        except DataError as error:
            if error.hint is not None and error.hint.startswith("leave the column out"):
                # The hint names the parameter drop=, which exists only for streams.
                hint = error.hint.partition(" (")[0].replace("drop=", "X.drop(columns=") + ")"
                raise DataError(error.message, source=source, hint=hint) from None
            raise
        kept = {name: batch.columns[name] for name in encoder.columns_ if name in batch.columns}
        return Chunk(rows, labels, 0, times, fixed, kept=kept, columns=columns)

    def _add_columns(self, batch: ColumnBatch) -> None:
        """Add the columns that are new to the encoder, and warn of new columns of sentences."""
        encoder, known = self.encoder, set()
        if encoder.is_fitted:
            known.update(encoder.columns_)
            encoder.add_columns(batch)
        else:
            encoder.fit_columns(batch, list(batch.columns), (), dates=True)
        if not hasattr(type(self.estimator), "_schema"):  # an estimator with a schema warns itself
            for name in encoder.categorical_:
                if name not in known:
                    warn_of_sentences(name, batch)

    def _without_time(self, X: Any, source: str) -> tuple[Any, NDArray[np.float64] | None]:
        """Return a table without its column of times, and the times in seconds."""
        if (
            self.time is None
            or not frames.is_table(X)
            or self.time not in (table := frames.table_batch(X, source)).columns
        ):
            return X, None
        times = frames.with_dates(table, [self.time]).columns[self.time]
        if times.dtype == object:
            times = frames.column_seconds(times, self.time, Place(source))
        return table.without(self.time), times

    def _labelled_chunks(self, X: Any, y: Any, method: str, *, learn: bool) -> tuple[list[Chunk], str]:
        """Return the labelled rows of a table as chunks, and the name of the table."""
        if y is None and not _has_column(X, self.target):
            raise DataError(
                f"requires y to be passed, but the target y is None and the table has no column "
                f"{self.target!r}.",
                source=f"TableModel.{method}",
            )
        if y is None and _is_source(X):
            stream = self.open(X, labelled=True, chunk=_MAX_ROWS_PER_CHUNK)
            stream.learning = learn
            return list(stream), stream.name  # reads all rows before learning
        if y is None:
            source = f"TableModel.{method}"
            table = frames.table_batch(X, source)
            y = LabelReader(self.target).read(table.columns[self.target], Place(source), 0)
            X = table.without(self.target)
        return [self._memory_chunk(X, y, method, learn=learn)], "table"

    def _learn_table(self, X: Any, y: Any, sample_weight: Any, method: str, classes: Any = None) -> None:
        check_not_class(self.estimator, f"TableModel.{method}")
        given = {"sample_weight": sample_weight, "classes": classes}
        options = {name: value for name, value in given.items() if value is not None}
        if options and _is_source(X):
            raise DataError(
                "sample_weight and classes can be passed only with a table in memory.",
                source=f"TableModel.{method}",
            )
        chunks, source = self._labelled_chunks(X, y, method, learn=True)
        # Classifiers of other packages may need all labels in the first call of partial_fit().
        if method == "fit" and (options or not isinstance(self.estimator, BatchLearner)):
            self._fit_all(chunks, source, sample_weight)
        else:
            self._learn(chunks, source, **options)

    def learn(self, stream: TableStream) -> int:
        """Learn all rows of a stream and return their number; fit() is used if there is no partial_fit()."""
        return self._learn(stream, stream.name)

    def _learn(self, chunks: Iterable[Chunk], source: str, **options: Any) -> int:
        weights = options.get("sample_weight")
        if not hasattr(self.estimator, "partial_fit"):
            return self._fit_all(list(chunks), source, weights)
        digest = RowDigest()
        try:
            for chunk in chunks:
                learn_chunk(self.estimator, chunk, **options)
                digest.add(chunk.X, chunk.y, weights, categories=self.encoder.categories_of(chunk.X))
        finally:
            if digest.n_rows:
                self.note("learned", source, digest.n_rows, digest.id)
        return digest.n_rows

    def _fit_all(self, chunks: list[Chunk], source: str, sample_weight: Any = None) -> int:
        y = np.concatenate([chunk.y for chunk in chunks])
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.estimator.fit(
            frames.concat_tables([chunk.rows_for(self.estimator) for chunk in chunks]), y, **weights
        )
        self.note("learned", source, len(y), self._digest(chunks, sample_weight).id)
        return len(y)

    @transactional
    def forget(self, X: Any, y: Any = None, sample_weight: Any = None, *, again: bool = False) -> Self:
        """Forget the rows of a table; a failing call changes nothing.

        Parameters
        ----------
        X : table, list of dict or array
            Rows with exactly the values that were learned.
        y, sample_weight : array-like of shape (n_rows,), optional
            The labels and weights that were learned.
        again : bool, default=False
            Whether the rows may have been forgotten before, because they were learned more than once. By
            default, forgetting the same rows twice raises an error.

        Returns
        -------
        self
        """
        self._check_forgets()
        self._copy_state()
        self._forget(X, y, self.estimator.forget, sample_weight, again=again)
        return self

    @transactional
    def update(self, *, add: Any = None, forget: Any = None) -> Self:
        """Learn rows and forget others in one call; a failing call changes nothing.

        Parameters
        ----------
        add : tuple of (X, y) or (X, y, sample_weight), optional
            Rows to learn, as for :meth:`partial_fit`.
        forget : tuple of (X, y) or (X, y, sample_weight), optional
            Learned rows to forget.

        Returns
        -------
        self
        """
        self._copy_state()
        if add is not None:
            X, y, *weights = add
            self._learn_table(X, y, weights[0] if weights else None, "update")
        if forget is not None:
            self._check_forgets()
            X, y, *weights = forget
            self._forget(X, y, self.estimator.forget, *weights, again=True)
        return self

    @transactional
    def forget_certified(self, source: Any, *, again: bool = False) -> Certificate:
        """Forget rows and return a certificate, which also describes how the columns are encoded."""
        if not isinstance(self.estimator, ProximalSVC):
            raise DataError(
                f"a model of class {type(self.estimator).__name__} cannot issue certificates.",
                source="forget",
                hint="use ProximalSVC",
            )
        self._copy_state()
        certificate: Certificate = self._forget(source, None, self.estimator.certify_forget, again=again)
        empty = ProximalSVC(quantizer=self.estimator.quantizer_, feature_map=self.estimator.feature_map_)
        model = TableModel(empty, self.encoder, self.target, self.time)
        return replace(certificate, table=b64encode(to_bytes(model)).decode("ascii"))

    @staticmethod
    def of_certificate(certificate: Certificate) -> TableModel:
        """Return a model without learned rows that encodes tables as the certificate describes."""
        if certificate.table is None:
            raise DataError(
                "the certificate does not describe the columns of a table.",
                source="verify",
                hint="for rows in arrays use Certificate.holds_for(X, y)",
            )
        try:
            model = from_bytes(b64decode(certificate.table, validate=True))
        except ValueError as error:
            raise FileFormatError(f"the certificate is damaged ({error}).", source="verify") from error
        if not isinstance(model, TableModel) or not isinstance(model.estimator, ProximalSVC):
            raise FileFormatError(
                "the certificate is damaged (it does not describe a table).", source="verify"
            )
        return model

    def _check_forgets(self) -> None:
        if not hasattr(self.estimator, "forget"):
            raise DataError(
                f"a model of class {type(self.estimator).__name__} cannot forget rows.", source="forget"
            )

    def _forget(
        self, X: Any, y: Any, forget: Callable[..., Any], sample_weight: Any = None, *, again: bool
    ) -> Any:
        chunks, source = self._labelled_chunks(X, y, "forget", learn=False)
        digest = self._digest(chunks, sample_weight)
        if not again:
            self._check_not_forgotten(digest.id, source)
        rows = frames.concat_tables([rows_for_model(self.estimator, chunk) for chunk in chunks])
        labels = np.concatenate([chunk.y for chunk in chunks])
        result = forget(rows, labels, **({} if sample_weight is None else {"sample_weight": sample_weight}))
        self.note("forgot", source, len(labels), digest.id)
        return result

    def _digest(self, chunks: list[Chunk], sample_weight: Any = None) -> RowDigest:
        digest = RowDigest()
        for chunk in chunks:
            digest.add(chunk.X, chunk.y, sample_weight, categories=self.encoder.categories_of(chunk.X))
        return digest

    def _check_not_forgotten(self, rows_id: str, source: str) -> None:
        last = next((entry for entry in reversed(self.history) if entry.get("id") == rows_id), None)
        if last is not None and last["what"] == "forgot":
            raise DataError(
                f"these {last['rows']:,} rows were already forgotten, at {last['when']} from "
                f"{last['source']!r}; nothing was changed.",
                source=f"forget: {source}",
                hint="if they had been learned more than once, use again=True (--again on the command line)",
            )

    def predictions(
        self, source: Any, *, chunk: int = 1000, labelled: bool = False
    ) -> Iterator[tuple[Chunk, Predictions]]:
        """Yield the chunks of a table with their predictions."""
        for part in self.rows(source, chunk=chunk, labelled=labelled):
            yield part, predict_chunk(self.estimator, part)

    answers = renamed_method("predictions", "answers")

    def rows(
        self,
        source: Any,
        *,
        chunk: int = 1000,
        limit: int | None = None,
        labelled: bool = True,
        keep: Sequence[str] = (),
    ) -> TableStream:
        """Return the encoded rows of a table for prediction. The encoder does not change."""
        if not is_ready(self.estimator):
            raise DataError("this model has not learned any rows yet.", source="predict")
        stream = self.open(source, labelled=labelled, chunk=chunk, limit=limit)
        stream.learning = False
        return stream.keep(keep)

    @transactional
    def merge(self, other: TableModel, *, source: str = "another model") -> Self:
        """Add the learned rows of another model with the same columns.

        Row sets that both models have learned raise an error, because they would count twice.
        """
        self._check_compatible(other, "merge")
        ours, theirs = self.learned(), other.learned()
        common = next((rows_id for rows_id in theirs if rows_id in ours), None)
        if common is not None:
            raise DataError(
                f"the {theirs[common]['rows']:,} rows {common}, which {source} learned from "
                f"{theirs[common]['source']!r}, are already learned, from {ours[common]['source']!r}; they "
                "would count twice, so nothing was merged.",
                source="merge",
                hint="merge every model only once, and no model that was merged into another one",
            )
        encoder, estimator, added = self._aligned(other)
        estimator.merge(added)
        self.encoder, self.estimator = encoder, estimator
        self.history_ = [*self.history, *other.history]
        return self.note("merged", source, 0)

    @transactional
    def subtract(self, other: TableModel) -> Self:
        """Remove the learned rows of another model; a failing call changes nothing.

        Rows that were forgotten before raise an error.
        """
        self._check_compatible(other, "subtract")
        leaving = other.learned()
        for rows_id, entry in leaving.items():
            self._check_not_forgotten(rows_id, entry["source"])
        encoder, ours, theirs = self._aligned(other)
        ours.subtract(theirs)
        self.encoder, self.estimator, self.history_ = encoder, ours, list(self.history)
        for rows_id, entry in leaving.items():
            self.note("forgot", entry["source"], entry["rows"], rows_id)
        return self

    def drift_report(self, before: TableModel) -> DriftReport:
        """Compare the rows of this model with an earlier period and return what changed.

        ``before`` is a model of the same columns that has learned the rows of the earlier period. Categories
        that occur in only one of the periods are aligned.
        """
        for model in (self, before):
            model.check_has_statistics()
        self._check_compatible(before, "drift_report")
        try:
            encoder, ours, theirs = self._aligned(before)
        except DataError as error:
            raise error.with_source("drift_report") from None
        return compare_statistics(theirs.statistics_, ours.statistics_, encoder.feature_names)

    def check_has_statistics(self) -> None:
        """Raise unless the model has the class statistics that :meth:`drift_report` compares."""
        if not hasattr(self.estimator, "statistics_"):
            raise DataError(
                f"a model of class {type(self.estimator).__name__} has no class statistics.",
                source="drift_report",
                hint="compare tables or files of statistics, or use ProximalSVC",
            )

    def unlearned(self) -> TableModel:
        """Return a model with the same columns, parameters and quantizer, but without learned rows."""
        empty = from_bytes(to_bytes(self.estimator)).subtract(self.estimator)
        return TableModel(empty, self.encoder.copy(), self.target, self.time)

    def _check_compatible(self, other: Any, method: str) -> None:
        """Raise unless the other model has the same columns and the same class of estimator."""
        if not isinstance(other, TableModel):
            raise DataError(
                f"expected a saved model with its columns; got a {type(other).__name__}.", source=method
            )
        if type(self.estimator) is not type(other.estimator) or not hasattr(self.estimator, method):
            raise DataError(
                f"models of class {type(self.estimator).__name__} and {type(other.estimator).__name__} "
                f"cannot be {method}d.",
                source=method,
                hint="use ProximalSVC (fit --model proximal on the command line)",
            )
        if (self.target, _first_columns(self)) != (other.target, _first_columns(other)):
            raise DataError(
                f"both models must have the same columns; got target {self.target!r} with "
                f"{self.encoder.columns_} and target {other.target!r} with {other.encoder.columns_}.",
                source=method,
            )

    def _aligned(self, other: TableModel) -> tuple[TableEncoder, Any, Any]:
        """Return an encoder with the categories of both models, and both estimators with its features.

        The encoder and this model's estimator are copies, so this model does not change.
        """
        encoder, ours, theirs = self.encoder.copy(), deepcopy(self.estimator), other.estimator
        order = encoder.adopt(other.encoder)
        n_features = len(encoder.feature_names)
        is_aligned = list(order) == list(range(n_features)) and ours.n_features_in_ == n_features
        if hasattr(theirs, "grow") and not is_aligned:  # estimators with a feature map cannot grow
            ours.grow(n_features)
            theirs = theirs.permute_features(order, n_features)
        return encoder, ours, theirs

    def _get_state(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def _set_state(self, state: dict[str, Any]) -> None:
        if not isinstance(self.encoder, TableEncoder) or not hasattr(type(self.estimator), "predict"):
            raise TypeError("expected an encoder and an estimator")
        if type(self.target) is not str or not isinstance(self.time, str | None):
            raise TypeError("target and time must be names of columns")
        n_features = getattr(self.estimator, "n_features_in_", None)
        if n_features is not None and self.encoder.is_fitted and self._schema() is None:
            can_grow, known = hasattr(self.estimator, "grow"), len(self.feature_names)
            if n_features > known or (n_features < known and not can_grow):
                raise ValueError(f"the estimator has {n_features} features, the columns have {known}")
        kinds = {"what": str, "source": str, "rows": int, "when": str, "id": str}
        self.history_ = [
            {name: kind(entry[name]) for name, kind in kinds.items() if name in entry or name != "id"}
            for entry in state["history"]
        ]


def _first_columns(model: TableModel) -> list[str]:
    """Return the columns of the first table, which must be equal in models that are merged."""
    return [name for name in model.encoder.columns_ if name not in model.encoder.late_]


def _not_fitted(method: str) -> NotFittedError:
    return NotFittedError("this model has not learned any rows yet.", source=f"TableModel.{method}")


def _is_source(X: Any) -> bool:
    """Return whether a table is read from a file, a stream or a database."""
    return isinstance(X, str | PathLike | TableSource) or hasattr(X, "read")


def _has_column(X: Any, name: str) -> bool:
    if isinstance(X, list) and X and isinstance(X[0], Mapping):
        X = X[0]
    return _is_source(X) or name in getattr(X, "column_names", getattr(X, "columns", X))
