"""Backfills: read ranges again while the connector runs, through the same chain, into the same target.

- ``RangeConsumer`` (``range_consumer``): the consumer that a sink's task uses instead of its group.
- ``Backfills`` (``runs``): the backfills of a worker, one for each connector, with their task.
- ``sink_ranges`` (``making``): the messages that a request selects.
"""
