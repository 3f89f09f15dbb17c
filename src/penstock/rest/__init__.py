"""The REST API: the only place that knows HTTP and the web framework.

Start from:

- ``RestServer`` (``server``): a thread, and its listeners; ``WorkerRest`` next to it makes it from the settings.
- ``build_app`` (``app``): the routes over a ``Herder``, with ``BodyBudget`` and ``ForeignOrigins``, which refuse
  requests before any route gets them. ``routes`` has the functions that answer, ``Services`` (``services``) the objects
  that they share.
- ``status_of`` (``errors``): the HTTP status of an error; ``create_request``, ``config_map`` (``bodies``): the bodies
  of requests.
- ``forward`` (``services``): a request that another worker of the group has to serve; ``WorkerClient`` makes it.
- ``Extensions`` (``extensions``): REST extensions of users; ``BasicAuthExtension`` next to it is a stock one.

Handlers never touch the herder's state: they read its snapshot or await the future of a request. ``penstock.herder``
decides on requests; the client for the command line is ``penstock.cli.session``.
"""
