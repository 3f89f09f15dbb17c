"""What is known of a member of a group, and outlives a life of its event loop.

Main type: ``MemberState``.

Thread: the member's own, but for the fields that say so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.kafka.group.events import GroupView
from penstock.kafka.group.metrics import GroupCounts
from penstock.kafka.group.standing import Standing


@dataclass
class MemberState:
    """A member.

    Attributes:
        standing: Whether the member may believe that it is one.
        counts: What it has done.
        view: What any thread may read of it.
        wanted: The owner wants to be in the group. Written by any thread.
        unpolled: It was put out because the owner did not answer; the next sign of the owner ends that.
        closing: It is to end. Written by any thread.
        asked: Counts the owner's wishes to join again. Written by any thread.
        reason: Why it joins, for the broker's log. Written by any thread.
        last_completed: The generation of the last round whose assignment has arrived; -1 for none.
        refused: The code of the refusal that was told last; empty when it was let in since.
    """

    standing: Standing
    counts: GroupCounts = field(default_factory=GroupCounts)
    view: GroupView = field(default_factory=GroupView)
    wanted: bool = True
    unpolled: bool = False
    closing: bool = False
    asked: int = 0
    reason: str = "the worker starts"
    last_completed: int = -1
    refused: str = ""

    @property
    def joins(self) -> bool:
        """Whether the member is to be in the group."""
        return self.wanted and not self.unpolled and not self.closing
