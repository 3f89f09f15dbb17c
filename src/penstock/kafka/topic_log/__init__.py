"""Internal topics as logs that are read to their end and written to.

``TopicLog`` (``log``) combines a ``reader`` and a ``writer``. ``internal_topics`` creates and checks the topics of a
distributed worker, and has the settings of their clients.
"""
