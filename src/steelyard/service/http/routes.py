"""Routes: method, path, handler and the scope that a key needs; their description as OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from steelyard.service.rows import CONTENT_TYPES
from steelyard.service.spec import KINDS, MISSING, ROWS, VIOLATIONS

MODELS = "/v1/models"
MODEL = f"{MODELS}/{{model}}"
BINARY = "application/octet-stream"
EVENTS = "text/event-stream"
ANY = ""  # a response without schema
NOT_READY = {503: "Not ready."}
# Called with the service, the request and, if the path contains {model}, the name of the model.
Handler = Callable[..., Any]


@dataclass(frozen=True)
class Route:
    """One route of the service. The first line of the docstring of its handler is its OpenAPI summary."""

    method: str
    path: str
    handler: Handler  # returns a response, or a value that is sent as JSON
    scope: str | None = None  # scope of the key; None if no key is needed or the handler checks it
    # Schema, or ANY, BINARY or EVENTS; None if the route is not in the OpenAPI description.
    response: str | None = None
    body: str | None = None  # OpenAPI schema of the body
    takes_rows: bool = False  # whether the body can have any format of rows, such as CSV
    is_idempotent: bool = False  # whether the request can have an idempotency key
    query: Mapping[str, Any] | None = None  # OpenAPI schemas of the query parameters
    statuses: Mapping[int, str] | None = None  # further statuses and their descriptions


ROUTES: list[Route] = []  # all routes, in the order of their declaration


def route(
    method: str, path: str, scope: str | None = None, **description: Any
) -> Callable[[Handler], Handler]:
    """Declare the decorated function as the handler of a route."""

    def declare(handler: Handler) -> Handler:
        ROUTES.append(Route(method, path, handler, scope, **description))
        return handler

    return declare


# -- OpenAPI ----------------------------------------------------------------------------------------

_JSON = "application/json"
_TEXT = {"type": "string"}
_ROW = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}}
# Types of fields. The name of a schema is a type as well; [] means a list, {} an object with such values.
_TYPES: dict[str, Any] = {
    "text": _TEXT,
    "text?": {"type": ["string", "null"]},
    "integer": {"type": "integer"},
    "integer?": {"type": ["integer", "null"]},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    "object?": {"type": ["object", "null"]},
    "array": {"type": "array"},
    "label": {"type": ["string", "integer"]},
    "score": {"type": ["number", "object"]},
    "as_of": {"type": ["integer", "string"]},
    "memory": {"type": ["string", "integer", "object"]},
    "time": {"type": "string", "format": "date-time"},
    "rows": {"type": "array", "items": _ROW, "minItems": 1},
    "name": {"type": "string", "minLength": 1},
}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(kind: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a type with further keywords."""
    if kind.endswith("[]"):
        return {"type": "array", "items": _schema(kind[:-2]), **more}
    if kind.endswith("{}"):
        return {"type": "object", "additionalProperties": _schema(kind[:-2]), **more}
    return {**(_TYPES[kind] if kind in _TYPES else _ref(kind)), **more}


