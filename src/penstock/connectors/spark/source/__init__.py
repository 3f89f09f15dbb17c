"""Files, tables and queries of Spark into topics: ``SparkSource`` (``connector``).

- ``settings``: its settings.
- ``planning``: which files are read together, and where reading goes on. ``positions``: values of columns as offsets.
  Both are pure.
- ``reading``: rows out of Spark, in pieces. ``chunks``: pieces as records.
- ``modes``: how each mode goes on from an offset. ``task``: the task.
"""

from penstock.connectors.spark.source.connector import SparkSource

__all__ = ["SparkSource"]
