"""Parts of pyiceberg in place of its own: clients with a limit in time, since its own wait for ever for a catalog that
does not answer, and names of files that any store takes.

Main types: `TimedRestCatalog`, `TwoAttempts` for the client of S3, and `ShortLocations`. Main function: `open_catalog`.
Thread: any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table.locations import SimpleLocationProvider
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from penstock.connectors.tables.places import TIMEOUT
from penstock.connectors.tables.sizes import LONGEST_KEY, LONGEST_NAME


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Opens the catalog of the properties; requests to a REST catalog have the time limit of the properties.

    Args:
        name: The name of the catalog.
        properties: The properties; pyiceberg may find more in its own configuration.
    """
    given = dict(properties)
    is_rest = given.get("type", "rest" if given.get("uri", "").startswith("http") else "") == "rest"
    if is_rest and "py-catalog-impl" not in given:
        given.pop("type", None)
        given["py-catalog-impl"] = f"{__name__}.{TimedRestCatalog.__name__}"
    return load_catalog(name, **given)


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests have the time limit of the property ``penstock.timeout``."""

    def _create_session(self) -> Session:
        # Before pyiceberg's own work, which may request a token.
        adapter = _TimedAdapter(float(self.properties[TIMEOUT]))
        session = super()._create_session()
        for start in ("http://", "https://"):
            if type(session.get_adapter(start)) is HTTPAdapter:
                session.mount(start, adapter)
        return session


class TwoAttempts(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """The client of S3 tries twice: its caller tries again later."""

    def __init__(self) -> None:
        super().__init__(max_attempts=2)


class ShortLocations(SimpleLocationProvider):
    """Puts a file directly into the directory of the data where the names of its partition are too long for a path."""

    def new_data_location(self, data_file_name: str, partition_key: PartitionKey | None = None) -> str:
        """See ``LocationProvider``."""
        found = super().new_data_location(data_file_name, partition_key)
        longest = max(len(one.encode()) for one in found.split("/"))
        if longest <= LONGEST_NAME and len(found.encode()) <= LONGEST_KEY:
            return found
        return super().new_data_location(data_file_name)


class _TimedAdapter(HTTPAdapter):  # type: ignore[misc]
    """Gives each request a limit in time.

    Args:
        limit_s: The limit, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._limit_s = limit_s

    def send(self, request: PreparedRequest, *args: Any, **named: Any) -> Response:
        if named.get("timeout") is None:
            named["timeout"] = (min(5.0, self._limit_s), self._limit_s)
        return super().send(request, *args, **named)
