"""The state machine of classic groups, whole, as data.

            first member                     join phase over
    Empty ---------------> PreparingRebalance ---------------> CompletingRebalance
      ^                       |        ^   ^                       |         |
      |     nobody joined     |        |   |     member changed    |         | leader's assignment
      +-----------------------+        |   +-----------------------+         v
                                       +--------------------------------- Stable
                                             member came, went, changed

Any state may become Dead, when the shard goes. A row of `STATES` says all that depends on the state alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from kcore.protocol.error_codes import ErrorCode


class GroupState(Enum):
    """The states; the value is Kafka's name, as DescribeGroups and ListGroups show it."""

    EMPTY = "Empty"
    """No members. Offsets and the generation number live on."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: joins are parked until all members are here, or the time is up."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: syncs are parked until the leader has handed in the assignment."""
    STABLE = "Stable"
    """Everybody has an assignment."""
    DEAD = "Dead"
    """The shard is gone; whoever still holds the group must not believe it."""


class StateRules(NamedTuple):
    """What depends on a group's state alone.

    Attributes:
        previous: the states it may be entered from.
        can_rebalance: whether a join phase may begin here.
        heartbeat: the answer to a heartbeat of a member in the right generation.
        sync: the answer to a SyncGroup that passed all checks; None where it is parked.
        delete: the answer to DeleteGroups.
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
"""The states for code that every request passes: CPython 3.11 takes 0.1 µs to find a member in its class."""

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
        heartbeat=ErrorCode.NONE,  # since KAFKA-10134; before, a heartbeat here said REBALANCE_IN_PROGRESS
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
"""The states that a record can say: a log holds nothing of the way between them, so at recovery one follows the other
in any order. The static replacement of a member (KIP-345) is a record of a Stable group that stays Stable."""

REBALANCING: Final[frozenset[tuple[GroupState, GroupState]]] = frozenset(
    {
        (EMPTY, PREPARING),
        (STABLE, PREPARING),
        (COMPLETING, PREPARING),
        (COMPLETING, STABLE),
        (PREPARING, EMPTY),
    }
)
"""The moves that operators ask for: a rebalance begins, begins anew, or ends."""


def may_follow(state: GroupState, following: GroupState, recorded: bool) -> bool:
    """Whether `following` may come after `state`.

    Args:
        state: where the group is.
        following: where it is to go.
        recorded: whether a record says so, not an event.
    """
    if state in STATES[following].previous:
        return True
    return recorded and state in RECORDED and following in RECORDED
