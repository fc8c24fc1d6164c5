"""One model with its place in the store: its engine, its rows, and the events that change it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from steelyard._types import FloatArray
from steelyard.exceptions import DataError
from steelyard.persistence.tree import decode, encode
from steelyard.service import rows as wire
from steelyard.service.commands import Conflict, Forget
from steelyard.service.engine import Engine, Given
from steelyard.service.row_windows import Piece, RowWindowIndex
from steelyard.service.spec import Spec
from steelyard.service.store import Event, Snapshot, Store, Waiting
from steelyard.tables.columns import ColumnBatch

__all__ = ["BLANK", "ModelSession", "TakenIn"]

_KEPT_SNAPSHOTS = 24
_MANY_ROWS = 200  # take so long that the steps of learning them are worth a pause in between
BLANK = '{"erased": true}'  # stands for an answer that spoke of rows that were forgotten


class TakenIn(NamedTuple):
    """Rows that a model has learned and the store has not."""

    version: int
    now: float
    n_rows: int
    times: FloatArray
    ids: list[str | None]
    subjects: list[str | None]
    body: bytes


class ModelSession:
    """All that is done to one model; called by the scribe alone, inside a transaction of the store."""

    pause: Callable[[], None] | None = None  # called between steps that take long

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store, self.engine = store, engine
        self.row_windows = RowWindowIndex()
        self.rows_since_snapshot = 0
        self.events_since_snapshot = 0
        self.n_waiting = 0  # rows that wait for their labels

    # -- recovery -----------------------------------------------------------------------------------

    @classmethod
    def recover(cls, store: Store, name: str, spec: str) -> ModelSession:
        """The model as it was when its last event was committed."""
        snapshot = store.last_snapshot(name)
        if snapshot is None:
            session = cls(store, Engine(name, Spec.from_mapping(json.loads(spec))))
        else:
            session = cls(store, Engine.from_state(name, decode(snapshot.body)))
        retired: list[Piece] = []
        for event in store.events_after(name, session.engine.version):
            retired += session._replay(event)
            session.events_since_snapshot += 1
        session.engine.monitor.take_points()  # they were written when they were new
        session.n_waiting = store.count_waiting(name)
        if session.engine.spec.keeps_rows:
            for chunk, n_rows, begin in store.chunks(name):
                session.row_windows.add(chunk, partial(session._times, chunk), n_rows, begin)
            session.row_windows.forget(retired)  # since the snapshot
        return session

    def _times(self, chunk: int) -> FloatArray:
        _, extra = wire.unpack(self.store.chunk(chunk))
        return np.asarray(extra["times"])

    def follow(self) -> bool:
        """Replay what another process has done since; whether its events are all there."""
        for event in self.store.events_after(self.engine.name, self.engine.version):
            if event.version != self.engine.version + 1:
                return False
            self._replay(event)
        self.engine.monitor.take_points()
        return self.engine.version == self.store.last_version(self.engine.name)

    def _replay(self, event: Event) -> list[Piece]:
        """Do again what was done; returns the rows that it let go."""
        body: Any = decode(event.body)
        pieces: list[Piece] = []
        if event.kind == "learn":
            batch, extra = wire.unpack(self.store.chunk(body["chunk"]))
            self.engine.learn(batch, at=event.at, given=_given(extra.get("given")))
            self.rows_since_snapshot += batch.n_rows
        elif event.kind == "retire":
            pieces = [Piece(*piece) for piece in body["pieces"]]
            self.engine.forget(self._rows_of(pieces))
        elif event.kind == "configure":
            self.engine.configure(Spec.from_mapping(json.loads(body["spec"])))
        else:
            raise DataError(f"the store has an event {event.kind!r} that this library does not know.")
        return pieces

    # -- learning -----------------------------------------------------------------------------------

    def learn(self, batch: ColumnBatch, *, now: float, given: Given | None = None) -> int:
        """Learn rows, write them down, then let go what leaves the window; returns the version."""
        return self.keep(self.take_in(batch, now=now, given=given))

    @property
    def takes_in_alone(self) -> bool:
        """Whether rows can be learned without a look into the store."""
        spec = self.engine.spec
        return spec.id is None and not spec.sites and bool(self.engine.column_kinds())

    def take_in(self, batch: ColumnBatch, *, now: float, given: Given | None = None) -> TakenIn:
        """Learn rows; nothing of it counts before they are kept."""
        spec, engine = self.engine.spec, self.engine
        engine.check_rows(batch, labelled=True)
        times = wire.times(batch, spec.time, now)
        if spec.keeps_rows and spec.time is not None and engine.can_forget:
            order = np.argsort(times, kind="stable")  # the shelf looks rows up by time
            batch, times = wire.cut(batch, order), times[order]
            given = None if given is None else _sorted(given, order)
        ids, subjects = wire.names(batch, spec.id), wire.names(batch, spec.subject)
        self._check_new(ids)
        breathe = partial(self._breathe, batch.n_rows)
        breathe()
        version = engine.learn(batch, at=now, given=given, pause=breathe)
        breathe()
        extra = {"times": times, "given": None if given is None else vars(given)}
        return TakenIn(version, now, batch.n_rows, times, ids, subjects, wire.pack(batch, extra))

    def keep(self, rows: TakenIn) -> int:
        """Write down rows that were learned, then let go what leaves the window; returns the version."""
        self._breathe(rows.n_rows)
        spec, engine, version = self.engine.spec, self.engine, rows.version
        chunk = self.store.add_chunk(engine.name, rows.n_rows, rows.body)
        self._append("learn", {"chunk": chunk}, rows.now)
        self.rows_since_snapshot += rows.n_rows
        if spec.keeps_rows:
            if spec.id is not None or spec.subject is not None:
                self.store.index_rows(engine.name, chunk, rows.ids, rows.subjects)
            self.row_windows.add(chunk, rows.times, rows.n_rows)
            version = self.let_go(rows.now) or version
        points = engine.monitor.take_points()
        if points:
            self.store.add_points(engine.name, points)
        return version

    def let_go(self, now: float) -> int | None:
        """Forget what is older than the window; returns the version if anything was."""
        window = self.engine.spec.window
        if window is None:
            return None
        moment = now if self.engine.spec.time is None else self.row_windows.newest()
        pieces = self.row_windows.leaving(window, moment)
        if not pieces:
            return None
        rows = self._rows_of(pieces)
        breathe = partial(self._breathe, rows.n_rows)
        breathe()
        try:
            version = self.engine.forget(rows, pause=breathe)
        except DataError as error:  # rows from the store were learned: this is no mistake of a client
            raise RuntimeError(f"a window could not let go what it had learned: {error}") from error
        self._append("retire", {"pieces": [[piece.chunk, piece.begin, piece.end] for piece in pieces]}, now)
        self.row_windows.forget(
            pieces
        )  # the event tells the store; a mark on each chunk would write it all again
        breathe()
        return version

    def _breathe(self, n_rows: int) -> None:
        """Between two steps: whoever asks the model need not wait for the last of them."""
        if self.pause is not None and n_rows >= _MANY_ROWS:
            self.pause()

    def _check_new(self, ids: Sequence[str | None]) -> None:
        given = [row_id for row_id in ids if row_id is not None]
        twice = [row_id for row_id, n in Counter(given).items() if n > 1]
        known = twice or self.store.known_ids(self.engine.name, given)
        if known:
            raise Conflict(
                f"a row with the id {known[0]!r} was learned before; nothing was changed.",
                hint="an id names one row; forget it first to learn it anew",
            )

    def _append(self, kind: str, body: dict[str, Any], now: float) -> None:
        self.store.append(self.engine.name, Event(self.engine.version, now, kind, encode(body)))
        self.events_since_snapshot += 1

    def _rows_of(self, pieces: Sequence[Piece]) -> ColumnBatch:
        parts = []
        for piece in pieces:
            batch, _ = wire.unpack(self.store.chunk(piece.chunk))
            parts.append(batch.take(piece.begin, piece.end))
        return wire.joined(parts)

    # -- late labels --------------------------------------------------------------------------------

    def label(self, found: Sequence[Waiting], labels: dict[str, Any], *, now: float) -> int:
        """Learn remembered rows now that their labels are known, measured by the answers of then."""
        target = self.engine.spec.target
        parts, answers = [], []
        for waiting in found:
            batch, extra = wire.unpack(waiting.body)
            parts.append(batch)
            answers.append(extra)
        records = [{target: labels[waiting.id]} for waiting in found]
        column = wire.from_records(records, self.engine.text_columns).columns[target]
        rows = wire.joined(parts)
        rows = ColumnBatch({**rows.columns, target: column}, rows.n_rows)
        version = self.learn(rows, now=now, given=_given_of(answers))
        self.n_waiting -= self.store.drop_waiting(self.engine.name, ids=[waiting.id for waiting in found])
        return version

    def remember(self, waiting: Sequence[Waiting], most: int) -> None:
        """Keep rows until their labels come; not more than so many at once."""
        name = self.engine.name
        n_new = len(waiting) - len(self.store.waiting_ids(name, [one.id for one in waiting]))
        if self.n_waiting + n_new > most:
            raise Conflict(
                f"{self.n_waiting:,} rows of {name!r} wait for their labels, and {most:,} can; "
                "nothing was changed.",
                hint='send labels, or forget rows that will get none: {"before": "2026-01-31"}',
            )
        self.store.wait(name, waiting)
        self.n_waiting += n_new

    # -- forgetting ---------------------------------------------------------------------------------

    def forget(self, request: Forget, *, now: float) -> dict[str, Any]:
        """Unlearn rows and erase them; returns the certificate."""
        engine = self.engine
        before = self._account()
        is_complete = engine.spec.keeps_rows or request.batch is not None
        gone = self._chosen(request)
        unlearned = [part for part in gone.values() if part.unlearn.n_rows]
        n_rows = sum(part.unlearn.n_rows for part in unlearned)
        if request.batch is not None and not engine.spec.keeps_rows:
            engine.forget(request.batch)
            n_rows = request.batch.n_rows
        elif unlearned:
            engine.forget(wire.joined([part.unlearn for part in unlearned]))
        for chunk, part in gone.items():
            self._rewrite(chunk, part)
        n_waiting = self.store.drop_waiting(
            engine.name, ids=request.ids or (), subject=request.subject, before=request.before
        )
        self.n_waiting -= n_waiting
        n_answers = self._blank_answers(request, [part.unlearn for part in unlearned])
        self.snapshot(now, keep=1)  # older ones know what was forgotten
        certificate = {
            "model": engine.name,
            "by": request.by,
            "forgotten": n_rows,
            "waiting_dropped": n_waiting,
            "answers_erased": n_answers,
            "complete": is_complete,
            "at": now,
            "version": engine.version,
            "before": before,
            "after": self._account(),
        }
        if not is_complete:
            certificate["note"] = (
                "This model does not keep rows that it has learned, so none could be found. What it learned "
                "from them stays until the rows themselves are sent to be forgotten."
            )
        self.store.add_certificate(engine.name, engine.version, now, json.dumps(certificate))
        return certificate

    def _blank_answers(self, request: Forget, unlearned: Sequence[ColumnBatch]) -> int:
        """Kept answers that speak of the rows are written over; returns how many."""
        name, spec = self.engine.name, self.engine.spec
        blank = partial(self.store.blank_answers, name, BLANK)
        if request.subject is not None:
            n_answers = blank(subject=request.subject)
        elif request.before is not None or (request.batch is not None and spec.id is None):
            # Rows without an id of their own cannot be told apart: then all kept answers go.
            n_answers = blank(before=np.inf if request.before is None else request.before)
        else:
            n_answers = blank(ids=list(request.ids or ()))
        parts = unlearned if spec.keeps_rows or request.batch is None else [request.batch]
        known = [row_id for part in parts if spec.id in part.columns for row_id in wire.texts(part, spec.id)]
        return n_answers + blank(ids=[row_id for row_id in known if row_id is not None])

    def _account(self) -> dict[str, Any]:
        engine = self.engine
        return {"rows": engine.n_rows, "classes": engine.classes(), "digest": engine.digest()}

    def _chosen(self, request: Forget) -> dict[int, _Cut]:
        """For each chunk that loses rows, what is left and what must be unlearned."""
        if not self.engine.spec.keeps_rows:
            if request.batch is None and self.engine.spec.rows == "none":
                raise Conflict(
                    f"this model keeps no rows (rows = {self.engine.spec.rows!r}), so none can be found "
                    f"by {request.by}; nothing was changed.",
                    hint='send the rows themselves, or make the model with rows = "window"',
                )
            return {}
        if request.batch is not None:
            positions = self._equal_rows(request.batch)
        elif request.before is not None:
            positions = {
                piece.chunk: list(range(piece.begin, piece.end))
                for piece in self.row_windows.before(request.before)
            }
        else:
            positions = {}
            for chunk, position in self.store.find_rows(
                self.engine.name, ids=request.ids or (), subject=request.subject
            ):
                positions.setdefault(chunk, []).append(position)
        return {chunk: self._cut(chunk, found) for chunk, found in positions.items()}

    def _cut(self, chunk: int, positions: list[int]) -> _Cut:
        batch, extra = wire.unpack(self.store.chunk(chunk))
        begin = self.row_windows.begin_of(chunk)
        chosen = np.zeros(batch.n_rows, dtype=bool)
        chosen[positions] = True
        counting = np.arange(batch.n_rows) >= begin  # what no longer counts need not be unlearned
        return _Cut(
            wire.cut(batch, chosen & counting),
            wire.cut(batch, ~chosen & counting),
            np.asarray(extra["times"])[~chosen & counting],
        )

    def _equal_rows(self, batch: ColumnBatch) -> dict[int, list[int]]:
        """Where rows with these values stand, each found once; one that is nowhere is refused."""
        spec = self.engine.spec
        said = [
            name for name in (spec.id, spec.subject) if name in batch.columns
        ]  # else any equal row will do
        names = [*self.engine.column_kinds(), spec.target, *map(str, said)]
        self.engine.check_rows(ColumnBatch({**batch.columns}, batch.n_rows), labelled=False)
        wanted = Counter(_keys(batch, names))
        positions: dict[int, list[int]] = {}
        for chunk in self.row_windows.chunks():
            if not wanted:
                break
            rows, _ = wire.unpack(self.store.chunk(chunk))
            begin = self.row_windows.begin_of(chunk)
            for position, key in enumerate(_keys(rows, names)):
                if position >= begin and key in wanted:
                    positions.setdefault(chunk, []).append(position)
                    wanted[key] -= 1
                    if not wanted[key]:
                        del wanted[key]
        if wanted:
            raise Conflict(
                f"{sum(wanted.values())} of the rows to forget were never learned, or are forgotten already; "
                "nothing was changed.",
                hint="send rows with exactly the values and labels with which they were learned",
            )
        return positions

    def _rewrite(self, chunk: int, part: _Cut) -> None:
        spec, name = self.engine.spec, self.engine.name
        if not part.keep.n_rows:
            self.store.drop_chunks([chunk])
            self.row_windows.drop(chunk)
            return
        self.store.replace_chunk(
            chunk, part.keep.n_rows, wire.pack(part.keep, {"times": part.times, "given": None})
        )
        self.store.index_rows(
            name, chunk, wire.texts(part.keep, spec.id), wire.texts(part.keep, spec.subject)
        )
        self.row_windows.replace(chunk, part.times)

    # -- snapshots and settings ---------------------------------------------------------------------

    def snapshot(self, now: float, keep: int = _KEPT_SNAPSHOTS) -> None:
        """Write the whole model down; events and rows that only led here go."""
        engine, breathe = self.engine, partial(self._breathe, self.rows_since_snapshot)
        breathe()
        snapshot = Snapshot(engine.version, now, engine.digest(), encode(engine.state()))
        breathe()
        self.store.put_snapshot(engine.name, snapshot, keep)
        breathe()
        self.store.drop_events(engine.name, engine.version)
        if engine.spec.keeps_rows:
            finished = self.row_windows.finished()
        else:
            finished = [chunk for chunk, _, _ in self.store.chunks(engine.name)]
        self.store.drop_chunks(finished)
        breathe()
        if engine.spec.keeps_rows:
            for chunk in finished:
                self.row_windows.drop(chunk)
            for chunk, begin in self.row_windows.to_note():  # the events that told so are gone
                self.store.retire_rows(chunk, begin)
        self.rows_since_snapshot = self.events_since_snapshot = 0

    def configure(self, spec: Spec, *, now: float) -> int:
        """Change settings; returns the version."""
        version = self.engine.configure(spec)
        self._append("configure", {"spec": json.dumps(spec.as_dict())}, now)
        if not spec.keeps_rows and self.row_windows.chunks():  # rows are not to be kept any more
            self.row_windows = RowWindowIndex()
            self.snapshot(now)
        return self.let_go(now) or version


class _Cut:
    """A chunk in two: rows to unlearn, and rows that stay with their times."""

    def __init__(self, unlearn: ColumnBatch, keep: ColumnBatch, times: Any) -> None:
        self.unlearn, self.keep, self.times = unlearn, keep, times


def _keys(batch: ColumnBatch, names: Sequence[str]) -> list[tuple[Any, ...]]:
    missing = [name for name in names if name not in batch.columns]
    if missing:
        raise DataError(f"the column {missing[0]!r} is missing.", source="the request")
    columns = []
    for name in names:
        values = batch.columns[name]
        columns.append(wire.texts(batch, name) if values.dtype == object else values.tolist())
    return [tuple(map(_comparable, row)) for row in zip(*columns, strict=True)]


def _comparable(value: Any) -> Any:
    """Missing values are equal to each other, and 3 is 3 whether it came as a number or as a text."""
    if value is None or value != value:  # noqa: PLR0124  nan
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _sorted(given: Given, order: Any) -> Given:
    return Given([given.labels[i] for i in order], given.scores[order], given.classes)


def _given(values: Any) -> Given | None:
    return None if values is None else Given(**{**values, "scores": np.asarray(values["scores"])})


def _given_of(answers: list[dict[str, Any]]) -> Given:
    """Answers from different moments side by side; a class that was not known then scores lowest."""
    classes = list(dict.fromkeys(label for answer in answers for label in answer["classes"]))
    scores = np.empty((len(answers), len(classes)))
    for row, answer in enumerate(answers):
        known = dict(zip(answer["classes"], np.asarray(answer["scores"]).tolist(), strict=True))
        lowest = min(known.values(), default=0.0) - 1.0
        scores[row] = [known.get(label, lowest) for label in classes]
    return Given([answer["label"] for answer in answers], scores, classes)
