"""Requests generated from the OpenAPI description get the described responses and never status 500."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from steelyard.service import SQLiteStore, Writer
from steelyard.service.http import make_app
from tests.service.data import SPEC, records
from tests.service.server import serving

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis generates the requests")

AS_DESCRIBED = [
    getattr(schemathesis.checks, name)
    for name in ("status_code_conformance", "content_type_conformance", "response_schema_conformance")
]
OPERATIONS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("PUT", "/v1/models/{model}"),
    ("DELETE", "/v1/models/{model}"),
    ("POST", "/v1/models/{model}/rename"),
    ("GET", "/v1/models/{model}/quarantine"),
    ("POST", "/v1/models/{model}/quarantine"),
    ("GET", "/v1/models/{model}/challenger"),
    ("PUT", "/v1/models/{model}/challenger"),
    ("DELETE", "/v1/models/{model}/challenger"),
    ("POST", "/v1/models/{model}/promote"),
    ("GET", "/v1/audit"),
    ("GET", "/v1/status"),
    ("GET", "/v1/models/{model}/activity"),
    ("GET", "/v1/models/{model}/columns"),
    ("GET", "/v1/models/{model}/versions"),
    ("POST", "/v1/models/{model}/learn"),
    ("POST", "/v1/models/{model}/predict"),
    ("POST", "/v1/models/{model}/explain"),
    ("GET", "/v1/models/{model}/explanations"),
    ("POST", "/v1/models/{model}/labels"),
    ("POST", "/v1/models/{model}/forget"),
    ("GET", "/v1/models/{model}/measures"),
    ("GET", "/v1/models/{model}/certificates"),
    ("GET", "/v1/models/{model}/file"),
    ("GET", "/v1/models/{model}/sites"),
    ("GET", "/v1/models/{model}/sites/{site}"),
    ("PUT", "/v1/models/{model}/sites/{site}"),
    ("DELETE", "/v1/models/{model}/sites/{site}"),
    ("GET", "/v1/models/{model}/pooled"),
    ("GET", "/v2/models/{model}"),
    ("GET", "/v2/models/{model}/ready"),
    ("POST", "/v2/models/{model}/infer"),
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/health/learner"),
]
EVENTS = "/v1/models/{model}/events"  # its response does not end


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    store = SQLiteStore(tmp_path_factory.mktemp("described") / "store.db")
    with serving(make_app(Writer(store))) as client:
        client.put("/v1/models/payments", json=SPEC)
        client.post("/v1/models/payments/learn", json={"rows": records(60)})
        client.put("/v1/models/pool", json={"target": "ill", "sites": True})
        yield client, schemathesis.openapi.from_dict(client.get("/openapi.json").json())


def test_every_operation_of_openapi_description_is_tested(served):
    described = {
        (method.upper(), path)
        for path, operations in served[1].raw_schema["paths"].items()
        for method in operations
    }
    assert described == {*OPERATIONS, ("GET", EVENTS)}


def test_event_stream_matches_openapi_description(served):
    client, schema = served
    described = schema.raw_schema["paths"][EVENTS]["get"]["responses"]["200"]["content"]
    with client.stream("GET", EVENTS.replace("{model}", "payments")) as answer:
        assert answer.status_code == 200
        assert [answer.headers["content-type"].partition(";")[0]] == list(described)
        assert next(answer.iter_lines()) == "event: model"


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda value: value)
def test_responses_match_openapi_description(served, method, path):
    check_operation(*served, method, path, n_examples=8, seed_value=23)


def check_operation(client, schema, method, path, *, n_examples, seed_value):
    """Send generated requests of one operation and validate the responses."""

    @seed(seed_value)
    @settings(
        max_examples=n_examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy(), known=st.booleans())
    def check(case, known):
        is_renamed = path.endswith("/rename")  # other operations need the old name of the model
        if known and path != "/v1/models/{model}" and not is_renamed and "model" in case.path_parameters:
            of_sites = path.endswith(("sites", "{site}", "pooled"))
            case.path_parameters["model"] = "pool" if of_sites else "payments"
        answer = case.call(base_url=str(client.base_url))
        assert answer.status_code < 500 or (answer.status_code == 503 and path.endswith("ready"))
        case.validate_response(answer, checks=AS_DESCRIBED)

    check()
