"""Internal topics as logs that are read to their end and written to.

``TopicLog`` (``log``) joins a ``reader`` and a ``writer``; ``settings`` are those of their clients.
``internal_topics`` makes the topics of a distributed worker where they are missing, and checks them otherwise.
"""
