"""Backfills: read ranges again while the connector runs, through the same chain, into the same target.

``BackfillPlanner`` (``planning``) plans what a request reads. ``Backfills`` (``runs``) runs it: ``RangeConsumer``
(``planning``) reads a sink's ranges, ``PartsTask`` (``reading``) a source's parts.
"""
