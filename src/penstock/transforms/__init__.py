"""The stock transforms and predicates, as Spark columns.

A transform is a module with its settings, a definition, and a class that reads the settings, or two, for keys and for
values. The definition says what becomes of columns (``plan``) and of one record (``apply``). Start from:

- ``Definition``, ``StockTransform`` and ``pair`` (``definition``): the parts of each transform.
- ``fields``: transforms of the fields of a key or value. The smallest complete one is
  ``Hoist``.
- ``types``, ``headers``, ``topics``: transforms of types and schemas, of headers, and of the topic.
- ``HasHeaderKey``, ``RecordIsTombstone``, ``TopicNameMatches`` (``predicates``), and ``Filter`` (``filter``).
- ``debezium``: rows out of Debezium's envelopes. ``sql``: Spark SQL over whole frames.

The meaning of a step, and how steps become one plan, are in ``penstock.pipeline.plan.step`` and
``penstock.pipeline.plan.chain``. Java's dates are in ``penstock.pipeline.columns.java_dates``, names and aliases in
``penstock.plugins.stock``.
"""
