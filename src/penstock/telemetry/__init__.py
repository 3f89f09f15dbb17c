"""Log lines that say which connector and task they are about, and counters.

Main types: ``log_context`` and ``ContextFormatter`` (logging), ``Metrics`` (counters, gauges and families of them),
``BusyTimes`` (which stage of a task was at work how long). Any thread.
"""

from penstock.telemetry.busy import BusyTimes
from penstock.telemetry.log_context import ContextFormatter, configure_logging, current_log_context, log_context
from penstock.telemetry.metrics import Counter, Family, Gauge, Metrics

__all__ = [
    "BusyTimes",
    "ContextFormatter",
    "Counter",
    "Family",
    "Gauge",
    "Metrics",
    "configure_logging",
    "current_log_context",
    "log_context",
]
