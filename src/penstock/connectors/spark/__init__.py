"""Any format that Spark reads or writes, as a connector. The packages ``source`` and ``sink`` have the connectors.

- ``settings``: what both have.
- ``repeatable``: whether a query gives the same rows again. ``faults``: what Spark's errors mean for a user. Pure.

How topics become plain files without Spark is in ``penstock.connectors.files``.
"""

from penstock.connectors.spark.sink.connector import SparkSink
from penstock.connectors.spark.source.connector import SparkSource

__all__ = ["SparkSink", "SparkSource"]
