"""Reads JSON in Spark's plans, by JsonConverter's rules.

- ``ReadJson`` (``reading``) is the step; texts become VARIANT there.
- ``Lenient`` (``lenient``) turns VARIANT into typed columns.
"""
