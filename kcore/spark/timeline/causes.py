"""The causes of rebalances that a log can show, with their meaning and their colour in the report."""

from __future__ import annotations

from typing import Final

REPLACED: Final = "static member replaced"
MIGRATED: Final = "group migrated"
TIMED_OUT: Final = "member timed out"
LEFT: Final = "member left"
GONE: Final = "member left or timed out"
JOINED: Final = "member joined"
SUBSCRIPTION: Final = "subscription changed"
ASSIGNOR: Final = "assignor changed"
TOPOLOGY: Final = "topology changed"
ASSIGNMENT_SETTINGS: Final = "assignment settings changed"
SHARE_READY: Final = "share partitions initialized"
TOPICS: Final = "topic metadata changed"
FOLLOW_UP: Final = "cooperative follow-up"
LEADER: Final = "leader changed"
UNKNOWN: Final = "unknown from the log"

CAUSES: Final[dict[str, str]] = {
    MIGRATED: "the group was migrated to another protocol (KIP-848): the type of its records changed",
    JOINED: "a new member joined",
    TIMED_OUT: "a static member did not return in time, or a member did not revoke partitions within its rebalance "
    "timeout",
    LEFT: "a member left: its last commit or heartbeat is too recent for a timeout. The log does not show whether an "
    "administrator removed it",
    GONE: "a member left or timed out; both write the same records",
    REPLACED: "a new process took over the name of a static member (KIP-345)",
    SUBSCRIPTION: "a member changed its subscription, or its pattern matches other topics",
    ASSIGNOR: "the assignor changed",
    TOPOLOGY: "streams: the topology changed",
    ASSIGNMENT_SETTINGS: "streams: a setting of the assignment changed, such as the number of standby tasks",
    SHARE_READY: "share: the state of share partitions was initialized",
    TOPICS: "subscribed topics were created, deleted or changed",
    FOLLOW_UP: "classic, cooperative: assigns the partitions that were revoked in the previous generation",
    LEADER: "classic: only the leader changed",
    UNKNOWN: "no difference in the log (a member joined again), or the previous state is not in the log",
}
"""Cause -> its meaning. A rebalance's `cause` is the first of its causes in this order."""

_RANK: Final = {cause: rank for rank, cause in enumerate(CAUSES)}


def ranked(causes: set[str]) -> list[str]:
    """Returns causes in the order of `CAUSES`; `UNKNOWN` if there are none."""
    return sorted(causes, key=_RANK.__getitem__) or [UNKNOWN]
