"""Transforms of the fields of a key or value.

``OfFields`` and ``OfChanges`` (``definition``), ``FieldSelection`` and ``Change`` (``selection``): most transforms
choose the fields and the changes of their values only once, for columns and single records alike. ``Mask``
(``mask_field``) is a good example. ``FieldPath`` (``paths``) names a field. The smallest transform is ``Hoist``
(``hoist_field``).
"""
