"""Kafka Connect in Python, with every batch of records flowing through Apache Spark as a DataFrame.

Authors of connectors, transforms and converters import ``penstock.api``, ``penstock.data``, ``penstock.config`` and
``penstock.errors``; these need the standard library only. Everything else is the worker.
"""

__version__ = "0.1.0"
