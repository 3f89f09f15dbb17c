"""The way of a batch through Spark: groups, roads, segments, and results put together again.

Start from:

- ``SourcePipeline`` (``source``) and ``SinkPipeline`` (``sink``): the whole way. What goes in and comes out is in
  ``batches``; ``cut_transforms`` (``segments``) cuts a chain where Python has to run between plans.
- ``group_records`` (``grouping``), or ``columns_of_table`` (``frame``) for frames: records as columns, a group for each
  pair of schemas.
- ``why_rows`` (``roads``): which records are columns, and which go through ``row_road`` one by one, and why.
- ``with_texts`` (``known_texts``): texts that are made in front of a plan, for tasks that take text.
- ``Spreader`` (``spreading``): sends large batches to Spark's Python workers, as ``Part`` (``parts``), where
  ``StatelessWork`` (``python_workers``) runs transforms without state; ``crossing``: the form of errors.
- ``Assembly`` (``assembly``) or ``frames_of`` (``sink_frames``): results put together again, row i for record i.
  ``Failures`` (``segments``) has the errors by record. ``headers``: each distinct header is converted once.

The plans are made in ``penstock.pipeline.plan``; what becomes of a failed record is decided in ``penstock.worker``.
"""
