"""The stock transforms and predicates, as Spark columns.

A transform has settings, a definition, and one class, or two for keys and for values. The definition implements the
transform for columns (``plan``) and for one record (``apply``). Start from:

- ``Definition``, ``StockTransform`` and ``pair`` (``definition``): the parts of each transform.
- ``Hoist`` (``extraction``): the smallest complete one; ``Extract`` next to it is its inverse.
- ``OfFields`` and ``OfChanges``, ``FieldSelection`` and ``Change`` (``fields``): most transforms choose the fields and
  the changes of their values only once, for columns and single records alike. ``Mask`` (``field_values``) is a good
  example; ``restructuring`` has the transforms that arrange fields anew.
- ``types``, ``timestamp_converter``, ``headers``, ``topics``: transforms of types and schemas, of headers, and of the
  topic.
- ``HasHeaderKey``, ``RecordIsTombstone``, ``TopicNameMatches`` and ``Filter`` (``predicates``).
- ``debezium``: extracts rows from Debezium's envelopes. ``sql``: Spark SQL over whole frames.

``penstock.pipeline.plan.step`` defines a step, and ``penstock.pipeline.plan.chain`` joins steps to one plan.
``penstock.pipeline.columns.java_dates`` has Java's dates, ``penstock.plugins.kinds`` names and aliases.
"""
