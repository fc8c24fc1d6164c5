"""OpenAPI 3.1 description of the service."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from steelyard.service.rows import CONTENT_TYPES

__all__ = ["description"]

_TEXT, _INTEGER, _NUMBER, _OBJECT = ({"type": t} for t in ("string", "integer", "number", "object"))
_LABEL = {"type": ["string", "integer"]}
_OPTIONAL_TEXT = {"type": ["string", "null"]}


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
_SPEC = {"$ref": "#/components/schemas/Spec"}
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
        columns={"oneOf": [{"const": "auto"}, _map_of({"enum": ["number", "category", "time"]})]},
        learner={"type": ["object", "null"]},
        memory={"type": ["string", "integer", "object"]},
        rows={"enum": ["none", "until labelled", "window"]},
        missing={"enum": ["refuse", "indicator", "mean", "zero"]},
        sites={"type": "boolean"},
        max_future=_OPTIONAL_TEXT,
        classes={"oneOf": [{"type": "null"}, _list({"type": ["string", "integer"]}, minItems=2)]},
        ranges={"type": ["object", "null"]},
        violations={"enum": ["refuse", "quarantine"]},
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
    "Models": _record("models", models=_list({"$ref": "#/components/schemas/Model"})),
    "Certificates": _record("certificates", certificates=_list(_OBJECT)),
    "SiteUpdate": {"type": "string", "description": "The bytes of a steelyard.federated.SiteUpdate."},
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
_MODEL = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
}
_SITE = {
    "name": "site",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "description": "A repeated request with the same key gets the response of the first request.",
}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(
    summary: str,
    schema: str | None,
    *,
    body: str | None = None,
    rows: bool = False,
    idempotent: bool = False,
    model: bool = True,
) -> dict[str, Any]:
    content = {} if schema is None else {"application/json": {"schema": _ref(schema)}}
    problem = {
        "description": "Error.",
        "content": {"application/problem+json": {"schema": _ref("Problem")}},
    }
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": [*([_MODEL] if model else []), *([_IDEMPOTENCY_KEY] if idempotent else [])],
        "responses": {"200": {"description": "Success.", "content": content}, "default": problem},
    }
    if body is not None:
        forms = {"application/json": {"schema": _ref(body)}}
        if rows:
            others = [form for form in CONTENT_TYPES if form != "application/json"]
            forms.update({form: {"schema": {"type": "string"}} for form in others})
        operation["requestBody"] = {"required": True, "content": forms}
    return operation


def _health_operation(summary: str, *, model: bool) -> dict[str, Any]:
    operation = _operation(summary, None, model=model)
    operation["responses"]["503"] = {"description": "Not ready.", "content": {"application/json": {}}}
    return operation


def _site_operations() -> dict[str, Any]:
    put = _operation("Apply the update of a site.", "Received", body="SiteUpdate")
    put["requestBody"]["content"] = {"application/octet-stream": {"schema": _ref("SiteUpdate")}}
    get = _operation("The latest update of a site.", None)
    get["responses"]["200"]["content"] = {"application/octet-stream": {}}
    drop = _operation("Remove a site.", "Dropped", idempotent=True)
    for operation in (put, get, drop):
        operation["parameters"].append(_SITE)
    return {"get": get, "put": put, "delete": drop}


def _query(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _operator_paths(model: str) -> dict[str, Any]:
    """Return the operations for operators, keyed by path."""
    release = _operation("Learn or discard rows in quarantine.", "Released", body="Release", idempotent=True)
    quarantine = _operation("Rows in quarantine, with reasons.", "Quarantine")
    quarantine["parameters"].append(_query("after", {"type": "integer", "minimum": 0}))
    audit = _operation("Audit log, newest entries first.", "Audit", model=False)
    texts = ("model", "verb", "key", "address", "request_id", "outcome")
    audit["parameters"] += [_query(name, _TEXT) for name in texts]
    audit["parameters"] += [_query(name, {**_TEXT, "format": "date-time"}) for name in ("since", "until")]
    audit["parameters"] += [_query(name, {"type": "integer", "minimum": 0}) for name in ("before", "limit")]
    activity = _operation("Volume, errors, latency and label delay over time.", "Activity")
    activity["parameters"].append(_query("since", {**_TEXT, "format": "date-time"}))
    versions = _operation("Versions with snapshots, and the agreement with one of them.", "Versions")
    versions["parameters"].append(_query("compare", {"type": ["integer", "string"]}))
    start = _operation("Start a challenger.", "Version", body="Challenger", idempotent=True)
    end = _operation("Remove the challenger.", "Version", idempotent=True)
    rename = _operation("Rename a model.", "Renamed", body="Rename", idempotent=True)
    promote = _operation("Exchange model and challenger.", "Promoted", idempotent=True)
    return {
        f"{model}/rename": {"post": rename},
        f"{model}/quarantine": {"get": quarantine, "post": release},
        f"{model}/challenger": {
            "get": _operation("Model and challenger on the same rows.", "Comparison"),
            "put": start,
            "delete": end,
        },
        f"{model}/promote": {"post": promote},
        "/v1/audit": {"get": audit},
        f"{model}/activity": {"get": activity},
        f"{model}/versions": {"get": versions},
        f"{model}/columns": {"get": _operation("Missing values, drift and importance by column.", "Columns")},
        "/v1/status": {"get": _operation("Role, lag and disk of this process.", "Status", model=False)},
    }


def description() -> dict[str, Any]:
    """Return the OpenAPI description."""
    made = _operation("Create a model or change its settings.", "Made", body="Spec")
    made["responses"]["201"] = {**made["responses"]["200"], "description": "Created."}
    model = "/v1/models/{model}"
    learn = _operation("Learn labelled rows.", "Learned", body="Rows", rows=True, idempotent=True)
    predict = _operation(
        "Predict labels, scores and probabilities.", "Prediction", body="Predict", rows=True, idempotent=True
    )
    label = _operation("Send the labels of remembered rows.", "Labelled", body="Labels", idempotent=True)
    forget = _operation("Forget rows; returns a certificate.", "Forgotten", body="Forget", idempotent=True)
    file = _operation("The learner as a file of steelyard.save.", None)
    pooled = _operation("The pooled model as a file, for the sites.", None)
    for operation in (file, pooled):
        operation["responses"]["200"]["content"] = {"application/octet-stream": {}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "steelyard",
            "version": version("steelyard"),
            "description": "Models learn and predict at the same time. Acknowledged requests are never lost.",
        },
        "paths": {
            model: {
                "get": _operation("One model.", "Model"),
                "put": made,
                "delete": _operation("Delete a model.", "Deleted", idempotent=True),
            },
            **_operator_paths(model),
            f"{model}/learn": {"post": learn},
            f"{model}/predict": {"post": predict},
            f"{model}/explain": {
                "post": _operation(
                    "Explain predictions: contributions of columns.", "Explained", body="Rows", rows=True
                )
            },
            f"{model}/explanations": {
                "get": _operation("Explained recent alarms, and importance of columns.", "Explanations")
            },
            f"{model}/labels": {"post": label},
            f"{model}/forget": {"post": forget},
            f"{model}/measures": {
                "get": _operation("Quality of predictions, now and over time.", "Measures")
            },
            f"{model}/certificates": {"get": _operation("Certificates of forget requests.", "Certificates")},
            f"{model}/file": {"get": file},
            f"{model}/sites": {"get": _operation("Contribution of each site.", "Sites")},
            f"{model}/sites/{{site}}": _site_operations(),
            f"{model}/pooled": {"get": pooled},
            "/v1/models": {
                "get": _operation("All models that the key has access to.", "Models", model=False)
            },
            "/v2/models/{model}": {"get": _operation("Inputs and outputs of a model.", "Metadata")},
            "/v2/models/{model}/ready": {
                "get": _health_operation("Whether a model can predict.", model=True)
            },
            "/v2/models/{model}/infer": {
                "post": _operation("Predictions, Open Inference Protocol.", "Inferred", body="Infer")
            },
            "/health/live": {"get": _operation("Whether the process responds.", None, model=False)},
            "/health/ready": {"get": _health_operation("Whether models are loaded.", model=False)},
            "/health/learner": {
                "get": _health_operation("Whether this process accepts changes.", model=False)
            },
        },
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
