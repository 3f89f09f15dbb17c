"""Any format that Spark reads or writes, as a connector: ``SparkSource`` (``source.connector``), ``SparkSink`` (``sink.connector``).

- ``settings``: what both have.
- ``repeatable``: whether a query gives the same rows again. ``faults``: what Spark's errors mean for a user. Pure.
- ``source``: rows of files, tables and queries into a topic. ``sink``: topics into files and tables.
"""

from penstock.connectors.spark.sink.connector import SparkSink
from penstock.connectors.spark.source.connector import SparkSource

__all__ = ["SparkSink", "SparkSource"]
