"""Mirrors of other Kafka clusters, with MirrorMaker 2's settings, names and formats.

- ``MirrorConnector`` (``connector``): what the three connectors have in common.
- ``MirrorSource`` (``source``): the connector of records; ``MirrorTask`` (``task``) reads partitions, ``positions``
  says where. ``TopicKeeper`` (``keeping``) makes topics on the target what they are on the source.
- ``MirrorCheckpoint`` (``checkpoints``): positions of groups; ``MirrorHeartbeat`` (``heartbeats``): signs of life.
  ``offset_syncs``: which offset is which on the target; ``formats``: records of these topics as bytes.
- ``policy``: names of topics on the target. ``selection``: which topics and settings, without I/O.
- ``settings``: what can be set, and which settings are for which client.

Clients of both clusters are made by ``penstock.clients``.
"""

from penstock.connectors.mirror.checkpoints import MirrorCheckpoint
from penstock.connectors.mirror.heartbeats import MirrorHeartbeat
from penstock.connectors.mirror.policy import IdentityPolicy, ReplicationPolicy
from penstock.connectors.mirror.source import MirrorSource

__all__ = ["IdentityPolicy", "MirrorCheckpoint", "MirrorHeartbeat", "MirrorSource", "ReplicationPolicy"]
