"""OpenAPI 3.1 description of the service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from steelyard.service.http.routes import ANY, BINARY, Route
from steelyard.service.rows import CONTENT_TYPES
from steelyard.service.spec import KINDS, MISSING, ROWS, VIOLATIONS

_TEXT, _INTEGER, _NUMBER, _OBJECT = ({"type": t} for t in ("string", "integer", "number", "object"))
_LABEL = {"type": ["string", "integer"]}
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_JSON = "application/json"


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _record(required: str = "", **properties: Any) -> dict[str, Any]:
    """Return the schema of an object; ``required`` lists property names separated by spaces."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required.split()} if required else schema


def _map_of(values: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, **more}


_ROWS = _list(_map_of({"type": ["number", "string", "boolean", "null"]}), minItems=1)
_TENSOR = _record(
    "name datatype shape data", name=_TEXT, datatype=_TEXT, shape=_list(_INTEGER), data={"type": "array"}
)
_SELECTIONS = {
    "ids": _list(_TEXT),
    "subject": _TEXT,
    "rows": _ROWS,
    "before": {"type": "string", "format": "date-time"},
    "batch": {"type": "string", "minLength": 1, "maxLength": 255},
    "learned": {
        **_record(
            since={"type": "string", "format": "date-time"}, until={"type": "string", "format": "date-time"}
        ),
        "additionalProperties": False,
        "minProperties": 1,
    },
}
_SPEC = _ref("Spec")
_SCHEMAS: dict[str, Any] = {
    "Problem": _record(
        "title status detail",
        type=_TEXT,
        title=_TEXT,
        status=_INTEGER,
        detail=_TEXT,
        hint=_TEXT,
        row=_INTEGER,
        column=_TEXT,
    ),
    "Spec": _record(
        "target",
        target={"type": "string", "minLength": 1},
        time=_OPTIONAL_TEXT,
        subject=_OPTIONAL_TEXT,
        id=_OPTIONAL_TEXT,
        columns={"oneOf": [{"const": "auto"}, _map_of({"enum": KINDS})]},
        learner={"type": ["object", "null"]},
        memory={"type": ["string", "integer", "object"]},
        rows={"enum": ROWS},
        missing={"enum": MISSING},
        sites={"type": "boolean"},
        max_future=_OPTIONAL_TEXT,
        classes={"oneOf": [{"type": "null"}, _list({"type": ["string", "integer"]}, minItems=2)]},
        ranges={"type": ["object", "null"]},
        violations={"enum": VIOLATIONS},
        quota={"type": ["object", "null"]},
    ),
    "Model": _record(
        "name version digest classes rows waiting_for_labels spec",
        name=_TEXT,
        version=_INTEGER,
        digest=_TEXT,
        classes=_map_of(_NUMBER),
        rows=_INTEGER,
        learned=_INTEGER,
        columns=_map_of(_TEXT),
        waiting_for_labels=_INTEGER,
        experts=_list(_OBJECT),
        drifts=_list(_INTEGER),
        changes=_list(_OBJECT),
        latency_ms=_OBJECT,
        topics=_list(_OBJECT),
        spec=_SPEC,
    ),
    "Made": _record("name version spec", name=_TEXT, version=_INTEGER, spec=_SPEC),
    "Learned": _record("learned version", learned=_INTEGER, quarantined=_INTEGER, version=_INTEGER),
    "Prediction": _record(
        "labels scores version",
        labels=_list(_LABEL),
        scores={"type": "array"},
        classes=_list(_LABEL),
        probabilities=_list(_OBJECT),
        ids=_list(_TEXT),
        version=_INTEGER,
    ),
    "Explained": _record(
        "explanations version",
        explanations=_list(
            _record(
                "label score base contributions",
                label=_LABEL,
                score={"type": ["number", "object"]},
                base={"type": ["number", "object"]},
                contributions=_OBJECT,
                values=_OBJECT,
                nearest=_list(_OBJECT),
                changes=_list(_OBJECT),
            )
        ),
        version=_INTEGER,
    ),
    "Explanations": _record(
        "alarms importance version", alarms=_list(_OBJECT), importance=_list(_OBJECT), version=_INTEGER
    ),
    "Labelled": _record(
        "labelled corrected already_labelled unknown version",
        labelled=_INTEGER,
        corrected=_INTEGER,
        already_labelled=_list(_TEXT),
        unknown=_list(_TEXT),
        version=_INTEGER,
    ),
    "Deleted": _record("deleted rows version", deleted=_TEXT, rows=_INTEGER, version=_INTEGER),
    "Rename": _record("name", name=_TEXT),
    "Renamed": _record("name former_name version", name=_TEXT, former_name=_TEXT, version=_INTEGER),
    "Quarantine": _record("rows", rows=_list(_OBJECT)),
    "Release": {
        "oneOf": [
            {**_record(way, **{way: _list(_INTEGER, minItems=1)}), "additionalProperties": False}
            for way in ("learn", "discard")
        ]
    },
    "Released": _record(
        "released learned version", released=_INTEGER, learned={"type": "boolean"}, version=_INTEGER
    ),
    "Challenger": _record("", replay={"type": "boolean"}, learner={"type": ["object", "null"]}),
    "Comparison": _record(
        "since rows spec digest model challenger",
        since=_NUMBER,
        rows=_INTEGER,
        spec=_SPEC,
        digest=_TEXT,
        model=_OBJECT,
        challenger=_OBJECT,
    ),
    "Activity": _record("seconds points", seconds=_INTEGER, points=_list(_OBJECT)),
    "Columns": _record("rows columns", rows=_INTEGER, columns=_list(_OBJECT), more=_INTEGER),
    "Versions": _record("versions", versions=_list(_OBJECT), compared=_OBJECT),
    "Status": _record("version role behind is_store_up", version=_TEXT, role=_TEXT, behind=_NUMBER),
    "Version": _record("version", version=_INTEGER),
    "Promoted": _record("version spec", version=_INTEGER, spec=_SPEC),
    "Audit": _record("entries next", entries=_list(_OBJECT), next={"type": ["integer", "null"]}),
    "Forgotten": _record(
        "forgotten version certificate",
        forgotten=_INTEGER,
        version=_INTEGER,
        certificate=_OBJECT,
        erasure_pending={"type": "boolean"},
    ),
    "Measures": _record("now points", now=_OBJECT, points={"type": "array"}),
    "Predict": _record(
        "rows", rows=_ROWS, remember={"type": "boolean"}, as_of={"type": ["integer", "string"]}
    ),
    "Labels": _record("labels", labels=_map_of(_LABEL, minProperties=1), correct={"type": "boolean"}),
    "Forget": {
        "oneOf": [
            {**_record(name, **{name: schema}), "additionalProperties": False}
            for name, schema in _SELECTIONS.items()
        ]
    },
    "Rows": _record("rows", rows=_ROWS),
    "Models": _record("models", models=_list(_ref("Model"))),
    "Certificates": _record("certificates", certificates=_list(_OBJECT)),
    "Received": _record(
        "site epoch version news rows model_version digest",
        site=_TEXT,
        epoch=_INTEGER,
        version=_INTEGER,
        news={"type": "boolean"},
        rows=_NUMBER,
        model_version=_INTEGER,
        digest=_TEXT,
    ),
    "Dropped": _record(
        "dropped model_version certificate", dropped=_TEXT, model_version=_INTEGER, certificate=_OBJECT
    ),
    "Sites": _record(
        "model_version digest rows sites gone",
        model_version=_INTEGER,
        digest=_OPTIONAL_TEXT,
        rows=_NUMBER,
        sites=_list(_OBJECT),
        gone=_OBJECT,
    ),
    "Metadata": _record(
        "name versions platform inputs outputs",
        name=_TEXT,
        versions=_list(_TEXT),
        platform=_TEXT,
        inputs=_list(_OBJECT),
        outputs=_list(_OBJECT),
    ),
    "Infer": _record("inputs", id=_TEXT, inputs=_list(_TENSOR, minItems=1)),
    "Inferred": _record(
        "model_name model_version outputs",
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        outputs=_list(_TENSOR),
    ),
}


