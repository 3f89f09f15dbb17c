"""Reads JSON in Spark's plans, by JsonConverter's rules.

``ReadJson`` (``reading``) is the step. ``parsing`` makes VARIANT of texts; ``layouts`` and ``lenient`` make typed
columns of VARIANT.
"""
