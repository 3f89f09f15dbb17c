"""Kafka Connect in Python, with every batch of records flowing through Apache Spark as a DataFrame.

Authors of connectors, transforms and converters import ``penstock.api``, ``penstock.data``, ``penstock.config`` and
``penstock.errors``; these need the standard library only. Everything else is the worker. From top to bottom (a package
imports from those below it only):

- ``cli``: the commands, which put a worker together; ``rest``: the REST API.
- ``herder``: what should run, and on which worker of a group; ``validation`` checks it before.
- ``worker``: what runs, the loops of connectors and tasks.
- ``stores``: what outlives a worker: source offsets, configurations, states.
- ``connectors``: the built-in ones, written as a user's would be.
- ``clients``, ``files``: Kafka clients, rolling files and stores of files, for connectors; public, too.
- ``kafka``: all that speaks to brokers.
- ``settings``: which settings there are; ``plugins``: classes by their names.
- ``transforms``, ``converters``: the stock ones, as Spark columns.
- ``pipeline``: the Spark session, and batches of records through it.
- ``model``, ``telemetry``, ``broker``, ``keystores``: values of the control plane, logs and metrics, an embedded Kafka,
  Java's key stores. ``traces`` cuts traces to what users want to see.

``testing`` is the kit for authors of connectors.
"""

__version__ = "0.1.0"