def _record(fields: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object. Fields are written ``name:type``, and ``!`` marks required fields.

    The schema of a field without a type is one of ``properties``.
    """
    for name, _, kind in (field.rstrip("!").partition(":") for field in fields.split()):
        if kind:
            properties[name] = _schema(kind)
    required = [field.rstrip("!").partition(":")[0] for field in fields.split() if field.endswith("!")]
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


def _one_of(**schemas: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly one of the properties."""
    common = {"type": "object", "additionalProperties": False}
    return {"oneOf": [{**common, "properties": {n: s}, "required": [n]} for n, s in schemas.items()]}


_TYPES["tensor"] = _record("name:text! datatype:text! shape:integer[]! data:array!")
_TYPES["explanation"] = _record(
    "label:label! score:score! base:score! contributions:object! values:object nearest:object[] "
    "changes:object[]"
)
_SCHEMAS: dict[str, Any] = {
    "Problem": _record(
        "type:text title:text! status:integer! detail:text! hint:text row:integer column:text"
    ),
    "Spec": _record(
        "target:name! time:text? subject:text? id:text? max_future:text? cost:text? learner:object? "
        "ranges:object? quota:object? memory:memory sites:flag",
        columns={"oneOf": [{"const": "auto"}, {"type": "object", "additionalProperties": {"enum": KINDS}}]},
        rows={"enum": ROWS},
        missing={"enum": MISSING},
        classes={"oneOf": [{"type": "null"}, _schema("label[]", minItems=2)]},
        violations={"enum": VIOLATIONS},
    ),
    "Model": _record(
        "name:text! version:integer! digest:text! classes:number{}! rows:integer! spec:Spec! "
        "waiting_for_labels:integer! learned:integer columns:text{} drifts:integer[] experts:object[] "
        "changes:object[] topics:object[] latency_ms:object"
    ),
    "Made": _record("name:text! version:integer! spec:Spec!"),
    "Learned": _record("learned:integer! version:integer! quarantined:integer"),
    "Prediction": _record(
        "labels:label[]! scores:array! version:integer! classes:label[] probabilities:object[] ids:text[]"
    ),
    "Explained": _record("explanations:explanation[]! version:integer!"),
    "Explanations": _record("alarms:object[]! importance:object[]! version:integer!"),
    "Labelled": _record(
        "labelled:integer! corrected:integer! already_labelled:text[]! unknown:text[]! version:integer!"
    ),
    "Deleted": _record("deleted:text! rows:integer! version:integer!"),
    "Rename": _record("name:text!"),
    "Renamed": _record("name:text! former_name:text! version:integer!"),
    "Quarantine": _record("rows:object[]!"),
    "Release": _one_of(learn=_schema("integer[]", minItems=1), discard=_schema("integer[]", minItems=1)),
    "Released": _record("released:integer! learned:flag! version:integer!"),
    "Challenger": _record("replay:flag learner:object?"),
    "Comparison": _record(
        "since:number! rows:integer! spec:Spec! digest:text! model:object! challenger:object!"
    ),
    "Activity": _record("seconds:integer! points:object[]!"),
    "Columns": _record("rows:integer! columns:object[]! more:integer"),
    "Versions": _record("versions:object[]! compared:object"),
    "Status": _record("version:text! role:text! behind:number! is_store_up:flag!"),
    "Version": _record("version:integer!"),
    "Promoted": _record("version:integer! spec:Spec!"),
    "Audit": _record("entries:object[]! next:integer?!"),
    "Forgotten": _record("forgotten:integer! version:integer! certificate:object! erasure_pending:flag"),
    "Measures": _record("now:object! points:array!"),
    "Predict": _record("rows:rows! remember:flag as_of:as_of"),
    "Labels": _record("labels! correct:flag", labels=_schema("label{}", minProperties=1)),
    "Forget": _one_of(
        ids=_schema("text[]"),
        subject=_TEXT,
        rows=_schema("rows"),
        before=_schema("time"),
        batch={"type": "string", "minLength": 1, "maxLength": 255},
        learned={**_record("since:time until:time"), "additionalProperties": False, "minProperties": 1},
    ),
    "Rows": _record("rows:rows!"),
    "Models": _record("models:Model[]!"),
    "Certificates": _record("certificates:object[]!"),
    "Received": _record(
        "site:text! epoch:integer! version:integer! news:flag! rows:number! digest:text! "
        "model_version:integer!"
    ),
    "Dropped": _record("dropped:text! model_version:integer! certificate:object!"),
    "Sites": _record("model_version:integer! digest:text?! rows:number! sites:object[]! gone:object!"),
    "Metadata": _record("name:text! versions:text[]! platform:text! inputs:object[]! outputs:object[]!"),
    "Infer": _record("inputs! id:text", inputs=_schema("tensor[]", minItems=1)),
    "Inferred": _record("model_name:text! model_version:text! outputs:tensor[]! id:text"),
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
    """Return the content of a body or response by the name of its schema, or ANY, BINARY or EVENTS."""
    if name in {ANY, BINARY, EVENTS}:
        return {name: {}} if name else {}
    forms = [form for form in CONTENT_TYPES if takes_rows and form != _JSON]
    return {_JSON: {"schema": _ref(name)}, **{form: {"schema": _TEXT} for form in forms}}


def _operation(one: Route) -> dict[str, Any]:
    assert one.response is not None
    content = _content(one.response)
    parameters = [p for p in _PATH_PARAMETERS if f"{{{p['name']}" in one.path]
    parameters += [_IDEMPOTENCY_KEY] * one.is_idempotent
    parameters += [_parameter(name, schema) for name, schema in (one.query or {}).items()]
    problem = {"description": "Error.", "content": {"application/problem+json": {"schema": _ref("Problem")}}}
    operation: dict[str, Any] = {
        "summary": str(one.handler.__doc__).partition("\n")[0],
        "parameters": parameters,
        "responses": {"200": {"description": "Success.", "content": content}, "default": problem},
    }
    for status, text in (one.statuses or {}).items():
        operation["responses"][str(status)] = {"description": text, "content": content or {_JSON: {}}}
    if one.body is not None:
        body = _content(one.body, takes_rows=one.takes_rows)
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def description() -> dict[str, Any]:
    """Return the OpenAPI description of the routes that have a described response."""
    paths: dict[str, dict[str, Any]] = {}
    for one in ROUTES:
        if one.response is not None:
            operations = paths.setdefault(one.path.replace(":path}", "}"), {})
            operations[one.method.lower()] = _operation(one)
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
