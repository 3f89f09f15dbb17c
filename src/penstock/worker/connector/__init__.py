"""One connector on a thread of its own.

``ConnectorRunner`` (``runner``) owns the thread and the instance; ``contexts`` has what a connector is given, and
``ConnectorOffsets`` (``offsets``) reads and changes the offsets that its tasks have committed.
"""
