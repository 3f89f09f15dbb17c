"""Topics into files and tables of Spark: ``SparkSink`` (``connector``).

- ``settings``: its settings.
- ``columns``: the rows of frames as the columns that are written, and which frames are written together. Pure.
- ``writing``: what is asked of Spark. ``task``: what ``put`` does with a frame.
"""

from penstock.connectors.spark.sink.connector import SparkSink

__all__ = ["SparkSink"]
