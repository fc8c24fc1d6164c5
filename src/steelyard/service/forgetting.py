"""Forgetting: find rows, remove them from the model and the store, and create the certificate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from steelyard._types import FloatArray
from steelyard.base import forgetting_scope
from steelyard.service import rows as wire
from steelyard.service.errors import Conflict, NotFoundError, federated_error
from steelyard.service.rows import missing_column
from steelyard.tables.columns import ColumnBatch

if TYPE_CHECKING:
    from steelyard.service.commands import Forget
    from steelyard.service.session import ModelSession

# Maximum number of remaining rows scanned to find out whether the categories of forgotten rows still occur.
_MAX_SCANNED_ROWS = 200_000


class SplitChunk(NamedTuple):
    """A stored chunk, divided into rows to remove from the model and rows to keep."""

    unlearn: ColumnBatch
    keep: ColumnBatch
    times: FloatArray  # times of the rows to keep
    n_selected: int  # number of selected rows, including expired ones
    batches: dict[str, list[int]]  # indices of the rows to keep, by idempotency key


class Forgetting:
    """Execution of one request to forget rows of a model."""

    def __init__(self, session: ModelSession, request: Forget, now: float) -> None:
        self.session, self.request, self.now = session, request, now
        self.engine, self.store = session.engine, session.store
        self.name, self.spec = session.engine.name, session.engine.spec

    def run(self) -> dict[str, Any]:
        """Remove the rows from the model and erase them from the store; return the certificate."""
        session, request, engine, now = self.session, self.request, self.engine, self.now
        if self.spec.sites:
            raise federated_error(self.name)
        before, affected = session.statement(), self._affected_chunks()
        unlearned = [chunk.unlearn for chunk in affected.values() if chunk.unlearn.n_rows]
        if request.batch is not None and not self.spec.keeps_rows:
            unlearned = [request.batch]
        if unlearned:
            engine.forget(wire.joined(unlearned))
        engine.recent.clear()
        kept_columns = self._erase_categories(affected)
        # Expired rows may be in older snapshots.
        deletes_history = bool(affected) or request.batch is not None or self.spec.window is not None
        # The statement and the snapshot are slow to compute, so they are computed before the first write.
        after = session.statement()
        snapshot = session.encoded_snapshot(now) if deletes_history else None
        for chunk, split in affected.items():
            session.rewrite_chunk(chunk, split)
        selection: dict[str, Any] = {
            "ids": request.ids or (),
            "subject": request.subject,
            "before": request.before,
        }
        n_pending = self.store.drop_pending(self.name, **selection)
        session.n_pending -= n_pending
        self.store.drop_early_labels(self.name, request.ids or ())
        n_quarantined = self.store.drop_pending(self.name, **selection, table="quarantine")
        counts = {
            "forgotten": sum(batch.n_rows for batch in unlearned),
            "waiting_dropped": n_pending,
            "quarantine_dropped": n_quarantined,
            "answers_erased": self._erase_responses(unlearned),
        }
        if deletes_history:
            session.snapshot(now, keep=1, encoded=snapshot)
        n_found = sum(split.n_selected for split in affected.values()) + n_pending + n_quarantined
        n_given = len(set(request.ids or ())) + (request.subject is not None)
        n_unknown = max(0, n_given - n_found)  # how many of the given ids or subjects match no row
        certificate = self._certificate(counts, n_unknown, kept_columns) | {"before": before, "after": after}
        if certificate["found"]:
            self.store.add_certificate(self.name, engine.version, now, json.dumps(certificate))
        return certificate

    def _certificate(
        self, counts: Mapping[str, int], n_unknown: int, kept_columns: list[str]
    ) -> dict[str, Any]:
        """Return the certificate without the statements about the model before and after."""
        request, keeps_rows = self.request, self.spec.keeps_rows
        has_effect = any(counts.values())
        is_complete = (keeps_rows or request.batch is not None) and not kept_columns and not n_unknown
        is_exact, covers = forgetting_scope(self.engine.learner)
        certificate = {
            "model": self.name,
            "by": request.by,
            **counts,
            "unknown": n_unknown,
            "categories_kept": kept_columns,
            "found": has_effect,
            "complete": has_effect and is_complete and is_exact,
            "covers": covers if has_effect else "Nothing was found, so nothing was forgotten.",
            "at": self.now,
            "version": self.engine.version,
        }
        if kept_columns:
            certificate["note"] = (
                f"Texts of the columns {', '.join(kept_columns)} may still be names of categories, because "
                "it could not be checked whether other rows have them."
            )
        elif not has_effect and keeps_rows:
            certificate["note"] = f"No learned row, waiting row or stored response was found by {request.by}."
        elif keeps_rows and not is_complete:
            certificate["note"] = (
                f"Rows of {n_unknown} {'subject' if request.subject else 'ids'} are not stored: they were "
                "never learned, have expired, or were forgotten before."
            )
        elif not is_complete:
            certificate["note"] = (
                "This model does not store the rows that it has learned, so they could not be found. The "
                "model still contains them until the rows themselves are sent in a forget request."
            )
        return certificate

    def _erase_categories(self, affected: Mapping[int, SplitChunk]) -> list[str]:
        """Erase categories that occurred only in forgotten rows; return columns that were not checked."""
        request, keeps_rows = self.request, self.spec.keeps_rows
        parts = [split.unlearn for split in affected.values()]
        if request.batch is not None and not keeps_rows:
            parts = [request.batch]
        left = set().union(*map(self.engine.categories_in, parts))
        n_scanned = 0
        # The active rows that are not forgotten, newest first.
        for chunk in reversed(self.session.row_windows.chunks()) if keeps_rows and left else ():
            rows = affected[chunk].keep if chunk in affected else self.session.active_rows(chunk)[0]
            left -= self.engine.categories_in(rows)
            n_scanned += rows.n_rows
            if not left or n_scanned > _MAX_SCANNED_ROWS:
                break
        if left and (not keeps_rows or n_scanned > _MAX_SCANNED_ROWS):
            return sorted({name for name, _ in left})
        if left:
            self.engine.erase_categories(left)
        return []

    def _erase_responses(self, unlearned: Sequence[ColumnBatch]) -> int:
        """Overwrite stored responses that mention the forgotten rows; return their number."""
        request, id_column = self.request, self.spec.id
        erase = partial(self.store.erase_responses, self.name)
        if request.request_key is not None:
            self.store.erase_response(self.name, request.request_key)
        before = request.before
        if request.batch is not None and id_column is None:
            before = np.inf  # rows without ids cannot be matched with responses, so all responses are erased
        n_responses = erase(ids=request.ids or (), subject=request.subject, before=before)
        parts = [part for part in unlearned if id_column in part.columns]
        ids = [row_id for part in parts for row_id in wire.texts(part, id_column)]
        return n_responses + erase(ids=[row_id for row_id in ids if row_id is not None])

    def _affected_chunks(self) -> dict[int, SplitChunk]:
        """Return the chunks that lose rows, each split into rows to remove and rows to keep."""
        session, request = self.session, self.request
        is_undo = request.request_key is not None or request.learned is not None
        if not self.spec.keeps_rows:
            if request.batch is None and (is_undo or self.spec.rows == "none"):
                raise Conflict(
                    f"this model stores no rows (rows = {self.spec.rows!r}), so rows cannot be found by "
                    f"{request.by}; nothing was changed.",
                    hint='send the rows themselves, or create the model with rows = "window"',
                )
            return {}
        if is_undo:
            return self._chunks_to_undo()
        if request.batch is not None:
            positions = self._positions_of(request.batch)
        elif request.before is not None:
            ranges = session.row_windows.before(request.before)
            positions = {rows.chunk: list(range(rows.begin, rows.end)) for rows in ranges}
        else:
            ids, subject = request.ids or (), request.subject
            positions = self.store.find_rows(self.name, ids=ids, subject=subject)
        return {chunk: session.split_chunk(chunk, found) for chunk, found in positions.items()}

    def _chunks_to_undo(self) -> dict[int, SplitChunk]:
        """Return the chunks of one request or of a range of arrival times; raise if no chunk is found."""
        key = self.request.request_key
        if key is not None:
            chunks = self.store.chunks_of_batch(self.name, key)
        else:
            assert self.request.learned is not None
            chunks = self.store.chunks_learned(self.name, *self.request.learned)
        splits = {chunk: self.session.split_chunk(chunk, None, key) for chunk in chunks}
        splits = {chunk: split for chunk, split in splits.items() if split.n_selected}
        if not splits:
            raise NotFoundError(
                f"the model {self.name!r} has no rows of this batch or time; nothing was changed.",
                hint="a batch is named by the Idempotency-Key of its request",
            )
        return splits

    def _positions_of(self, batch: ColumnBatch) -> dict[int, list[int]]:
        """Find the stored rows with the given values, by chunk; raise Conflict if a row is not found."""
        spec = self.spec
        identifying = [name for name in (spec.id, spec.subject) if name in batch.columns]
        names = [*self.engine.column_kinds(), spec.target, *map(str, identifying)]
        self.engine.check_rows(batch, labelled=False)
        if spec.target not in batch.columns:
            raise missing_column(spec.target, batch.columns)
        wanted = Counter(row_keys(batch, names))
        positions: dict[int, list[int]] = {}
        for chunk in self.session.row_windows.chunks():
            rows, _, _ = self.session.unpacked(chunk)
            begin = self.session.row_windows.begin_of(chunk)
            for position, key in enumerate(row_keys(rows, names)):
                if position >= begin and wanted[key] > 0:
                    positions.setdefault(chunk, []).append(position)
                    wanted[key] -= 1
            wanted = +wanted  # drops keys with count 0, whose rows were all found
            if not wanted:
                return positions
        raise Conflict(
            f"{sum(wanted.values())} of the rows to forget were never learned, or are forgotten already; "
            "nothing was changed.",
            hint="send rows with exactly the values and labels with which they were learned",
        )


def row_keys(batch: ColumnBatch, names: Sequence[str]) -> list[tuple[str | None, ...]]:
    """Return the values of each row as texts, so that 3 equals "3"; absent columns give None."""
    columns = [wire.texts(batch, name if name in batch.columns else None) for name in names]
    return list(zip(*columns, strict=True))
