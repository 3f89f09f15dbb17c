"""Tables of lakehouses into topics: ``TableSource`` (``connector``).

- ``connector``: the connector, its task and its settings.
- ``reading``: versions of a table, and the positions in it; ``delta`` and ``iceberg`` read the formats.
"""

from penstock.connectors.tables.source.connector import TableSource

__all__ = ["TableSource"]
