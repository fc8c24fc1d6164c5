"""Session of one model: its engine, its rows in the store, and the events that change it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from steelyard._types import FloatArray
from steelyard.base import forgetting_scope
from steelyard.exceptions import DataError, FileFormatError, SteelyardError
from steelyard.persistence.tree import decode, encode
from steelyard.service import rows as wire
from steelyard.service.commands import Conflict, Forget
from steelyard.service.engine import EarlierPredictions, Engine
from steelyard.service.idempotency import ERASED_RESPONSE
from steelyard.service.row_windows import RowRange, RowWindowIndex
from steelyard.service.spec import Spec
from steelyard.service.stores import Event, PendingRow, Snapshot
from steelyard.service.stores.sql import Store
from steelyard.tables.columns import ColumnBatch

__all__ = ["LearnedRows", "ModelSession"]

_MAX_SNAPSHOTS = 24
_MAX_SCANNED_ROWS = 200_000  # rows that forgetting reads to find out whether a category is still used
_MIN_ROWS_TO_YIELD = 200  # smaller batches are learned too fast to delay predictions


class LearnedRows(NamedTuple):
    """Rows that the engine has learned and that are not in the store yet."""

    version: int
    now: float
    n_rows: int
    times: FloatArray
    ids: list[str | None]
    subjects: list[str | None]
    body: bytes


class ModelSession:
    """One model and its part of the store; the writer calls it inside a transaction of the store."""

    yield_to_readers: Callable[[], None] | None = None  # called between long steps

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store, self.engine = store, engine
        self.row_windows = RowWindowIndex()
        self.rows_since_snapshot = 0
        self.events_since_snapshot = 0
        self.snapshot_at = -np.inf  # time of the last snapshot
        self.n_pending = 0  # rows without labels

    # -- recovery -----------------------------------------------------------------------------------

    @classmethod
    def recover(cls, store: Store, name: str, spec: str) -> ModelSession:
        """Restore a model from its last snapshot and the events after it."""
        snapshot = store.last_snapshot(name)
        if snapshot is None:
            session = cls(store, Engine(name, Spec.from_store(json.loads(spec))))
        else:
            session = cls(store, Engine.from_state(name, decode(snapshot.body)))
            session.snapshot_at = snapshot.at
        expired: list[RowRange] = []
        for event in store.events_after(name, session.engine.version):
            expired += session._replay(event)
            session.events_since_snapshot += 1
        session.engine.monitor.take_points()  # the points are in the store already
        session.n_pending = store.count_pending(name)
        if session.engine.spec.keeps_rows:
            for chunk, n_rows, begin in store.chunks(name):
                session.row_windows.add(chunk, partial(session._times, chunk), n_rows, begin)
            session.row_windows.expire(expired)  # rows that expired since the snapshot
        return session

    def _times(self, chunk: int) -> FloatArray:
        _, extra = self._unpacked(chunk)
        return np.asarray(extra["times"])

    def _unpacked(self, chunk: int) -> tuple[ColumnBatch, dict[str, Any]]:
        """Return the rows of a chunk; raise FileFormatError that names the chunk if it is damaged."""
        try:
            return wire.unpack(self.store.chunk(chunk))
        except (FileFormatError, ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
            message = error.message if isinstance(error, FileFormatError) else "stored rows are damaged."
            raise FileFormatError(message, source=f"model {self.engine.name!r}, chunk {chunk}") from error

    @classmethod
    def repair(cls, store: Store, name: str, spec: str, now: float) -> dict[str, int]:
        """Rebuild a damaged model from its readable rows and write it; call it inside a transaction.

        A model that stores its rows learns the readable ones again. Another model continues from its latest
        readable snapshot with the readable events after it.

        Returns
        -------
        dict
            Numbers of rows that are ``kept`` and ``lost``; rows of unreadable snapshots are not counted.
        """
        settings = Spec.from_store(json.loads(spec))
        session, version = cls(store, Engine(name, settings)), store.last_versions().get(name, 0)
        if not settings.keeps_rows:
            session = cls(store, _latest_readable(store, name) or session.engine)
        n_lost, damaged = 0, []
        for chunk, n_rows, begin in store.chunks(name):
            try:
                batch, extra = session._unpacked(chunk)
                if begin < batch.n_rows:
                    session.engine.learn(batch.take(begin, batch.n_rows), at=now)
                session.row_windows.add(chunk, np.asarray(extra["times"]), n_rows, begin)
            except SteelyardError:
                n_lost += n_rows - begin
                damaged.append(chunk)
        store.drop_chunks(damaged)
        session.engine.version = version + 1
        session.engine.monitor.take_points()
        session.snapshot(now, keep=1)
        return {"kept": session.engine.n_rows, "lost": n_lost}

    def follow(self, version: int) -> bool:
        """Replay the events of another process; return whether that leads to the given version."""
        for event in self.store.events_after(self.engine.name, self.engine.version):
            if event.version != self.engine.version + 1:
                return False
            self._replay(event)
        self.engine.monitor.take_points()
        return self.engine.version == version

    def _replay(self, event: Event) -> list[RowRange]:
        """Apply an event again; return the rows that it expired."""
        body = wire.unpack_event(event.body)
        ranges: list[RowRange] = []
        if event.kind == "learn":
            batch, extra = self._unpacked(body["chunk"])
            self.engine.learn(batch, at=event.at, predictions=_stored_predictions(extra.get("given")))
            self.rows_since_snapshot += batch.n_rows
        elif event.kind == "retire":
            ranges = [RowRange(*piece) for piece in body["pieces"]]
            self.engine.forget(self._rows_of(ranges))
        elif event.kind == "configure":
            self.engine.configure(Spec.from_store(json.loads(body["spec"])))
        else:
            raise DataError(f"the store has an event {event.kind!r}, which this version does not know.")
        return ranges

    # -- learning -----------------------------------------------------------------------------------

    def learn(self, batch: ColumnBatch, *, now: float, predictions: EarlierPredictions | None = None) -> int:
        """Learn rows, write them to the store, expire rows outside the window; return the version."""
        return self.write(self.learn_in_memory(batch, now=now, predictions=predictions))

    @property
    def can_learn_ahead(self) -> bool:
        """Whether learning rows needs no access to the store."""
        spec = self.engine.spec
        return spec.id is None and not spec.sites and bool(self.engine.column_kinds())

    def learn_in_memory(
        self, batch: ColumnBatch, *, now: float, predictions: EarlierPredictions | None = None
    ) -> LearnedRows:
        """Learn rows without writing them; :meth:`write` must follow."""
        spec, engine = self.engine.spec, self.engine
        engine.check_rows(batch, labelled=True)
        times = wire.times(batch, spec.time, now)
        if spec.time is not None:
            wire.check_not_in_future(times, spec.time, now + spec.max_future_seconds)
        if spec.keeps_rows and spec.time is not None and engine.can_forget:
            order = np.argsort(times, kind="stable")  # RowWindowIndex needs sorted times
            batch, times = wire.select(batch, order), times[order]
            predictions = None if predictions is None else predictions.take(order)
        ids, subjects = wire.identifiers(batch, spec.id), wire.identifiers(batch, spec.subject)
        if spec.id is not None:
            self._check_new(ids)
        extra = {"times": times.tolist(), "given": None if predictions is None else vars(predictions)}
        pause = partial(self._yield, batch.n_rows)
        pause()
        body = wire.pack(batch, extra)
        pause()
        version = engine.learn(batch, at=now, predictions=predictions, pause=pause)
        pause()
        return LearnedRows(version, now, batch.n_rows, times, ids, subjects, body)

    def write(self, rows: LearnedRows) -> int:
        """Write learned rows to the store, expire rows outside the window; return the version."""
        spec, engine, version = self.engine.spec, self.engine, rows.version
        # Everything that takes long is done before the first change, which locks a SQLite file.
        expired = self._expired_by(rows) if spec.window is not None else []
        if expired:
            self._unlearn(expired)
        chunk = self.store.add_chunk(engine.name, rows.n_rows, rows.body)
        self._append("learn", {"chunk": chunk}, rows.now, rows.version)
        self.rows_since_snapshot += rows.n_rows
        if expired:
            version = engine.version
            self._append_expiry(expired, rows.now)
        if spec.keeps_rows:
            if spec.id is not None or spec.subject is not None:
                self.store.index_rows(engine.name, chunk, rows.ids, rows.subjects)
            self.row_windows.add(chunk, rows.times, rows.n_rows)
            if spec.window is not None:
                version = self.expire_rows(rows.now) or version
        points = engine.monitor.take_points()
        if points:
            self.store.add_points(engine.name, points)
        return version

    def _expired_by(self, rows: LearnedRows) -> list[RowRange]:
        """Return the stored rows that leave the window when these rows enter it."""
        window = self.engine.spec.window
        if isinstance(window, int):
            return self.row_windows.expired(window - rows.n_rows, rows.now) if rows.n_rows < window else []
        assert window is not None
        newest = max(self.row_windows.newest(), float(rows.times[-1]))
        return self.row_windows.expired(window, rows.now if self.engine.spec.time is None else newest)

    def expire_rows(self, now: float) -> int | None:
        """Forget the rows outside the window; return the new version, or None if there are none."""
        window = self.engine.spec.window
        if window is None:
            return None
        moment = now if self.engine.spec.time is None else self.row_windows.newest()
        ranges = self.row_windows.expired(window, moment)
        if not ranges:
            return None
        version = self._unlearn(ranges)
        self._append_expiry(ranges, now)
        return version

    def _unlearn(self, ranges: Sequence[RowRange]) -> int:
        """Unlearn rows that have expired; return the version."""
        rows = self._rows_of(ranges)
        pause = partial(self._yield, rows.n_rows)
        pause()
        try:
            version = self.engine.forget(rows, pause=pause)
        except DataError as error:  # these rows were learned before: this is not the fault of a client
            raise RuntimeError(f"rows outside the window could not be forgotten: {error}") from error
        pause()
        return version

    def _append_expiry(self, ranges: Sequence[RowRange], now: float) -> None:
        self._append("retire", {"pieces": [[r.chunk, r.begin, r.end] for r in ranges]}, now)
        self.row_windows.expire(ranges)  # the event records it; updating the chunk would rewrite its rows

    def _yield(self, n_rows: int) -> None:
        if self.yield_to_readers is not None and n_rows >= _MIN_ROWS_TO_YIELD:
            self.yield_to_readers()

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
        self.store.append(self.engine.name, Event(version, now, kind, wire.pack_event(body)))
        self.events_since_snapshot += 1

    def _rows_of(self, ranges: Sequence[RowRange]) -> ColumnBatch:
        parts = []
        for rows in ranges:
            batch, _ = self._unpacked(rows.chunk)
            parts.append(batch.take(rows.begin, rows.end))
        return wire.joined(parts)

    # -- delayed labels -----------------------------------------------------------------------------

    def label(self, pending: Sequence[PendingRow], labels: dict[str, Any], *, now: float) -> int:
        """Learn pending rows whose labels have arrived; their stored predictions are evaluated."""
        target = self.engine.spec.target
        unpacked = [wire.unpack(row.body) for row in pending]
        records = [{target: labels[row.id]} for row in pending]
        column = wire.from_records(records, self.engine.text_columns).columns[target]
        rows = wire.joined([batch for batch, _ in unpacked])
        rows = ColumnBatch({**rows.columns, target: column}, rows.n_rows)
        version = self.learn(rows, now=now, predictions=_combined([extra for _, extra in unpacked]))
        self.n_pending -= self.store.drop_pending(self.engine.name, ids=[row.id for row in pending])
        return version

    def remember(self, rows: Sequence[PendingRow], max_pending: int) -> None:
        """Store predicted rows until their labels arrive; raise Conflict if there would be too many."""
        name = self.engine.name
        rows = self._not_pending(rows)
        n_new = len(rows)
        if self.n_pending + n_new > max_pending:
            raise Conflict(
                f"{self.n_pending:,} rows of {name!r} wait for their labels, and {max_pending:,} can; "
                "nothing was changed.",
                hint='send labels, or forget rows that will get none: {"before": "2026-01-31"}',
            )
        self.store.put_pending(name, rows)
        self.n_pending += n_new

    def _not_pending(self, rows: Sequence[PendingRow]) -> list[PendingRow]:
        """Return the rows that are not pending yet; raise Conflict if an id belongs to another row.

        A key that may only predict must not replace the rows of other clients.
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

    # -- forgetting ---------------------------------------------------------------------------------

    def forget(self, request: Forget, *, now: float) -> dict[str, Any]:
        """Unlearn rows and erase them from the store; return the certificate."""
        engine = self.engine
        before = self._statement()
        is_complete = engine.spec.keeps_rows or request.batch is not None
        affected = self._affected_chunks(request)
        unlearned = [chunk.unlearn for chunk in affected.values() if chunk.unlearn.n_rows]
        n_rows = sum(batch.n_rows for batch in unlearned)
        if request.batch is not None and not engine.spec.keeps_rows:
            engine.forget(request.batch)
            n_rows = request.batch.n_rows
        elif unlearned:
            engine.forget(wire.joined(unlearned))
        kept_columns = self._erase_categories(affected, request)
        is_complete = is_complete and not kept_columns
        is_found = bool(affected) or request.batch is not None
        deletes_history = is_found or engine.spec.window is not None  # expired rows may be in older snapshots
        # Before the first change, because both take long.
        after, snapshot = self._statement(), self._encoded(now) if deletes_history else None
        for chunk, split in affected.items():
            self._rewrite(chunk, split)
        n_pending = self.store.drop_pending(
            engine.name, ids=request.ids or (), subject=request.subject, before=request.before
        )
        self.n_pending -= n_pending
        n_responses = self._erase_responses(request, unlearned)
        if deletes_history:
            self.snapshot(now, keep=1, encoded=snapshot)
        n_unknown = self._n_unknown(request, affected, n_pending)
        is_complete = is_complete and not n_unknown
        has_effect = bool(n_rows or n_pending or n_responses)
        is_exact, covers = forgetting_scope(engine.learner)
        certificate = {
            "model": engine.name,
            "by": request.by,
            "forgotten": n_rows,
            "waiting_dropped": n_pending,
            "answers_erased": n_responses,
            "unknown": n_unknown,
            "categories_kept": kept_columns,
            "found": has_effect,
            "complete": has_effect and is_complete and is_exact,
            "covers": covers if has_effect else "Nothing was found, so nothing was forgotten.",
            "at": now,
            "version": engine.version,
            "before": before,
            "after": after,
        }
        if kept_columns:
            certificate["note"] = (
                f"Texts of the columns {', '.join(kept_columns)} may still be names of categories, because "
                "it could not be checked whether other rows have them."
            )
        elif not has_effect and engine.spec.keeps_rows:
            certificate["note"] = f"No learned row, waiting row or stored response was found by {request.by}."
        elif engine.spec.keeps_rows and not is_complete:
            certificate["note"] = (
                f"Rows of {n_unknown} {'subject' if request.subject else 'ids'} are not stored: they were "
                "never learned, have expired, or were forgotten before."
            )
        elif not is_complete:
            certificate["note"] = (
                "This model does not store the rows that it has learned, so they could not be found. The "
                "model still contains them until the rows themselves are sent in a forget request."
            )
        if n_rows or n_pending or n_responses:
            self.store.add_certificate(engine.name, engine.version, now, json.dumps(certificate))
        return certificate

    def _erase_categories(self, affected: Mapping[int, _SplitChunk], request: Forget) -> list[str]:
        """Erase texts that only the forgotten rows had as categories; return columns that are not checked."""
        engine, keeps_rows = self.engine, self.engine.spec.keeps_rows
        parts = [split.unlearn for split in affected.values()]
        if request.batch is not None and not keeps_rows:
            parts = [request.batch]
        left = set().union(*map(engine.categories_in, parts))
        n_scanned = 0
        for rows in self._remaining_rows(affected) if keeps_rows and left else ():
            left -= engine.categories_in(rows)
            n_scanned += rows.n_rows
            if not left or n_scanned > _MAX_SCANNED_ROWS:
                break
        if not left:
            return []
        if not keeps_rows or n_scanned > _MAX_SCANNED_ROWS:
            return sorted({name for name, _ in left})
        engine.erase_categories(left)
        return []

    def _remaining_rows(self, affected: Mapping[int, _SplitChunk]) -> Iterator[ColumnBatch]:
        """Yield the active rows that are not forgotten, newest first."""
        for chunk in reversed(self.row_windows.chunks()):
            if chunk in affected:
                yield affected[chunk].keep
            else:
                rows, _ = self._unpacked(chunk)
                yield rows.take(self.row_windows.begin_of(chunk), rows.n_rows)

    @staticmethod
    def _n_unknown(request: Forget, affected: Mapping[int, _SplitChunk], n_pending: int) -> int:
        """Return how many of the given ids or subjects were found neither among rows nor pending rows."""
        if request.ids is None and request.subject is None:
            return 0
        n_found = sum(split.n_selected for split in affected.values()) + n_pending
        return max(0, len(set(request.ids)) - n_found) if request.ids is not None else int(not n_found)

    def _erase_responses(self, request: Forget, unlearned: Sequence[ColumnBatch]) -> int:
        """Overwrite stored responses that mention the forgotten rows; return their number."""
        spec = self.engine.spec
        blank = partial(self.store.blank_responses, self.engine.name, ERASED_RESPONSE)
        if request.subject is not None:
            n_responses = blank(subject=request.subject)
        elif request.before is not None or (request.batch is not None and spec.id is None):
            # Rows without ids cannot be matched with responses, so all responses are erased.
            n_responses = blank(before=np.inf if request.before is None else request.before)
        else:
            n_responses = blank(ids=list(request.ids or ()))
        parts = unlearned if spec.keeps_rows or request.batch is None else [request.batch]
        ids = [row_id for part in parts if spec.id in part.columns for row_id in wire.texts(part, spec.id)]
        return n_responses + blank(ids=[row_id for row_id in ids if row_id is not None])

    def _statement(self) -> dict[str, Any]:
        engine = self.engine
        return {"rows": engine.n_rows, "classes": engine.classes(), "digest": engine.digest()}

    def _affected_chunks(self, request: Forget) -> dict[int, _SplitChunk]:
        """Return the chunks that lose rows, each split into rows to unlearn and rows to keep."""
        if not self.engine.spec.keeps_rows:
            if request.batch is None and self.engine.spec.rows == "none":
                raise Conflict(
                    f"this model stores no rows (rows = {self.engine.spec.rows!r}), so none can be found "
                    f"by {request.by}; nothing was changed.",
                    hint='send the rows themselves, or create the model with rows = "window"',
                )
            return {}
        positions: dict[int, list[int]] = {}
        if request.batch is not None:
            positions = self._positions_of(request.batch)
        elif request.before is not None:
            for rows in self.row_windows.before(request.before):
                positions[rows.chunk] = list(range(rows.begin, rows.end))
        else:
            for chunk, position in self.store.find_rows(
                self.engine.name, ids=request.ids or (), subject=request.subject
            ):
                positions.setdefault(chunk, []).append(position)
        return {chunk: self._split(chunk, found) for chunk, found in positions.items()}

    def _split(self, chunk: int, positions: list[int]) -> _SplitChunk:
        batch, extra = self._unpacked(chunk)
        selected = np.zeros(batch.n_rows, dtype=bool)
        selected[positions] = True
        active = np.arange(batch.n_rows) >= self.row_windows.begin_of(chunk)  # expired rows are unlearned
        return _SplitChunk(
            wire.select(batch, selected & active),
            wire.select(batch, ~selected & active),
            np.asarray(extra["times"])[~selected & active],
            len(positions),
        )

    def _positions_of(self, batch: ColumnBatch) -> dict[int, list[int]]:
        """Find rows with these values in the window; raise Conflict if one of them is not there."""
        spec = self.engine.spec
        identifying = [name for name in (spec.id, spec.subject) if name in batch.columns]
        names = [*self.engine.column_kinds(), spec.target, *map(str, identifying)]
        self.engine.check_rows(batch, labelled=False)
        wanted = Counter(_row_keys(batch, names))
        positions: dict[int, list[int]] = {}
        for chunk in self.row_windows.chunks():
            if not wanted:
                break
            rows, _ = self._unpacked(chunk)
            begin = self.row_windows.begin_of(chunk)
            for position, key in enumerate(_row_keys(rows, names)):
                if position >= begin and wanted[key] > 0:
                    positions.setdefault(chunk, []).append(position)
                    wanted[key] -= 1
            wanted = +wanted  # remove the rows that were found from the counter
        if wanted:
            raise Conflict(
                f"{sum(wanted.values())} of the rows to forget were never learned, or are forgotten already; "
                "nothing was changed.",
                hint="send rows with exactly the values and labels with which they were learned",
            )
        return positions

    def _rewrite(self, chunk: int, split: _SplitChunk) -> None:
        spec, keep = self.engine.spec, split.keep
        if not keep.n_rows:
            self.store.drop_chunks([chunk])
            self.row_windows.drop(chunk)
            return
        body = wire.pack(keep, {"times": split.times, "given": None})
        self.store.replace_chunk(chunk, keep.n_rows, body)
        self.store.index_rows(
            self.engine.name, chunk, wire.texts(keep, spec.id), wire.texts(keep, spec.subject)
        )
        self.row_windows.replace(chunk, split.times)

    # -- snapshots and settings ---------------------------------------------------------------------

    def _encoded(self, now: float) -> Snapshot:
        return Snapshot(self.engine.version, now, self.engine.digest(), encode(self.engine.state()))

    def snapshot(self, now: float, keep: int = _MAX_SNAPSHOTS, encoded: Snapshot | None = None) -> None:
        """Write a snapshot; delete the events before it and the rows that are no longer needed."""
        engine, pause = self.engine, partial(self._yield, self.rows_since_snapshot)
        pause()
        snapshot = encoded or self._encoded(now)
        pause()
        self.store.put_snapshot(engine.name, snapshot, keep)
        pause()
        self.store.drop_events(engine.name, engine.version)
        if engine.spec.keeps_rows:
            unneeded = self.row_windows.expired_chunks()
            for chunk in unneeded:
                self.row_windows.drop(chunk)
            for chunk, begin in self.row_windows.take_unsaved():  # their events are deleted
                self.store.retire_rows(chunk, begin)
        else:
            unneeded = [chunk for chunk, _, _ in self.store.chunks(engine.name)]
        self.store.drop_chunks(unneeded)
        pause()
        self.snapshot_at = now
        self.rows_since_snapshot = self.events_since_snapshot = 0

    def configure(self, spec: Spec, *, now: float) -> int:
        """Change settings; return the version."""
        version = self.engine.configure(spec)
        self._append("configure", {"spec": json.dumps(spec.as_dict())}, now)
        if not spec.keeps_rows and (self.row_windows.chunks() or self.row_windows.expired_chunks()):
            self.row_windows = RowWindowIndex()
            self.snapshot(now)  # deletes the stored rows
        return self.expire_rows(now) or version


