"""The description of the API for machines, OpenAPI 3.1, at ``/openapi.json``.

Main function: ``document``. Pure; the routes themselves are in ``penstock.rest.routes``, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.model.payloads import BackfillState
from penstock.worker.task.waiting import REASONS

Json = dict[str, Any]

_STATES: Final = ("UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING")
_TYPES: Final[Mapping[str, Json]] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
    "any": {},
    "time": {"type": "string", "format": "date-time"},
    # Milliseconds or a date and time; also a position in a source.
    "moment": {"type": ["string", "integer"]},
    "scalar": {"type": ["string", "number", "boolean"]},
    "natural": {"type": "integer", "minimum": 0, "maximum": 2147483647},
    "type": {"type": "string", "enum": ["source", "sink", "unknown"]},
    "state": {"type": "string", "enum": list(_STATES)},
    "reason": {"type": "string", "enum": list(REASONS)},
    "names": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"$ref": "#/components/schemas/Expanded"}]},
    "levels": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/LoggerLevel"}},
}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _type(text: str) -> Json:
    """The schema for a name: of ``_TYPES`` or of ``SCHEMAS``, with ``|null`` after it, or in brackets for a list.

    >>> _type("text|null"), _type("[Error]")
    ({'type': ['string', 'null']}, {'type': 'array', 'items': {'$ref': '#/components/schemas/Error'}})
    """
    if text.startswith("["):
        return _list_of(_type(text[1:-1]))
    name, _, null = text.partition("|")
    found = _TYPES[name] if name in _TYPES else _ref(name)
    return {**found, "type": [found["type"], "null"]} if null else found


def _schema(schema: Json | str) -> Json:
    return _type(schema) if isinstance(schema, str) else schema


def _list_of(schema: Json | str) -> Json:
    return {"type": "array", "items": _schema(schema)}


def _map_of(schema: Json | str) -> Json:
    return {"type": "object", "additionalProperties": _schema(schema)}


def _object(fields: str, more: dict[str, Json] | None = None, *, closed: bool = False) -> Json:
    """An object of the fields ``name:type``; the name of an optional field ends with ``?``.

    Args:
        more: Further fields with schemas of their own, by such names.
        closed: True if other fields are refused.
    """
    found = {name: _type(text) for name, _, text in (field.partition(":") for field in fields.split())} | (more or {})
    required = [name for name in found if not name.endswith("?")]
    properties = {name.removesuffix("?"): schema for name, schema in found.items()}
    described: Json = {"type": "object", "properties": properties, "required": required}
    return {**described, "additionalProperties": False} if closed else described


_UNITS: Final = "connectors:[text] tasks:[TaskId]"
_PROGRESS: Final = _object("done:number total:number|null unit:text text?:text")
_STATE_FIELDS: Final = "state:state worker_id:text version:text|null trace?:text waiting_for?:Waiting"

SCHEMAS: Final[Json] = {
    "Error": _object("error_code:integer message:text|null"),
    "ServerInfo": _object("version:text commit:text kafka_cluster_id:text|null"),
    "Health": _object("message:text", {"status": {"type": "string", "enum": ["starting", "healthy", "unhealthy"]}}),
    "Cluster": _object(
        "worker_id:text group_id:text config_topic:text obstacle:text|null member_id:text|null generation:integer "
        "protocol:text|null leader:text|null is_leader:boolean config_offset:integer next_rebalance_in_ms:integer|null "
        f"warning?:text {_UNITS}",
        {"members?": _list_of(_object(f"member_id:text url:text {_UNITS}")), "waiting?": _object(_UNITS)},
    ),
    "Config": _map_of("text"),
    "ConfigInput": _map_of("scalar"),
    "ConfigPatch": _map_of({"type": ["string", "number", "boolean", "null"]}),
    "CreateConnector": _object(
        "config:ConfigInput",
        {
            "name": {"type": "string", "minLength": 1},
            "initial_state?": {"type": ["string", "null"], "enum": ["RUNNING", "PAUSED", "STOPPED", None]},
        },
        closed=True,
    ),
    "TaskId": _object("connector:text task:integer"),
    "TaskInfo": _object("id:TaskId config:Config"),
    "ConnectorInfo": _object("name:text config:Config tasks:[TaskId] type:type"),
    "ConnectorState": _object(_STATE_FIELDS),
    "TaskState": _object(f"id:integer {_STATE_FIELDS}", {"progress?": _PROGRESS}),
    "Status": _object("name:text connector:ConnectorState tasks:[TaskState] type:type"),
    "Expanded": _map_of(_object("info?:ConnectorInfo status?:Status")),
    "Topics": _map_of(_object("topics:[text]")),
    "Offsets": _object("", {"offsets": _list_of(_object("partition:object|null offset:object|null"))}),
    "AlterOffsets": _object(
        "",
        {
            "offsets?": _list_of(_object("partition:object|null offset?:object|null", closed=True)),
            "timestamp?": {
                "type": ["integer", "string"],
                "description": "For sinks: every partition goes to this time.",
            },
        },
        closed=True,
    ),
    "BackfillRequest": {
        "anyOf": [
            _object("from:moment to?:moment of?:text", closed=True),
            _object("offsets:[BackfillRange]", closed=True),
            _object("of?:text", {"offsets": _object("from:moment to:moment", closed=True)}, closed=True),
        ]
    },
    "BackfillRange": _object(
        "kafka_topic:text kafka_partition:integer start_offset:integer end_offset:integer", closed=True
    ),
    "BackfillPlan": _object("name:text dry_run:boolean reads:[object] total:integer|null writes:text"),
    "Backfill": _object(
        "worker_id:text began:time ended:text|null records:integer total:integer|null reads:[object] "
        "positions:[object] trace?:text progress?:object waiting_for?:object",
        {"state": {"type": "string", "enum": [one.value for one in BackfillState]}},
    ),
    "Message": _object("message:text dry_run?:boolean offsets?:[object]"),
    "Plugin": _object("class:text type:text version?:text"),
    "ConfigKey": _object(
        "name:text type:text required:boolean default_value:text|null importance:text documentation:text "
        "group:text|null order_in_group:integer width:text display_name:text dependents:[text]"
    ),
    "ConfigValue": _object("name:text value:text|null recommended_values:[text|null] errors:[text] visible:boolean"),
    "ConfigInfos": _object(
        "name:text error_count:integer groups:[text]",
        {
            "configs": _list_of(
                _object("value:ConfigValue", {"definition": {"anyOf": [_ref("ConfigKey"), {"type": "null"}]}})
            )
        },
    ),
    "PreviewRequest": _object(
        "config:ConfigInput",
        {
            "records?": _list_of(
                _object(
                    "topic?:text partition?:natural timestamp?:natural key?:any value?:any",
                    {"headers?": _map_of("text")},
                    closed=True,
                )
            ),
            "limits?": _object(
                "",
                {
                    "records?": {"type": "integer", "minimum": 1, "maximum": 1000},
                    "seconds?": {"type": "number", "exclusiveMinimum": 0, "maximum": 60},
                    "bytes?": {"type": "integer", "minimum": 1, "maximum": 67108864},
                },
                closed=True,
            ),
        },
        closed=True,
    ),
    "Preview": _object("type:type ended_by:text records:[object] error?:text"),
    "Explanation": _object(
        "name:text type:type state:text|null target:text waiting_for:Waiting offsets:[object] next_commit:object "
        "offsets_error?:text backfill?:Backfill",
        {
            "tasks": _list_of(_object("id:integer state:state waiting_for:Waiting", {"progress?": _PROGRESS})),
            "roads": _list_of(_object("road:text why:text|null records:integer")),
            "settings": _list_of(_object("name:text value:text|null origin:text")),
        },
    ),
    "Waiting": _object(
        "reason:reason text:text since?:time cause?:text count?:integer next_try?:time stack?:[text] busy_with?:text"
    ),
    "LoggerLevel": _object("level:text last_modified:integer|null"),
    "SetLevel": _object("", {"level": {"type": "string", "examples": ["INFO"]}}),
}


class Operation(NamedTuple):
    """One operation of the API.

    Attributes:
        answers: The type of each good answer; empty for an answer without a body.
        refusals: The status codes of possible errors.
    """

    method: str
    path: str
    id: str
    body: str | None
    query: Sequence[str]
    answers: Mapping[int, str]
    refusals: Sequence[int]
    summary: str


#: Two lines an operation: method, path, id, the type of its body, its query parameters; after the bar its answers with
#: their types, and the status codes of errors (BODY: those of a body, CHANGE: those of a connector too); then the
#: summary.
_TABLE: Final = """\
get / getServerInfo | 200:ServerInfo
    Version of the worker and id of its cluster
