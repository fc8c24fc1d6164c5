"""Fuzzing of requests to the service: invalid bodies, headers and paths."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import logging
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from steelyard.service import Spec, SQLiteStore, Writer
from steelyard.service.commands import Learn, Put
from steelyard.service.http import Limits, make_app
from steelyard.service.rows import from_records
from tests.safety import documents
from tests.safety.fuzz_tables import spoiled
from tests.safety.mutation import changed_json, flip_bits
from tests.service.data import SPEC, Clock, records

JSON, LINES, CSV, ARROW = (
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "application/vnd.apache.arrow.stream",
)
MODELS = {
    "plain": SPEC,
    "window": {**SPEC, "memory": 40, "missing": "mean"},
    "kernel": {**SPEC, "learner": {"class": "IncrementalSVC", "gamma": 0.5}},
    "drift": {**SPEC, "memory": "drift", "rows": "none"},
    "pool": {"target": "y", "sites": True},
}
_LIMITS = Limits(body=100_000, rows=200, columns=30, values=4_000)
_REQUESTS_PER_STORE = 400


class Served:
    """The service without a server. A request is a synchronous call."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        store = SQLiteStore(Path(self._folder.name, "store.db"))
        self.writer = Writer(store, clock=Clock())
        app = make_app(self.writer, limits=_LIMITS)
        self.writer.submit = self._at_once  # type: ignore[method-assign]
        self._loop = asyncio.new_event_loop()
        self._app: Any = app
        self._lifespan = app.router.lifespan_context(app)
        self.writer.start = lambda: None  # type: ignore[method-assign]
        self._loop.run_until_complete(self._lifespan.__aenter__())
        for name, spec in MODELS.items():
            self._at_once(Put(name, Spec.from_mapping(spec)))
            if name != "pool":
                self._at_once(Learn(name, from_records(records(40), ["customer", "row"])))
        self.n_left = _REQUESTS_PER_STORE

    def _at_once(self, wish: Any) -> Any:
        self.writer.process([wish])
        return wish

    def close(self) -> None:
        self._loop.close()
        self.writer.store.close()
        self._folder.cleanup()

    def state(self) -> dict[str, Any]:
        """Return the state and the version of all models."""
        return {
            name: (published.version, published.summary().get("digest"))
            for name, published in self.writer.published.items()
        }

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, str]:
        path, _, query = target.partition("?")
        sent = {"host": "127.0.0.1", **headers}
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "root_path": "",
            "raw_path": path.encode(errors="replace"), "query_string": query.encode(errors="replace"),
            "scheme": "http", "server": ("test", 80), "client": ("test", 1),
            "headers": [(k.lower().encode(), v.encode("latin-1", "replace")) for k, v in sent.items()],
        }  # fmt: skip
        parts: list[dict[str, Any]] = []
        coming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return coming.pop() if coming else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            parts.append(message)

        self._loop.run_until_complete(self._app(scope, receive, send))
        kind = dict(parts[0]["headers"]).get(b"content-type", b"").decode()
        return parts[0]["status"], b"".join(part.get("body", b"") for part in parts[1:]), kind


