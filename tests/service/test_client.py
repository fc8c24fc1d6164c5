"""All requests and responses of the client match the OpenAPI description."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from steelyard.persistence import from_bytes
from steelyard.service import SQLiteStore, Writer
from steelyard.service.client import Client, RefusedError
from steelyard.service.http import make_app
from tests.service.data import SPEC, records
from tests.service.server import serving

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="jsonschema_rs checks values against schemas")

# Operations that the Python client does not offer, each with the reason.
OF_OTHERS = {
    "/v1/models/{model}/sites": "steelyard.federated.Service is the client of sites",
    "/v1/models/{model}/sites/{site}": "steelyard.federated.Service is the client of sites",
    "/v1/models/{model}/pooled": "steelyard.federated.Service is the client of sites",
    "/v2/models/{model}": "the Open Inference Protocol has clients of its own",
    "/v2/models/{model}/ready": "the Open Inference Protocol has clients of its own",
    "/v2/models/{model}/infer": "the Open Inference Protocol has clients of its own",
    "/v1/models/{model}/activity": "for the web page",
    "/v1/models/{model}/events": "for the web page",
    "/v1/models/{model}/columns": "for the web page",
    "/v1/models/{model}/versions": "for the web page",
    "/v1/status": "for the web page",
    "/health/live": "for monitoring",
    "/health/ready": "for monitoring",
    "/health/learner": "for monitoring",
}


class Witness(httpx.BaseTransport):
    """Transport that validates each request and response against the description."""

    def __init__(self, description):
        self.description = description
        self.seen = set()
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request):
        path, operation = self._operation(request)
        self.seen.add((request.method, path))
        if request.content:
            sent = operation["requestBody"]["content"]["application/json"]["schema"]
            self._check(sent, json.loads(request.content))
        headers = {p["name"].lower() for p in operation["parameters"] if p["in"] == "header"}
        assert "idempotency-key" not in request.headers or "idempotency-key" in headers
        response = self._inner.handle_request(request)
        response.read()
        answers = operation["responses"]
        content = answers.get(str(response.status_code), answers["default"])["content"]
        kind = response.headers["content-type"].partition(";")[0]
        assert kind in content
        if "schema" in content[kind]:
            self._check(content[kind]["schema"], response.json())
        return response

    def close(self):
        self._inner.close()

    def _operation(self, request):
        for path, operations in self.description["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path):
                return path, operations[request.method.lower()]
        raise AssertionError(f"{request.method} {request.url.path} is not described")

    def _check(self, schema, value):
        whole = {**schema, "components": self.description["components"]}
        jsonschema_rs.validate(whole, value)


@pytest.fixture
def witness(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")))) as http:
        witness = Witness(http.get("/openapi.json").json())
        with Client(str(http.base_url), transport=witness) as client:
            yield client, witness


def test_client_requests_match_openapi_description(witness):
    client, transport = witness
    client.put("c", SPEC)
    client.learn("c", records(60))
    rows = [{k: v for k, v in row.items() if k not in {"fraud", "row"}} for row in records(3)]
    answer = client.predict("c", rows, remember=True)
    client.predict("c", rows, as_of=client.model("c")["version"])
    client.label("c", dict.fromkeys(answer["ids"], 0))
    client.forget("c", ids=["r5"])
    client.measures("c")
    explained = client.explain("c", rows)["explanations"][0]
    assert sum(explained["contributions"].values()) + explained["base"] == pytest.approx(explained["score"])
    assert client.explanations("c")["importance"]
    assert [model["name"] for model in client.models()] == ["c"]
    assert len(client.certificates("c")) == 1
    assert from_bytes(client.file("c")).class_count_.sum() == 62
    with pytest.raises(RefusedError):
        client.learn("unknown", records(1))
    client.challenge("c", {"learner": {"class": "ProximalSVC", "C": 0.5}}, replay=False)
    assert client.challenger("c")["rows"] == 0
    client.promote("c")
    client.end_challenger("c")
    client.put("c", {**client.model("c")["spec"], "classes": [0, 1], "violations": "quarantine"})
    assert client.learn("c", [{**records(1, first=90)[0], "fraud": 7}])["quarantined"] == 1
    (row,) = client.quarantine("c")
    assert client.release("c", discard=[row["number"]])["released"] == 1
    client.rename("c", "d")
    client.delete("d")
    assert client.audit(verb="delete")[0]["model"] == "d"
    described = {
        (method.upper(), path)
        for path, operations in transport.description["paths"].items()
        for method in operations
        if path not in OF_OTHERS
    }
    assert transport.seen == described


def test_client_request_missing_in_openapi_description_raises(witness):
    client, _ = witness
    with pytest.raises(AssertionError, match="not described"):
        client._send("POST", "/v1/models/c/guess", {})
    with pytest.raises(jsonschema_rs.ValidationError):
        client._send("POST", "/v1/models/c/predict", {"lines": []})


def test_client_sends_data_frames(tmp_path):
    import pandas as pd
    import pyarrow as pa

    frame = pd.DataFrame(records(60))
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")))
    with serving(app) as http, Client(str(http.base_url)) as client:
        client.put("c", SPEC)
        assert client.learn("c", frame[:40])["learned"] == 40
        assert client.learn("c", pa.Table.from_pandas(frame[40:], preserve_index=False))["learned"] == 20
        bare = frame.drop(columns=["fraud", "row"])[:3]
        answer = client.predict("c", bare, remember=True, as_of=client.model("c")["version"])
        assert answer["labels"] == client.predict("c", bare.to_dict("records"))["labels"]
        assert client.label("c", dict.fromkeys(answer["ids"], 0))["labelled"] == 3
        assert client.forget("c", rows=frame[:2])["forgotten"] == 2


def test_client_repeats_request_until_service_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard._http_client._MAX_PAUSE_SECONDS", 0.01)
    answers = iter([503] * 9 + [200])
    transport = httpx.MockTransport(lambda _request: httpx.Response(next(answers), json={"models": []}))
    with Client("http://127.0.0.1:1", transport=transport) as client:
        assert client.models() == []
    refusing = httpx.MockTransport(lambda _request: httpx.Response(503, json={"detail": "busy"}))
    client = Client("http://127.0.0.1:1", transport=refusing, retry_seconds=0)
    with client, pytest.raises(RefusedError, match="busy"):
        client.models()
