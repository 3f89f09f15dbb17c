"""The description of the API for machines, OpenAPI 3.1, at ``/openapi.json``.

Main function: ``document``. Pure; the routes themselves are in ``penstock.rest.routes``, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.model.payloads import BackfillState
from penstock.worker.task.waiting import REASONS

Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_TEXT_OR_NULL: Final[Json] = {"type": ["string", "null"]}
_INTEGER: Final[Json] = {"type": "integer"}
_TIME: Final[Json] = {"type": "string", "format": "date-time"}
_BOOLEAN: Final[Json] = {"type": "boolean"}
#: Milliseconds or a date and time; also a position in a source.
_TIME_OR_NUMBER: Final[Json] = {"type": ["string", "integer"]}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(schema: Json | str) -> Json:
    return _ref(schema) if isinstance(schema, str) else schema


def _list_of(schema: Json | str) -> Json:
    return {"type": "array", "items": _schema(schema)}


def _object(required: Mapping[str, Json], optional: Mapping[str, Json] | None = None) -> Json:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def _closed(required: Mapping[str, Json], optional: Mapping[str, Json] | None = None) -> Json:
    return {**_object(required, optional), "additionalProperties": False}


_STATE: Final[Json] = {"type": "string", "enum": ["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]}
_STATE_FIELDS: Final = {"state": _STATE, "worker_id": _TEXT, "version": _TEXT_OR_NULL}
_TYPE: Final[Json] = {"type": "string", "enum": ["source", "sink", "unknown"]}
_SCALAR: Final[Json] = {"type": ["string", "number", "boolean"]}
_NATURAL: Final[Json] = {"type": "integer", "minimum": 0, "maximum": 2147483647}
_ANY_OBJECT: Final[Json] = {"type": "object"}
_PROGRESS: Final[Json] = _object(
    {"done": {"type": "number"}, "total": {"type": ["number", "null"]}, "unit": _TEXT}, {"text": _TEXT}
)
_NULLABLE_OBJECT: Final[Json] = {"type": ["object", "null"]}
_UNITS: Final = {"connectors": _list_of(_TEXT), "tasks": _list_of(_ref("TaskId"))}

SCHEMAS: Final[Json] = {
    "Error": _object({"error_code": _INTEGER, "message": _TEXT_OR_NULL}),
    "ServerInfo": _object({"version": _TEXT, "commit": _TEXT, "kafka_cluster_id": _TEXT_OR_NULL}),
    "Health": _object({"status": {"type": "string", "enum": ["starting", "healthy", "unhealthy"]}, "message": _TEXT}),
    "Cluster": _object(
        {
            "worker_id": _TEXT,
            "group_id": _TEXT,
            "config_topic": _TEXT,
            "obstacle": _TEXT_OR_NULL,
            "member_id": _TEXT_OR_NULL,
            "generation": _INTEGER,
            "protocol": _TEXT_OR_NULL,
            "leader": _TEXT_OR_NULL,
            "is_leader": {"type": "boolean"},
            "config_offset": _INTEGER,
            **_UNITS,
            "next_rebalance_in_ms": {"type": ["integer", "null"]},
        },
        {
            "members": _list_of(_object({"member_id": _TEXT, "url": _TEXT, **_UNITS})),
            "waiting": _object(_UNITS),
            "warning": _TEXT,
        },
    ),
    "Config": {"type": "object", "additionalProperties": _TEXT},
    "ConfigInput": {"type": "object", "additionalProperties": _SCALAR},
    "ConfigPatch": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
    "CreateConnector": _closed(
        {"name": {"type": "string", "minLength": 1}, "config": _ref("ConfigInput")},
        {"initial_state": {"type": ["string", "null"], "enum": ["RUNNING", "PAUSED", "STOPPED", None]}},
    ),
    "TaskId": _object({"connector": _TEXT, "task": _INTEGER}),
    "TaskInfo": _object({"id": _ref("TaskId"), "config": _ref("Config")}),
    "ConnectorInfo": _object({"name": _TEXT, "config": _ref("Config"), "tasks": _list_of("TaskId"), "type": _TYPE}),
    "ConnectorState": _object(_STATE_FIELDS, {"trace": _TEXT, "waiting_for": _ref("Waiting")}),
    "TaskState": _object(
        {"id": _INTEGER, **_STATE_FIELDS}, {"trace": _TEXT, "waiting_for": _ref("Waiting"), "progress": _PROGRESS}
    ),
    "Status": _object(
        {"name": _TEXT, "connector": _ref("ConnectorState"), "tasks": _list_of("TaskState"), "type": _TYPE}
    ),
    "Expanded": {
        "type": "object",
        "additionalProperties": _object({}, {"info": _ref("ConnectorInfo"), "status": _ref("Status")}),
    },
    "Topics": {"type": "object", "additionalProperties": _object({"topics": _list_of(_TEXT)})},
    "Offsets": _object({"offsets": _list_of(_object({"partition": _NULLABLE_OBJECT, "offset": _NULLABLE_OBJECT}))}),
    "AlterOffsets": _closed(
        {},
        {
            "offsets": _list_of(_closed({"partition": _NULLABLE_OBJECT}, {"offset": _NULLABLE_OBJECT})),
            "timestamp": {
                "type": ["integer", "string"],
                "description": "For sinks: every partition goes to this time.",
            },
        },
    ),
    "BackfillRequest": {
        "anyOf": [
            _closed({"from": _TIME_OR_NUMBER}, {"to": _TIME_OR_NUMBER, "of": _TEXT}),
            _closed({"offsets": _list_of("BackfillRange")}),
            _closed({"offsets": _closed({"from": _TIME_OR_NUMBER, "to": _TIME_OR_NUMBER})}, {"of": _TEXT}),
        ]
    },
    "BackfillRange": _closed(
        {"kafka_topic": _TEXT, "kafka_partition": _INTEGER, "start_offset": _INTEGER, "end_offset": _INTEGER}
    ),
    "BackfillPlan": _object(
        {
            "name": _TEXT,
            "dry_run": _BOOLEAN,
            "reads": _list_of(_ANY_OBJECT),
            "total": {"type": ["integer", "null"]},
            "writes": _TEXT,
        }
    ),
    "Backfill": _object(
        {
            "state": {"type": "string", "enum": [one.value for one in BackfillState]},
            "worker_id": _TEXT,
            "began": _TIME,
            "ended": _TEXT_OR_NULL,
            "records": _INTEGER,
            "total": {"type": ["integer", "null"]},
            "reads": _list_of(_ANY_OBJECT),
            "positions": _list_of(_ANY_OBJECT),
        },
        {"trace": _TEXT, "progress": _ANY_OBJECT, "waiting_for": _ANY_OBJECT},
    ),
    "Message": _object({"message": _TEXT}, {"dry_run": _BOOLEAN, "offsets": _list_of(_ANY_OBJECT)}),
    "Plugin": _object({"class": _TEXT, "type": _TEXT}, {"version": _TEXT}),
    "ConfigKey": _object(
        {
            "name": _TEXT,
            "type": _TEXT,
            "required": _BOOLEAN,
            "default_value": _TEXT_OR_NULL,
            "importance": _TEXT,
            "documentation": _TEXT,
            "group": _TEXT_OR_NULL,
            "order_in_group": _INTEGER,
            "width": _TEXT,
            "display_name": _TEXT,
            "dependents": _list_of(_TEXT),
        }
    ),
    "ConfigValue": _object(
        {
            "name": _TEXT,
            "value": _TEXT_OR_NULL,
            "recommended_values": _list_of(_TEXT_OR_NULL),
            "errors": _list_of(_TEXT),
            "visible": _BOOLEAN,
        }
    ),
    "ConfigInfos": _object(
        {
            "name": _TEXT,
            "error_count": _INTEGER,
            "groups": _list_of(_TEXT),
            "configs": _list_of(
                _object({"definition": {"anyOf": [_ref("ConfigKey"), {"type": "null"}]}, "value": _ref("ConfigValue")})
            ),
        }
    ),
    "PreviewRequest": _closed(
        {"config": _ref("ConfigInput")},
        {
            "records": _list_of(
                _closed(
                    {},
                    {
                        "topic": _TEXT,
                        "partition": _NATURAL,
                        "timestamp": _NATURAL,
                        "key": {},
                        "value": {},
                        "headers": {"type": "object", "additionalProperties": _TEXT},
                    },
                )
            ),
            "limits": _closed(
                {},
                {
                    "records": {"type": "integer", "minimum": 1, "maximum": 1000},
                    "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 60},
                    "bytes": {"type": "integer", "minimum": 1, "maximum": 67108864},
                },
            ),
        },
    ),
    "Preview": _object({"type": _TYPE, "ended_by": _TEXT, "records": _list_of(_ANY_OBJECT)}, {"error": _TEXT}),
    "Explanation": _object(
        {
            "name": _TEXT,
            "type": _TYPE,
            "state": _TEXT_OR_NULL,
            "target": _TEXT,
            "waiting_for": _ref("Waiting"),
            "tasks": _list_of(
                _object({"id": _INTEGER, "state": _STATE, "waiting_for": _ref("Waiting")}, {"progress": _PROGRESS})
            ),
            "roads": _list_of(_object({"road": _TEXT, "why": _TEXT_OR_NULL, "records": _INTEGER})),
            "offsets": _list_of(_ANY_OBJECT),
            "next_commit": _ANY_OBJECT,
            "settings": _list_of(_object({"name": _TEXT, "value": _TEXT_OR_NULL, "origin": _TEXT})),
        },
        {"offsets_error": _TEXT, "backfill": _ref("Backfill")},
    ),
    "Waiting": _object(
        {"reason": {"type": "string", "enum": list(REASONS)}, "text": _TEXT},
        {
            "since": _TIME,
            "cause": _TEXT,
            "count": _INTEGER,
            "next_try": _TIME,
            "stack": _list_of(_TEXT),
            "busy_with": _TEXT,
        },
    ),
    "LoggerLevel": _object({"level": _TEXT, "last_modified": {"type": ["integer", "null"]}}),
    "SetLevel": _object({"level": {"type": "string", "examples": ["INFO"]}}),
}


@dataclass(frozen=True)
class Operation:
    """One operation of the API.

    Attributes:
        answers: The schema of each good answer; None for an empty one.
    """

    method: str
    path: str
    id: str
    summary: str
    answers: Mapping[int, Json | str | None]
    refusals: Sequence[int] = ()
    body: Json | str | None = None
    query: Mapping[str, Json] = field(default_factory=dict)


_C: Final = "/connectors/{name}"
_P: Final = "/connector-plugins/{plugin}"
_BODY: Final = (400, 408, 413, 415, 500)
_FLAG: Final[Json] = {"type": "boolean", "default": False}
_FORWARD: Final[Mapping[str, Json]] = {"forward": {"type": "boolean"}}

OPERATIONS: Final[Sequence[Operation]] = (
    Operation("get", "/", "getServerInfo", "Version of the worker and id of its cluster", {200: "ServerInfo"}),
    Operation("get", "/health", "getHealth", "Whether the worker is ready", {200: "Health"}, (500, 503)),
    Operation(
        "get",
        "/cluster",
        "getCluster",
        "The worker's group: who leads, and what this worker runs; on the leader, what every member runs",
        {200: "Cluster"},
        (404, 503),
    ),
    Operation(
        "get",
        "/connectors",
        "listConnectors",
        "The names of all connectors, or with expand more of each",
        {200: {"anyOf": [_list_of(_TEXT), _ref("Expanded")]}},
        query={"expand": _list_of({"type": "string", "enum": ["info", "status"]})},
    ),
    Operation(
        "post",
        "/connectors",
        "createConnector",
        "Create a connector",
        {201: "ConnectorInfo"},
        (*_BODY, 409),
        "CreateConnector",
        _FORWARD,
    ),
    Operation("get", _C, "getConnector", "One connector", {200: "ConnectorInfo"}, (404,)),
    Operation("delete", _C, "deleteConnector", "Delete a connector; its offsets stay", {204: None}, (404, 409, 500)),
    Operation("get", f"{_C}/config", "getConfig", "The configuration", {200: "Config"}, (404,)),
    Operation(
        "put",
        f"{_C}/config",
        "putConfig",
        "Create a connector or replace its configuration",
        {200: "ConnectorInfo", 201: "ConnectorInfo"},
        (*_BODY, 409),
        "ConfigInput",
        _FORWARD,
    ),
    Operation(
        "patch",
        f"{_C}/config",
        "patchConfig",
        "Change some settings; null removes one",
        {200: "ConnectorInfo"},
        (*_BODY, 404, 409),
        "ConfigPatch",
        _FORWARD,
    ),
    Operation("get", f"{_C}/status", "getStatus", "State of connector and tasks", {200: "Status"}, (404,)),
    Operation(
        "get",
        f"{_C}/explain",
        "explain",
        "Settings with their origin, offsets, and the waits of the connector and its tasks",
        {200: "Explanation"},
        (400, 404, 500),
    ),
    Operation("get", f"{_C}/tasks", "listTasks", "The tasks", {200: _list_of("TaskInfo")}, (404,)),
    Operation("get", f"{_C}/tasks/{{task}}/status", "getTaskStatus", "State of one task", {200: "TaskState"}, (404,)),
    Operation("post", f"{_C}/tasks/{{task}}/restart", "restartTask", "Restart one task", {204: None}, (404, 409, 500)),
    Operation(
        "post",
        f"{_C}/restart",
        "restartConnector",
        "Restart the connector, with includeTasks its tasks too, with onlyFailed only what failed",
        {202: "Status", 204: None},
        (400, 404, 409, 500),
        query={"includeTasks": _FLAG, "onlyFailed": _FLAG, **_FORWARD},
    ),
    Operation("put", f"{_C}/pause", "pauseConnector", "Let connector and tasks rest", {202: None}, (404, 500)),
    Operation("put", f"{_C}/resume", "resumeConnector", "Let them go on", {202: None}, (404, 500)),
    Operation("put", f"{_C}/stop", "stopConnector", "End the tasks, keep the connector", {204: None}, (404, 500)),
    Operation("get", f"{_C}/offsets", "getOffsets", "The committed offsets", {200: "Offsets"}, (400, 404, 500)),
    Operation(
        "patch",
        f"{_C}/offsets",
        "alterOffsets",
        "Change offsets of a stopped connector",
        {200: "Message"},
        (*_BODY, 404, 409),
        "AlterOffsets",
        {"dry_run": _FLAG, **_FORWARD},
    ),
    Operation(
        "delete",
        f"{_C}/offsets",
        "resetOffsets",
        "Remove the offsets of a stopped connector, or set those of a sink to a time",
        {200: "Message"},
        (400, 404, 409, 500),
        query={"dry_run": _FLAG, "timestamp": _TEXT, **_FORWARD},
    ),
    Operation(
        "post",
        f"{_C}/backfill",
        "startBackfill",
        "Read a range of times or offsets again, while the connector runs; with dry_run only return the plan",
        {200: "BackfillPlan", 202: "Backfill"},
        (*_BODY, 404, 409),
        "BackfillRequest",
        {"dry_run": _FLAG, **_FORWARD},
    ),
    Operation(
        "get",
        f"{_C}/backfill",
        "getBackfill",
        "The last backfill of a connector",
        {200: "Backfill"},
        (404, 409, 500),
        query=_FORWARD,
    ),
    Operation(
        "delete",
        f"{_C}/backfill",
        "cancelBackfill",
        "End the running backfill; the records that it has written stay",
        {202: None},
        (404, 409, 500),
        query=_FORWARD,
    ),
    Operation("get", f"{_C}/topics", "getTopics", "The topics in use", {200: "Topics"}, (403,)),
    Operation("put", f"{_C}/topics/reset", "resetTopics", "Forget the topics in use", {202: None}, (403,)),
    Operation(
        "get",
        "/connector-plugins",
        "listPlugins",
        "What is installed",
        {200: _list_of("Plugin")},
        (500,),
        query={"connectorsOnly": {"type": "boolean", "default": True}},
    ),
    Operation(
        "get",
        f"{_P}/config",
        "getPluginConfig",
        "The settings that a plugin knows",
        {200: _list_of("ConfigKey")},
        (404, 500),
    ),
    Operation(
        "put",
        f"{_P}/config/validate",
        "validateConfig",
        "Check a configuration without creating anything",
        {200: "ConfigInfos"},
        _BODY,
        "ConfigInput",
    ),
    Operation(
        "post",
        f"{_P}/preview",
        "preview",
        "Show what a configuration would do to some records; nothing is created or committed",
        {200: "Preview"},
        _BODY,
        "PreviewRequest",
    ),
    Operation(
        "get",
        "/admin/loggers",
        "listLoggers",
        "The level of each logger",
        {200: {"type": "object", "additionalProperties": _ref("LoggerLevel")}},
    ),
    Operation("get", "/admin/loggers/{logger}", "getLogger", "The level of one", {200: "LoggerLevel"}, (404,)),
    Operation(
        "put",
        "/admin/loggers/{logger}",
        "setLogger",
        "Change a logger and those below it",
        {200: _list_of(_TEXT), 204: None},
        (*_BODY, 404),
        "SetLevel",
        {"scope": {"type": "string", "enum": ["worker", "cluster"], "default": "worker"}},
    ),
)

#: The operations that may follow for a connector that was just created.
_FOLLOWING: Final = (
    *("getConnector", "getConfig", "patchConfig", "getStatus", "listTasks", "pauseConnector", "resumeConnector"),
    *(
        "stopConnector",
        "restartConnector",
        "getOffsets",
        "alterOffsets",
        "resetOffsets",
        "getTopics",
        "deleteConnector",
    ),
)


def document(version: str, *, admin: bool = True) -> Json:
    """The OpenAPI document.

    Args:
        admin: True if log levels are served here, too.
    """
    paths: Json = {}
    for operation in OPERATIONS:
        if admin or not operation.path.startswith("/admin"):
            paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kafka Connect REST API",
            "version": version,
            "description": "Connectors of a Penstock worker; the same API as Kafka Connect's, and more.",
        },
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def _operation(operation: Operation) -> Json:
    answers = {str(status): _answer("Done", schema) for status, schema in operation.answers.items()}
    for status in sorted({*operation.refusals, 406}):
        # Refusals of the framework have an error body too, but no media type, as in Kafka Connect.
        body = None if status in _UNTYPED else "Health" if operation.path == "/health" else "Error"
        answers[str(status)] = _answer(_REASONS[status], body)
    if operation.id in ("createConnector", "putConfig"):
        answers["201"]["links"] = {
            target: {"operationId": target, "parameters": {"name": "$response.body#/name"}} for target in _FOLLOWING
        }
    described: Json = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _IN_PATH[name]} for name in _names(operation)),
            *({"name": one, "in": "query", "required": False, "schema": kind} for one, kind in operation.query.items()),
        ],
        "responses": answers,
    }
    if operation.body is not None:
        content = {"application/json": {"schema": _schema(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _names(operation: Operation) -> list[str]:
    return [name for name in _IN_PATH if f"{{{name}}}" in operation.path]


_IN_PATH: Final[Mapping[str, Json]] = {
    "name": {"type": "string", "minLength": 1},
    "task": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
    "plugin": {"type": "string", "minLength": 1},
    "logger": {"type": "string", "minLength": 1},
}
_UNTYPED: Final = (406, 408, 413, 415)
_REASONS: Final = {
    400: "The request is wrong; the message says how",
    403: "It is switched off",
    404: "There is no such thing",
    406: "The caller does not take JSON",
    408: "The body did not come in time",
    409: "It exists already, or another operation is in progress: try again",
    413: "The body is too large",
    415: "The body is not JSON",
    500: "A connector's own error, or the time is up; the message says which",
    503: "The worker is starting",
}


def _answer(description: str, schema: Json | str | None) -> Json:
    if schema is None:
        return {"description": description}
    return {"description": description, "content": {"application/json": {"schema": _schema(schema)}}}
