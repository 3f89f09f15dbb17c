"""Brokers for tests, and what comes between them and a client.

Start from ``ScriptedBroker`` (``scripted_broker``): answers a producer as a test says; ``CuttingProxy``
(``cutting_proxy``): cuts connections; ``EmbeddedCluster`` (``broker_cluster``): several real brokers. ``log_lab`` and
``group_owner`` use the internal topics and the group of a real one.
"""
