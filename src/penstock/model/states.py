"""The states of connectors and tasks, and what a user asked for.

Main types: ``State`` (what is), ``TargetState`` (what should be), ``ConnectorType``. Values; any thread.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The state of a connector or task, as in the status endpoint and the status topic.

    Source: org.apache.kafka.connect.runtime.AbstractStatus.State.
    """

    UNASSIGNED = "UNASSIGNED"
    """Known, but no worker runs it: not started yet, or ended after it was asked to."""
    RUNNING = "RUNNING"
    """Started and not asked to rest; a task polls or receives records."""
    PAUSED = "PAUSED"
    """Alive and resting: a connector's ``stop`` was called, a task keeps its resources but moves no records."""
    STOPPED = "STOPPED"
    """Connectors only: resting, and its tasks are gone altogether (KIP-875)."""
    FAILED = "FAILED"
    """Ended by an error; the trace says which. Nothing but a request of a user brings it back."""
    RESTARTING = "RESTARTING"
    """A restart was asked for, or a task has lost what it had of Spark: the former instance is being replaced."""


class TargetState(Enum):
    """The state that a user requested for a connector; it outlives failures and restarts.

    Source: org.apache.kafka.connect.runtime.TargetState.
    """

    STARTED = "STARTED"
    """Run. The default."""
    PAUSED = "PAUSED"
    """Rest, with the tasks kept in memory."""
    STOPPED = "STOPPED"
    """Rest, without tasks."""

    @classmethod
    def from_initial_state(cls, text: str | None) -> TargetState:
        """Reads ``initial_state`` of a create request.

        Args:
            text: RUNNING, PAUSED or STOPPED in any case; None means RUNNING.

        Raises:
            ValueError: another text.

        >>> TargetState.from_initial_state("stopped")
        <TargetState.STOPPED: 'STOPPED'>
        """
        known = {"RUNNING": cls.STARTED, "PAUSED": cls.PAUSED, "STOPPED": cls.STOPPED}
        if text is None:
            return cls.STARTED
        try:
            return known[text.strip().upper()]
        except KeyError:
            raise ValueError(f"initial_state must be one of {', '.join(known)}, not {text!r}") from None


class ConnectorType(Enum):
    """The direction of a connector, with the text REST uses."""

    SOURCE = "source"
    SINK = "sink"
    UNKNOWN = "unknown"
