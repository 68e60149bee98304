"""The data folder of partitions, and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from kcore.log.interface import PartitionKey

if TYPE_CHECKING:
    from kcore.log.interface import LogEngine


class LogDirs(Protocol):
    """The node's data folder, as needed by DescribeLogDirs."""

    @property
    def path(self) -> str:
        """The folder's absolute path."""
        ...

    def size_bytes(self, topic_id: bytes, partition: int) -> int | None:
        """Returns the size of a partition's log; None if this node does not have it."""
        ...

    def index_steps(self, topic_id: bytes, partition: int) -> Iterator[int]:
        """Prepares `size_bytes`; yields the cost of each step in microseconds, if the log is long."""
        ...

    def volume_bytes(self) -> tuple[int, int]:
        """Returns the total and free bytes of the folder's volume; (-1, -1) if they are unknown."""
        ...


def unknown_volume() -> tuple[int, int]:
    """Returns the sizes for a log in memory, which has no volume."""
    return -1, -1


class EngineLogDirs:
    """The folder of a log engine.

    Args:
        engine: the log engine, which contains the logs.
        path: the engine's folder.
        volume_bytes: returns the volume's total and free bytes.
    """

    __slots__ = ("_engine", "_volume_bytes", "path")

    def __init__(
        self, engine: LogEngine, path: str, volume_bytes: Callable[[], tuple[int, int]] = unknown_volume
    ) -> None:
        self._engine = engine
        self._volume_bytes = volume_bytes
        self.path = path

    def size_bytes(self, topic_id: bytes, partition: int) -> int | None:
        """Returns the size of a partition's log; None if the engine does not have it."""
        log = self._engine.get(PartitionKey(topic_id, partition))
        return None if log is None else log.size_bytes()

    def index_steps(self, topic_id: bytes, partition: int) -> Iterator[int]:
        """Prepares `size_bytes`; yields the cost of each step in microseconds, if the log is long."""
        log = self._engine.get(PartitionKey(topic_id, partition))
        return iter(()) if log is None else log.index_steps()

    def volume_bytes(self) -> tuple[int, int]:
        """Returns the volume's total and free bytes."""
        return self._volume_bytes()
