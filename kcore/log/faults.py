"""A log engine with injected failures, for tests of components that use a log.

    engine = FaultInjectingEngine(MemoryLogEngine())
    engine.fail_commit(3, FailureReason.DISK_FULL)   # the third commit from now on fails, the fourth works again
    engine.crash_commit(5, after=True)               # the fifth becomes durable, then the process "dies"

Commits fail in `write`, so a driver that calls `seal`, `write` and `finish` instead of `commit` gets the same failures.
"""

from __future__ import annotations

from collections.abc import Callable

from kcore.log.errors import FailureReason, LogClosedError, LogError
from kcore.log.interface import EngineStats, Finding, LogEngine, PartitionKey, PartitionLog
from kcore.log.write_set import WriteSet


class SimulatedCrashError(BaseException):
    """A simulated death of the process. It is not an `Exception`, so that no handler continues after it."""


class FaultInjectingEngine(LogEngine):
    """A wrapper that passes every call to `inner`, except for the injected failures.

    After a crash `inner` is closed without finishing the write set, as if the process had ended. Open a new engine on
    the same folder (or the same MemoryStorage) to see the surviving state.
    """

    __slots__ = ("_crashes", "_failures", "_reclaim_failures", "commit_count", "durability", "inner", "node_epoch")

    def __init__(self, inner: LogEngine) -> None:
        self.inner = inner
        self.durability = inner.durability
        self.node_epoch = inner.node_epoch
        self.commit_count = 0
        """The number of commits so far, including failed ones."""
        self._failures: dict[int, FailureReason] = {}
        self._crashes: dict[int, bool] = {}
        self._reclaim_failures = 0

    @property
    def name(self) -> str:
        """Implements `LogEngine.name`."""
        return self.inner.name

    def fail_commit(self, nth: int = 1, reason: FailureReason = FailureReason.INJECTED) -> None:
        """Makes the `nth` commit from now on (1: the next one) fail with `reason`. The failed commit stores nothing."""
        self._failures[self.commit_count + nth] = reason

    def crash_commit(self, nth: int = 1, after: bool = False) -> None:
        """Simulates a crash in the `nth` commit from now on: before the commit is durable, or after it if `after` is
        True.
        """
        self._crashes[self.commit_count + nth] = after

    def fail_reclaim(self, count: int = 1) -> None:
        """Makes the next `count` calls of `reclaim` fail."""
        self._reclaim_failures = count

    def write(self, write_set: WriteSet) -> None:
        """Implements `LogEngine.write`; raises the failure that was injected for this commit."""
        self.commit_count += 1
        reason = self._failures.pop(self.commit_count, None)
        if reason is not None:
            raise LogError(f"injected: {reason.value}", reason)
        crash = self._crashes.pop(self.commit_count, None)
        if crash is None:
            self.inner.write(write_set)
            return
        if crash:
            self.inner.write(write_set)
        self.inner.close()
        raise SimulatedCrashError(f"commit {self.commit_count}, {'after' if crash else 'before'} it was durable")

    @property
    def uncertain(self) -> bool:
        """Implements `LogEngine.uncertain`."""
        return self.inner.uncertain

    def recover(self) -> None:
        """Implements `LogEngine.recover`."""
        self.inner.recover()

    def commit(self) -> None:
        """Implements `LogEngine.commit`."""
        if not self.inner.dirty:
            self.inner.commit()
            return
        sealed = self.inner.seal()
        try:
            self.write(sealed)
            self.inner.finish(sealed)
        except (LogClosedError, SimulatedCrashError):
            raise
        except BaseException as error:
            # An interrupt may also come between `write` and `finish`: the write set is durable then, and `fail` makes
            # it visible.
            self.inner.fail(sealed, error)
            raise

    def reclaim(self, max_batches: int) -> bool:
        """Implements `LogEngine.reclaim`."""
        if self._reclaim_failures:
            self._reclaim_failures -= 1
            raise LogError("injected: reclaim", FailureReason.INJECTED)
        return self.inner.reclaim(max_batches)

    def permit_recreation(self, permitted: bool) -> None:
        """Implements `LogEngine.permit_recreation`."""
        self.inner.permit_recreation(permitted)

    def open(self, key: PartitionKey, log_start_offset: int = 0) -> PartitionLog:
        """Implements `LogEngine.open`."""
        return self.inner.open(key, log_start_offset)

    def get(self, key: PartitionKey) -> PartitionLog | None:
        """Implements `LogEngine.get`."""
        return self.inner.get(key)

    def partitions(self) -> list[PartitionKey]:
        """Implements `LogEngine.partitions`."""
        return self.inner.partitions()

    def drop(self, key: PartitionKey) -> None:
        """Implements `LogEngine.drop`."""
        self.inner.drop(key)

    @property
    def dirty(self) -> bool:
        """Implements `LogEngine.dirty`."""
        return self.inner.dirty

    def seal(self) -> WriteSet:
        """Implements `LogEngine.seal`."""
        return self.inner.seal()

    def finish(self, write_set: WriteSet) -> None:
        """Implements `LogEngine.finish`."""
        self.inner.finish(write_set)

    def fail(self, write_set: WriteSet, error: BaseException) -> None:
        """Implements `LogEngine.fail`."""
        self.inner.fail(write_set, error)

    def rollback(self) -> None:
        """Implements `LogEngine.rollback`."""
        self.inner.rollback()

    def get_meta(self, name: str) -> bytes | None:
        """Implements `LogEngine.get_meta`."""
        return self.inner.get_meta(name)

    def put_meta(self, name: str, value: bytes | None) -> None:
        """Implements `LogEngine.put_meta`."""
        self.inner.put_meta(name, value)

    def meta_names(self, prefix: str = "") -> list[str]:
        """Implements `LogEngine.meta_names`."""
        return self.inner.meta_names(prefix)

    def verify(self, deep: bool = False) -> list[Finding]:
        """Implements `LogEngine.verify`."""
        return self.inner.verify(deep)

    def move_beside(self, start: Callable[[Callable[[], None]], bool] | None) -> None:
        """Implements `LogEngine.move_beside`."""
        self.inner.move_beside(start)

    def sync(self) -> None:
        """Implements `LogEngine.sync`."""
        self.inner.sync()

    def stats(self) -> EngineStats:
        """Implements `LogEngine.stats`."""
        return self.inner.stats()

    def close(self) -> None:
        """Implements `LogEngine.close`."""
        self.inner.close()
