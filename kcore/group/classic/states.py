"""The state machine of classic groups, as a table.

            first member                     join phase over
    Empty ---------------> PreparingRebalance ---------------> CompletingRebalance
      ^                       |        ^   ^                       |         |
      |     no member left     |        |   |     member changed    |         | leader's assignment
      +-----------------------+        |   +-----------------------+         v
                                       +--------------------------------- Stable
                                             member joined, left, changed

Any state becomes Dead when the shard is unloaded. A row of `STATES` contains all rules that depend only on the state.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kcore.protocol.error_codes import ErrorCode


class GroupState(Enum):
    """The states; the value is Kafka's name, as DescribeGroups and ListGroups show it."""

    EMPTY = "Empty"
    """No members. Offsets and the generation number are kept."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: joins are parked until all members have joined or the timeout ends."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: syncs are parked until the leader has sent the assignment."""
    STABLE = "Stable"
    """Every member has an assignment."""
    DEAD = "Dead"
    """The shard is unloaded; code that still refers to the group must not use it."""


class StateRules(NamedTuple):
    """The rules that depend only on a group's state.

    Attributes:
        previous: the states that may precede this state.
        can_rebalance: whether a join phase may begin in this state.
        heartbeat: the error code of the response to a heartbeat with the current generation.
        sync: the error code of the response to a valid SyncGroup; None if the request is parked.
        delete: the error code of the response to DeleteGroups.
        keeps_session: whether a heartbeat or an accepted offset commit re-arms the member's session.
    """

    previous: frozenset[GroupState]
    can_rebalance: bool
    heartbeat: ErrorCode
    sync: ErrorCode | None
    delete: ErrorCode
    keeps_session: bool


EMPTY: Final = GroupState.EMPTY
PREPARING: Final = GroupState.PREPARING_REBALANCE
COMPLETING: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD
"""The enum members as global variables: CPython 3.11 takes 0.1 µs to look up an enum member in its class."""

STATES: Final[dict[GroupState, StateRules]] = {
    EMPTY: StateRules(
        previous=frozenset({PREPARING}),
        can_rebalance=True,
        heartbeat=ErrorCode.UNKNOWN_MEMBER_ID,
        sync=ErrorCode.UNKNOWN_MEMBER_ID,
        delete=ErrorCode.NONE,
        keeps_session=False,
    ),
    PREPARING: StateRules(
        previous=frozenset({STABLE, COMPLETING, EMPTY}),
        can_rebalance=False,
        heartbeat=ErrorCode.REBALANCE_IN_PROGRESS,
        sync=ErrorCode.REBALANCE_IN_PROGRESS,
        delete=ErrorCode.NON_EMPTY_GROUP,
        keeps_session=True,
    ),
    COMPLETING: StateRules(
        previous=frozenset({PREPARING}),
        can_rebalance=True,
        heartbeat=ErrorCode.NONE,  # since KAFKA-10134; before, a heartbeat in this state got REBALANCE_IN_PROGRESS
        sync=None,
        delete=ErrorCode.NON_EMPTY_GROUP,
        keeps_session=True,
    ),
    STABLE: StateRules(
        previous=frozenset({COMPLETING}),
        can_rebalance=True,
        heartbeat=ErrorCode.NONE,
        sync=ErrorCode.NONE,
        delete=ErrorCode.NON_EMPTY_GROUP,
        keeps_session=True,
    ),
    DEAD: StateRules(
        previous=frozenset(GroupState),
        can_rebalance=False,
        heartbeat=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        sync=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        delete=ErrorCode.GROUP_ID_NOT_FOUND,
        keeps_session=False,
    ),
}

RECORDED: Final[frozenset[GroupState]] = frozenset({EMPTY, STABLE})
"""The states of a group for which there are records in the log.

The log has no records of the other states, so EMPTY and STABLE may follow each other in any order during recovery. A
record may also follow another record of the same state: the replacement of a static member (KIP-345) writes a record of
a Stable group that stays Stable.
"""

REBALANCING: Final[frozenset[tuple[GroupState, GroupState]]] = frozenset(
    {
        (EMPTY, PREPARING),
        (STABLE, PREPARING),
        (COMPLETING, PREPARING),
        (COMPLETING, STABLE),
        (PREPARING, EMPTY),
    }
)
"""The state changes logged at INFO: a rebalance begins, begins again, or ends."""


def may_follow(state: GroupState, following: GroupState, recorded: bool) -> bool:
    """Returns True if `following` may come after `state`.

    Args:
        state: the current state.
        following: the next state.
        recorded: True if the replay of a record causes the change, False if a request or a timer causes it.
    """
    if state in STATES[following].previous:
        return True
    return recorded and state in RECORDED and following in RECORDED
