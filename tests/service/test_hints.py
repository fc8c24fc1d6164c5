"""Hints in responses of the service name settings and requests of the service, not Python arguments."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import signature

import pytest

import steelyard
from steelyard.service import Spec, SQLiteStore, Writer
from steelyard.service.http import make_app
from steelyard.service.http.responses import service_hint
from steelyard.service.spec import LEARNERS
from tests.cli.test_hints import hints
from tests.service.data import SPEC, records
from tests.service.server import serving
from tests.service.test_wire import MODEL, is_problem

# Packages whose errors a request can raise.
PACKAGES = ("service", "tables", "ensemble", "proximal", "windowing", "svm", "online", "enclosing", "kernels")
# Errors of these files do not reach a client of the service.
ELSEWHERE = {
    "service/__init__.py": "missing extras are reported when the service starts",
    "service/stores/sqlite.py": "operators see errors of the store",
    "service/stores/postgres.py": "operators see errors of the store",
    "service/http/keys.py": "`steelyard serve keys` reports these errors",
    "service/model_owner.py": "an administrator repairs a store with `steelyard serve --check`",
    "tables/table_model.py": "the service has an encoder and a learner, no TableModel",
    "tables/frames.py": "requests are parsed by service/rows.py",
    "tables/connections.py": "the service does not learn from databases",
    "tables/databases.py": "the service does not learn from databases",
    "tables/table_stream.py": "requests are parsed by service/rows.py",
    "tables/text_sources.py": "requests are parsed by service/rows.py",
    "tables/files.py": "requests are parsed by service/rows.py",
    "ensemble/decision.py": "sample_cost is an argument of Python",
    "proximal/folds.py": "the service makes learners and their feature maps itself",
    "proximal/statistics.py": "the service makes learners itself, and tables add features by themselves",
    "proximal/certificate.py": "certificates are checked in Python",
    "proximal/estimator.py": "models of the service are not merged, and do not track rows",
    "enclosing/classifier.py": "models of the service are not merged",
    "kernels/kernel.py": "the service accepts named kernels only",
    "kernels/sequences.py": "rows of the service are not sequences",
}


@pytest.mark.parametrize("hint", list(hints(PACKAGES, ELSEWHERE)))
def test_hint_names_existing_settings_and_no_python_arguments(hint):
    shown = service_hint(hint)
    assert not re.search(r"\w=|\w\(\)|\w\(X|\bsteelyard\b|\bnp\.|(?<!\S)--\w|on the command line", shown)
    settings = {field.name for field in fields(Spec)}
    parameters = {name for learner in LEARNERS for name in signature(getattr(steelyard, learner)).parameters}
    for name in re.findall(r"(?<!{)\b([\w.]+) = ", re.sub(r"{[^{}]*}", "", shown)):  # without inner values
        assert name in settings or name.removeprefix("learner.") in parameters


@pytest.fixture
def http(tmp_path):
    with serving(make_app(Writer(SQLiteStore(tmp_path / "store.db")))) as client:
        client.put(MODEL, json=SPEC)
        yield client


def _learn(http, rows, model=MODEL):
    return http.post(f"{model}/learn", json={"rows": rows})


def test_hint_for_missing_value_can_be_followed(http):
    rows = records(60)
    rows[3]["amount"] = None
    http.put("/v1/models/strict", json={**SPEC, "missing": "refuse"})
    problem = is_problem(_learn(http, rows, "/v1/models/strict"), 422)
    assert problem["detail"].startswith("the request, row 3, column 'amount': a value is missing")
    assert problem["row"] == 3
    assert problem["hint"] == (
        'learn from missing values with missing = "indicator", or fill them with missing = "zero" '
        "(in the settings of a new model)"
    )
    for missing in ("indicator", "zero"):
        http.put(f"/v1/models/{missing}", json={**SPEC, "missing": missing})
        assert _learn(http, rows, f"/v1/models/{missing}").status_code == 200


def test_hint_for_too_many_categories_can_be_followed(http):
    rows = [{**row, "country": f"place {k}"} for k, row in enumerate(records(1001))]
    problem = is_problem(_learn(http, rows), 422)
    assert problem["hint"] == "create a model whose setting columns lists the other columns"
    http.put("/v1/models/narrow", json={**SPEC, "columns": {"amount": "number"}})
    assert _learn(http, rows, "/v1/models/narrow").status_code == 200


def test_hints_for_unknown_and_untrained_models_can_be_followed(http):
    problem = is_problem(_learn(http, records(5), "/v1/models/new"), 404)
    assert problem["hint"] == "PUT /v1/models/NAME creates one"
    assert http.put("/v1/models/new", json=SPEC).status_code == 201
    problem = is_problem(http.post("/v1/models/new/predict", json={"rows": records(1)}), 422)
    assert problem["hint"] == "send rows with labels to .../learn first"
    assert _learn(http, records(40), "/v1/models/new").status_code == 200
    assert http.post("/v1/models/new/predict", json={"rows": records(1)}).status_code == 200


def test_hint_for_learner_without_forget_can_be_followed(http):
    for name in ("KOIL", "ProximalSVC", "IncrementalSVC", "StreamClassifier"):
        http.put(f"/v1/models/{name}", json={**SPEC, "learner": {"class": name}})
        assert _learn(http, records(60), f"/v1/models/{name}").status_code == 200
    problem = is_problem(http.post("/v1/models/KOIL/forget", json={"rows": records(3)}), 422)
    assert problem["hint"] == "learners that can: ProximalSVC, IncrementalSVC, StreamClassifier"
    for name in problem["hint"].removeprefix("learners that can: ").split(", "):
        assert http.post(f"/v1/models/{name}/forget", json={"rows": records(3)}).status_code == 200


def test_hint_for_alarms_per_day_goal_can_be_followed():
    hint = "pass time= to partial_fit() and predict(), or use a share of rows: {'alarms': 0.01}"
    assert service_hint(hint) == "use a share of rows: learner.threshold = {alarms = 0.01}"
    learner = {"class": "StreamClassifier", "threshold": {"alarms": 0.01}}
    assert Spec.from_mapping({**SPEC, "learner": learner}).make_learner().threshold == {"alarms": 0.01}
