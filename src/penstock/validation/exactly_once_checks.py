"""Checks what a source connector's configuration says of exactly-once delivery, which a worker of a cluster can do.

Main function: ``check_exactly_once``. Asks the connector's class, so it is called where users' code may run.

Source: org.apache.kafka.connect.runtime.distributed.DistributedHerder
(validateSourceConnectorExactlyOnceSupport, validateSourceConnectorTransactionBoundary), whose words the messages are;
KIP-618; scenario 33.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock.api import (
    ConnectorTransactionBoundaries,
    ExactlyOnceSupport,
    SourceConnector,
    TransactionBoundary,
)
from penstock.config import ConfigValue
from penstock.errors import ConnectException
from penstock.settings.distributed import ExactlyOnceSupport as WorkerSupport

log = logging.getLogger(__name__)

_SUPPORT = "exactly.once.support"
_BOUNDARY = "transaction.boundary"


def check_exactly_once(
    connector: SourceConnector,
    given: Mapping[str, str],
    found: Mapping[str, ConfigValue],
    worker: WorkerSupport,
) -> None:
    """Adds errors to the settings that the connector, or this worker, cannot fulfil.

    Args:
        connector: A fresh instance of its class.
        given: Its configuration, placeholders resolved, without defaults.
        found: What was found of each setting.
        worker: What the worker can do.
    """
    support, boundary = found[_SUPPORT], found[_BOUNDARY]
    if not support.error_messages and str(support.value).lower() == "required":
        if worker is not WorkerSupport.ENABLED:
            support.add_error_message("This worker does not have exactly-once source support enabled.")
        _add(support, "support for exactly-once semantics", lambda: _support_fault(connector, given))
    if not boundary.error_messages and str(boundary.value).lower() == TransactionBoundary.CONNECTOR.value:
        _add(boundary, "support for defining its own transaction boundaries", lambda: _boundary_fault(connector, given))


def _add(value: ConfigValue, what: str, fault: Callable[[], str | None]) -> None:
    try:
        text = fault()
    except BaseException as error:
        log.exception("A connector's %s could not be validated", what)
        said = str(error).strip()
        after = f": {said}" if said else "; please see the worker logs for more details."
        text = f"An unexpected error occurred during validation{after}"
    if text is not None:
        value.add_error_message(text)


def _support_fault(connector: SourceConnector, given: Mapping[str, str]) -> str | None:
    said: object = connector.exactly_once_support(dict(given))
    if said is ExactlyOnceSupport.SUPPORTED:
        return None
    if said is None:
        return (
            "The connector does not implement the API required for preflight validation of exactly-once source "
            "support. Please consult the documentation for the connector to determine whether it supports exactly-once "
            'semantics, and then consider reconfiguring the connector to use the value "requested" for this property '
            "(which will disable this preflight check and allow the connector to be created)."
        )
    if said is ExactlyOnceSupport.UNSUPPORTED:
        return "The connector does not support exactly-once semantics with the provided configuration."
    raise ConnectException(f"Unexpected value returned from SourceConnector::exactlyOnceSupport: {said}")


def _boundary_fault(connector: SourceConnector, given: Mapping[str, str]) -> str | None:
    said: object = connector.can_define_transaction_boundaries(dict(given))
    if said is ConnectorTransactionBoundaries.SUPPORTED:
        return None
    if said is None:
        return (
            "This connector has returned a null value from its canDefineTransactionBoundaries method, which is not "
            "permitted. The connector will be treated as if it cannot define its own transaction boundaries, and "
            f"cannot be configured with '{_BOUNDARY}' set to '{TransactionBoundary.CONNECTOR.value}'."
        )
    return (
        "The connector does not support connector-defined transaction boundaries with the given configuration. Please "
        "reconfigure it to use a different transaction boundary definition."
    )