class _SplitChunk(NamedTuple):
    unlearn: ColumnBatch
    keep: ColumnBatch
    times: FloatArray  # times of the rows to keep
    n_selected: int  # selected rows, including expired ones


def _latest_readable(store: Store, name: str) -> Engine | None:
    """Return the model of the newest snapshot that can be decoded."""
    version: int | None = None
    while (snapshot := store.snapshot(name, version=version)) is not None:
        try:
            return Engine.from_state(name, decode(snapshot.body))
        except Exception:  # noqa: BLE001  any error of decoding damaged data
            version = snapshot.version - 1
    return None


def _row_keys(batch: ColumnBatch, names: Sequence[str]) -> list[tuple[Any, ...]]:
    missing = [name for name in names if name not in batch.columns]
    if missing:
        raise DataError(f"the column {missing[0]!r} is missing.", source="the request")
    columns = []
    for name in names:
        values = batch.columns[name]
        columns.append(wire.texts(batch, name) if values.dtype == object else values.tolist())
    return [tuple(map(_comparable, row)) for row in zip(*columns, strict=True)]


def _comparable(value: Any) -> Any:
    """Return a key for comparisons: missing values are equal, and the number 3 equals the text "3"."""
    if value is None or value != value:  # noqa: PLR0124  nan
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _is_same(row: PendingRow, other: PendingRow, spec: Spec) -> bool:
    """Return whether two pending rows have the same subject and values, apart from their time."""
    batches = [wire.unpack(pending.body)[0] for pending in (row, other)]
    names = [sorted(name for name in batch.columns if name != spec.time) for batch in batches]
    if row.subject != other.subject or names[0] != names[1]:
        return False
    return _row_keys(batches[0], names[0]) == _row_keys(batches[1], names[0])


def _stored_predictions(values: Any) -> EarlierPredictions | None:
    if values is None:
        return None
    return EarlierPredictions(**{**values, "scores": np.asarray(values["scores"])})


def _combined(stored: list[dict[str, Any]]) -> EarlierPredictions:
    """Combine predictions of several versions; a class that a version does not know gets the lowest score."""
    classes = list(dict.fromkeys(label for one in stored for label in one["classes"]))
    scores = np.empty((len(stored), len(classes)))
    for row, one in enumerate(stored):
        known = dict(zip(one["classes"], np.asarray(one["scores"]).tolist(), strict=True))
        lowest = min(known.values(), default=0.0) - 1.0
        scores[row] = [known.get(label, lowest) for label in classes]
    return EarlierPredictions([one["label"] for one in stored], scores, classes)
