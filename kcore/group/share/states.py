"""The states of a share group, derived from its members, with their transitions."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The states of a share group; the value is Kafka's name.

    Attributes:
        kafka_name: the value as an attribute; CPython 3.11 takes 0.3 µs to read `value`.
    """

    kafka_name: str

    def __init__(self, name: str) -> None:
        self.kafka_name = name

    EMPTY = "Empty"
    """No members; epochs and the state of share partitions are kept."""
    STABLE = "Stable"
    """At least one member. There is no state for an assignment in progress: members do not wait for each other."""
    DEAD = "Dead"
    """The group was deleted. Only responses show this state."""


EMPTY, STABLE, DEAD = GroupState

TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({STABLE, DEAD}),
    STABLE: frozenset({EMPTY}),
    DEAD: frozenset(),
}
"""The allowed transitions: the first join, the removal of the last member, and DeleteGroups."""


class StatePhase(Enum):
    """The phases of a share partition's state. For each phase except ABSENT, the group's record has a list."""

    ABSENT = "absent"
    """The partition is in no list: the group has not used it, or its state was deleted."""
    INITIALIZING = "initializing"
    """The group has requested the initialization from the share coordinator, which has not confirmed it."""
    INITIALIZED = "initialized"
    """The state exists, and the partition may be assigned."""
    DELETING = "deleting"
    """The group has requested the deletion from the share coordinator, which has not confirmed it."""


ABSENT, INITIALIZING, INITIALIZED, DELETING = StatePhase

PHASES: Final[dict[StatePhase, frozenset[StatePhase]]] = {
    ABSENT: frozenset({INITIALIZING}),
    INITIALIZING: frozenset({INITIALIZED, ABSENT, DELETING}),
    INITIALIZED: frozenset({DELETING, ABSENT, INITIALIZING}),
    DELETING: frozenset({ABSENT, INITIALIZING}),
}
"""The allowed transitions of a share partition: phase -> the phases that may follow it.

The deletion of a topic removes its partitions from all lists. AlterShareGroupOffsets initializes share partitions
again.
"""
