"""The layout of values in columns, and Spark expressions over them.

Start from:

- ``Layout`` and ``spark_type`` (``layout``): the layout of a schema's values, in Arrow and in Spark.
- ``to_arrow`` and ``from_arrow`` (``records``): Python's values to columns and back; ``frame_arrow``: the columns of a
  frame cast to what a schema needs; ``variant``: schemaless values for frames.
- ``texts``: Java's text of columns and of many values, and JSON.
- ``decimal_columns``, ``header_columns``, ``temporal``, ``java_dates``: expressions over them.
- ``cut_at`` (``sizes``): sizes of rows, positions at which to split a table, and limits on the depth of values.

They are used in ``penstock.pipeline.plan``, ``penstock.transforms`` and ``penstock.converters``.
"""
