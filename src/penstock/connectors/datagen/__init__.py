"""A source of made-up records, for demos, tests and benchmarks; columns at full speed.

- ``connector``: `DatagenSource` and its task; ``settings``: what can be set.
- ``schemas``: Avro schemas with hints (``arg.properties``) to columns.
- ``columns``: how the values of a column are made.
- ``quickstarts``: the shapes that come with it.
"""

from penstock.connectors.datagen.connector import DatagenSource, DatagenTask

__all__ = ["DatagenSource", "DatagenTask"]
