"""Kafka clients for connectors, for clusters other than the worker's, with Java's names of client settings.

Main type: ``KafkaCluster`` (``cluster``), which makes the clients. ``RecordReader`` (``reader``): records of assigned
partitions as columns, ``Fetched``. ``ClusterAdmin`` (``admin``): topics (``TopicInfo``), their settings
(``TopicSetting``), access rules (``AccessRule``), consumer groups.
``RecordWriter`` (``reader``): single records, for the small topics of a connector.

Authors import these names from here. ``penstock.kafka`` interprets the settings, tunes the clients, and has the
worker's own producers and consumers.
"""

from penstock.clients.admin import AccessRule, ClusterAdmin, TopicInfo, TopicSetting
from penstock.clients.cluster import KafkaCluster
from penstock.clients.reader import Fetched, RecordReader, RecordWriter

__all__ = [
    "AccessRule",
    "ClusterAdmin",
    "Fetched",
    "KafkaCluster",
    "RecordReader",
    "RecordWriter",
    "TopicInfo",
    "TopicSetting",
]
