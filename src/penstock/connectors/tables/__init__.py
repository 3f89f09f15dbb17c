"""Tables of lakehouses: Delta Lake and Apache Iceberg. The packages ``source`` and ``sink`` have the connectors.

- ``places``: the settings for the location of tables.
- ``lake``: tables of any format; ``delta`` and ``iceberg`` are the formats, ``partitions`` Iceberg's transforms.
- ``types``: columns that evolve, and values that are cast to them. Pure.

The libraries are extras of Penstock, so they are imported only once a connector is used.
"""

from penstock.connectors.tables.sink import TableSink
from penstock.connectors.tables.source import TableSource

__all__ = ["TableSink", "TableSource"]
