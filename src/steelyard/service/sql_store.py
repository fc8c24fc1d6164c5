"""What a store says to its database, in the SQL that SQLite and PostgreSQL share.

A database brings its connection, transactions, the right to write and the way to erase (``sqlite``,
``postgres``); everything that is kept is written and found here, once for both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from steelyard.exceptions import FileFormatError
from steelyard.service.store import About, Event, Snapshot, Waiting

__all__ = ["SQLStore"]

_MANY = 500  # parameters of one statement
_OF_MODELS = (
    "events",
    "snapshots",
    "chunks",
    "row_index",
    "waiting",
    "answers",
    "answer_index",
    "points",
    "certificates",
)


class SQLStore:
    """The tables of a store; ``path`` names it in sentences."""

    path: str

    # -- what a database brings ---------------------------------------------------------------------

    def _do(self, sql: str, *values: Any) -> list[Any]:
        """One statement of the scribe's; ``?`` marks a value."""
        raise NotImplementedError

    def _do_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement of the scribe's for many rows."""
        raise NotImplementedError

    def _read(self, sql: str, *values: Any) -> list[Any]:
        """A question of whoever is not the scribe: it sees what is committed."""
        raise NotImplementedError

    # -- models, events, snapshots ------------------------------------------------------------------

    def models(self) -> list[tuple[str, str]]:
        return self._do("SELECT name, spec FROM models ORDER BY name")

    def put_model(self, name: str, spec: str, at: float) -> None:
        self._do(
            "INSERT INTO models (name, spec, at) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET spec = excluded.spec",
            name,
            spec,
            at,
        )

    def drop_model(self, name: str) -> None:
        for table in _OF_MODELS:
            self._do(f"DELETE FROM {table} WHERE model = ?", name)  # noqa: S608  names are ours
        self._do("DELETE FROM models WHERE name = ?", name)

    def append(self, model: str, event: Event) -> None:
        self._do(
            "INSERT INTO events (model, version, at, kind, body) VALUES (?, ?, ?, ?, ?)",
            model,
            event.version,
            event.at,
            event.kind,
            event.body,
        )

    def events_after(self, model: str, version: int) -> Iterator[Event]:
        sql = "SELECT version, at, kind, body FROM events WHERE model = ? AND version > ? ORDER BY version"
        for row in self._do(sql, model, version):
            yield Event(*row)

    def drop_events(self, model: str, until: int) -> None:
        self._do("DELETE FROM events WHERE model = ? AND version <= ?", model, until)

    def put_snapshot(self, model: str, snapshot: Snapshot, keep: int) -> None:
        self._do("DELETE FROM snapshots WHERE model = ? AND version = ?", model, snapshot.version)
        self._do(
            "INSERT INTO snapshots (model, version, at, digest, body) VALUES (?, ?, ?, ?, ?)",
            model,
            snapshot.version,
            snapshot.at,
            snapshot.digest,
            snapshot.body,
        )
        self._do(
            "DELETE FROM snapshots WHERE model = ? AND version NOT IN "
            "(SELECT version FROM snapshots WHERE model = ? ORDER BY version DESC LIMIT ?)",
            model,
            model,
            keep,
        )

    def last_snapshot(self, model: str) -> Snapshot | None:
        """The newest one; for the scribe, which may stand in a transaction."""
        sql = "SELECT version, at, digest, body FROM snapshots WHERE model = ? ORDER BY version DESC LIMIT 1"
        found = self._do(sql, model)
        return Snapshot(*found[0]) if found else None

    def last_version(self, model: str) -> int:
        """The version of the newest event or snapshot; 0 where there is none."""
        sql = (
            "SELECT max(version) FROM (SELECT version FROM events WHERE model = ? "
            "UNION ALL SELECT version FROM snapshots WHERE model = ?) AS both_kinds"
        )
        return int(self._do(sql, model, model)[0][0] or 0)

    def snapshot(self, model: str, *, version: int | None = None, at: float | None = None) -> Snapshot | None:
        sql = "SELECT version, at, digest, body FROM snapshots WHERE model = ?"
        values: list[Any] = [model]
        for column, most in (("version", version), ("at", at)):
            if most is not None:
                sql, values = f"{sql} AND {column} <= ?", [*values, most]
        found = self._read(f"{sql} ORDER BY version DESC LIMIT 1", *values)
        return Snapshot(*found[0]) if found else None

    # -- rows ---------------------------------------------------------------------------------------

    def add_chunk(self, model: str, n_rows: int, body: bytes) -> int:
        sql = "INSERT INTO chunks (model, n, retired, body) VALUES (?, ?, 0, ?) RETURNING chunk"
        return int(self._do(sql, model, n_rows, body)[0][0])

    def chunk(self, chunk: int) -> bytes:
        found = self._do("SELECT body FROM chunks WHERE chunk = ?", chunk)
        if not found:
            raise FileFormatError(f"the rows of chunk {chunk} are not in the store.", source=self.path)
        return bytes(found[0][0])

    def replace_chunk(self, chunk: int, n_rows: int, body: bytes) -> None:
        self._do("UPDATE chunks SET n = ?, retired = 0, body = ? WHERE chunk = ?", n_rows, body, chunk)
        self._do("DELETE FROM row_index WHERE chunk = ?", chunk)

    def retire_rows(self, chunk: int, begin: int) -> None:
        self._do("UPDATE chunks SET retired = ? WHERE chunk = ?", begin, chunk)

    def drop_chunks(self, chunks: Iterable[int]) -> None:
        gone = [(chunk,) for chunk in chunks]
        self._do_many("DELETE FROM chunks WHERE chunk = ?", gone)
        self._do_many("DELETE FROM row_index WHERE chunk = ?", gone)

    def chunks(self, model: str) -> list[tuple[int, int, int]]:
        """Chunks, how many rows they have, and how many of the first ones no longer count."""
        return self._do("SELECT chunk, n, retired FROM chunks WHERE model = ? ORDER BY chunk", model)

    def index_rows(
        self, model: str, chunk: int, ids: Sequence[str | None], subjects: Sequence[str | None]
    ) -> None:
        rows = [
            (model, row_id, subject, chunk, position)
            for position, (row_id, subject) in enumerate(zip(ids, subjects, strict=True))
            if row_id is not None or subject is not None
        ]
        sql = "INSERT INTO row_index (model, id, subject, chunk, position) VALUES (?, ?, ?, ?, ?)"
        self._do_many(sql, rows)

    def find_rows(
        self, model: str, *, ids: Sequence[str] = (), subject: str | None = None
    ) -> list[tuple[int, int]]:
        if subject is not None:
            sql = "SELECT chunk, position FROM row_index WHERE model = ? AND subject = ?"
            return self._do(sql, model, subject)
        return self._do_in(
            "SELECT chunk, position FROM row_index WHERE model = ? AND id IN (...)", model, ids
        )

    def known_ids(self, model: str, ids: Sequence[str]) -> list[str]:
        found = self._do_in("SELECT id FROM row_index WHERE model = ? AND id IN (...)", model, ids)
        return [row[0] for row in found]

    def _do_in(self, sql: str, model: str, ids: Sequence[str]) -> list[Any]:
        """One statement about many ids, some at a time."""
        found: list[Any] = []
        for begin in range(0, len(ids), _MANY):
            some = ids[begin : begin + _MANY]
            found += self._do(sql.replace("...", ",".join("?" * len(some))), model, *some)
        return found

    # -- rows that wait for labels ------------------------------------------------------------------

    def wait(self, model: str, waiting: Sequence[Waiting]) -> None:
        self._do_many(
            "INSERT INTO waiting (model, id, at, subject, body) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (model, id) DO UPDATE SET at = excluded.at, subject = excluded.subject, "
            "body = excluded.body",
            [(model, w.id, w.at, w.subject, w.body) for w in waiting],
        )

    def waiting(self, model: str, ids: Sequence[str]) -> list[Waiting]:
        sql = "SELECT id, at, subject, body FROM waiting WHERE model = ? AND id IN (...)"
        return [Waiting(*row) for row in self._do_in(sql, model, ids)]

    def waiting_ids(self, model: str, ids: Sequence[str]) -> list[str]:
        """Which of these wait already."""
        found = self._do_in("SELECT id FROM waiting WHERE model = ? AND id IN (...)", model, ids)
        return [row[0] for row in found]

    def drop_waiting(
        self, model: str, *, ids: Sequence[str] = (), subject: str | None = None, before: float | None = None
    ) -> int:
        """Rows that wait no longer, chosen in one way; returns how many."""
        if subject is not None:
            sql = "DELETE FROM waiting WHERE model = ? AND subject = ? RETURNING 1"
            return len(self._do(sql, model, subject))
        if before is not None:
            return len(self._do("DELETE FROM waiting WHERE model = ? AND at < ? RETURNING 1", model, before))
        return len(self._do_in("DELETE FROM waiting WHERE model = ? AND id IN (...) RETURNING 1", model, ids))

    def count_waiting(self, model: str) -> int:
        """As the scribe sees it."""
        return int(self._do("SELECT count(*) FROM waiting WHERE model = ?", model)[0][0])

    def n_waiting(self, model: str) -> int:
        return int(self._read("SELECT count(*) FROM waiting WHERE model = ?", model)[0][0])

    # -- answers that were given, measures, certificates --------------------------------------------

    def answer_to(self, model: str, key: str) -> tuple[str, str] | None:
        sql = "SELECT fingerprint, body FROM answers WHERE model = ? AND key = ?"
        found = self._do(sql, model, key)
        return found[0] if found else None

    def keep_answer(
        self, model: str, key: str, fingerprint: str, body: str, *, at: float, about: Sequence[About] = ()
    ) -> None:
        self._do(
            "INSERT INTO answers (model, key, fingerprint, body, at) VALUES (?, ?, ?, ?, ?)",
            model,
            key,
            fingerprint,
            body,
            at,
        )
        self._index_answer(model, key, about)

    def _index_answer(self, model: str, key: str, about: Sequence[About]) -> None:
        self._do_many(
            "INSERT INTO answer_index (model, key, id, subject) VALUES (?, ?, ?, ?)",
            [(model, key, row_id, subject) for row_id, subject in about],
        )

    def blank_answers(
        self,
        model: str,
        blank: str,
        *,
        ids: Sequence[str] = (),
        subject: str | None = None,
        before: float | None = None,
    ) -> int:
        """Write over kept answers that speak of rows chosen in one way; returns how many."""
        if subject is not None:
            sql = "SELECT DISTINCT key FROM answer_index WHERE model = ? AND subject = ?"
            found = self._do(sql, model, subject)
        elif before is not None:
            sql = (
                "SELECT DISTINCT a.key FROM answers AS a JOIN answer_index AS i "
                "ON i.model = a.model AND i.key = a.key WHERE a.model = ? AND a.at < ?"
            )
            found = self._do(sql, model, before)
        else:
            found = self._do_in("SELECT key FROM answer_index WHERE model = ? AND id IN (...)", model, ids)
        keys = sorted({row[0] for row in found})
        self._do_many(
            "UPDATE answers SET body = ? WHERE model = ? AND key = ?", [(blank, model, k) for k in keys]
        )
        self._do_many("DELETE FROM answer_index WHERE model = ? AND key = ?", [(model, k) for k in keys])
        return len(keys)

    def drop_answers(self, before: float) -> None:
        gone = self._do("DELETE FROM answers WHERE at < ? RETURNING model, key", before)
        self._do_many("DELETE FROM answer_index WHERE model = ? AND key = ?", gone)

    def index_old_answers(self) -> None:
        """For stores from before this was noted: which ids the kept answers speak of."""
        for model, key, body in self._do("SELECT model, key, body FROM answers"):
            answer = json.loads(body)
            ids = [*answer.get("ids", ()), *answer.get("unknown", ())]
            self._index_answer(model, key, [(row_id, None) for row_id in ids])

    def add_points(self, model: str, points: Sequence[dict[str, Any]]) -> None:
        self._do_many(
            "INSERT INTO points (model, at, row, body) VALUES (?, ?, ?, ?)",
            [(model, point["at"], point["row"], json.dumps(point)) for point in points],
        )

    def points(self, model: str, since: float | None, limit: int) -> list[dict[str, Any]]:
        later, values = ("", []) if since is None else (" AND at >= ?", [since])
        found = self._read(
            f"SELECT body FROM (SELECT rowid AS place, body FROM points WHERE model = ?{later} "  # noqa: S608
            "ORDER BY rowid DESC LIMIT ?) AS last ORDER BY place",
            model,
            *values,
            limit,
        )
        return [json.loads(row[0]) for row in found]

    def add_certificate(self, model: str, version: int, at: float, body: str) -> None:
        sql = "INSERT INTO certificates (model, version, at, body) VALUES (?, ?, ?, ?)"
        self._do(sql, model, version, at, body)

    def certificates(self, model: str, limit: int) -> list[dict[str, Any]]:
        sql = "SELECT body FROM certificates WHERE model = ? ORDER BY version DESC, at DESC LIMIT ?"
        return [json.loads(row[0]) for row in self._read(sql, model, limit)]
