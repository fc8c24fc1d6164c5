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
    response: str | None = None  # schema, ANY or BINARY; None if the route is not in the OpenAPI description
    body: str | None = None  # OpenAPI schema of the body
    takes_rows: bool = False  # whether the body can have any format of rows, such as CSV
    is_idempotent: bool = False  # whether the request can have an idempotency key
    query: Mapping[str, Any] | None = None  # OpenAPI schemas of the query parameters
    statuses: Mapping[int, str] | None = None  # further statuses and their descriptions

    @property
    def is_audited(self) -> bool:
        """Whether refused requests are logged, because the route changes a model."""
        is_change = self.path.startswith(MODEL) and not self.path.endswith(("/predict", "/explain"))
        return is_change and self.method != "GET"


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

_TEXT, _INTEGER, _NUMBER, _FLAG, _OBJECT = (
    {"type": t} for t in ("string", "integer", "number", "boolean", "object")
)
_OPTIONAL_OBJECT = {"type": ["object", "null"]}
_LABEL = {"type": ["string", "integer"]}
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_JSON = "application/json"


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _record(
    required: str = "",
    *,
    texts: str = "",
    integers: str = "",
    numbers: str = "",
    flags: str = "",
    objects: str = "",
    lists: str = "",
    **properties: Any,
) -> dict[str, Any]:
    """Return the schema of an object. Names of properties of a simple type are separated by spaces."""
    kinds = (texts, _TEXT), (integers, _INTEGER), (numbers, _NUMBER), (flags, _FLAG), (objects, _OBJECT)
    for names, schema in (*kinds, (lists, _list(_OBJECT))):
        properties.update(dict.fromkeys(names.split(), schema))
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": required.split()} if required else schema


def _same(names: str, schema: Any) -> dict[str, Any]:
    return {name: schema for name in names.split()}  # noqa: C420  schemas are never changed


def _map_of(values: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, **more}


def _one_of(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly one of the properties."""
    records = [
        {**_record(name, **{name: schema}), "additionalProperties": False} for name, schema in schemas.items()
    ]
    return {"oneOf": records}


_ROWS = _list(_map_of({"type": ["number", "string", "boolean", "null"]}), minItems=1)
_TENSOR = _record(
    "name datatype shape data", texts="name datatype", shape=_list(_INTEGER), data={"type": "array"}
)
_TIME = {"type": "string", "format": "date-time"}
_SELECTIONS = {
    "ids": _list(_TEXT),
    "subject": _TEXT,
    "rows": _ROWS,
    "before": _TIME,
    "batch": {"type": "string", "minLength": 1, "maxLength": 255},
    "learned": {**_record(since=_TIME, until=_TIME), "additionalProperties": False, "minProperties": 1},
}
_SPEC = _ref("Spec")
_SCHEMAS: dict[str, Any] = {
    "Problem": _record("title status detail", texts="type title detail hint column", integers="status row"),
    "Spec": _record(
        "target",
        target={"type": "string", "minLength": 1},
        **_same("time subject id max_future cost", _OPTIONAL_TEXT),
        **_same("learner ranges quota", _OPTIONAL_OBJECT),
        columns={"oneOf": [{"const": "auto"}, _map_of({"enum": KINDS})]},
        memory={"type": ["string", "integer", "object"]},
        rows={"enum": ROWS},
        missing={"enum": MISSING},
        flags="sites",
        classes={"oneOf": [{"type": "null"}, _list(_LABEL, minItems=2)]},
        violations={"enum": VIOLATIONS},
    ),
    "Model": _record(
        "name version digest classes rows waiting_for_labels spec",
        texts="name digest",
        integers="version rows learned waiting_for_labels",
        classes=_map_of(_NUMBER),
        columns=_map_of(_TEXT),
        drifts=_list(_INTEGER),
        lists="experts changes topics",
        objects="latency_ms",
        spec=_SPEC,
    ),
    "Made": _record("name version spec", texts="name", integers="version", spec=_SPEC),
    "Learned": _record("learned version", integers="learned quarantined version"),
    "Prediction": _record(
        "labels scores version",
        labels=_list(_LABEL),
        scores={"type": "array"},
        classes=_list(_LABEL),
        lists="probabilities",
        ids=_list(_TEXT),
        integers="version",
    ),
    "Explained": _record(
        "explanations version",
        explanations=_list(
            _record(
                "label score base contributions",
                label=_LABEL,
                **_same("score base", {"type": ["number", "object"]}),
                objects="contributions values",
                lists="nearest changes",
            )
        ),
        integers="version",
    ),
    "Explanations": _record("alarms importance version", lists="alarms importance", integers="version"),
    "Labelled": _record(
        "labelled corrected already_labelled unknown version",
        integers="labelled corrected version",
        **_same("already_labelled unknown", _list(_TEXT)),
    ),
    "Deleted": _record("deleted rows version", texts="deleted", integers="rows version"),
    "Rename": _record("name", texts="name"),
    "Renamed": _record("name former_name version", texts="name former_name", integers="version"),
    "Quarantine": _record("rows", lists="rows"),
    "Release": _one_of(_same("learn discard", _list(_INTEGER, minItems=1))),
    "Released": _record("released learned version", integers="released version", flags="learned"),
    "Challenger": _record(flags="replay", learner=_OPTIONAL_OBJECT),
    "Comparison": _record(
        "since rows spec digest model challenger",
        numbers="since",
        integers="rows",
        texts="digest",
        objects="model challenger",
        spec=_SPEC,
    ),
    "Activity": _record("seconds points", integers="seconds", lists="points"),
    "Columns": _record("rows columns", integers="rows more", lists="columns"),
    "Versions": _record("versions", lists="versions", objects="compared"),
    "Status": _record("version role behind is_store_up", texts="version role", numbers="behind"),
    "Version": _record("version", integers="version"),
    "Promoted": _record("version spec", integers="version", spec=_SPEC),
    "Audit": _record("entries next", lists="entries", next={"type": ["integer", "null"]}),
    "Forgotten": _record(
        "forgotten version certificate",
        integers="forgotten version",
        objects="certificate",
        flags="erasure_pending",
    ),
    "Measures": _record("now points", objects="now", points={"type": "array"}),
    "Predict": _record("rows", rows=_ROWS, flags="remember", as_of={"type": ["integer", "string"]}),
    "Labels": _record("labels", labels=_map_of(_LABEL, minProperties=1), flags="correct"),
    "Forget": _one_of(_SELECTIONS),
    "Rows": _record("rows", rows=_ROWS),
    "Models": _record("models", models=_list(_ref("Model"))),
    "Certificates": _record("certificates", lists="certificates"),
    "Received": _record(
        "site epoch version news rows model_version digest",
        texts="site digest",
        integers="epoch version model_version",
        flags="news",
        numbers="rows",
    ),
    "Dropped": _record(
        "dropped model_version certificate", texts="dropped", integers="model_version", objects="certificate"
    ),
    "Sites": _record(
        "model_version digest rows sites gone",
        integers="model_version",
        digest=_OPTIONAL_TEXT,
        numbers="rows",
        lists="sites",
        objects="gone",
    ),
    "Metadata": _record(
        "name versions platform inputs outputs",
        texts="name platform",
        versions=_list(_TEXT),
        lists="inputs outputs",
    ),
    "Infer": _record("inputs", texts="id", inputs=_list(_TENSOR, minItems=1)),
    "Inferred": _record(
        "model_name model_version outputs", texts="model_name model_version id", outputs=_list(_TENSOR)
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
