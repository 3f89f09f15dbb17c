"""The stock transforms and predicates, as Spark columns.

A transform is a module with a ``ConfigDef``, a frozen ``Step`` that makes the columns, and a class for keys and one for
values, which can also work on one record (``apply``). Start from:

- ``Hoist``, ``HoistFieldValue`` (``hoist_field``): the smallest complete one, and the model for others.
- ``Demand`` (``sides``) and ``struct_fault`` (``requirements``): what a transform asks of a key or value, with Java's
  messages; ``FieldPath`` (``field_path``): paths to fields.
- ``HasHeaderKey``, ``RecordIsTombstone``, ``TopicNameMatches`` (``predicates``).
- ``Sql`` (``sql``): Spark SQL over whole frames; it makes a select out of what the user wrote. ``sql_text`` reads the
  text, ``check_select`` (``sql_check``) tries it before there are records.

What a step is, and how steps become one plan, is in ``penstock.pipeline.step`` and ``penstock.pipeline.chain``. Java's
dates are in ``penstock.pipeline.java_dates``, names and aliases in ``penstock.plugins.stock``.
"""
