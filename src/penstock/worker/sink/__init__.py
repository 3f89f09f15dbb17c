"""Runs sink tasks: fetching, converting and ``put`` overlap, each on a thread of its own.

A batch passes through, in this order:

- ``SinkTaskRunner`` (``task``) starts the threads. ``SinkFetcher`` and ``SinkConverter`` (``fetching``) fetch messages
  and convert them to records; ``SinkStages`` (``queues``) holds what the threads share.
- ``SinkLoop`` (``loop``) runs on the task's thread. ``SinkDeliveries`` (``deliveries``) selects the rows of a converted
  batch that are still to be delivered; ``SinkPut`` (``loop``) calls ``put``, again if the task asks for it.
- ``SinkPartitions`` (``deliveries``) knows how far each partition was delivered; ``CommitProgress``
  (``deliveries``) and ``SinkCommitter`` (``deliveries``) decide when offsets are committed, and which.

The task gets a ``WorkerSinkTaskContext`` (``context``), with its timed calls and its reporter of bad records.
"""
