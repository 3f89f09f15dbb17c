"""Log lines that say which connector and task they are about, and counters.

Main types: ``log_context`` and ``ContextFormatter`` (logging), ``Metrics`` (counters and gauges). Any thread.
"""

from penstock.telemetry.log_context import ContextFormatter, configure_logging, current_log_context, log_context
from penstock.telemetry.metrics import Counter, Gauge, Metrics

__all__ = [
    "ContextFormatter",
    "Counter",
    "Gauge",
    "Metrics",
    "configure_logging",
    "current_log_context",
    "log_context",
]
