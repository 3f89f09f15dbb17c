"""The routes of the REST API: the functions that answer requests, a module for each resource.

- ``connectors``: ``/connectors`` and the paths below it, except those of ``offsets``.
- ``offsets``: ``/connectors/{name}/offsets`` and ``/connectors/{name}/topics``.
- ``plugins``: ``/connector-plugins``; ``loggers``: ``/admin/loggers``.
- ``root``: ``/``, ``/health`` and ``/metrics``.
- ``internal``: the requests between workers of a group.

``penstock.rest.app`` maps paths to functions. ``penstock.rest.bodies`` reads bodies, ``penstock.rest.errors`` turns
errors into answers, and ``penstock.rest.services`` has the objects that the routes share.
"""
