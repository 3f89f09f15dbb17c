"""The path of a batch through Spark: groups, segments, and the assembly of results.

Start from:

- ``source`` and ``sink``: the whole path in each direction. ``batches`` has its input and output; ``cut_transforms``
  (``segments``) splits a chain where Python has to run between plans.
- ``group_records`` (``groups``): records as columns, a group for each pair of schemas.
- ``why_rows`` (``groups``): decides which records are columns and which go through ``row_path`` one by one, and why.
- ``Spreader`` (``stateless``): sends large batches to Spark's Python workers, as ``ShippedRecords`` (``transfer``),
  where ``StatelessWork`` (``python_workers``) runs transforms without state.
- ``frames``: transforms that work on whole frames.
- ``Failures`` (``batches``) has the errors by record. ``headers``: each distinct header is converted once.

``penstock.pipeline.plan`` makes the plans; ``penstock.worker`` decides what to do with a failed record.
"""
