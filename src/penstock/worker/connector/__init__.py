"""One connector on a thread of its own.

``ConnectorRunner`` (``runner``) owns the thread and the instance, and has the contexts of connectors;
``ConnectorOffsets`` (``offsets``) reads and changes the offsets that its tasks have committed.
"""
