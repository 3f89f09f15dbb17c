"""Java's regular expressions, run by engines that are linear in time or limited.

``java_pattern`` has a pattern as a user wrote it; ``translation`` translates it, from ``pieces`` and ``char_classes``;
``size`` says how large it becomes.
"""
