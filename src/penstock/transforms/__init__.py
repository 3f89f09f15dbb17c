"""The stock transforms and predicates, as Spark columns.

A transform is a module with its settings, a definition, and a class that reads the settings, or two, for keys and for
values. The definition says what becomes of columns (``plan``) and of one record (``apply``). Start from:

- ``Definition``, ``StockTransform`` and ``pair`` (``definition``): what each transform is made of.
- ``Hoist`` (``hoist_field``): the smallest complete one, with two forms next to each other.
- ``OfFields`` and ``OfChanges`` (``fields``), ``Selection`` and ``Change`` (``selection``): most transforms say once
  which fields a struct gets and what becomes of their values; columns and single records follow. The model is
  ``Mask`` (``mask_field``).
- ``require_struct`` (``requirements``): what a transform asks of a key or value, with Java's messages; ``FieldPath``
  (``field_path``): paths to fields.
- ``HasHeaderKey``, ``RecordIsTombstone``, ``TopicNameMatches`` (``predicates``).
- ``Sql`` (``sql``): Spark SQL over whole frames; it makes a select out of what the user wrote. ``sql_text`` reads the
  text, ``read`` (``sql_fence``) says what may stand in it, ``check_select`` (``sql_checks``) tries it before there are
  records.

What a step is, and how steps become one plan, is in ``penstock.pipeline.plan.step`` and
``penstock.pipeline.plan.chain``. Java's dates are in ``penstock.pipeline.columns.java_dates``, names and aliases in
``penstock.plugins.stock``.
"""
