"""The engine's own state machines without an engine, for replay only.

A replay makes no decisions, arms no timers, completes no responses, and its clock stands still. The replay context
refuses every other use of the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.group.shard import GroupShard
from kcore.runtime.machine import Outcome, ShardContext
from kcore.runtime.topics import TopicInfo
from kcore.share.shard import ShareServices, ShareShard
from kcore.transaction.markers import Marker
from kcore.transaction.shard import TransactionServices, TransactionShard

TRANSACTION_VERSION: Final = 2
"""The `transaction.version` of the rebuilt transaction coordinator: the newest version (KIP-890).

A coordinator of this version can also read the records of earlier versions.
"""


class ReplayOnlyError(AssertionError):
    """The error for a machine that uses the runtime during a replay."""


class ReplayContext(ShardContext):
    """The context of a machine that only replays: refuses every action."""

    __slots__ = ()

    def __init__(self) -> None:
        self.now = Now(ManualClock())
        self.now.wall_ms = -1  # a replay has no time

    def respond(self, pending: Any, response: Any) -> None:
        """Refuses to complete a response: a replay has no requests."""
        raise ReplayOnlyError(f"a replay has no request to complete with {response!r}")

    def schedule(self, deadline_ms: int, timer: Any) -> Any:
        """Raises ReplayOnlyError, because no time passes in a replay."""
        raise ReplayOnlyError(f"a replay cannot arm the timer {timer!r}")

    def in_slices(self, work: Iterator[Outcome | None]) -> None:
        """Raises ReplayOnlyError, because a replay makes no decisions."""
        raise ReplayOnlyError(f"a replay cannot run {work!r}")


class NoTopics:
    """An empty topic directory: coordinator logs name topics by id and do not contain the names."""

    __slots__ = ()

    def by_name(self, name: str) -> TopicInfo | None:
        """Returns None, because the directory is empty."""
        return None

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """Returns None, because the directory is empty."""
        return None

    def all(self) -> Iterable[TopicInfo]:
        """Returns no topics."""
        return ()


def _no_producer_id() -> int | None:
    return None


def _no_member_id() -> str:
    raise ReplayOnlyError("a replay cannot allocate a member id")


def _no_pruning(index: int, before_offset: int) -> None:
    raise ReplayOnlyError(f"a replay cannot delete records of partition {index}")


class _NoMarkers:
    """A `MarkerWriter` that refuses to write markers, because the replayed log has them."""

    __slots__ = ()

    def write(self, marker: Marker, partitions: Any, done: Any) -> None:
        """Refuses to write a marker."""
        raise ReplayOnlyError(f"a replay cannot write {marker!r}")


@cache
def _defaults() -> Config:
    """Returns the default settings. All machines share them, because a replay changes no setting and a copy takes
    memory.
    """
    return Config({})


def group_machine() -> GroupShard:
    """Returns a group shard that replays a partition of `__consumer_offsets`."""
    return GroupShard(ReplayContext(), _defaults(), NoTopics(), _no_member_id)


def transaction_machine() -> TransactionShard:
    """Returns a transaction shard that replays a partition of `__transaction_state`."""
    services = TransactionServices(_defaults(), NoTopics(), _no_producer_id, _NoMarkers(), lambda: TRANSACTION_VERSION)
    return TransactionShard(ReplayContext(), services)


def share_machine() -> ShareShard:
    """Returns a share shard that replays a partition of `__share_group_state`."""
    return ShareShard(ReplayContext(), ShareServices(_defaults(), NoTopics(), lambda: False, _no_pruning))
