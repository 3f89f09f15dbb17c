"""One connector on a thread of its own.

``ConnectorRunner`` (``runner``) owns the thread and the instance; ``contexts`` holds the contexts of connectors, and
``ConnectorOffsets`` (``offsets``) reads and changes the offsets that its tasks have committed.
"""
