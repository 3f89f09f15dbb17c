"""Frames: batches of records as columns, for tasks that work on whole batches.

``SourceFrame``, ``SinkFrame`` and ``Frame`` are in ``frame``, next to ``isolate``, which finds the rows that a system
rejects, and ``FrameGatherer``, which collects frames until they fill a file. ``fields`` and ``variant_fields`` turn
fields into typed columns.
"""
