"""Files, tables and queries of Spark into topics: ``SparkSource`` (``connector``).

- ``settings``: its settings.
- ``planning``: groups files, and computes where reading resumes. ``positions``: values of columns as offsets. Both are
  pure.
- ``reading``: reads rows with Spark, in pieces. ``chunks``: turns pieces into records.
- ``modes``: how each mode resumes from an offset. ``task``: the task.
"""

from penstock.connectors.spark.source.connector import SparkSource

__all__ = ["SparkSource"]
