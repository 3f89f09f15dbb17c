"""Connectors for any format that Spark reads or writes, in the packages ``source`` and ``sink``.

- ``settings``: their common settings.
- ``repeatable``: checks if a query is repeatable. ``faults``: translates Spark's errors for users. Pure.

``penstock.connectors.files`` writes topics to plain files without Spark.
"""

from penstock.connectors.spark.sink.connector import SparkSink
from penstock.connectors.spark.source.connector import SparkSource

__all__ = ["SparkSink", "SparkSource"]
