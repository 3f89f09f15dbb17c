"""Connectors for HTTP APIs: `HttpSource` in ``source``, `HttpSink` in ``sink``.

- ``settings``: their settings; ``json_values``: access to parts of a response, and values as JSON.
- ``client``: requests with credentials, redirects and limits. It needs httpx, which is imported when a task starts.
"""

from penstock.connectors.http.sink import HttpSink
from penstock.connectors.http.source import HttpSource

__all__ = ["HttpSink", "HttpSource"]
