"""HTTP interface: every route in every content type, and errors as problem details."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

from steelyard.persistence import from_bytes
from steelyard.service import SQLiteStore, Writer
from steelyard.service.client import Client, RefusedError
from steelyard.service.http import Limits, make_app
from steelyard.service.http.keys import Keys
from tests.service.data import SPEC, records
from tests.service.server import serving

MODEL = "/v1/models/payments"
JSON = {"content-type": "application/json"}


@pytest.fixture
def http(tmp_path):
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")), limits=Limits(body=200_000, rows=500))
    with serving(app) as client:
        client.put(MODEL, json=SPEC)
        yield client


def unlabelled(rows):
    return [{k: v for k, v in row.items() if k not in {"fraud", "row"}} for row in rows]


def is_problem(response, status):
    body = response.json()
    assert response.status_code == status, body
    assert response.headers["content-type"] == "application/problem+json"
    assert {"title", "status", "detail"} <= body.keys()
    assert body["status"] == status
    return body


def test_put_model_creates_it_once_and_get_describes_it(http):
    assert http.put(MODEL, json=SPEC).status_code == 200
    assert http.put("/v1/models/other", json=SPEC).status_code == 201
    http.post(f"{MODEL}/learn", json={"rows": records(40)})
    about = http.get(MODEL).json()
    assert {"name", "version", "digest", "classes", "rows", "waiting_for_labels", "spec"} <= about.keys()
    assert about["rows"] == sum(about["classes"].values()) == 40
    assert [m["name"] for m in http.get("/v1/models").json()["models"]] == ["other", "payments"]


def test_learn_gives_same_model_for_all_content_types(http):
    rows = records(40)
    names = list(rows[0])
    csv = ",".join(names) + "\n" + "\n".join(",".join(str(row[n]) for n in names) for row in rows) + "\n"
    table = pa.table({name: [row[name] for row in rows] for name in names})
    arrow = io.BytesIO()
    with pa.ipc.new_stream(arrow, table.schema) as writer:
        writer.write_table(table)
    forms = {
        "application/json": json.dumps({"rows": rows}).encode(),
        "application/x-ndjson": "\n".join(map(json.dumps, rows)).encode(),
        "text/csv": csv.encode(),
        "application/vnd.apache.arrow.stream": arrow.getvalue(),
    }
    digests = set()
    for number, (kind, body) in enumerate(forms.items()):
        path = f"/v1/models/m{number}"
        http.put(path, json=SPEC)
        answer = http.post(f"{path}/learn", content=body, headers={"content-type": kind})
        assert answer.json() == {"learned": 40, "version": 1}, kind
        digests.add(http.get(path).json()["digest"])
    assert len(digests) == 1


@pytest.mark.parametrize(
    "accept",
    ["application/json", "text/csv", "application/x-ndjson", "application/vnd.apache.arrow.stream"],
)
def test_predict_responds_in_accepted_format(http, accept):
    http.post(f"{MODEL}/learn", json={"rows": records(60)})
    answer = http.post(
        f"{MODEL}/predict", json={"rows": unlabelled(records(3, seed=5))}, headers={"accept": accept}
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(accept)
    if accept == "application/json":
        body = answer.json()
        assert len(body["labels"]) == len(body["scores"]) == len(body["probabilities"]) == 3
        assert all(
            (score > 0) == (label == 1) for score, label in zip(body["scores"], body["labels"], strict=True)
        )
    elif accept == "text/csv":
        assert answer.text.splitlines()[0].startswith("label,score")


def test_labels_are_matched_with_remembered_rows(http):
    http.post(f"{MODEL}/learn", json={"rows": records(60)})
    late = records(4, seed=5, first=900)
    body = {"rows": [{k: v for k, v in row.items() if k != "fraud"} for row in late], "remember": True}
    ids = http.post(f"{MODEL}/predict", json=body).json()["ids"]
    assert ids == ["r900", "r901", "r902", "r903"]
    assert http.get(MODEL).json()["waiting_for_labels"] == 4
    answer = http.post(f"{MODEL}/labels", json={"labels": dict.fromkeys([*ids, "who"], 1)}).json()
    assert (answer["labelled"], answer["unknown"]) == (4, ["who"])
    assert http.get(MODEL).json()["rows"] == 64


def test_forget_returns_certificate(http):
    rows = records(60)
    http.post(f"{MODEL}/learn", json={"rows": rows})
    answer = http.post(f"{MODEL}/forget", json={"subject": "c1"}).json()
    assert answer["forgotten"] == sum(row["customer"] == "c1" for row in rows)
    assert answer["certificate"]["after"]["digest"] == http.get(MODEL).json()["digest"]
    assert http.get(f"{MODEL}/certificates").json()["certificates"] == [answer["certificate"]]


def test_http_request_repeated_with_idempotency_key_learns_once(http):
    once = {"Idempotency-Key": "k1"}
    first = http.post(f"{MODEL}/learn", json={"rows": records(10)}, headers=once)
    again = http.post(f"{MODEL}/learn", json={"rows": records(10)}, headers=once)
    assert first.json() == again.json()
    assert http.get(MODEL).json()["rows"] == 10
    is_problem(http.post(f"{MODEL}/learn", json={"rows": records(3)}, headers=once), 409)


def test_predict_as_of_past_version_works_until_forget(http):
    rows = records(60)
    http.post(f"{MODEL}/learn", json={"rows": rows})
    http.post(f"{MODEL}/forget", json={"ids": ["r1"]})  # writes a snapshot: version 2
    then = http.post(f"{MODEL}/predict", json={"rows": unlabelled(rows[:5])}).json()
    http.post(f"{MODEL}/learn", json={"rows": records(60, seed=3, first=100)})
    body = {"rows": unlabelled(rows[:5]), "as_of": 2}
    assert http.post(f"{MODEL}/predict", json=body).json() == then
    is_problem(http.post(f"{MODEL}/predict", json={**body, "as_of": 1}), 410)


REFUSED = {
    "no model": ("POST", "/v1/models/none/learn", {"rows": [{}]}, 404),
    "no such path": ("GET", "/v1/nothing", None, 404),
    "wrong method": ("PATCH", MODEL, None, 405),
    "not an object": ("POST", f"{MODEL}/labels", [1], 400),
    "no rows": ("POST", f"{MODEL}/learn", {"rows": []}, 422),
    "row without values": ("POST", f"{MODEL}/learn", {"rows": [{}]}, 422),
    "rows that are not objects": ("POST", f"{MODEL}/learn", {"rows": [3]}, 422),
    "no label": ("POST", f"{MODEL}/learn", {"rows": [{"amount": 1}]}, 422),
    "too many rows": ("POST", f"{MODEL}/learn", {"rows": [{"amount": 1}] * 501}, 413),
    "two ways to forget": ("POST", f"{MODEL}/forget", {"ids": [], "subject": "x"}, 422),
    "no such spec": ("PUT", "/v1/models/new", {"target": "y", "colour": 3}, 422),
    "unknown learner": ("PUT", "/v1/models/new", {"target": "y", "learner": {"class": "os"}}, 422),
    "invalid model name": ("PUT", "/v1/models/..%2fx", {"target": "y"}, 404),
    "nothing learned yet": ("POST", f"{MODEL}/predict", {"rows": [{"amount": 1}]}, 422),
}


@pytest.mark.parametrize("name", REFUSED)
def test_error_responses_are_problem_details(http, name):
    method, path, body, status = REFUSED[name]
    is_problem(http.request(method, path, json=body), status)


def test_bad_value_error_names_row_and_column(http):
    http.post(f"{MODEL}/learn", json={"rows": records(20)})
    bad = records(3, first=50)
    bad[2]["amount"] = "much"
    problem = is_problem(http.post(f"{MODEL}/learn", json={"rows": bad}), 422)
    assert (problem["row"], problem["column"]) == (2, "amount")


def test_too_large_body_and_unknown_content_type_are_refused(http):
    is_problem(http.post(f"{MODEL}/learn", content=b" " * 300_000, headers=JSON), 413)
    xml = {"content-type": "text/xml"}
    is_problem(http.post(f"{MODEL}/learn", content=b"<x/>", headers=xml), 415)
    is_problem(http.post(f"{MODEL}/learn", content=b'{"rows": [{"a": 1', headers=JSON), 422)
    is_problem(http.post(f"{MODEL}/learn", content=b"[" * 1_500, headers=JSON), 422)


def test_inference_protocol_gives_same_result_as_predict(http):
    rows = records(60)
    http.post(f"{MODEL}/learn", json={"rows": rows})
    some = unlabelled(rows[:4])
    inputs = [
        {"name": "amount", "datatype": "FP64", "shape": [4], "data": [r["amount"] for r in some]},
        {"name": "country", "datatype": "BYTES", "shape": [4], "data": [r["country"] for r in some]},
    ]
    answer = http.post("/v2/models/payments/infer", json={"id": "7", "inputs": inputs}).json()
    assert answer["id"] == "7"
    mine = http.post(f"{MODEL}/predict", json={"rows": some}).json()
    assert answer["outputs"][0]["data"] == [str(label) for label in mine["labels"]]
    assert http.get("/v2/models/payments/ready").status_code == 200
    assert {i["name"] for i in http.get("/v2/models/payments").json()["inputs"]} == {"amount", "country"}


def test_health_metrics_and_openapi_endpoints_respond(http):
    for _ in range(2):  # a repeated request counts once
        http.post(f"{MODEL}/learn", json={"rows": records(20)}, headers={"Idempotency-Key": "one"})
    assert http.get("/health/live").json() == {"live": True}
    assert http.get("/health/ready").json() == {"ready": True, "role": "learner"}
    assert http.get("/health/learner").json() == {"learner": True}
    assert 'steelyard_rows_learned_total{model="payments"} 20.0' in http.get("/metrics").text
    assert http.get("/openapi.json").json()["openapi"] == "3.1.0"
    learner = from_bytes(http.get(f"{MODEL}/file").content)
    assert learner.n_features_in_ == 4


def test_page_has_strict_content_security_policy(http):
    page = http.get("/models/payments")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.split("</head>")[0].replace("http-equiv", "")
    assert http.get("/page/page.js").status_code == 200
    is_problem(http.get("/page/..%2fspec.py"), 404)


# -- keys -------------------------------------------------------------------------------------------


@pytest.fixture
def locked(tmp_path):
    path = tmp_path / "keys.toml"
    tokens = {scope: Keys.add(path, [scope], ["payments"])[1] for scope in ("predict", "learn", "admin")}
    app = make_app(Writer(SQLiteStore(tmp_path / "store.db")), keys=Keys(path))
    with serving(app) as client:
        yield client, tokens, path


def test_api_key_allows_only_its_scopes(locked):
    http, tokens, path = locked

    def call(method, where, token, body):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return http.request(method, where, json=body, headers=headers)

    assert "requires a key" in is_problem(call("PUT", MODEL, None, SPEC), 401)["detail"]
    assert "wrong or was revoked" in is_problem(call("PUT", MODEL, "sy_00000000_no", SPEC), 401)["detail"]
    is_problem(call("PUT", MODEL, tokens["learn"], SPEC), 403)
    assert call("PUT", MODEL, tokens["admin"], SPEC).status_code == 201
    is_problem(call("PUT", "/v1/models/foreign", tokens["admin"], SPEC), 403)
    rows = {"rows": records(20)}
    is_problem(call("POST", f"{MODEL}/learn", tokens["predict"], rows), 403)
    assert call("POST", f"{MODEL}/learn", tokens["learn"], rows).status_code == 200
    is_problem(call("POST", f"{MODEL}/forget", tokens["learn"], {"ids": ["r1"]}), 403)
    Keys.revoke(path, tokens["learn"].split("_")[1])
    is_problem(call("POST", f"{MODEL}/learn", tokens["learn"], rows), 401)


def test_key_file_has_hashes_only_and_mode_600(tmp_path):
    path = tmp_path / "keys.toml"
    _, token = Keys.add(path, ["predict"], note='of "me"\n')
    assert token.split("_", 2)[2] not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert Keys(path).all()[0].note == 'of "me"\n'


# -- the client -------------------------------------------------------------------------------------


def test_python_client_can_learn_predict_label_and_forget(http):
    with Client(str(http.base_url)) as client:
        client.put("c", SPEC)
        assert client.learn("c", records(60))["learned"] == 60
        answer = client.predict("c", unlabelled(records(2)), remember=True)
        assert client.label("c", dict.fromkeys(answer["ids"], 0))["labelled"] == 2
        assert client.forget("c", ids=["r5"])["forgotten"] == 1
        with pytest.raises(RefusedError, match="no model") as refused:
            client.learn("unknown", records(1))
        assert refused.value.status == 404
        assert client.model("c")["rows"] == 61


# -- fast routes ------------------------------------------------------------------------------------


def test_fast_routes_match_only_their_paths(http):
    http.post(f"{MODEL}/learn", json={"rows": records(40)})
    is_problem(http.get(f"{MODEL}/learn"), 405)
    is_problem(http.put(f"{MODEL}/predict", json={}), 405)
    assert (
        http.post(f"{MODEL}/learn/", json={}).status_code == 307
    )  # redirected to the path without the slash
    is_problem(http.post("/v1/models//learn", json={}), 404)
    is_problem(http.post("/v1/models/a%2Fb/learn", json={}), 404)
    is_problem(http.post("/v1/modelspayments/learn", json={}), 404)
    body = is_problem(http.post("/v1/models/other/learn", json={"rows": records(1)}), 404)
    assert "other" in body["detail"]


@pytest.mark.parametrize("verb", ["learn", "predict"])
def test_fast_routes_apply_authorization_and_limits(http, verb):
    http.post(f"{MODEL}/learn", json={"rows": records(40)})
    before = http.get(MODEL).json()
    is_problem(http.post(f"{MODEL}/{verb}", content=b"x" * 300_000, headers=JSON), 413)
    is_problem(http.post(f"{MODEL}/{verb}", content=b"{}", headers={"Content-Type": "text/none"}), 415)
    is_problem(http.post(f"{MODEL}/{verb}", content=b"{}", headers={"Content-Type": ""}), 415)
    twice = b'{"rows": [{"amount": 1, "amount": 2, "country": "DE", "customer": "c", "row": "z"}]}'
    is_problem(http.post(f"{MODEL}/{verb}", content=twice, headers=JSON), 422)
    assert http.get(MODEL).json()["digest"] == before["digest"]
    figures = http.get("/metrics").text
    assert f'route="/v1/models/{{model}}/{verb}",status="413"' in figures
