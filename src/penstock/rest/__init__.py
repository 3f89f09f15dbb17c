"""The REST API: the only place that knows HTTP and the web framework.

Start from:

- ``RestServer`` (``server``): a thread, and where it listens; ``WorkerRest`` beside it makes it of the settings.
- ``build_app`` (``app``): the routes over a ``Herder``; ``routes`` has a module for each resource, ``Services``
  (``services``) what these share.
- ``status_of`` (``errors``): the HTTP status of an error; ``create_request``, ``config_map`` (``bodies``): what
  requests hold.
- ``BodyBudget``, ``ForeignOrigins`` (``guards``): what is refused before any route sees it.
- ``forward`` (``forwarding``): a request that another worker of the group has to serve; ``WorkerClient``
  (``worker_client``) makes it.
- ``Extensions`` (``extensions``): REST extensions of users; ``BasicAuthExtension`` beside it is a stock one.

Handlers never touch the herder's state: they read its snapshot or await the future of a request. What a request does is
decided in ``penstock.herder``; the client for the command line is ``penstock.cli.session``.
"""
