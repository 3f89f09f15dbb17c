"""Runs sink tasks: fetching, converting and ``put`` overlap, each on a thread of its own.

A batch passes ``SinkFetcher`` and ``SinkConverter`` (``fetching``), then ``SinkLoop`` (``loop``) on the task's thread:
``delivery_of`` (``deliveries``) selects its undelivered rows, ``SinkPut`` (``loop``) calls ``put``, and
``CommitProgress`` (``deliveries``) and ``SinkCommitter`` (``deliveries``) decide which offsets are committed, and when.
The task gets a ``WorkerSinkTaskContext`` (``context``); ``SinkStages`` (``queues``) holds what the threads share.
"""
