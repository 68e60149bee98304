"""The engine's own state machines without an engine: what is needed to replay a log, and nothing else.

A replay decides nothing: no timer is armed, nobody is answered, no time passes. Whatever of the runtime a machine asks
for while it replays would be a decision, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kcore.clock import ManualClock, Now
from kcore.config.node import Config
from kcore.group.shard import GroupShard
from kcore.runtime.machine import Outcome, ShardContext
from kcore.runtime.topics import TopicInfo
from kcore.transaction.markers import Marker
from kcore.transaction.shard import Services, TransactionShard

TRANSACTION_VERSION: Final = 2
"""The newest `transaction.version` (KIP-890): records of every earlier one are read, too."""


class ReplayOnlyError(AssertionError):
    """A machine wanted to do something while it only replays."""


class ReplayContext(ShardContext):
    """The hands of a machine that only replays: they are tied."""

    __slots__ = ()

    def __init__(self) -> None:
        self.now = Now(ManualClock(wall_ms=-1))

    def answer(self, pending: Any, response: Any) -> None:
        """Nobody asked anything."""
        raise ReplayOnlyError(f"nobody waits for {response!r}")

    def schedule(self, deadline_ms: int, timer: Any) -> Any:
        """No time passes."""
        raise ReplayOnlyError(f"{timer!r} cannot be armed")

    def in_slices(self, work: Iterator[Outcome | None]) -> None:
        """Nothing is decided."""
        raise ReplayOnlyError(f"{work!r} cannot run")


class NoTopics:
    """The topics of a replay: coordinator logs name topics by id, and do not say what these are called."""

    __slots__ = ()

    def by_name(self, name: str) -> TopicInfo | None:
        """None: not known."""
        return None

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """None: not known."""
        return None

    def all(self) -> Iterable[TopicInfo]:
        """None are known."""
        return ()


def _no_producer_id() -> int | None:
    return None


def _no_member_id() -> str:
    raise ReplayOnlyError("no member joins")


class _NoMarkers:
    """Writes no markers: they are in the log."""

    __slots__ = ()

    def write(self, marker: Marker, partitions: Any, done: Any) -> None:
        """Nothing ends here."""
        raise ReplayOnlyError(f"{marker!r} is not to be written")


def group_machine() -> GroupShard:
    """A group shard to replay a partition of `__consumer_offsets` into."""
    return GroupShard(ReplayContext(), Config({}), NoTopics(), _no_member_id)


def transaction_machine() -> TransactionShard:
    """A transaction shard to replay a partition of `__transaction_state` into."""
    services = Services(Config({}), NoTopics(), _no_producer_id, _NoMarkers(), lambda: TRANSACTION_VERSION)
    return TransactionShard(ReplayContext(), services)
