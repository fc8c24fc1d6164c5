"""Session of one model: its engine, its rows in the store, and the events that change it."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray
from steelyard.exceptions import DataError, FileFormatError, SteelyardError
from steelyard.persistence.tree import decode, encode
from steelyard.service import guards
from steelyard.service import rows as wire
from steelyard.service.engine import Engine
from steelyard.service.errors import Conflict, federated_error
from steelyard.service.forgetting import SplitChunk, row_keys
from steelyard.service.spec import Spec
from steelyard.service.stored_rows import RowRange, RowWindowIndex, pack, unpack, unpack_event
from steelyard.service.stores import Event, PendingRow, QuarantinedRow, Snapshot
from steelyard.service.stores.sql import Store
from steelyard.streams.predictions import Predictions
from steelyard.tables.columns import ColumnBatch, as_texts

_MAX_SNAPSHOTS = 24
_MAX_QUARANTINED = 10_000  # maximum number of quarantined rows of a model
_REPLAY_ROWS = 1_000  # number of rows that a new challenger learns at a time
# A snapshot is stored in place of rows that are larger than the learned state by more than this factor.
_MIN_SIZE_RATIO = 4


class LearnedRows(NamedTuple):
    """Rows that the engine has learned and that are not in the store yet."""

    version: int
    now: float
    n_rows: int
    times: FloatArray
    ids: list[str | None]
    subjects: list[str | None]
    body: bytes | None  # None if a snapshot is written in place of the rows
    batch: str | None = None  # idempotency key of the request
    # If the rows of several requests were joined: for each idempotency key, the indices of its rows.
    batches: Mapping[str, Sequence[int]] = {}
    seconds: float = 0.0  # processor time of learning, if the rows were learned during a commit


class ModelSession:
    """Model and its data in the store. The writer calls the methods inside a transaction."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store, self.engine = store, engine
        self.row_windows = RowWindowIndex()
        self.rows_since_snapshot = 0
        self.events_since_snapshot = 0
        self.snapshot_at = -np.inf  # time of the last snapshot
        self.n_pending = 0  # number of rows that wait for labels
        self.state_bytes = 0  # size of the learned state when it was last measured
        self._temporary_snapshot: int | None = None  # version of a snapshot that the next snapshot replaces

    # -- recovery -----------------------------------------------------------------------------------

    @classmethod
    def recover(cls, store: Store, name: str, spec: str) -> ModelSession:
        """Restore a model from its last snapshot and the events after the snapshot."""
        snapshot = store.snapshot(name, committed=False)
        if snapshot is None:
            # A model whose learner has its own window gets a snapshot at its creation, so this one has none.
            session = cls(store, Engine(name, Spec.from_store(json.loads(spec)), own_window=False))
        else:
            session = cls(store, Engine.from_state(name, decode(snapshot.body)))
            session.snapshot_at, session.state_bytes = snapshot.at, len(snapshot.body)
        expired: list[RowRange] = []
        for event in store.events_after(name, session.engine.version):
            expired += session._replay(event)
            session.events_since_snapshot += 1
        session.engine.monitor.new_points = []  # these points are already in the store
        session.n_pending = store.n_pending(name, committed=False)
        if session.engine.spec.keeps_rows:
            for chunk, n_rows, begin in store.chunks(name):
                session.row_windows.add(chunk, partial(session.times, chunk), n_rows, begin)
            session.row_windows.expire(expired)  # rows that expired after the snapshot
        return session

    def unpacked(self, chunk: int) -> tuple[ColumnBatch, FloatArray, dict[str, Any]]:
        """Return rows, times and further values of a chunk; raise FileFormatError if it is damaged."""
        try:
            batch, extra = unpack(self.store.chunk(chunk))
            return batch, np.asarray(extra["times"]), extra
        except (FileFormatError, ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
            message = error.message if isinstance(error, FileFormatError) else "stored rows are damaged."
            raise FileFormatError(message, source=f"model {self.engine.name!r}, chunk {chunk}") from error

    def times(self, chunk: int) -> FloatArray:
        return self.unpacked(chunk)[1]

    def active_rows(self, chunk: int) -> tuple[ColumnBatch, FloatArray]:
        """Return the rows of a chunk that are in the window, and their times."""
        batch, times, _ = self.unpacked(chunk)
        begin = self.row_windows.begin_of(chunk)
        return batch.take(begin, batch.n_rows), times[begin:]

    @classmethod
    def repair(cls, store: Store, name: str, spec: str, now: float) -> dict[str, int]:
        """Rebuild a damaged model inside a transaction; return the numbers of ``kept`` and ``lost`` rows.

        A model that stores its rows learns the readable rows again. Any other model continues from its latest
        readable snapshot, and rows of unreadable snapshots are not counted.
        """
        settings = Spec.from_store(json.loads(spec))
        if settings.sites:
            raise Conflict(
                f"the federated model {name!r} cannot be repaired here.",
                hint="create it under another name; its sites publish their statistics again",
            )
        session, version = cls(store, Engine(name, settings)), store.last_versions().get(name, 0)
        if not settings.keeps_rows:
            session = cls(store, _latest_readable(store, name) or session.engine)
        n_lost, damaged = 0, []
        for chunk, n_rows, begin in store.chunks(name):
            try:
                batch, times, _ = session.unpacked(chunk)
                if begin < batch.n_rows:
                    session.engine.learn(batch.take(begin, batch.n_rows), at=now, times=times[begin:])
                session.row_windows.add(chunk, times, n_rows, begin)
            except SteelyardError:
                n_lost += n_rows - begin
                damaged.append(chunk)
        store.drop_chunks(damaged)
        session.engine.version = version + 1
        session.engine.monitor.new_points = []
        session.expire_rows(now)
        session.snapshot(now, keep=1)
        return {"kept": session.engine.n_rows, "lost": n_lost}

    def follow(self, version: int) -> bool:
        """Replay the events of another process; return whether the model then has the given version."""
        for event in self.store.events_after(self.engine.name, self.engine.version):
            if event.version != self.engine.version + 1:
                return False
            self._replay(event)
        self.engine.monitor.new_points = []
        return self.engine.version == version

    def _replay(self, event: Event) -> list[RowRange]:
        """Replay an event; return the rows that expired with it."""
        body = unpack_event(event.body)
        ranges: list[RowRange] = []
        if event.kind == "learn":
            batch, times, extra = self.unpacked(body["chunk"])
            given = extra.get("given")
            if given is not None:
                scores = np.asarray(given["scores"])
                given = Predictions.of(np.array(given["labels"]), list(given["classes"]), scores)
            self.engine.learn(batch, at=event.at, times=times, predictions=given)
            self.rows_since_snapshot += batch.n_rows
        elif event.kind == "retire":
            ranges = [RowRange(*piece) for piece in body["pieces"]]
            self.engine.expire(self._rows_of(ranges))
        elif event.kind == "configure":
            self.engine.configure(Spec.from_store(json.loads(body["spec"])))
        else:
            raise DataError(f"the store has an event {event.kind!r}, which this version does not know.")
        return ranges

    # -- learning -----------------------------------------------------------------------------------

    def learn(
        self,
        batch: ColumnBatch,
        *,
        now: float,
        predictions: Predictions | None = None,
        key: str | None = None,
        guarded: bool = True,
    ) -> int:
        """Learn rows, write them to the store and expire rows outside the window; return the version.

        ``key`` is the idempotency key of the request.
        """
        if self.engine.spec.sites:
            raise federated_error(self.engine.name)
        learned = self.learn_in_memory(batch, now=now, predictions=predictions, guarded=guarded)
        return self.write(learned if key is None else learned._replace(batch=key))

    @property
    def can_learn_together(self) -> bool:
        """Whether rows of several requests can be learned in one call, once the columns are known."""
        spec = self.engine.spec
        return not spec.sites and not spec.quarantines and self.engine.encoder.is_fitted

    def concatenated(self, parts: Sequence[ColumnBatch]) -> ColumnBatch:
        """Concatenate the rows of several requests, each of which must have the columns of the model."""
        records = wire.RecordColumns.of_all([part.columns for part in parts])
        if records is not None:  # all records have the same fields, so the learner checks them once
            return records.batch
        for part in parts:
            self.engine.check_rows(part, labelled=True)
        return wire.joined(parts)

    def learn_in_memory(
        self,
        batch: ColumnBatch,
        *,
        now: float,
        predictions: Predictions | None = None,
        guarded: bool = True,
        sources: Sequence[tuple[str | None, int]] = (),
    ) -> LearnedRows:
        """Learn rows without writing them. :meth:`write` must be called afterwards.

        ``sources`` contains the idempotency key and the number of rows of each request.
        """
        spec, engine = self.engine.spec, self.engine
        engine.check_rows(batch, labelled=True)
        if guarded and spec.has_guards:
            guards.check_rows(spec, batch)
        if spec.quota is not None:
            guards.check_quota(engine, batch, self.state_bytes)
        if spec.time is None:
            times = np.full(batch.n_rows, now)
        else:
            times = wire.times(batch, spec.time)
            wire.check_not_in_future(times, spec.time, now + spec.max_future_seconds)
        order: NDArray[np.intp] | None = None
        if spec.keeps_rows and spec.time is not None and hasattr(engine.learner, "forget"):
            order = np.argsort(times, kind="stable")  # RowWindowIndex needs sorted times
            batch, times = batch.select(order), times[order]
            predictions = None if predictions is None else predictions.take(order)
        ids: list[str | None] = []
        subjects: list[str | None] = []
        if spec.id is not None or spec.subject is not None:
            ids, subjects = wire.identifiers(batch, spec.id), wire.identifiers(batch, spec.subject)
        if spec.id is not None:
            self._check_new(ids)
        batches = _positions_by_key(sources, order) if sources and spec.keeps_rows else {}
        engine.pause(batch.n_rows)
        body = None
        # The learned state is written instead of the rows if it is much smaller.
        n_bytes = 8 * batch.n_rows * len(batch.columns)
        if spec.keeps_rows or not 0 < _MIN_SIZE_RATIO * self.state_bytes < n_bytes:
            given = None
            if predictions is not None:
                labels, scores = predictions.labels.tolist(), predictions.scores
                given = {"labels": labels, "scores": scores, "classes": predictions.classes}
            extra: dict[str, Any] = {"times": times.tolist(), "given": given}
            if batches:
                extra["batches"] = batches
            body = pack(batch, extra)
        engine.pause(batch.n_rows)
        version = engine.learn(batch, at=now, times=times, predictions=predictions)
        engine.pause(batch.n_rows)
        return LearnedRows(version, now, batch.n_rows, times, ids, subjects, body, None, batches)

    def write(self, rows: LearnedRows) -> int:
        """Write learned rows to the store and expire rows outside the window; return the version."""
        spec, engine, version = self.engine.spec, self.engine, rows.version
        # Slow steps come before the first write, because a write locks the SQLite file.
        has_window = self._has_window
        expired = self._expired(rows.now, rows) if has_window else []
        if expired:
            self._unlearn(expired)
        if rows.body is None:
            n_rows = self.rows_since_snapshot
            self.snapshot(rows.now)
            # The next snapshot replaces this one, so that the history does not fill up.
            self._temporary_snapshot, self.rows_since_snapshot = version, n_rows
        else:
            chunk = self.store.add_chunk(engine.name, rows.n_rows, rows.body, rows.now, rows.batch)
            if rows.batches and spec.keeps_rows:
                self.store.index_batches(engine.name, chunk, list(rows.batches))
            self._append("learn", {"chunk": chunk}, rows.now, rows.version)
        self.rows_since_snapshot += rows.n_rows
        if expired:
            version = engine.version
            self._append_expiry(expired, rows.now)
        if spec.keeps_rows:
            if spec.id is not None or spec.subject is not None:
                self.store.index_rows(engine.name, chunk, rows.ids, rows.subjects)
            self.row_windows.add(chunk, rows.times, rows.n_rows)
            if has_window:
                version = self.expire_rows(rows.now) or version
        if engine.monitor.new_points:
            self.store.add_points(engine.name, engine.monitor.new_points)
            engine.monitor.new_points = []
        return version

    @property
    def _has_window(self) -> bool:
        """Whether stored rows expire."""
        return self.engine.spec.keeps_rows and (
            self.engine.spec.window is not None or self.engine.has_own_window
        )

    def _expired(self, now: float, added: LearnedRows | None = None) -> list[RowRange]:
        """Return the stored rows outside the window, at present or after ``added`` are added."""
        window, newest = self.engine.spec.window, self.row_windows.newest()
        ranges: list[RowRange] = []
        if isinstance(window, int):
            n_left = window if added is None else window - added.n_rows
            ranges = self.row_windows.expired(n_left, now) if n_left > 0 else []
        elif window is not None:
            newest = newest if added is None else max(newest, float(added.times[-1]))
            ranges = self.row_windows.expired(window, now if self.engine.spec.time is None else newest)
        return self._with_dropped(ranges)

    def _with_dropped(self, ranges: list[RowRange]) -> list[RowRange]:
        """Return ``ranges`` together with the oldest stored rows that the learner has already dropped.

        Both can differ. With a window of n rows, the learner counts forgotten rows until they leave its
        window. With a time window, a late row has the time of the newest row in the learner.
        """
        n_dropped = self.engine.n_dropped
        if not n_dropped:
            return ranges
        oldest = self.row_windows.expired(max(0, self.row_windows.n_rows - n_dropped), 0.0)
        longest: dict[int, RowRange] = {}
        for rows in sorted([*oldest, *ranges], key=lambda rows: (rows.chunk, rows.end)):
            longest[rows.chunk] = rows
        return list(longest.values())

    def expire_rows(self, now: float) -> int | None:
        """Forget the rows outside the window; return the new version, or None if no row has expired."""
        ranges = self._expired(now) if self._has_window else []
        if not ranges:
            return None
        version = self._unlearn(ranges)
        self._append_expiry(ranges, now)
        return version

    def _unlearn(self, ranges: Sequence[RowRange]) -> int:
        """Forget rows that have expired; return the version."""
        rows = self._rows_of(ranges)
        self.engine.pause(rows.n_rows)
        try:
            version = self.engine.expire(rows)
        except DataError as error:  # the client is not at fault, because these rows were learned before
            raise RuntimeError(f"rows outside the window could not be forgotten: {error}") from error
        self.engine.pause(rows.n_rows)
        return version

    def _append_expiry(self, ranges: Sequence[RowRange], now: float) -> None:
        self._append("retire", {"pieces": [[r.chunk, r.begin, r.end] for r in ranges]}, now)
        # Expiry is recorded only in memory and in the event. Updating the chunk would rewrite its rows.
        self.row_windows.expire(ranges)

    def _check_new(self, ids: Sequence[str | None]) -> None:
        present = [row_id for row_id in ids if row_id is not None]
        duplicates = [row_id for row_id, n in Counter(present).items() if n > 1]
        known = duplicates or self.store.known_ids(self.engine.name, present)
        if known:
            raise Conflict(
                f"a row with the id {known[0]!r} was learned before; nothing was changed.",
                hint="ids are unique; to learn a row again, forget it first",
            )

    def _append(self, kind: str, body: dict[str, Any], now: float, version: int | None = None) -> None:
        version = self.engine.version if version is None else version
        self.store.append(self.engine.name, Event(version, now, kind, msgspec.json.encode(body)))
        self.events_since_snapshot += 1

    def _rows_of(self, ranges: Sequence[RowRange]) -> ColumnBatch:
        return wire.joined([self.unpacked(rows.chunk)[0].take(rows.begin, rows.end) for rows in ranges])

    # -- delayed labels -----------------------------------------------------------------------------

    def label(
        self,
        pending: Sequence[PendingRow],
        labels: Mapping[str, Any],
        *,
        now: float,
        key: str | None = None,
    ) -> int:
        """Learn pending rows whose labels have arrived, and evaluate their stored predictions."""
        target = self.engine.spec.target
        unpacked = [unpack(row.body) for row in pending]
        column = self._label_column([labels[row.id] for row in pending])
        rows = wire.joined([batch for batch, _ in unpacked])
        rows = ColumnBatch({**rows.columns, target: column}, rows.n_rows)
        stored = [extra for _, extra in unpacked]
        # A row has no prediction if the model could not predict yet when the row arrived.
        predictions = _combined(stored) if all(stored) else None
        version = self.learn(rows, now=now, predictions=predictions, key=key)
        self.n_pending -= self.store.drop_pending(self.engine.name, ids=[row.id for row in pending])
        return version

    def _label_column(self, labels: Sequence[Any]) -> Any:
        target = self.engine.spec.target
        records = [{target: label} for label in labels]
        return wire.from_records(records, self.engine.text_columns).columns[target]

    def correct(self, labels: Mapping[str, Any], *, now: float) -> list[str]:
        """Replace labels of learned rows; return the ids whose labels have changed.

        A corrected row keeps its position in the window, except that a learner with its own window learns it
        as a new row. Ids of rows that are not in the window, or that already have this label, are skipped.
        """
        corrections = self.corrections(labels)
        if not corrections:
            return []
        wrong = wire.joined([one.split.unlearn for one in corrections])
        right = wire.joined([one.right for one in corrections])
        try:
            if self.engine.has_own_window:
                self.engine.forget(wrong)
                for one in corrections:
                    self.rewrite_chunk(one.chunk, self.split_chunk(one.chunk, one.positions))
                self.learn(right, now=now, guarded=False)
            else:
                self.engine.correct(wrong, right)
                for one in corrections:
                    self.rewrite_chunk(one.chunk, one.split)
        except SteelyardError as error:  # the learner may be partly changed, so the writer recovers the model
            raise RuntimeError(f"labels could not be corrected: {error}") from error
        self.snapshot(now)  # replaces earlier events, which refer to chunks with the old labels
        return [row_id for one in corrections for row_id in one.ids]

    def corrections(self, labels: Mapping[str, Any]) -> list[_Correction]:
        """Return the changes that :meth:`correct` would make; raise DataError if they are not possible."""
        engine = self.engine
        positions = self.store.find_rows(engine.name, ids=list(labels))
        found = [self._correction(chunk, rows, labels) for chunk, rows in positions.items()]
        found = [one for one in found if one.ids]
        if found:
            right = wire.joined([one.right for one in found])
            engine.check_correction(right)
            if engine.spec.has_guards:
                guards.check_rows(engine.spec, right)
        return found

    def _correction(self, chunk: int, positions: Sequence[int], labels: Mapping[str, Any]) -> _Correction:
        """Return the rows of a chunk whose labels change, with old and new labels, and the new chunk."""
        spec = self.engine.spec
        batch, times, extra = self.unpacked(chunk)
        begin, ids = self.row_windows.begin_of(chunk), wire.texts(batch, spec.id)
        active = [row for row in sorted(positions) if row >= begin]
        column = batch.columns[spec.target].copy()
        new = self._label_column([labels[str(ids[row])] for row in active])
        if new.dtype != column.dtype:
            column = np.array(wire.texts(batch, spec.target), dtype=object)
            new = np.array(as_texts(new), dtype=object)
        rows = [row for row, is_new in zip(active, column[active] != new, strict=True) if is_new]
        column[active] = new
        corrected = ColumnBatch({**batch.columns, spec.target: column}, batch.n_rows)
        keep = SplitChunk(
            batch.select(rows),
            corrected.take(begin, batch.n_rows),
            times[begin:],
            len(rows),
            _kept_positions(extra, np.arange(batch.n_rows) >= begin),
        )
        return _Correction(chunk, [str(ids[row]) for row in rows], corrected.select(rows), keep, rows)

    def quarantine(self, batch: ColumnBatch, *, now: float) -> ColumnBatch:
        """Quarantine the rows that violate a guard; return the other rows."""
        spec, name = self.engine.spec, self.engine.name
        self.engine.check_rows(batch, labelled=True)
        found = guards.violations(spec, batch)
        if not found:
            return batch
        n_before = self.store.count_quarantined(name)
        if n_before + len(found) > _MAX_QUARANTINED:
            raise Conflict(
                f"{n_before:,} rows of {name!r} are in quarantine, but the limit is {_MAX_QUARANTINED:,}; "
                "nothing was changed.",
                hint="learn or discard rows in quarantine",
            )
        ids, subjects = wire.identifiers(batch, spec.id), wire.identifiers(batch, spec.subject)
        quarantined = [
            QuarantinedRow(0, now, ids[row], subjects[row], reason, pack(batch.select([row])))
            for row, (_, reason) in sorted(found.items())
        ]
        self.store.add_quarantined(name, quarantined)
        return batch.select([row for row in range(batch.n_rows) if row not in found])

    def remember(self, rows: Sequence[PendingRow], max_pending: int) -> None:
        """Store predicted rows until their labels arrive; raise Conflict if there would be too many."""
        rows = self._not_pending(rows)
        self.check_pending_limit(len(rows), max_pending)
        self.store.put_pending(self.engine.name, rows)
        self.n_pending += len(rows)

    def check_pending_limit(self, n_rows: int, max_pending: int) -> None:
        """Raise Conflict if ``n_rows`` more rows would exceed the limit of rows that wait for labels."""
        limit = min(max_pending, self.engine.spec.limit("waiting"))
        if self.n_pending + n_rows > limit:
            raise Conflict(
                f"{self.n_pending:,} rows of {self.engine.name!r} wait for their labels, and with {n_rows:,} "
                f"more there would be more than {limit:,.0f}; nothing was changed.",
                hint='send labels, or forget rows that will get none: {"before": "2026-01-31"}',
            )

    def _not_pending(self, rows: Sequence[PendingRow]) -> list[PendingRow]:
        """Return the rows that are not pending yet; raise Conflict if an id belongs to another row.

        A client whose API key only allows predictions must not replace the rows of other clients.
        """
        spec, ids = self.engine.spec, [row.id for row in rows]
        pending = {row.id: row for row in self.store.pending(self.engine.name, ids)}
        taken = [row.id for row in rows if row.id in pending and not _is_same(row, pending[row.id], spec)]
        if spec.id is not None and spec.keeps_rows and not taken:
            taken = self.store.known_ids(self.engine.name, ids)
        if taken:
            raise Conflict(
                f"the id {taken[0]!r} belongs to another row; nothing was changed.",
                hint="ids are unique; leave the id out to get a new one",
            )
        return [row for row in rows if row.id not in pending]

    # -- challenger ---------------------------------------------------------------------------------

    def history(self) -> Iterator[tuple[ColumnBatch, FloatArray]]:
        """Yield batches of the rows in the window and their times, oldest chunk first."""
        parts: list[tuple[ColumnBatch, FloatArray]] = []
        chunks = self.row_windows.chunks()
        for chunk in chunks:
            parts.append(self.active_rows(chunk))
            if chunk == chunks[-1] or sum(len(times) for _, times in parts) >= _REPLAY_ROWS:
                batches, times = zip(*parts, strict=True)
                yield wire.joined(batches), np.concatenate(times)
                parts = []

    # -- forgetting ---------------------------------------------------------------------------------

    def statement(self) -> dict[str, Any]:
        """Return the number of rows, the classes and the digest of the model, for a certificate."""
        engine = self.engine
        return {"rows": engine.n_rows, "classes": engine.classes(), "digest": engine.digest()}

    def split_chunk(self, chunk: int, positions: list[int] | None, key: str | None = None) -> SplitChunk:
        """Split off the rows at the given indices, or the rows of an idempotency key, or all rows.

        A chunk of a single request stores no keys, because all of its rows belong to the key of the request.
        """
        batch, times, extra = self.unpacked(chunk)
        if positions is None:
            is_shared = key is not None and "batches" in extra
            positions = extra["batches"].get(key, []) if is_shared else list(range(batch.n_rows))
        selected = np.zeros(batch.n_rows, dtype=bool)
        selected[positions] = True
        # The model has already forgotten expired rows.
        active = np.arange(batch.n_rows) >= self.row_windows.begin_of(chunk)
        return SplitChunk(
            batch.select(selected & active),
            batch.select(~selected & active),
            times[~selected & active],
            int(selected.sum()),
            _kept_positions(extra, ~selected & active),
        )

    def rewrite_chunk(self, chunk: int, split: SplitChunk) -> None:
        spec, keep = self.engine.spec, split.keep
        if not keep.n_rows:
            self.store.drop_chunks([chunk])
            self.row_windows.drop(chunk)
            return
        extra: dict[str, Any] = {"times": split.times, "given": None}
        if split.batches:
            extra["batches"] = split.batches
        self.store.replace_chunk(chunk, keep.n_rows, pack(keep, extra))
        self.store.index_batches(self.engine.name, chunk, list(split.batches))
        self.store.index_rows(
            self.engine.name, chunk, wire.texts(keep, spec.id), wire.texts(keep, spec.subject)
        )
        self.row_windows.replace(chunk, split.times)

    # -- snapshots and settings ---------------------------------------------------------------------

    def encoded_snapshot(self, now: float) -> Snapshot:
        """Return a snapshot of the current state."""
        return Snapshot(self.engine.version, now, self.engine.digest(), encode(self.engine.state()))

    def snapshot(self, now: float, keep: int = _MAX_SNAPSHOTS, encoded: Snapshot | None = None) -> None:
        """Write a snapshot; delete the events before it and the rows that are no longer needed."""
        engine = self.engine
        n_rows = self.rows_since_snapshot
        engine.pause(n_rows)
        snapshot = encoded or self.encoded_snapshot(now)
        engine.pause(n_rows)
        self.state_bytes = len(snapshot.body)
        self.store.put_snapshot(engine.name, snapshot, keep, self._temporary_snapshot)
        self._temporary_snapshot = None
        engine.pause(n_rows)
        self.store.drop_events(engine.name, engine.version)
        if engine.spec.keeps_rows:
            unneeded = self.row_windows.expired_chunks()
            for chunk in unneeded:
                self.row_windows.drop(chunk)
            # The expiry events of these chunks have been deleted.
            for chunk, begin in self.row_windows.take_unsaved():
                self.store.retire_rows(chunk, begin)
        else:
            unneeded = [chunk for chunk, _, _ in self.store.chunks(engine.name)]
        self.store.drop_chunks(unneeded)
        engine.pause(n_rows)
        self.snapshot_at = now
        self.rows_since_snapshot = self.events_since_snapshot = 0

    def configure(self, spec: Spec, *, now: float) -> int:
        """Change settings; return the version."""
        version = self.engine.configure(spec)
        self._append("configure", {"spec": json.dumps(spec.as_dict())}, now)
        if not spec.keeps_rows and (self.row_windows.chunks() or self.row_windows.expired_chunks()):
            self.row_windows = RowWindowIndex()
            self.snapshot(now)  # deletes stored rows
        return self.expire_rows(now) or version


def _latest_readable(store: Store, name: str) -> Engine | None:
    """Return the model of the newest snapshot that can be decoded."""
    version: int | None = None
    while (snapshot := store.snapshot(name, version=version)) is not None:
        try:
            return Engine.from_state(name, decode(snapshot.body))
        except Exception:  # noqa: BLE001  decoding damaged data can raise any error
            version = snapshot.version - 1
    return None


class _Correction(NamedTuple):
    chunk: int
    ids: list[str]  # ids of the rows whose labels change
    right: ColumnBatch  # rows with their new labels
    split: SplitChunk
    positions: list[int]  # indices of the corrected rows in the chunk


def _positions_by_key(
    sources: Sequence[tuple[str | None, int]], order: NDArray[np.intp] | None
) -> dict[str, list[int]]:
    """Return the indices of the rows of each idempotency key after the rows are sorted by ``order``."""
    keys = [key for key, n_rows in sources for _ in range(n_rows)]
    found: dict[str, list[int]] = {}
    for position, row in enumerate(range(len(keys)) if order is None or not keys else order.tolist()):
        key = keys[row]
        if key is not None:
            found.setdefault(key, []).append(position)
    return found


def _kept_positions(extra: Mapping[str, Any], kept: NDArray[np.bool_]) -> dict[str, list[int]]:
    """Return the indices of the rows of each idempotency key after only the ``kept`` rows remain."""
    new = np.cumsum(kept) - 1
    found = {
        key: [int(new[position]) for position in positions if kept[position]]
        for key, positions in extra.get("batches", {}).items()
    }
    return {key: positions for key, positions in found.items() if positions}


def _is_same(row: PendingRow, other: PendingRow, spec: Spec) -> bool:
    """Return whether two pending rows have the same subject and values, regardless of their times."""
    batches = [unpack(pending.body)[0] for pending in (row, other)]
    names = [sorted(name for name in batch.columns if name != spec.time) for batch in batches]
    if row.subject != other.subject or names[0] != names[1]:
        return False
    return row_keys(batches[0], names[0]) == row_keys(batches[1], names[0])


def _combined(stored: list[dict[str, Any]]) -> Predictions:
    """Combine predictions of several versions. A class unknown to a version gets the lowest score."""
    classes = list(dict.fromkeys(label for one in stored for label in one["classes"]))
    scores = np.empty((len(stored), len(classes)))
    for row, one in enumerate(stored):
        known = dict(zip(one["classes"], np.asarray(one["scores"]).tolist(), strict=True))
        lowest = min(known.values(), default=0.0) - 1.0
        scores[row] = [known.get(label, lowest) for label in classes]
    return Predictions.of(np.array([one["label"] for one in stored]), classes, scores)


def pending_rows(spec: Spec, batch: ColumnBatch, answers: Predictions | None, now: float) -> list[PendingRow]:
    """Return rows and their predictions, if any, as :class:`PendingRow` objects that wait for labels."""
    if spec.rows == "none":
        raise Conflict('this model stores no rows (rows = "none"), so no row can wait for its label.')
    if spec.subject is not None and spec.subject not in batch.columns:
        raise DataError(f"rows to remember need the subject column {spec.subject!r}.")
    if spec.time is not None and spec.time in batch.columns:
        present = [time is not None for time in wire.texts(batch, spec.time)]
        times = wire.times(batch.select(np.array(present)), spec.time)
        wire.check_not_in_future(times, spec.time, now + spec.max_future_seconds)
    id_column = spec.id if spec.id in batch.columns else None
    ids = [row_id or uuid.uuid4().hex for row_id in wire.identifiers(batch, id_column)]
    if len(set(ids)) < len(ids):
        raise DataError("two of the rows have the same id; nothing was changed.", hint="ids must be unique")
    subjects = wire.identifiers(batch, spec.subject)
    labels = [] if answers is None else answers.labels.tolist()
    rows = []
    for row, row_id in enumerate(ids):
        predicted: dict[str, Any] = {}
        if answers is not None:
            scores, classes = np.asarray(answers.scores[row]), list(answers.classes)
            predicted = {"label": labels[row], "scores": scores, "classes": classes}
        values = wire.fill_missing(batch.take(row, row + 1), {spec.id: row_id, spec.time: now})
        rows.append(PendingRow(row_id, now, subjects[row], pack(values, predicted)))
    return rows
