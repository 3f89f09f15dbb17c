"""Runs sink tasks: fetching, converting and ``put`` overlap, each on a thread of its own.

A batch passes through, in this order:

- ``SinkTaskRunner`` (``task``) starts the threads. ``SinkFetcher`` and ``SinkConverter`` (``fetching``,
  ``conversion``) fetch messages and convert them to records; ``SinkStages`` (``queues``) holds what the threads share.
- ``SinkLoop`` (``loop``) runs on the task's thread. ``SinkDeliveries`` (``deliveries``) selects the rows of a converted
  batch that are still to be delivered; ``SinkPut`` (``put``) calls ``put``, again if the task asks for it.
- ``SinkPartitions`` (``partitions``) knows how far each partition was delivered; ``CommitProgress`` and
  ``SinkCommitter`` (``commit``) decide when offsets are committed, and which.

``context`` and ``errant_records`` are what the task is given; ``timed_calls`` are calls that it asked for by the clock.
"""
