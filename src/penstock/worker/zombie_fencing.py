"""Ends the producers of former tasks of a connector where these send, with the connector's own client settings.

Main function: ``fence_zombies``.

Thread: any; blocks.
Source: org.apache.kafka.connect.runtime.Worker.fenceZombies; KIP-618.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.errors import KafkaException
from penstock.kafka.client_settings import producer_settings
from penstock.kafka.column_settings import ColumnSettings
from penstock.kafka.fencing import failed, fence_producers

#: As long as Kafka's admin client takes for one call.
_TIMEOUT_S: Final = 60.0


def fence_zombies(
    worker: Mapping[str, str], connector: str, config: Mapping[str, str], ids: Sequence[str]
) -> dict[str, KafkaException]:
    """Fences whoever sends with these transactional ids.

    Args:
        worker: The worker's settings.
        connector: The name of the connector.
        config: Its settings, placeholders resolved.
        ids: The transactional ids.

    Returns:
        Why some could not be fenced, by id.

    Raises:
        ConfigException: the settings of the connector's producers cannot be used.
    """
    # Producers may be sent to another cluster than the worker's; that is where their ids count.
    client = producer_settings(worker, config, client_id=f"connector-fencing-{connector}")
    return failed(fence_producers(ColumnSettings.of(client), ids, _TIMEOUT_S, name=f"{connector} (fencing)"))
