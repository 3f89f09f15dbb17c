"""The request for a preview: a configuration, perhaps records, and limits.

Main types: ``PreviewRequest``, ``PreviewLimits``. Values; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model.states import ConnectorType


@dataclass(frozen=True)
class PreviewLimits:
    """The limits at which a preview ends.

    Attributes:
        records: After so many records.
        seconds: After this time, whatever the connector does.
        bytes: After so many bytes of records.
    """

    records: int = 10
    seconds: float = 5.0
    bytes: int = 1024 * 1024


@dataclass(frozen=True)
class GivenRecord:
    """A record that the caller brings.

    Attributes:
        topic: Its topic.
        key, value: As JSON had them; for a sink a text is the bytes of the message, anything else is written as JSON.
        partition, timestamp: Where and when it claims to be from.
        headers: Texts by name.
    """

    topic: str
    key: object = None
    value: object = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PreviewRequest:
    """The configuration and records of a preview.

    Attributes:
        type: Source or sink.
        config: The connector's, placeholders resolved.
        records: Those of the caller; None to read some from the source, or from the sink's topics.
        limits: When to stop reading.
    """

    type: ConnectorType
    config: Mapping[str, str] = field(repr=False)
    records: Sequence[GivenRecord] | None = None
    limits: PreviewLimits = field(default_factory=PreviewLimits)
