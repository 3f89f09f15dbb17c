"""Failed records: retried, skipped, or the end of the task, and reported either way.

``ErrorHandler`` and ``verdict`` (``tolerance``) decide. ``LogReporter`` (``reporters``) writes a failed record to the
log, ``DeadLetterQueue`` (``reporters``) sends it to a topic.
"""
