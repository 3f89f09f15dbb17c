"""Log lines that name their connector and task, metrics, and the waits of threads.

Start from:

- ``log_context``, ``ContextFormatter`` (``logs``): ``[connector|task-0]`` in every line of a thread.
- ``Loggers`` (``logs``): levels that change while the worker runs; ``SeldomLog`` next to it limits repeated
  warnings.
- ``Metrics``, ``Counter``, ``MetricFamily`` (``metrics``): the registry of one worker; ``metrics_text`` next
  to it: as text for Prometheus.
- ``BusyTimes`` (``waits``): the busy time of each stage of a task. ``waiting_for`` next to it: announces the wait of a
  thread in the code that waits; ``stands_still``: a long wait for ``/health``; ``stacks``: the stacks of all threads.

Modules that count define the metrics: ``penstock.worker.task_metrics`` for tasks,
``penstock.herder.cluster.group_metrics`` for the group. Metrics of plugins are in ``penstock.api.metrics``.

Thread: any.
"""

from penstock.telemetry.logs import ContextFormatter, configure_logging, log_context
from penstock.telemetry.metrics import Counter, MetricFamily, Metrics
from penstock.telemetry.waits import BusyTimes, Stack, Wait, no_probe, waiting_for, waits

__all__ = [
    "BusyTimes",
    "ContextFormatter",
    "Counter",
    "MetricFamily",
    "Metrics",
    "Stack",
    "Wait",
    "configure_logging",
    "log_context",
    "no_probe",
    "waiting_for",
    "waits",
]
