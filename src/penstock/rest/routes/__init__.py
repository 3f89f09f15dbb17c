"""The routes of the REST API: the functions that answer requests, a module for each resource.

- ``connectors``: ``/connectors`` and what is below it, but for the next.
- ``offsets``: ``/connectors/{name}/offsets`` and ``/connectors/{name}/topics``.
- ``plugins``: ``/connector-plugins``; ``loggers``: ``/admin/loggers``.
- ``root``: ``/``, ``/health`` and ``/metrics``.
- ``internal``: what only workers of a group ask of each other.

Which function answers which path is said in ``penstock.rest.app``. How bodies are read is in ``penstock.rest.bodies``,
how errors become answers in ``penstock.rest.errors``, what the routes share in ``penstock.rest.services``.
"""
