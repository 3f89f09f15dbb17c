"""Java's regular expressions, run by engines with linear time or a time limit.

``java_pattern`` runs a pattern that a user wrote; ``translation`` translates it, using ``pieces`` and ``char_classes``.
``written_out`` (``java_pattern``) computes how large it becomes.
"""
