"""One worker in one process.

``ConnectWorker`` (``worker``): one worker in either mode, from start to exit code; ``StandaloneWorker``
(``standalone``) and ``DistributedWorker`` (``distributed``) say where it keeps configurations, states and offsets.
``Events`` (``worker``): SIGINT and SIGTERM as events of the main thread; ``watchdog``: the process that ends a worker
when Python cannot.
"""
