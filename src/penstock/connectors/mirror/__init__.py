"""Mirrors of other Kafka clusters, with MirrorMaker 2's settings, names and formats.

- ``MirrorConnector`` (``connector``): the common base of the three connectors.
- ``MirrorSource`` (``source``): the connector of records; ``MirrorTask`` (``task``) reads partitions, from the offsets
  of ``positions``. ``TopicKeeper`` (``keeping``) synchronizes topics on the target with the source.
- ``MirrorCheckpoint`` (``checkpoints``): positions of groups; ``MirrorHeartbeat`` (``heartbeats``): heartbeats.
  ``offset_syncs``: translation of offsets to the target; ``formats``: records of these topics as bytes.
- ``policy``: names of topics on the target. ``selection``: selects topics and settings, without I/O.
- ``settings``: their settings, and the assignment of settings to clients.

``penstock.clients`` creates the clients of both clusters.
"""

from penstock.connectors.mirror.checkpoints import MirrorCheckpoint
from penstock.connectors.mirror.heartbeats import MirrorHeartbeat
from penstock.connectors.mirror.policy import IdentityPolicy, ReplicationPolicy
from penstock.connectors.mirror.source import MirrorSource

__all__ = ["IdentityPolicy", "MirrorCheckpoint", "MirrorHeartbeat", "MirrorSource", "ReplicationPolicy"]
