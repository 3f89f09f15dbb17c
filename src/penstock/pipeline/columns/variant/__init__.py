"""VARIANT, the binary format that Spark and Parquet have for values without a schema.

``writing`` makes VARIANT of Python's values.
``reading`` is the way back.
"""
