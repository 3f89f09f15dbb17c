"""The layout of values in columns, and Spark expressions over them.

Start from ``Layout`` (``layout``): the layout of a schema's values, in Arrow and in Spark. ``records`` makes columns
of Python's values and back, ``frame_arrow`` casts the columns of frames, ``variant`` and ``schemaless`` have values
without a schema. ``java_text``, ``json_text``, ``java_dates`` and ``date_parsing`` print and read as Java does.
"""
