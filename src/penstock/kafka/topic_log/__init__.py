"""Internal topics as logs that are read to their end and written to.

``TopicLog`` (``log``) combines the reading and writing ``clients``. ``internal_topics`` creates and checks the topics
of a distributed worker, and has the settings of their clients.
"""
