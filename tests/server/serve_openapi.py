"""What ``otel-loopeval serve`` answers, as OpenAPI: each address, what it takes, each status it may give."""

from typing import Any

_TEXT = {"text/plain": {"schema": {"type": "string"}}}
_HTML = {"text/html": {"schema": {"type": "string"}}}


def _refusals(*statuses: int, content: dict[str, Any] = _TEXT) -> dict[str, Any]:
    return {str(status): {"description": "refused", "content": content} for status in statuses}


def _id(characters: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^[0-9a-f]{{{characters}}}$"}


_NANOSECONDS = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"}
_SCHEMAS: dict[str, Any] = {
    "Value": {
        "oneOf": [
            {
                "type": "object",
                "properties": {name: schema},
                "required": [name],
                "additionalProperties": False,
            }
            for name, schema in {
                "stringValue": {"type": "string"},
                "boolValue": {"type": "boolean"},
                "intValue": {"type": "string", "pattern": "^-?[0-9]{1,18}$"},
                "doubleValue": {"type": "number"},
            }.items()
        ]
    },
    "Attributes": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "key": {
                    "anyOf": [
                        {"type": "string"},
                        {
                            "enum": [
                                "gen_ai.operation.name",
                                "gen_ai.agent.name",
                                "gen_ai.usage.input_tokens",
                                "loopeval.run.iterations",
                                "loopeval.guard.kind",
                            ]
                        },
                    ]
                },
                "value": {"$ref": "#/components/schemas/Value"},
            },
            "required": ["key", "value"],
        },
    },
    "Event": {
        "type": "object",
        "properties": {
            "timeUnixNano": _NANOSECONDS,
            "name": {"anyOf": [{"type": "string"}, {"const": "loopeval.guard"}]},
            "attributes": {"$ref": "#/components/schemas/Attributes"},
        },
    },
    "Span": {
        "type": "object",
        "properties": {
            "traceId": _id(32),
            "spanId": _id(16),
            "parentSpanId": _id(16),
            "name": {
                "anyOf": [{"type": "string"}, {"enum": ["invoke_agent x", "chat y", "loopeval.verdict"]}]
            },
            "kind": {"type": "integer", "minimum": 0, "maximum": 5},
            "startTimeUnixNano": _NANOSECONDS,
            "endTimeUnixNano": _NANOSECONDS,
            "attributes": {"$ref": "#/components/schemas/Attributes"},
            "events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
            "status": {"type": "object", "properties": {"code": {"enum": [0, 1, 2]}}},
        },
        "required": ["traceId", "spanId", "name"],
    },
    "ScopeSpans": {
        "type": "object",
        "properties": {
            "scope": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spans": {"type": "array", "items": {"$ref": "#/components/schemas/Span"}},
        },
    },
    "ResourceSpans": {
        "type": "object",
        "properties": {
            "resource": {
                "type": "object",
                "properties": {"attributes": {"$ref": "#/components/schemas/Attributes"}},
            },
            "scopeSpans": {"type": "array", "items": {"$ref": "#/components/schemas/ScopeSpans"}},
        },
    },
    "Request": {
        "type": "object",
        "properties": {
            "resourceSpans": {"type": "array", "items": {"$ref": "#/components/schemas/ResourceSpans"}}
        },
    },
}


def _taken(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "post": {
            "parameters": [
                {
                    "name": "content-encoding",
                    "in": "header",
                    "schema": {"enum": ["gzip", "zstd", "deflate", "identity", "br"]},
                }
            ],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": schema},
                    "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
                },
            },
            "responses": {
                "200": {
                    "description": "taken",
                    "content": {"application/json": {}, "application/x-protobuf": {}},
                },
                **_refusals(400, 401, 405, 413, 415, 429, 503),
            },
        }
    }


def _shown(content: dict[str, Any], *parameters: dict[str, Any], refusals: dict[str, Any]) -> dict[str, Any]:
    return {
        "get": {
            "parameters": list(parameters),
            "responses": {"200": {"description": "shown", "content": content}, **refusals},
        }
    }


def _asked(name: str, *known: str) -> dict[str, Any]:
    schema = {"anyOf": [{"type": "string"}, *([{"enum": known}] if known else [])]}
    return {"name": name, "in": "query", "schema": schema}


def _placed(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


_FILTERS = (
    _asked("verdict", "healthy", "unhealthy", "doom_loop"),
    _asked("agent"),
    _asked("service"),
    _asked("time", "1h", "24h", "7d"),
    _asked("newer"),
    _asked("older"),
)
_NO_PAGE = _refusals(404, 405, content=_HTML) | _refusals(401, 421)
_STATIC: dict[str, Any] = {"text/css": {}, "text/javascript": {}, "image/svg+xml": {}}

DESCRIPTION: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "otel-loopeval serve", "version": "1"},
    "components": {"schemas": _SCHEMAS},
    "paths": {
        "/v1/traces": _taken({"$ref": "#/components/schemas/Request"}),
        "/v1/metrics": _taken({"type": "object"}),
        "/v1/logs": _taken({"type": "object"}),
        "/metrics": _shown(_TEXT, refusals=_refusals(405)),
        "/healthz": _shown(_TEXT, refusals=_refusals(405)),
        "/readyz": _shown(_TEXT, refusals=_refusals(405, 503)),
        "/": _shown(_HTML, *_FILTERS, refusals=_NO_PAGE),
        "/live": _shown(_HTML, *_FILTERS, refusals=_NO_PAGE | {"304": {"description": "the same"}}),
        "/runs/{key}": _shown(_HTML, _placed("key"), refusals=_NO_PAGE),
        "/static/{name}": _shown(_STATIC, _placed("name"), refusals=_NO_PAGE),
    },
}
