"""Topics into files and tables of Spark: ``SparkSink`` (``connector``).

- ``settings``: its settings.
- ``columns``: converts frames to the written columns, and joins frames that are written together. Pure.
- ``writing``: writes with Spark. ``task``: handles ``put``.
"""

from penstock.connectors.spark.sink.connector import SparkSink

__all__ = ["SparkSink"]
