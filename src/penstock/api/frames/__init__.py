"""Frames: batches of records as columns, and what a task makes of them.

``SourceFrame``, ``SinkFrame`` and ``Frame`` (``frame``). ``fields``, ``schemaless_columns`` and ``variant_fields`` make
typed columns of fields; ``isolate`` (``rows``) finds the rows that a system refuses; ``FrameGatherer`` (``gathering``)
holds frames until they are worth a file.
"""
