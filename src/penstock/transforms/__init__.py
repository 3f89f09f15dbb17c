"""The stock transforms and predicates, as Spark columns.

Each transform is a module with its settings, a definition, and one class, or two for keys and for values. The
definition implements the transform for columns (``plan``) and for one record (``apply``). Start from:

- ``Definition``, ``StockTransform`` and ``pair`` (``definition``): the parts of each transform.
- ``fields``: transforms of the fields of a key or value. The smallest complete one is
  ``Hoist``.
- ``types``, ``headers``, ``topics``: transforms of types and schemas, of headers, and of the topic.
- ``HasHeaderKey``, ``RecordIsTombstone``, ``TopicNameMatches`` and ``Filter`` (``predicates``).
- ``debezium``: extracts rows from Debezium's envelopes. ``sql``: Spark SQL over whole frames.

``penstock.pipeline.plan.step`` defines a step, and ``penstock.pipeline.plan.chain`` joins steps to one plan.
``penstock.pipeline.columns.java_dates`` has Java's dates, ``penstock.plugins.kinds`` names and aliases.
"""
