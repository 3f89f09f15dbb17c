"""The commands: they read arguments, put the parts of a worker together, and pass signals on.

Start from:

- ``connect_standalone``, ``connect_distributed``, ``penstock`` (``commands``): where the installed commands begin.
- ``ConnectWorker`` (``worker``): one worker in either mode, from start to exit code; ``StandaloneWorker``
  (``standalone``) and ``DistributedWorker`` (``distributed``) say where it keeps configurations, states and offsets.
- ``Events`` (``signals``): SIGINT and SIGTERM as events of the main thread; ``watchdog`` is the process beside a worker
  that ends it when Python cannot.
- ``main`` (``main``): ``penstock ...``, with ``connectors``, ``cluster``, ``broker`` and ``quickstart``, a module for
  each; those that ask a worker do it in a ``Session`` (``session``), through its ``ApiClient`` (``api_client``).

Nothing is decided here: what should run is known to ``penstock.herder``, and settings to ``penstock.settings``.
"""
