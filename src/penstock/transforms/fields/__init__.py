"""Transforms of the fields of a key or value.

``OfFields`` and ``OfChanges`` (``definition``), ``Selection`` and ``Change`` (``selection``): most transforms say once
which fields a struct gets and what becomes of their values; columns and single records follow. The model is ``Mask``
(``mask_field``). ``FieldPath`` (``paths``) names a field; ``requirements`` are what a transform asks of a key or value,
with Java's messages. The smallest transform is
``Hoist`` (``hoist_field``).
"""