get /health getHealth | 200:Health 500 503
    Whether the worker is ready
get /cluster getCluster | 200:Cluster 404 503
    The worker's group: who leads, and what this worker runs; on the leader, what every member runs
get /connectors listConnectors ?expand | 200:names
    The names of all connectors, or with expand more of each
post /connectors createConnector CreateConnector ?forward | 201:ConnectorInfo BODY 409
    Create a connector
get /connectors/{name} getConnector | 200:ConnectorInfo 404
    One connector
delete /connectors/{name} deleteConnector | 204: 404 409 500
    Delete a connector; its offsets stay
get /connectors/{name}/config getConfig | 200:Config 404
    The configuration
put /connectors/{name}/config putConfig ConfigInput ?forward | 200:ConnectorInfo 201:ConnectorInfo BODY 409
    Create a connector or replace its configuration
patch /connectors/{name}/config patchConfig ConfigPatch ?forward | 200:ConnectorInfo CHANGE
    Change some settings; null removes one
get /connectors/{name}/status getStatus | 200:Status 404
    State of connector and tasks
get /connectors/{name}/explain explain | 200:Explanation 400 404 500
    Settings with their origin, offsets, and the waits of the connector and its tasks
get /connectors/{name}/tasks listTasks | 200:[TaskInfo] 404
    The tasks
