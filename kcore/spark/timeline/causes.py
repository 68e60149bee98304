"""Why a rebalance began, as far as a log can say. Plain data, so that documentation and colours can be made of it."""

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
SHARE_READY: Final = "share partitions initialized"
TOPICS: Final = "topic metadata changed"
FOLLOW_UP: Final = "cooperative follow-up"
LEADER: Final = "leader changed"
UNKNOWN: Final = "unknown from the log"

CAUSES: Final[dict[str, str]] = {
    MIGRATED: "the group went over to another protocol (KIP-848): its records changed their kind",
    JOINED: "a member that was not there before",
    TIMED_OUT: "a static member did not come back in time, or a member kept what it was told to give up for longer "
    "than its rebalance timeout",
    LEFT: "a member is gone, and gave a sign of life too shortly before to have timed out; whether it left or was "
    "removed by an administrator the log does not say",
    GONE: "a member is gone; its leaving and its timing out leave the same records",
    REPLACED: "a new process took over a static member's name (KIP-345)",
    SUBSCRIPTION: "a member reads other topics, or its pattern matches other topics",
    ASSIGNOR: "another way of assigning was chosen",
    TOPOLOGY: "streams: another topology",
    SHARE_READY: "share: the state of share partitions became ready to be read",
    TOPICS: "topics that are read were made, deleted or changed",
    FOLLOW_UP: "classic, cooperative: what was given up in the generation before is handed out",
    LEADER: "classic: another member leads, and nothing else differs",
    UNKNOWN: "nothing differs that the log holds (a member joined again), or what came before is not in the log",
}
"""Cause -> what it means; a rebalance's `cause` is the first of its causes in this order."""

_RANK: Final = {cause: rank for rank, cause in enumerate(CAUSES)}


def ranked(causes: set[str]) -> list[str]:
    """Causes in the order of `CAUSES`; `UNKNOWN` if there are none."""
    return sorted(causes, key=_RANK.__getitem__) or [UNKNOWN]
