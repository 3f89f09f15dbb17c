"""Mirrors of other Kafka clusters, with MirrorMaker 2's settings, names and formats.

- ``MirrorSource`` (``source``): the connector of records; ``MirrorTask`` (``task``) reads partitions, ``positions``
  says where. ``TopicKeeper`` (``keeping``) makes topics on the target what they are on the source.
- ``policy``: names of topics on the target. ``selection``: which topics and settings, without I/O.
- ``settings``: what can be set, and which settings are for which client.

Clients of both clusters are made by ``penstock.clients``.
"""

from penstock.connectors.mirror.policy import IdentityPolicy, ReplicationPolicy
from penstock.connectors.mirror.source import MirrorSource

__all__ = ["IdentityPolicy", "MirrorSource", "ReplicationPolicy"]