get /connectors/{name}/tasks/{task}/status getTaskStatus | 200:TaskState 404
    State of one task
post /connectors/{name}/tasks/{task}/restart restartTask | 204: 404 409 500
    Restart one task
post /connectors/{name}/restart restartConnector ?includeTasks,onlyFailed,forward | 202:Status 204: 400 404 409 500
    Restart the connector, with includeTasks its tasks too, with onlyFailed only what failed
put /connectors/{name}/pause pauseConnector | 202: 404 500
    Let connector and tasks rest
put /connectors/{name}/resume resumeConnector | 202: 404 500
    Let them go on
put /connectors/{name}/stop stopConnector | 204: 404 500
    End the tasks, keep the connector
get /connectors/{name}/offsets getOffsets | 200:Offsets 400 404 500
    The committed offsets
patch /connectors/{name}/offsets alterOffsets AlterOffsets ?dry_run,forward | 200:Message CHANGE
    Change offsets of a stopped connector
delete /connectors/{name}/offsets resetOffsets ?dry_run,timestamp,forward | 200:Message 400 404 409 500
    Remove the offsets of a stopped connector, or set those of a sink to a time
post /connectors/{name}/backfill startBackfill BackfillRequest ?dry_run,forward | 200:BackfillPlan 202:Backfill CHANGE
    Read a range of times or offsets again, while the connector runs; with dry_run only return the plan
get /connectors/{name}/backfill getBackfill ?forward | 200:Backfill 404 409 500
    The last backfill of a connector
delete /connectors/{name}/backfill cancelBackfill ?forward | 202: 404 409 500
    End the running backfill; the records that it has written stay
get /connectors/{name}/topics getTopics | 200:Topics 403
    The topics in use
put /connectors/{name}/topics/reset resetTopics | 202: 403
    Forget the topics in use
get /connector-plugins listPlugins ?connectorsOnly | 200:[Plugin] 500
    What is installed
get /connector-plugins/{plugin}/config getPluginConfig | 200:[ConfigKey] 404 500
    The settings that a plugin knows
put /connector-plugins/{plugin}/config/validate validateConfig ConfigInput | 200:ConfigInfos BODY
    Check a configuration without creating anything
post /connector-plugins/{plugin}/preview preview PreviewRequest | 200:Preview BODY
    Show what a configuration would do to some records; nothing is created or committed
get /admin/loggers listLoggers | 200:levels
    The level of each logger
get /admin/loggers/{logger} getLogger | 200:LoggerLevel 404
    The level of one
put /admin/loggers/{logger} setLogger SetLevel ?scope | 200:[text] 204: BODY 404
    Change a logger and those below it
"""
_FLAG: Final[Json] = {"type": "boolean", "default": False}
_QUERY: Final[Mapping[str, Json]] = {
    "forward": {"type": "boolean"},
    "dry_run": _FLAG,
    "includeTasks": _FLAG,
    "onlyFailed": _FLAG,
    "connectorsOnly": {"type": "boolean", "default": True},
    "timestamp": {"type": "string"},
    "expand": _list_of({"type": "string", "enum": ["info", "status"]}),
    "scope": {"type": "string", "enum": ["worker", "cluster"], "default": "worker"},
}


def _parsed(line: str, summary: str) -> Operation:
    left, right = line.replace("CHANGE", "BODY 404 409").replace("BODY", "400 408 413 415 500").split(" | ")
    (method, path, name), more = left.split()[:3], left.split()[3:]
    query = next((one[1:].split(",") for one in more if one.startswith("?")), [])
    body = next((one for one in more if not one.startswith("?")), None)
    answers = dict(one.split(":") for one in right.split() if ":" in one)
    refusals = [int(one) for one in right.split() if ":" not in one]
    good = {int(status): kind for status, kind in answers.items()}
    return Operation(method, path, name, body, query, good, refusals, summary.strip())


_LINES: Final = _TABLE.splitlines()
OPERATIONS: Final[Sequence[Operation]] = [_parsed(*pair) for pair in zip(_LINES[::2], _LINES[1::2], strict=True)]

#: The operations that may follow for a connector that was just created.
_FOLLOWING: Final = (
    *("getConnector", "getConfig", "patchConfig", "getStatus", "listTasks", "pauseConnector", "resumeConnector"),
    *("stopConnector", "restartConnector", "getOffsets", "alterOffsets", "resetOffsets", "getTopics"),
    "deleteConnector",
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
            *({"name": one, "in": "query", "required": False, "schema": _QUERY[one]} for one in operation.query),
        ],
        "responses": answers,
    }
    if operation.body is not None:
        content = {"application/json": {"schema": _type(operation.body)}}
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


def _answer(description: str, kind: str | None) -> Json:
    if not kind:
        return {"description": description}
    return {"description": description, "content": {"application/json": {"schema": _type(kind)}}}
