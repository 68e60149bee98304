"""Where partitions are kept, and how large they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kcore.log.interface import PartitionKey

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine


class LogDirs(Protocol):
    """The node's one data folder, as DescribeLogDirs sees it."""

    @property
    def path(self) -> str:
        """The folder's absolute path."""
        ...

    def size_bytes(self, topic_id: bytes, partition: int) -> int | None:
        """How large a partition's log is; None if this node does not hold it."""
        ...

    def volume_bytes(self) -> tuple[int, int]:
        """All bytes of the volume that the folder is on, and those that are free; -1 each if nobody knows."""
        ...


def unknown_volume() -> tuple[int, int]:
    """The volume of a log that is kept in memory."""
    return -1, -1


class EngineLogDirs:
    """The folder of a log engine.

    Args:
        engine: where the logs are.
        path: its folder.
        volume_bytes: asks the system for the volume's bytes: all, free.
    """

    __slots__ = ("_engine", "_volume_bytes", "path")

    def __init__(
        self, engine: LogEngine, path: str, volume_bytes: Callable[[], tuple[int, int]] = unknown_volume
    ) -> None:
        self._engine = engine
        self._volume_bytes = volume_bytes
        self.path = path

    def size_bytes(self, topic_id: bytes, partition: int) -> int | None:
        """How large a partition's log is; None if the engine does not hold it."""
        log = self._engine.get(PartitionKey(topic_id, partition))
        return None if log is None else log.size_bytes()

    def volume_bytes(self) -> tuple[int, int]:
        """All bytes of the volume, and those that are free."""
        return self._volume_bytes()
