"""A learner together with the columns it was taught from: what is saved, asked and taught again."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from steelyard._concurrency import snapshot_read, state_without_lock, transactional
from steelyard.exceptions import DataError, FileFormatError
from steelyard.persistence import from_bytes, storable, to_bytes
from steelyard.proximal import Certificate, ProximalSVC
from steelyard.streams.answers import Answers, ask, is_ready, rows_taken, teach
from steelyard.streams.chunks import Chunk, padded
from steelyard.tables.encoding import TableEncoder
from steelyard.tables.row_digest import RowDigest
from steelyard.tables.table_stream import TableStream, open_stream

__all__ = ["TableModel"]

_AT_ONCE = 1 << 20  # rows of a table in memory that are encoded together


@storable("TableModel")
class TableModel(ClassifierMixin, BaseEstimator):
    """A learner that takes tables: it remembers its columns, their categories and what happened to it.

    Data frames with numbers and categories are encoded in ``fit``, ``partial_fit`` and ``predict`` alike.

    Parameters
    ----------
    learner : Learner
        The learner; it is taught, not copied.
    encoder : TableEncoder, optional
        How columns become numbers; one that refuses missing values by default.
    target : str, default="label"
        The column of labels.
    time : str, optional
        The column of times.

    Attributes
    ----------
    history_ : list of dict
        What was done: ``what``, ``source``, ``rows``, ``when`` and, where it is known, the ``id`` that
        follows from the rows (:class:`~steelyard.tables.row_digest.RowDigest`).

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
        learner: Any,
        encoder: TableEncoder | None = None,
        target: str = "label",
        time: str | None = None,
    ) -> None:
        self.learner = learner
        self.encoder = TableEncoder() if encoder is None else encoder
        self.target = target
        self.time = time

    @property
    def history(self) -> list[dict[str, Any]]:
        """What was done with this model, oldest first."""
        entries: list[dict[str, Any]] = self.__dict__.setdefault("history_", [])
        return entries

    def note(self, what: str, source: str, rows: int, rows_id: str | None = None) -> Self:
        """Add a line to the history."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"what": what, "source": source, "rows": int(rows), "when": when}
        self.history.append(entry if rows_id is None else {**entry, "id": rows_id})
        return self

    def learned(self) -> dict[str, dict[str, Any]]:
        """By their ids, the sets of rows that were learned as one and are still in; with their entries."""
        still_in: dict[str, dict[str, Any]] = {}
        for entry in self.history:
            if "id" not in entry:
                continue
            if entry["what"] == "forgot":
                still_in.pop(entry["id"], None)
            else:
                still_in[entry["id"]] = entry
        return still_in

    def unnamed(self) -> list[str]:
        """Sources whose rows have no id, so that nobody can tell whether they were learned elsewhere too."""
        return [entry["source"] for entry in self.history if entry["rows"] and "id" not in entry]

    @property
    def feature_names(self) -> list[str]:
        """Names of the learner's features."""
        grows = hasattr(self.learner, "grow")
        return self.encoder.feature_names if grows else self.encoder.fixed_names

    def open(self, source: Any, *, labelled: bool, chunk: int = 1000, **options: Any) -> TableStream:
        """Open a table with the columns that this model knows."""
        return open_stream(
            source,
            self.target if labelled else None,
            time=self.time if labelled else None,
            encoder=self.encoder,
            chunk=chunk,
            **options,
        )

    # -- data frames, as scikit-learn has it --------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the classes that the learner knows."""
        return np.asarray(self.learner.classes_)

    def __sklearn_is_fitted__(self) -> bool:
        return is_ready(self.learner)

    @transactional
    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget all, then learn a table.

        Parameters
        ----------
        X : table of pandas, polars or pyarrow
            Columns of numbers and categories.
        y : array-like of shape (n_rows,), optional
            Labels; by default those in the column ``target`` of the table.

        Returns
        -------
        self
        """
        fresh = TableModel(clone(self.learner), clone(self.encoder), self.target, self.time)
        fresh._take(X, y)
        self.learner, self.encoder, self.history_ = fresh.learner, fresh.encoder, fresh.history
        return self

    @transactional
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn the rows of a table too; all of them or none.

        Parameters
        ----------
        X : table of pandas, polars or pyarrow
            The columns of before; new categories may come.
        y : array-like of shape (n_rows,), optional
            Labels; by default those in the column ``target`` of the table.

        Returns
        -------
        self
        """
        self._take_apart()
        self._take(X, y)
        return self

    def _take_apart(self) -> None:
        """Copies of all that a call changes, so that it shows at one moment."""
        self.learner, self.encoder = deepcopy(self.learner), deepcopy(self.encoder)
        self.history_ = list(self.history)

    @snapshot_read
    def predict(self, X: Any) -> NDArray[Any]:
        """Labels of the rows of a table.

        Parameters
        ----------
        X : table of pandas, polars or pyarrow
            The columns that were learned; a category that was not is none.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        return np.concatenate([answers.labels for _, answers in self.answers(X, chunk=_AT_ONCE)])

    @snapshot_read
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the rows of a table, as the learner gives them.

        Parameters
        ----------
        X : table of pandas, polars or pyarrow
            The columns that were learned.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
        """
        return self._asked("decision_function", X)

    @snapshot_read
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes for the rows of a table, as the learner gives them.

        Parameters
        ----------
        X : table of pandas, polars or pyarrow
            The columns that were learned.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        return self._asked("predict_proba", X)

    def _asked(self, method: str, X: Any) -> NDArray[np.float64]:
        if not hasattr(self.learner, method):
            raise DataError(
                f"a model of class {type(self.learner).__name__} has no {method}().", source=method
            )
        parts = self.rows(X, chunk=_AT_ONCE, labelled=False)
        answers = [getattr(self.learner, method)(rows_taken(self.learner, part)) for part in parts]
        return np.concatenate(answers)

    def _take(self, X: Any, y: Any) -> None:
        table = X if y is None else {**{name: X[name] for name in X.columns}, self.target: y}
        stream = self.open(table, labelled=True, chunk=_AT_ONCE)
        self._learn(list(stream), stream.name)  # nothing is learned before all could be read

    def learn(self, stream: TableStream) -> int:
        """Learn all rows of a stream; returns their number. What has no partial_fit gets them at once."""
        return self._learn(stream, stream.name)

    def _learn(self, chunks: Iterable[Chunk], source: str) -> int:
        if not hasattr(self.learner, "partial_fit"):
            return self._fit_at_once(list(chunks), source)
        digest = RowDigest()
        try:
            for chunk in chunks:
                teach(self.learner, chunk)
                digest.add(chunk.X, chunk.y, categories=self.encoder.categories_of(chunk.X))
        finally:
            if digest.n_rows:
                self.note("learned", source, digest.n_rows, digest.id)
        return digest.n_rows

    def _fit_at_once(self, chunks: list[Chunk], source: str) -> int:
        y = np.concatenate([chunk.y for chunk in chunks])
        self.learner.fit(np.concatenate([chunk.rows_for(self.learner) for chunk in chunks]), y)
        self.note("learned", source, len(y), self._digest(chunks).id)
        return len(y)

    @transactional
    def forget(self, source: Any, *, again: bool = False) -> int:
        """Unlearn the rows of a table, all or none; returns their number.

        Rows that were forgotten before and not learned again since are refused, unless ``again`` says that
        they had been learned more than once.
        """
        self._check_forgets()
        self._take_apart()
        return self._forget(source, self.learner.forget, again=again)[0]

    @transactional
    def forget_certified(self, source: Any, *, again: bool = False) -> Certificate:
        """The same, with a certificate that tells how the columns of the table became features."""
        if not isinstance(self.learner, ProximalSVC):
            raise DataError(
                f"a model of class {type(self.learner).__name__} gives no certificates.",
                source="forget",
                hint="ProximalSVC does",
            )
        self._take_apart()
        certified = partial(self.learner.forget, certificate=True)
        certificate: Certificate = self._forget(source, certified, again=again)[1]
        return replace(certificate, table=self._empty_twin())

    def _empty_twin(self) -> str:
        """How rows become features and on which grid, without anything that was learned of them; as text."""
        learner = ProximalSVC(quantizer=self.learner.quantizer_, feature_map=self.learner.feature_map_)
        twin = TableModel(learner, self.encoder, self.target, self.time)
        return b64encode(to_bytes(twin)).decode("ascii")

    @staticmethod
    def of_certificate(certificate: Certificate) -> TableModel:
        """A model that has learned nothing and takes tables as the certificate says."""
        if certificate.table is None:
            raise DataError(
                "the certificate does not tell how columns of a table become features.",
                source="verify",
                hint="certificates of rows that came as arrays are checked by Certificate.holds_for(X, y)",
            )
        try:
            model = from_bytes(b64decode(certificate.table, validate=True))
        except ValueError as error:
            raise FileFormatError(f"the certificate is damaged ({error}).", source="verify") from error
        if not isinstance(model, TableModel) or not isinstance(model.learner, ProximalSVC):
            raise FileFormatError("the certificate is damaged (it describes no table).", source="verify")
        return model

    def _check_forgets(self) -> None:
        if not hasattr(self.learner, "forget"):
            raise DataError(
                f"a model of class {type(self.learner).__name__} cannot forget rows.", source="forget"
            )

    def _forget(self, source: Any, forget: Callable[..., Any], *, again: bool) -> tuple[int, Any]:
        stream = self.open(source, labelled=True)
        stream.learning = False
        chunks = list(stream)
        digest = self._digest(chunks)
        if not again:
            self._refuse_forgotten(digest.id, stream.name)
        width = self.learner.n_features_in_
        X = np.concatenate([padded(chunk.rows_for(self.learner), width) for chunk in chunks])
        y = np.concatenate([chunk.y for chunk in chunks])
        given = forget(X, y)
        self.note("forgot", stream.name, len(y), digest.id)
        return len(y), given

    def _digest(self, chunks: list[Chunk]) -> RowDigest:
        digest = RowDigest()
        for chunk in chunks:
            digest.add(chunk.X, chunk.y, categories=self.encoder.categories_of(chunk.X))
        return digest

    def _refuse_forgotten(self, rows_id: str, source: str) -> None:
        last = next((entry for entry in reversed(self.history) if entry.get("id") == rows_id), None)
        if last is not None and last["what"] == "forgot":
            raise DataError(
                f"these {last['rows']:,} rows were forgotten already, at {last['when']} from "
                f"{last['source']!r}; nothing was changed.",
                source=f"forget: {source}",
                hint="had they been learned more than once? then again=True (--again on the command line)",
            )

    def answers(
        self, source: Any, *, chunk: int = 1000, labelled: bool = False
    ) -> Iterator[tuple[Chunk, Answers]]:
        """The answers to the rows of a table, chunk by chunk."""
        for part in self.rows(source, chunk=chunk, labelled=labelled):
            yield part, ask(self.learner, part)

    def rows(
        self,
        source: Any,
        *,
        chunk: int = 1000,
        limit: int | None = None,
        labelled: bool = True,
        keep: Sequence[str] = (),
    ) -> TableStream:
        """The rows of a table as this model takes them, to be answered and not learned."""
        if not is_ready(self.learner):
            raise DataError("this model has learned no rows yet.", source="predict")
        stream = self.open(source, labelled=labelled, chunk=chunk, limit=limit)
        stream.learning = False
        return stream.keep(keep)

    @transactional
    def merge(self, other: TableModel, *, source: str = "another model") -> Self:
        """Learn what another model has learned; both must have been taught from the same columns.

        Rows that both have learned under the same id are refused: they would count twice.
        """
        self._check_fits(other, "merge")
        self._refuse_twice(other, source)
        encoder, mine, theirs = self._aligned(other)
        mine.merge(theirs)
        self.encoder, self.learner = encoder, mine
        self.history_ = [*self.history, *other.history]
        return self.note("merged", source, 0)

    @transactional
    def subtract(self, other: TableModel) -> Self:
        """Unlearn what another model has learned, rows that this one has learned too; all or none.

        Rows that were forgotten before and not learned again since are refused.
        """
        self._check_fits(other, "subtract")
        leaving = other.learned()
        for rows_id, entry in leaving.items():
            self._refuse_forgotten(rows_id, entry["source"])
        encoder, mine, theirs = self._aligned(other)
        mine.subtract(theirs)
        self.encoder, self.learner, self.history_ = encoder, mine, list(self.history)
        for rows_id, entry in leaving.items():
            self.note("forgot", entry["source"], entry["rows"], rows_id)
        return self

    def unlearned(self) -> TableModel:
        """A model with the columns, parameters and grid of this one that has learned no rows."""
        learner = from_bytes(to_bytes(self.learner)).subtract(self.learner)
        return TableModel(learner, deepcopy(self.encoder), self.target, self.time)

    def _check_fits(self, other: Any, method: str) -> None:
        """Refuse what was not taught from the same columns, or by a learner of another class."""
        if not isinstance(other, TableModel):
            raise DataError(
                f"expected a saved model with its columns; got a {type(other).__name__}.", source=method
            )
        if type(self.learner) is not type(other.learner) or not hasattr(self.learner, method):
            raise DataError(
                f"models of class {type(self.learner).__name__} and {type(other.learner).__name__} "
                f"cannot be {method}d.",
                source=method,
                hint="ProximalSVC can, after fit --model proximal",
            )
        if (self.target, self.encoder.columns_) != (other.target, other.encoder.columns_):
            raise DataError(
                f"both models must have the same columns; got target {self.target!r} with "
                f"{self.encoder.columns_} and target {other.target!r} with {other.encoder.columns_}.",
                source=method,
            )

    def _aligned(self, other: TableModel) -> tuple[TableEncoder, Any, Any]:
        """An encoder that knows the categories of both, and both learners in its order; copies of mine."""
        encoder, mine, theirs = deepcopy(self.encoder), deepcopy(self.learner), other.learner
        order = encoder.adopt(other.encoder)
        n_features = len(encoder.feature_names)
        as_they_are = list(order) == list(range(n_features)) and mine.n_features_in_ == n_features
        if hasattr(theirs, "grow") and not as_they_are:  # which a learner with a feature map could not do
            mine.grow(n_features)
            theirs = theirs.permute_features(order, n_features)
        return encoder, mine, theirs

    def _refuse_twice(self, other: TableModel, source: str) -> None:
        mine, theirs = self.learned(), other.learned()
        twice = next((rows_id for rows_id in theirs if rows_id in mine), None)
        if twice is not None:
            raise DataError(
                f"the {theirs[twice]['rows']:,} rows {twice}, which {source} learned from "
                f"{theirs[twice]['source']!r}, are in already, from {mine[twice]['source']!r}; they would "
                "count twice, so nothing was merged.",
                source="merge",
                hint="give every model once, and no model that was merged into another one",
            )

    def _get_state(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def _set_state(self, state: dict[str, Any]) -> None:
        if not isinstance(self.encoder, TableEncoder) or not hasattr(type(self.learner), "predict"):
            raise TypeError("a model of tables has an encoder and a learner")
        if type(self.target) is not str or not isinstance(self.time, str | None):
            raise TypeError("columns have names")
        n_features = getattr(self.learner, "n_features_in_", None)
        if n_features is not None and "columns_" in vars(self.encoder):
            grows, known = hasattr(self.learner, "grow"), len(self.feature_names)
            if n_features > known or (n_features < known and not grows):
                raise ValueError(f"the learner has {n_features} features, the columns make {known}")
        self.history_ = [
            {
                "what": str(e["what"]),
                "source": str(e["source"]),
                "rows": int(e["rows"]),
                "when": str(e["when"]),
                **({"id": str(e["id"])} if "id" in e else {}),
            }
            for e in state["history"]
        ]
