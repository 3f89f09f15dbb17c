"""The routes of the REST API: the functions that answer requests, in three modules.

- ``connectors``: ``/connectors`` and the paths below it.
- ``root``: ``/``, ``/health``, ``/metrics``, ``/connector-plugins`` and ``/admin/loggers``.
- ``internal``: the requests between workers of a group.

``penstock.rest.app`` maps paths to functions. ``penstock.rest.bodies`` reads bodies, ``penstock.rest.errors`` turns
errors into answers, and ``penstock.rest.services`` has the objects that the routes share.
"""
