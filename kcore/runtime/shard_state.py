"""The states of a shard's life cycle."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ShardState(Enum):
    """The states of a shard's life cycle."""

    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


TRANSITIONS: Final[dict[ShardState, frozenset[ShardState]]] = {
    ShardState.INITIAL: frozenset({ShardState.LOADING, ShardState.CLOSED}),
    ShardState.LOADING: frozenset({ShardState.ACTIVE, ShardState.FAILED, ShardState.CLOSED}),
    ShardState.ACTIVE: frozenset({ShardState.FAILED, ShardState.CLOSED}),
    ShardState.FAILED: frozenset({ShardState.LOADING, ShardState.CLOSED}),
    ShardState.CLOSED: frozenset(),
}
"""Each state of a shard -> the states that may follow it."""
