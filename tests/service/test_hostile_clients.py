"""Requests from foreign web pages, oversized and slow requests are refused and harm no other client."""

from __future__ import annotations

import io
import json
import socket
import time
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from steelyard.exceptions import DataError
from steelyard.service import SQLiteStore, Writer
from steelyard.service import rows as wire
from steelyard.service.http import Limits, make_app, protocol
from steelyard.service.http.keys import Keys
from steelyard.service.rows import n_unpacked_bytes
from tests.service.data import SPEC, records
from tests.service.processes import until
from tests.service.server import serving
from tests.service.test_wire import MODEL, is_problem

ROWS = json.dumps({"rows": records(5, first=500)}).encode()


@pytest.fixture
def http(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")))) as client:
        client.put(MODEL, json=SPEC)
        client.post(f"{MODEL}/learn", json={"rows": records(60)})
        yield client


# -- foreign web pages ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8471", "127.0.0.1.attacker.example", ""]
)
def test_foreign_host_header_is_refused_without_api_keys(http, host):
    for method, path in (
        ("GET", MODEL),
        ("POST", f"{MODEL}/forget"),
        ("POST", f"{MODEL}/learn"),
        ("GET", "/"),
    ):
        answer = http.request(method, path, content=b"{}", headers={"host": host})
        is_problem(answer, 421)
    assert http.get(MODEL).json()["rows"] == 60


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8471", "[::1]:8471", "127.0.0.1:1", "LOCALHOST"])
def test_local_host_header_is_accepted_without_api_keys(http, host):
    assert http.get(MODEL, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://attacker.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_foreign_origin_header_is_refused_without_api_keys(http, headers):
    json_type = {"content-type": "application/json"}
    is_problem(http.post(f"{MODEL}/learn", content=ROWS, headers={**headers, **json_type}), 403)
    is_problem(http.post(f"{MODEL}/forget", json={"before": "2999-01-01"}, headers=headers), 403)
    assert http.get(MODEL).json()["rows"] == 60


def test_refused_requests_of_other_web_pages_are_counted(http):
    http.post("/v1/models/payments/forget", json={"before": 9e9}, headers={"origin": "http://evil.example"})
    http.get("/v1/models", headers={"host": "evil.example"})
    counted = http.get("/metrics").text
    for method, status in (("POST", 403), ("GET", 421)):
        assert f'count{{method="{method}",route="refused",status="{status}"}}' in counted


def test_same_origin_header_is_accepted_without_api_keys(http):
    own = f"http://{http.base_url.host}:{http.base_url.port}"
    headers = {"origin": own, "sec-fetch-site": "same-origin"}
    assert http.post(f"{MODEL}/learn", content=ROWS, headers={**headers, "content-type": "application/json"})
    assert http.get(MODEL).json()["rows"] == 65


def test_configured_allowed_host_is_accepted_without_api_keys(tmp_path):
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")), allowed_hosts=["models.internal"])
    with serving(app) as http:
        assert http.get("/v1/models", headers={"host": "models.internal:80"}).status_code == 200
        is_problem(http.get("/v1/models", headers={"host": "other.internal"}), 421)


def test_service_with_api_keys_accepts_any_host_header(tmp_path):
    key = Keys.add(tmp_path / "keys.toml", ["admin"])[1]
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")), keys=Keys(tmp_path / "keys.toml"))
    with serving(app) as http:
        headers = {"host": "models.example", "authorization": f"Bearer {key}"}
        assert http.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("verb", ["learn", "predict", "labels", "forget"])
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_body_without_supported_content_type_is_refused(http, verb, content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    body = {"labels": b'{"labels": {"a": 1}}', "forget": b'{"subject": "c1"}'}.get(verb, ROWS)
    is_problem(http.post(f"{MODEL}/{verb}", content=body, headers=headers), 415)
    is_problem(http.put("/v1/models/other", content=b'{"target": "y"}', headers=headers), 415)
    assert http.get(MODEL).json()["rows"] == 60


# -- headers ----------------------------------------------------------------------------------------


def _connect(http):
    return socket.create_connection((http.base_url.host, http.base_url.port), timeout=60)


def _response(connection):
    received = b""
    while part := connection.recv(4_096):
        received += part
    return received


def test_slow_headers_time_out_and_are_logged(http, monkeypatch, caplog):
    with monkeypatch.context() as limits:
        limits.setattr(protocol, "_MAX_HEADER_SECONDS", 0.3)
        with _connect(http) as silent, _connect(http) as slow:
            slow.sendall(b"GET /health/live HTTP/1.1\r\nhost: ")
            assert b" 408 " in _response(silent)
            assert b" 408 " in _response(slow)
    assert caplog.text.count("no headers within") == 2
    assert http.get("/health/live").status_code == 200


def test_second_request_with_slow_headers_times_out(http, monkeypatch):
    monkeypatch.setattr(protocol, "_MAX_HEADER_SECONDS", 0.3)
    with _connect(http) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /health/li")
        assert b" 408 " in _response(connection)


def test_long_headers_are_refused(http, caplog):
    with _connect(http) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ")
        with pytest.raises(OSError, match=r"."):  # the server closes the connection before all is sent
            connection.sendall(b"x" * 100_000_000)
    assert "the headers have more than" in caplog.text
    assert http.get("/health/live").status_code == 200


def test_long_body_after_short_headers_is_accepted(http):
    rows = {"rows": records(3_000, first=1_000)}
    assert http.post(f"{MODEL}/learn", json=rows).json()["learned"] == 3_000


def test_too_many_connections_are_refused(http, monkeypatch, caplog):
    assert http.get("/health/live").status_code == 200  # this connection stays open
    monkeypatch.setattr(protocol, "_MAX_CONNECTIONS", 2)
    with _connect(http), _connect(http) as third:
        assert b" 503 " in _response(third)
    assert "2 connections already" in caplog.text


# -- large bodies -----------------------------------------------------------------------------------


def test_json_of_many_lists_is_refused_before_decoding(http):
    body = b"[" + b"[]," * 4_000_000 + b"[]]"
    begin = time.process_time()  # the server runs in this process
    for verb in ("learn", "predict", "labels", "forget"):
        is_problem(
            http.post(f"{MODEL}/{verb}", content=body, headers={"content-type": "application/json"}), 413
        )
    assert time.process_time() - begin < 8.0


def _arrow(table, compression=None):
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_computed_size_of_arrow_stream_is_uncompressed_size_of_its_buffers(compression):
    texts = pa.array(["a", "bc", None] * 500).dictionary_encode()
    table = pa.table({"a": np.arange(1_500.0), "t": ["text"] * 1_500, "d": texts, "n": pa.nulls(1_500)})
    plain, found = n_unpacked_bytes(_arrow(table)), n_unpacked_bytes(_arrow(table, compression))
    assert plain >= 1_500 * (8 + 4 + 4)
    assert plain - 512 <= found <= plain  # without compression, buffers are padded


def test_compressed_arrow_stream_is_refused_before_decompression():
    body = _arrow(pa.table({"t": ["x" * 1_000_000] * 40}), "zstd")
    assert len(body) < 100_000
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    limits = wire.Limits(unpacked=10_000_000)
    with pytest.raises(wire.TooLargeError, match="after decompression"):
        wire.from_body(body, "arrow", [], limits=limits)
    assert pool.max_memory() - before < 5_000_000
    assert wire.from_body(body, "arrow", []).n_rows == 40


def test_arrow_dictionary_with_long_text_is_refused():
    codes = pa.DictionaryArray.from_arrays(np.zeros(1_000, dtype=np.int32), ["x" * 100_000])
    body = _arrow(pa.table({"t": codes}))
    with pytest.raises(wire.TooLargeError, match="after decompression"):
        wire.from_body(body, "arrow", [], limits=wire.Limits(unpacked=10_000_000))


@pytest.mark.parametrize("seed", range(20))
def test_damaged_arrow_stream_raises_data_error_or_is_read(seed):
    rng = np.random.default_rng(seed)
    body = bytearray(_arrow(pa.table({"a": np.arange(100.0), "t": ["x"] * 100}), "zstd"))
    for place in rng.integers(4, len(body), size=8):
        body[place] = rng.integers(256)
    with suppress(DataError):
        wire.from_body(bytes(body), "arrow", [])


def test_request_bodies_beyond_total_memory_limit_are_refused_and_freed(tmp_path):
    limits = Limits(body=100_000, all_bodies=150_000)
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")), limits=limits)
    with serving(app) as http:
        http.put(MODEL, json=SPEC)
        with _connect(http) as slow:
            head = f"POST {MODEL}/learn HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            slow.sendall(head.encode() + b"content-length: 100000\r\n\r\n" + b" " * 90_000)
            until(lambda: app.service.n_body_bytes == 90_000)
            large = b'{"rows": ' + b" " * 80_000 + json.dumps(records(5)).encode() + b"}"
            json_type = {"content-type": "application/json"}
            is_problem(http.post(f"{MODEL}/learn", content=large, headers=json_type), 503)
        until(lambda: app.service.n_body_bytes == 0)
        assert http.post(f"{MODEL}/learn", content=large, headers=json_type).status_code == 200
