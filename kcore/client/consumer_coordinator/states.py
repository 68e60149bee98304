"""The states of a member, for both group protocols, with the complete tables of their transitions."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClassicState(Enum):
    """The states of a member of a classic group."""

    UNJOINED = "Unjoined"
    """The member is in no generation. It joins at the next poll."""
    PREPARING = "Preparing"
    """A rebalance begins: the member commits its positions and gives partitions up. It still has its generation."""
    JOINING = "Joining"
    """A JoinGroup is in flight, or is repeated. Heartbeats pause."""
    SYNCING = "Syncing"
    """The member is in a new generation and waits for its assignment; the leader computes the assignments."""
    COMPLETING = "Completing"
    """The assignment has arrived, and the user's code handles the events."""
    STABLE = "Stable"
    """The member owns its assignment."""
    FATAL = "Fatal"
    """The coordinator refused the member permanently: another member has its instance id."""
    LEAVING = "Leaving"
    """The member is closed: it commits, gives its partitions up and leaves the group."""
    CLOSED = "Closed"
    """The member has left."""


_C = ClassicState

CLASSIC: Final[dict[ClassicState, frozenset[ClassicState]]] = {
    _C.UNJOINED: frozenset({_C.PREPARING, _C.LEAVING}),
    _C.PREPARING: frozenset({_C.JOINING, _C.FATAL, _C.LEAVING}),
    _C.JOINING: frozenset({_C.SYNCING, _C.UNJOINED, _C.FATAL, _C.LEAVING}),
    _C.SYNCING: frozenset({_C.COMPLETING, _C.JOINING, _C.UNJOINED, _C.FATAL, _C.LEAVING}),
    _C.COMPLETING: frozenset({_C.STABLE, _C.UNJOINED, _C.FATAL, _C.LEAVING}),
    _C.STABLE: frozenset({_C.PREPARING, _C.UNJOINED, _C.FATAL, _C.LEAVING}),
    _C.FATAL: frozenset({_C.LEAVING}),
    _C.LEAVING: frozenset({_C.CLOSED}),
    _C.CLOSED: frozenset(),
}
"""State -> the states that may follow it."""


class ConsumerState(Enum):
    """The states of a member of a consumer group (KIP-848)."""

    UNSUBSCRIBED = "Unsubscribed"
    """The member is not in the group. It joins at the next poll."""
    JOINING = "Joining"
    """The first heartbeat is due or in flight."""
    RECONCILING = "Reconciling"
    """The assignment differs from the target: the member commits, gives up partitions and adopts new ones."""
    ACKNOWLEDGING = "Acknowledging"
    """The next heartbeat reports the new assignment."""
    STABLE = "Stable"
    """The assignment is the target."""
    FENCED = "Fenced"
    """The coordinator has removed the member; the user's code handles the lost partitions."""
    STALE = "Stale"
    """The member has left because it did not poll in time; it joins at the next poll."""
    PREPARE_LEAVING = "PrepareLeaving"
    """The user's code gives the partitions up before the member leaves."""
    LEAVING = "Leaving"
    """The last heartbeat is due or in flight."""
    FATAL = "Fatal"
    """The coordinator refused the member permanently."""
    CLOSED = "Closed"
    """The member has left."""


_K = ConsumerState
_ACTIVE = frozenset({_K.JOINING, _K.RECONCILING, _K.ACKNOWLEDGING, _K.STABLE})
_OUT = frozenset({_K.FENCED, _K.FATAL, _K.PREPARE_LEAVING, _K.LEAVING})

CONSUMER: Final[dict[ConsumerState, frozenset[ConsumerState]]] = {
    _K.UNSUBSCRIBED: frozenset({_K.JOINING, _K.CLOSED}),
    _K.JOINING: frozenset({_K.RECONCILING, _K.STABLE}) | _OUT,
    _K.RECONCILING: frozenset({_K.ACKNOWLEDGING, _K.STABLE}) | _OUT,
    _K.ACKNOWLEDGING: frozenset({_K.STABLE, _K.RECONCILING}) | _OUT,
    _K.STABLE: frozenset({_K.RECONCILING}) | _OUT,
    _K.FENCED: frozenset({_K.JOINING, _K.CLOSED}),
    _K.STALE: frozenset({_K.JOINING, _K.CLOSED}),
    _K.PREPARE_LEAVING: frozenset({_K.LEAVING, _K.CLOSED}),
    _K.LEAVING: frozenset({_K.STALE, _K.CLOSED}),
    _K.FATAL: frozenset({_K.CLOSED}),
    _K.CLOSED: frozenset(),
}
"""State -> the states that may follow it."""

IN_GROUP: Final = _ACTIVE
"""States in which the member is joining the group, or is in the group and does not leave."""
