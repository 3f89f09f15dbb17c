"""VARIANT, Spark's binary format for values without a schema: ``writing`` makes it of Python's values, ``reading`` is
the way back.
"""
