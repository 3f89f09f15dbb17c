"""The way of a batch through Spark: groups, segments, and results put together again.

Start from:

- ``source`` and ``sink``: the whole way, in either direction. What goes in and comes out is in ``batches``;
  ``cut_transforms`` (``segments``) cuts a chain where Python has to run between plans.
- ``group_records`` (``groups``): records as columns, a group for each pair of schemas.
- ``why_rows`` (``roads``): which records are columns, and which go through ``row_path`` one by one, and why.
- ``Spreader`` (``stateless``): sends large batches to Spark's Python workers, as ``Part`` (``transfer``), where
  ``StatelessWork`` (``python_workers``) runs transforms without state; ``crossing``: the form of errors.
- ``frames``: transforms that work on whole frames.
- ``Assembly`` (``assembly``): results put together again, row i for record i. ``Failures`` (``segments``) has the
  errors by record. ``headers``: each distinct header is converted once; ``rebuild`` makes records again.

The plans are made in ``penstock.pipeline.plan``; the fate of a failed record is decided in ``penstock.worker``.
"""
