"""Names of parameters that Confluent's converters share with ``generalized.sum.type.support``.

Thread: constants.
Source: io.confluent.connect.schema.ConnectEnum, ConnectUnion.
"""

from __future__ import annotations

from typing import Final

GENERAL_ENUM: Final = "org.apache.kafka.connect.data.Enum"
GENERAL_UNION: Final = "org.apache.kafka.connect.data.Union"
