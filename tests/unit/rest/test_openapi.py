"""The OpenAPI document: it has every route, and every route is in it."""

from __future__ import annotations

from tests.unit.rest.api_client import serving

from penstock.rest.app import AppOptions
from penstock.rest.openapi import OPERATIONS, SCHEMAS, document
from penstock.rest.routes import ADMIN, API

#: Paths that are not for users: signed requests between workers, and a text format.
_OTHERS = {("POST", "/connectors/{name}/tasks"), ("PUT", "/connectors/{name}/fence"), ("GET", "/metrics")}


def test_routes_and_description_are_the_same() -> None:
    routes = {(method, path) for method, path, _ in [*API, *ADMIN]}
    assert {(one.method.upper(), one.path) for one in OPERATIONS} == routes - _OTHERS


def test_every_schema_that_is_named_exists_and_is_used() -> None:
    text = str(document("1"))
    assert [name for name in SCHEMAS if f"'#/components/schemas/{name}'" not in text] == []
    assert {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]} <= SCHEMAS.keys()


def test_the_document_is_served_and_has_log_levels_only_where_they_are() -> None:
    with serving() as api:
        status, found = api.call("GET", "/openapi.json")
        assert (status, found["openapi"], found["info"]["version"]) == (200, "3.1.0", "4.3.0")
        assert "/admin/loggers" in found["paths"]
    with serving(options=AppOptions(admin=False)) as api:
        assert "/admin/loggers" not in api.call("GET", "/openapi.json")[1]["paths"]


def test_operations_have_names_of_their_own() -> None:
    names = [one.id for one in OPERATIONS]
    assert len(set(names)) == len(names)