class _Log(logging.Handler):
    """Log handler that keeps the last record, for error messages."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        _Log.last = " | ".join(record.getMessage().splitlines()[-3:])


@contextlib.contextmanager
def _listening() -> Iterator[None]:
    """Context manager that redirects the log of the service."""
    log = logging.getLogger("steelyard.service")
    before = log.handlers, log.propagate
    log.handlers, log.propagate = [_Log()], False
    try:
        yield
    finally:
        log.handlers, log.propagate = before


_served: Served | None = None


def _service() -> Served:
    global _served  # noqa: PLW0603 - shared by many trials, because a new store is slow
    if _served is None or _served.n_left <= 0:
        if _served is not None:
            _served.close()
        with _listening():
            _served = Served()
    _served.n_left -= 1
    return _served


def trial(rng: np.random.Generator) -> bool:
    """Assert that a request succeeds, or is rejected with a problem document and changes nothing."""
    service = _service()
    method, path, kind, body = _REQUESTS[rng.integers(len(_REQUESTS))](rng)
    headers = {"content-type": kind}
    if rng.random() < 0.2:
        headers[_HEADERS[rng.integers(len(_HEADERS))]] = _VALUES[rng.integers(len(_VALUES))]
    if rng.random() < 0.1:
        headers["content-type"] = _TYPES[rng.integers(len(_TYPES))]
    if rng.random() < 0.05:
        method = ["GET", "PUT", "POST", "DELETE", "PATCH"][rng.integers(5)]
    before = service.state()
    with _listening():
        status, answer, told = service.ask(method, path, headers, body)
    what = f"{method} {path} {headers} {body[:80]!r}"
    assert status != 500, f"{_Log.last[-150:]} {what}"
    assert status < 600
    if status < 400:
        _check_answer(told, answer, what)
        return True
    assert told == "application/problem+json", f"{what}: {status} {told}"
    problem = json.loads(answer)
    assert problem["status"] == status, what
    assert len(problem["detail"]) > 8, f"{what}: {problem}"
    assert service.state() == before, f"{what}: rejected ({status}), but the state has changed"
    return False


def _check_answer(kind: str, answer: bytes, what: str) -> None:
    """Assert that a response is valid JSON, without NaN and infinity."""
    if kind.startswith("application/json"):
        strange: list[str] = []
        json.loads(answer, parse_constant=strange.append)
        assert not strange, f"{what}: {strange} is not valid JSON"


_TYPES = [JSON, LINES, CSV, ARROW, "text/xml", "", "application/JSON; x"]
_HEADERS = ["idempotency-key", "accept", "content-length", "authorization", "content-encoding"]
_VALUES = [
    "",
    "k",
    "x" * 300,
    "text/csv",
    "application/x-ndjson",
    ARROW,
    "*/*",
    "999999999999",
    "-1",
    "gzip",
    "\x00",
]

Made = tuple[str, str, str, bytes]


def _name(rng: np.random.Generator) -> str:
    if rng.random() < 0.9:
        return list(MODELS)[rng.integers(len(MODELS) - 1)]
    return ["pool", "none", "..", "%2e%2e", "a b", "x" * 80, "é", "new", "a\x00"][rng.integers(9)]


@functools.cache
def _as_arrow(n: int, seed: int) -> bytes:
    rows = records(n, seed=seed, first=seed)
    table = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _rows(rng: np.random.Generator, key: str = "rows", **more: Any) -> tuple[str, bytes]:
    """Return rows in one of four formats, most of them with errors."""
    n, seed = int(rng.integers(1, 6)), int(rng.integers(100, 900))
    rows = records(n, seed=seed, first=seed)
    wrong = rng.random() < 0.85
    form = int(rng.integers(4))
    if form == 0:
        body = json.dumps({key: rows, **more}).encode()
        return JSON, changed_json(body, rng) if wrong else body
    if form == 1:
        lines = [json.dumps(row).encode() for row in rows]
        if wrong:
            lines[rng.integers(n)] = changed_json(lines[0], rng)
        return LINES, b"\n".join(lines)
    if form == 2:
        lines = [",".join(rows[0]).encode(), *(",".join(map(str, row.values())).encode() for row in rows)]
        if wrong:
            place = int(rng.integers(len(lines)))
            lines[place] = spoiled(lines[place], rng)
        return CSV, b"\n".join(lines)
    data = bytearray(_as_arrow(n, seed % 50))
    if wrong:
        flip_bits(data, rng, 0)
        if rng.random() < 0.2:
            del data[int(rng.integers(len(data))) :]
    return ARROW, bytes(data)


def _learn(rng: np.random.Generator) -> Made:
    return "POST", f"/v1/models/{_name(rng)}/learn", *_rows(rng)


def _predict(rng: np.random.Generator) -> Made:
    more = {} if rng.random() < 0.7 else {"remember": True, "as_of": 1}
    query = "" if rng.random() < 0.8 else "?" + _QUERIES[rng.integers(len(_QUERIES))]
    return "POST", f"/v1/models/{_name(rng)}/predict{query}", *_rows(rng, **more)


_QUERIES = [
    "remember=true",
    "as_of=1",
    "as_of=99",
    "as_of=x",
    "as_of=2026-01-31",
    "remember=",
    "as_of=" + "9" * 40,
    "%00",
]


def _changed(tree: Any, rng: np.random.Generator) -> bytes:
    body = json.dumps(tree).encode()
    return changed_json(body, rng) if rng.random() < 0.85 else body


def _label(rng: np.random.Generator) -> Made:
    return "POST", f"/v1/models/{_name(rng)}/labels", JSON, _changed({"labels": {"r7": 1, "r9": 0}}, rng)


def _forget(rng: np.random.Generator) -> Made:
    path = f"/v1/models/{_name(rng)}/forget"
    if rng.random() < 0.3:
        return "POST", path, *_rows(rng)
    ways = [{"ids": ["r1", "r2"]}, {"subject": "c1"}, {"before": "2026-01-31"}, {"rows": records(2)}]
    return "POST", path, JSON, _changed(ways[rng.integers(4)], rng)


def _put(rng: np.random.Generator) -> Made:
    specs = list(documents.SPECS.values())
    tree = tomllib.loads(specs[rng.integers(len(specs))])
    if "learner" in tree:
        tree["learner"].pop("features", None)
    name = _name(rng) if rng.random() < 0.5 else f"n{rng.integers(5)}"
    return "PUT", f"/v1/models/{name}", JSON, _changed(tree, rng)


def _infer(rng: np.random.Generator) -> Made:
    inputs = [
        {"name": "amount", "datatype": "FP64", "shape": [2], "data": [1.0, 2.0]},
        {"name": "country", "datatype": "BYTES", "shape": [2], "data": ["DE", "FR"]},
    ]
    return "POST", f"/v2/models/{_name(rng)}/infer", JSON, _changed({"id": "7", "inputs": inputs}, rng)


def _site(rng: np.random.Generator) -> Made:
    document = documents.made()["site_update"]
    assert document.change is not None
    data = document.data if rng.random() < 0.2 else document.change(document.data, rng)
    site = "north" if rng.random() < 0.8 else quote(["south", "é", "a/b", "\0", "x" * 250][rng.integers(5)])
    model = "pool" if rng.random() < 0.9 else _name(rng)
    if rng.random() < 0.15:
        return "DELETE", f"/v1/models/{model}/sites/{site}", "application/octet-stream", b""
    return "PUT", f"/v1/models/{model}/sites/{site}", "application/octet-stream", data


def _look(rng: np.random.Generator) -> Made:
    ends = ["", "/measures", "/measures?since=x", "/measures?since=1e400", "/certificates", "/file", "/sites",
            "/pooled", "/sites/north", "/measures?since=" + "9" * 70]  # fmt: skip
    paths = [f"/v1/models/{_name(rng)}{end}" for end in ends]
    paths += [
        "/v1/models",
        "/metrics",
        "/openapi.json",
        "/",
        "/static/../x",
        "/v2/models/plain",
    ]
    paths += [
        "/v1/models/pool/sites",
        "/v1/models/pool/pooled",
        "/v1/models/pool/sites/north",
        "/v1/models/pool",
    ]
    return "GET", paths[rng.integers(len(paths))], JSON, b""


_REQUESTS: list[Callable[[np.random.Generator], Made]] = [
    _learn, _learn, _predict, _predict, _label, _forget, _put, _infer, _site, _look,
]  # fmt: skip
