"""Backfills: ranges that are read again beside a connector that runs, through the same chain, into the same target.

- ``RangeConsumer`` (``range_consumer``): what a sink's task reads from in place of its group.
- ``Backfills`` (``runs``): those of a worker, one for each connector, with their task.
- ``sink_ranges`` (``planning``): which messages a request means.
"""
