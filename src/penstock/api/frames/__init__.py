"""Frames: batches of records as columns, for tasks that work on whole batches.

``SourceFrame``, ``SinkFrame`` and ``Frame`` are in ``frame``. ``fields``, ``schemaless_columns`` and ``variant_fields``
turn fields into typed columns; ``isolate`` (``rows``) finds the rows that a system rejects; ``FrameGatherer``
(``gathering``) collects frames until they fill a file.
"""
