"""Reads JSON in Spark's plans, by JsonConverter's rules.

``ReadJson`` (``reading``) is the step. ``parsing`` turns texts into VARIANT; ``layouts`` and ``lenient`` turn VARIANT
into typed columns.
"""
