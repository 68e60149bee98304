"""The states of a share partition on its leader (KIP-932)."""

from __future__ import annotations

from enum import Enum


class SharePartitionState(Enum):
    """The states of a share partition."""

    EMPTY = "Empty"
    INITIALIZING = "Initializing"
    ACTIVE = "Active"
    FAILED = "Failed"
    FENCED = "Fenced"


TRANSITIONS: dict[SharePartitionState, frozenset[SharePartitionState]] = {
    SharePartitionState.EMPTY: frozenset({SharePartitionState.INITIALIZING, SharePartitionState.FENCED}),
    SharePartitionState.INITIALIZING: frozenset(
        {SharePartitionState.ACTIVE, SharePartitionState.FAILED, SharePartitionState.FENCED}
    ),
    SharePartitionState.ACTIVE: frozenset({SharePartitionState.FENCED}),
    SharePartitionState.FAILED: frozenset({SharePartitionState.FENCED}),
    SharePartitionState.FENCED: frozenset(),
}
"""The states that may follow each state. A share partition that failed or was fenced leaves the node's table, and the
next fetch makes a new share partition."""
