"""A source of generated records, for demos, tests and benchmarks; columns at full speed.

- ``connector``: `DatagenSource`, its task and its settings.
- ``schemas``: Avro schemas with hints (``arg.properties``) to columns, and the built-in ones.
- ``columns``: generators for the values of a column.
"""

from penstock.connectors.datagen.connector import DatagenSource, DatagenTask

__all__ = ["DatagenSource", "DatagenTask"]