def _parameter(name: str, schema: Mapping[str, Any], place: str = "query") -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


_PATH_PARAMETERS = (
    _parameter("model", {**_TEXT, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}, "path"),
    _parameter("site", {**_TEXT, "minLength": 1, "maxLength": 200}, "path"),
)
_IDEMPOTENCY_KEY = {
    **_parameter(
        "Idempotency-Key", {**_TEXT, "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}, "header"
    ),
    "description": "A repeated request with the same key gets the response of the first request.",
}


def _content(name: str, *, takes_rows: bool = False) -> dict[str, Any]:
    """Return the content of a body or response by the name of its schema, ``ANY`` or ``BINARY``."""
    if name in {ANY, BINARY}:
        return {name: {}} if name else {}
    forms = [form for form in CONTENT_TYPES if takes_rows and form != _JSON]
    return {_JSON: {"schema": _ref(name)}, **{form: {"schema": _TEXT} for form in forms}}


def _operation(route: Route) -> dict[str, Any]:
    assert route.response is not None
    content = _content(route.response)
    parameters = [one for one in _PATH_PARAMETERS if f"{{{one['name']}" in route.path]
    parameters += [_IDEMPOTENCY_KEY] * route.is_idempotent
    parameters += [_parameter(name, schema) for name, schema in (route.query or {}).items()]
    problem = {"description": "Error.", "content": {"application/problem+json": {"schema": _ref("Problem")}}}
    operation: dict[str, Any] = {
        "summary": str(route.handler.__doc__).partition("\n")[0],
        "parameters": parameters,
        "responses": {"200": {"description": "Success.", "content": content}, "default": problem},
    }
    for status, text in (route.statuses or {}).items():
        operation["responses"][str(status)] = {"description": text, "content": content or {_JSON: {}}}
    if route.body is not None:
        body = _content(route.body, takes_rows=route.takes_rows)
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def description(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI description of the routes that have a described response."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.response is not None:
            operations = paths.setdefault(route.path.replace(":path}", "}"), {})
            operations[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "steelyard",
            "version": version("steelyard"),
            "description": "Models learn and predict at the same time. Acknowledged requests are never lost.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
