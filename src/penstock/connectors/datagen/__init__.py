"""A source of generated records, for demos, tests and benchmarks; columns at full speed.

- ``connector``: `DatagenSource` and its task; ``settings``: its settings.
- ``schemas``: Avro schemas with hints (``arg.properties``) to columns.
- ``columns``: generators for the values of a column.
- ``quickstarts``: the built-in shapes.
"""

from penstock.connectors.datagen.connector import DatagenSource, DatagenTask

__all__ = ["DatagenSource", "DatagenTask"]
