"""Internal topics as logs that are read to their end and written to.

``TopicLog`` (``log``) combines a ``reader`` and a ``writer``; ``settings`` has the settings of their clients.
``internal_topics`` creates missing topics of a distributed worker and checks existing ones.
"""
