"""The shapes that come with the source, by the names that ``quickstart`` takes: Avro schemas and their key fields.

Main object: ``QUICKSTARTS``. Constants; any thread.
Source: the names and fields are those of Confluent's kafka-connect-datagen; the values are Penstock's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_START_MS: Final = 1_700_000_000_000


def _field(name: str, kind: str, **hints: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": kind, "arg.properties": hints} if hints else kind}


def _numbered(name: str, prefix: str, count: int) -> dict[str, Any]:
    return _field(name, "string", prefix=prefix, range={"min": 1, "max": count + 1})


def _any(name: str, *values: object, kind: str = "string") -> dict[str, Any]:
    return _field(name, kind, options=list(values))


def _counted(name: str, kind: str = "int", start: int = 0, step: int = 1) -> dict[str, Any]:
    return _field(name, kind, iteration={"start": start, "step": step})


def _within(name: str, kind: str, low: float, high: float) -> dict[str, Any]:
    return _field(name, kind, range={"min": low, "max": high})


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "datagen", "fields": list(fields)}


#: By name: the schema, and the field that is the key.
QUICKSTARTS: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "orders": (
        _record(
            "orders",
            _counted("ordertime", "long", _START_MS, 1000),
            _counted("orderid"),
            _numbered("itemid", "Item_", 500),
            _within("orderunits", "double", 0.1, 10.0),
            {
                "name": "address",
                "type": _record(
                    "address",
                    _numbered("city", "City_", 50),
                    _numbered("state", "State_", 50),
                    _within("zipcode", "long", 10_000, 100_000),
                ),
            },
        ),
        "orderid",
    ),
    "users": (
        _record(
            "users",
            _within("registertime", "long", 1_487_715_775_521, 1_519_273_364_600),
            _numbered("userid", "User_", 9),
            _numbered("regionid", "Region_", 9),
            _any("gender", "MALE", "FEMALE", "OTHER"),
        ),
        "userid",
    ),
    "pageviews": (
        _record(
            "pageviews",
            _counted("viewtime", "long", 1, 10),
            _numbered("userid", "User_", 9),
            _numbered("pageid", "Page_", 99),
        ),
        "viewtime",
    ),
    "clickstream": (
        _record(
            "clickstream",
            _any("ip", "111.152.45.45", "111.203.236.146", "122.145.8.244", "222.203.236.146", "233.90.225.227"),
            _within("userid", "int", 1, 41),
            _any("remote_user", "-"),
            _counted("time", "long", _START_MS, 10),
            _counted("_time", "long", _START_MS, 10),
            _any(
                "request", "GET /index.html HTTP/1.1", "GET /site/login.html HTTP/1.1", "GET /images/track.png HTTP/1.1"
            ),
            _any("status", "200", "302", "404", "405", "406", "407"),
            _any("bytes", "278", "1289", "2048", "2331", "4006", "4096", "14096"),
            _any("referrer", "-"),
            _any("agent", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "curl/8.5.0"),
        ),
        "ip",
    ),
    "stock_trades": (
        _record(
            "stock_trades",
            _any("side", "BUY", "SELL"),
            _within("quantity", "int", 1, 5000),
            _any("symbol", "ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"),
            _within("price", "int", 5, 1000),
            _any("account", "ABC123", "LMN456", "XYZ789"),
            _numbered("userid", "User_", 9),
        ),
        "symbol",
    ),
    "ratings": (
        _record(
            "ratings",
            _counted("rating_id", "long", 1),
            _within("user_id", "int", 1, 20),
            _within("stars", "int", 1, 6),
            _within("route_id", "int", 1, 10_000),
            _counted("rating_time", "long", _START_MS, 13),
            _any("channel", "web", "ios", "iOS-test", "android"),
            _any("message", "meh", "thank you for the most friendly, helpful experience today", "worst. flight. ever."),
        ),
        "rating_id",
    ),
    "inventory": (
        _record(
            "inventory",
            _counted("id", "long"),
            _within("quantity", "long", 1, 1000),
            _within("productid", "long", 1, 100),
        ),
        "id",
    ),
}
