"""OpenAPI 3.1 description of the service."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from steelyard.service.rows import CONTENT_TYPES

__all__ = ["description"]

_LABEL = {"type": ["string", "integer"]}
_ROW = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}}
_ROWS: dict[str, Any] = {
    "type": "object",
    "required": ["rows"],
    "properties": {"rows": {"type": "array", "minItems": 1, "items": _ROW}},
}
_TENSOR: dict[str, Any] = {
    "type": "object",
    "required": ["name", "datatype", "shape", "data"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "data": {"type": "array"},
    },
}
_SCHEMAS: dict[str, Any] = {
    "Problem": {
        "type": "object",
        "required": ["title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "hint": {"type": "string"},
            "row": {"type": "integer"},
            "column": {"type": "string"},
        },
    },
    "Spec": {
        "type": "object",
        "required": ["target"],
        "properties": {
            "target": {"type": "string", "minLength": 1},
            "time": {"type": ["string", "null"]},
            "subject": {"type": ["string", "null"]},
            "id": {"type": ["string", "null"]},
            "columns": {
                "oneOf": [
                    {"const": "auto"},
                    {"type": "object", "additionalProperties": {"enum": ["number", "category"]}},
                ]
            },
            "learner": {"type": ["object", "null"]},
            "memory": {"type": ["string", "integer", "object"]},
            "rows": {"enum": ["none", "until labelled", "window"]},
            "missing": {"enum": ["refuse", "mean", "zero"]},
            "sites": {"type": "boolean"},
            "max_future": {"type": ["string", "null"]},
        },
    },
    "Model": {
        "type": "object",
        "required": ["name", "version", "digest", "classes", "rows", "waiting_for_labels", "spec"],
        "properties": {
            "name": {"type": "string"},
            "version": {"type": "integer"},
            "digest": {"type": "string"},
            "classes": {"type": "object", "additionalProperties": {"type": "number"}},
            "rows": {"type": "integer"},
            "learned": {"type": "integer"},
            "columns": {"type": "object", "additionalProperties": {"type": "string"}},
            "waiting_for_labels": {"type": "integer"},
            "experts": {"type": "array", "items": {"type": "object"}},
            "drifts": {"type": "array", "items": {"type": "integer"}},
            "latency_ms": {"type": "object"},
            "spec": {"$ref": "#/components/schemas/Spec"},
        },
    },
    "Made": {
        "type": "object",
        "required": ["name", "version", "spec"],
        "properties": {
            "name": {"type": "string"},
            "version": {"type": "integer"},
            "spec": {"$ref": "#/components/schemas/Spec"},
        },
    },
    "Learned": {
        "type": "object",
        "required": ["learned", "version"],
        "properties": {"learned": {"type": "integer"}, "version": {"type": "integer"}},
    },
    "Prediction": {
        "type": "object",
        "required": ["labels", "scores", "version"],
        "properties": {
            "labels": {"type": "array", "items": _LABEL},
            "scores": {"type": "array"},
            "classes": {"type": "array", "items": _LABEL},
            "probabilities": {"type": "array", "items": {"type": "object"}},
            "ids": {"type": "array", "items": {"type": "string"}},
            "version": {"type": "integer"},
        },
    },
    "Labelled": {
        "type": "object",
        "required": ["labelled", "unknown", "version"],
        "properties": {
            "labelled": {"type": "integer"},
            "unknown": {"type": "array", "items": {"type": "string"}},
            "version": {"type": "integer"},
        },
    },
    "Forgotten": {
        "type": "object",
        "required": ["forgotten", "version", "certificate"],
        "properties": {
            "forgotten": {"type": "integer"},
            "version": {"type": "integer"},
            "certificate": {"type": "object"},
        },
    },
    "Measures": {
        "type": "object",
        "required": ["now", "points"],
        "properties": {"now": {"type": "object"}, "points": {"type": "array"}},
    },
    "Predict": {
        "type": "object",
        "required": ["rows"],
        "properties": {
            **_ROWS["properties"],
            "remember": {"type": "boolean"},
            "as_of": {"type": ["integer", "string"]},
        },
    },
    "Labels": {
        "type": "object",
        "required": ["labels"],
        "properties": {"labels": {"type": "object", "minProperties": 1, "additionalProperties": _LABEL}},
    },
    "Forget": {
        "oneOf": [
            {
                "type": "object",
                "required": [name],
                "additionalProperties": False,
                "properties": {name: schema},
            }
            for name, schema in {
                "ids": {"type": "array", "items": {"type": "string"}},
                "subject": {"type": "string"},
                "rows": _ROWS["properties"]["rows"],
                "before": {"type": "string", "format": "date-time"},
            }.items()
        ]
    },
    "Rows": _ROWS,
    "Models": {
        "type": "object",
        "required": ["models"],
        "properties": {"models": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}},
    },
    "Certificates": {
        "type": "object",
        "required": ["certificates"],
        "properties": {"certificates": {"type": "array", "items": {"type": "object"}}},
    },
    "SiteUpdate": {"type": "string", "description": "The bytes of a steelyard.federated.SiteUpdate."},
    "Received": {
        "type": "object",
        "required": ["site", "epoch", "version", "news", "rows", "model_version", "digest"],
        "properties": {
            "site": {"type": "string"},
            "epoch": {"type": "integer"},
            "version": {"type": "integer"},
            "news": {"type": "boolean"},
            "rows": {"type": "number"},
            "model_version": {"type": "integer"},
            "digest": {"type": "string"},
        },
    },
    "Dropped": {
        "type": "object",
        "required": ["dropped", "model_version", "certificate"],
        "properties": {
            "dropped": {"type": "string"},
            "model_version": {"type": "integer"},
            "certificate": {"type": "object"},
        },
    },
    "Sites": {
        "type": "object",
        "required": ["model_version", "digest", "rows", "sites", "gone"],
        "properties": {
            "model_version": {"type": "integer"},
            "digest": {"type": ["string", "null"]},
            "rows": {"type": "number"},
            "sites": {"type": "array", "items": {"type": "object"}},
            "gone": {"type": "object"},
        },
    },
    "Metadata": {
        "type": "object",
        "required": ["name", "versions", "platform", "inputs", "outputs"],
        "properties": {
            "name": {"type": "string"},
            "versions": {"type": "array", "items": {"type": "string"}},
            "platform": {"type": "string"},
            "inputs": {"type": "array", "items": {"type": "object"}},
            "outputs": {"type": "array", "items": {"type": "object"}},
        },
    },
    "Infer": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "minItems": 1, "items": _TENSOR},
        },
    },
    "Inferred": {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": _TENSOR},
        },
    },
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
    "description": "A repeated request with the same key gets the response of the first one.",
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


def description() -> dict[str, Any]:
    """Return the description."""
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
            "description": "Models that learn and predict at once; acknowledged requests are never lost.",
        },
        "paths": {
            model: {"get": _operation("One model.", "Model"), "put": made},
            f"{model}/learn": {"post": learn},
            f"{model}/predict": {"post": predict},
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
