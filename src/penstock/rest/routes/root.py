"""``GET /``, ``GET /health`` and ``GET /metrics``. Runs on the REST thread, metrics are read on another.

Source: org.apache.kafka.connect.runtime.rest.resources.RootResource.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from penstock.herder import Health
from penstock.model.payloads import ServerInfo
from penstock.rest.errors import json_response
from penstock.rest.routing import Entry, not_json
from penstock.rest.services import services
from penstock.telemetry.metrics import CONTENT_TYPE, metrics_text

_STATUS = {Health.HEALTHY: 200, Health.STARTING: 503, Health.UNHEALTHY: 500}


async def server_info(request: Request) -> Response:
    """Version, commit and the id of the Kafka cluster."""
    s = services(request)
    return json_response(ServerInfo(s.version, s.commit, s.herder.kafka_cluster_id).to_json())


async def health(request: Request) -> Response:
    """Reports if the worker is ready."""
    state, message = services(request).herder.health()
    return json_response({"status": state.value, "message": message}, _STATUS[state])


@not_json
async def metrics(request: Request) -> Response:
    """The worker's metrics, for Prometheus."""
    s = services(request)
    # Plugins measure some of them, in code of their authors.
    text = await s.on_thread("read-metrics", lambda: metrics_text(s.metrics.read(), s.metrics.descriptions()))
    # A plugin's tag may have characters that cannot be encoded, for example half of a surrogate pair from a file's
    # name.
    return Response(text.encode(errors="replace"), media_type=CONTENT_TYPE)


ENTRIES: list[Entry] = [("GET", "/", server_info), ("GET", "/health", health), ("GET", "/metrics", metrics)]
