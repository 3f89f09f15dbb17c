"""Web interfaces both ways: `HttpSource` in ``source``, `HttpSink` in ``sink``, each in one file.

- ``settings``: what can be set; ``json_values``: what is where in an answer, and values as JSON.
- ``client``: requests with credentials, redirects and limits. It needs httpx, which is imported once a task starts.
"""

from penstock.connectors.http.sink import HttpSink
from penstock.connectors.http.source import HttpSource

__all__ = ["HttpSink", "HttpSource"]
