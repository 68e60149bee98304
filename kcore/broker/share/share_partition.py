"""A share partition on its leader: the delivery of one partition's records to one share group (KIP-932)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.broker.share.aborted import aborted_ranges
from kcore.broker.share.settings import initial_offset, searches_by_time
from kcore.broker.share.states import TRANSITIONS, SharePartitionState
from kcore.log.batch_header import last_offset
from kcore.process_logging import log_failure, next_step
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.read_share_group_state import PartitionData as ReadPartition
from kcore.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadStateData
from kcore.protocol.messages.write_share_group_state import PartitionData as WritePartition
from kcore.protocol.messages.write_share_group_state import (
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from kcore.runtime.sliced import SLICE_COST_US, step
from kcore.share.batches import batches_of
from kcore.share.persister import when_complete
from kcore_ext.broker.share.share_partition import SharePartitionCore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kcore.broker.data.partition import Partition
    from kcore.broker.share.acknowledgements import AcknowledgementBatch
    from kcore.broker.share.settings import ShareSettings
    from kcore.clock import Now
    from kcore.runtime.sliced import Work
    from kcore.runtime.slices import Slices
    from kcore.share.persister import Persister
    from kcore_ext.broker.share.changes import Change
    from kcore_ext.broker.share.runs import Lock
    from kcore_ext.runtime.purgatory import Purgatory
    from kcore_ext.runtime.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)

FIRST_READ_BYTES: Final = 4_096
"""The size of the first read of the log for a fetch. Each further read is twice as large."""

MAX_READ_BYTES: Final = 65_536
"""The maximum size of one read, unless a single log batch is larger."""

MAX_BATCH_BYTES: Final = 1_048_588
"""The maximum size of a read for a larger log batch: the default of max.message.bytes."""

_UNAVAILABLE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_PASSED_ON: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def client_error(code: int) -> ErrorCode:
    """Translates an error code of the persister to the error code for clients."""
    if code in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in _PASSED_ON or code == ErrorCode.NONE:
        return ErrorCode(code)
    return ErrorCode.UNKNOWN_SERVER_ERROR


class AcquireParams(NamedTuple):
    """The part of a ShareFetch request that every partition needs.

    Attributes:
        member_id: the member that acquires the records.
        batch_size: the size of the ranges into which new records are split.
        record_limit: True if the broker must not acquire more records than requested (KIP-1206).
    """

    member_id: str
    batch_size: int
    record_limit: bool


class ShareServices(Protocol):
    """The components of the node that its share partitions use."""

    @property
    def persister(self) -> Persister:
        """The durable state of share partitions."""
        ...

    @property
    def wheel(self) -> TimerWheel:
        """The node's timers."""
        ...

    @property
    def purgatory(self) -> Purgatory:
        """The container of parked fetches. It finds them by their share partitions, among other keys."""
        ...

    @property
    def now(self) -> Now:
        """The clock, which the driver reads once for each round of requests."""
        ...

    @property
    def counters(self) -> Any:
        """The counters of the node's share groups."""
        ...

    @property
    def slices(self) -> Slices | None:
        """Runs long work in slices; None without an event loop."""
        ...

    def settings_of(self, group_id: str) -> ShareSettings:
        """Returns the current settings of a group."""
        ...

    def progressed(self, share_partition: SharePartition) -> None:
        """Retries the fetches that wait for a share partition."""
        ...

    def load_failed(self, share_partition: SharePartition, error: ErrorCode) -> None:
        """Reports a share partition whose durable state could not be read."""
        ...

    def forget(self, share_partition: SharePartition) -> None:
        """Removes a share partition from the node's table, if it is there."""
        ...

    def drop(self, share_partition: SharePartition) -> None:
        """Fences a share partition and removes it from the node's table, so that the next fetch loads it again."""
        ...


class _LoadReceiver:
    """The receiver of a share partition's durable state.

    If an exception interrupts the load, the receiver ends the load with an error. The destructor also ends the load
    with an error, if the receiver was never called or `__call__` could not end the load.
    """

    __slots__ = ("_ended", "_share_partition")

    def __init__(self, share_partition: SharePartition) -> None:
        self._share_partition = share_partition
        self._ended = False

    def __call__(self, response: Any) -> None:
        try:
            self._share_partition.loaded(response)
        except BaseException:
            self._share_partition.load_interrupted()
            self._ended = True
            raise
        self._ended = True

    def __del__(self) -> None:
        if not self._ended:
            self._share_partition.load_interrupted()


class SharePartition(SharePartitionCore):
    """The delivery state of one partition for one share group. It is only in memory; the persister has the durable
    part.

    `SharePartitionCore`, the compiled base, has the state of each offset, and acquires records.

    Args:
        group_id: the share group.
        partition: the partition whose records are delivered.
        services: the components of the node that this object uses.

    Attributes:
        group_id: the share group.
        partition: the partition whose records are delivered.
        state: only an ACTIVE share partition delivers records.
        error: the error code for fetches, if its state is FAILED or FENCED.
    """

    __slots__ = ()

    def __init__(self, group_id: str, partition: Partition, services: ShareServices) -> None:
        super().__init__(group_id, partition, services, SharePartitionState.EMPTY, ErrorCode.NONE)

    def __repr__(self) -> str:
        return f"{self.group_id}:{self.partition!r}"

    @property
    def settings(self) -> ShareSettings:
        """The group's current settings."""
        return self._services.settings_of(self.group_id)

    def _transition(self, state: SharePartitionState) -> None:
        assert state in TRANSITIONS[self.state], f"share partition {self!r}: {self.state} -> {state}"
        self.state = state

    # ---- life

    def load(self) -> None:
        """Starts to read the durable state; waiting fetches are retried once it is loaded."""
        receiver = _LoadReceiver(self)
        self._transition(SharePartitionState.INITIALIZING)
        try:
            when_complete(self._services.persister.read(self._read_request()), receiver)
        except BaseException:
            self.load_interrupted()
            raise

    def _read_request(self) -> ReadShareGroupStateRequest:
        partition = self.partition
        data = ReadPartition(partition=partition.index, leader_epoch=partition.leader_epoch)
        return ReadShareGroupStateRequest(
            group_id=self.group_id, topics=[ReadStateData(topic_id=partition.topic_id, partitions=[data])]
        )

    def load_interrupted(self) -> None:
        """Ends a load whose result was lost, because later fetches would wait for the result forever.

        The method may be called again.
        """
        if self.state is SharePartitionState.INITIALIZING:
            self._fail_load(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._services.progressed(self)

    def _fail_load(self, error: ErrorCode) -> None:
        # The state changes last: if an exception interrupts this function, a repetition finds the load unfinished.
        self._services.forget(self)
        self.error = error
        self._transition(SharePartitionState.FAILED)

    def loaded(self, response: Any) -> None:
        """Receives the durable state, and ends the load. If the state has no start offset, first searches for it."""
        if self.state is not SharePartitionState.INITIALIZING:
            return
        if response.results:
            result = response.results[0].partitions[0]
            stored_error = ErrorCode(result.error_code)
        else:
            result, stored_error = None, ErrorCode.INVALID_REQUEST  # the share coordinator has no empty group id
        search = initial_offset(self.partition, self.settings.reset, self._services.now.wall_ms)
        slices = self._services.slices
        if stored_error or result.start_offset != -1 or slices is None or not searches_by_time(self.settings.reset):
            self._end_load(result, stored_error, lambda: step(search, -1)[1])
        else:
            slices.add(self._search(result, search), self)

    def _search(self, result: Any, search: Work) -> Iterator[None]:
        """Searches for the start offset in slices and then ends the load, unless the load has already ended."""
        try:
            while True:
                if self.state is not SharePartitionState.INITIALIZING:
                    return
                done, offset = step(search, SLICE_COST_US)
                if done:
                    break
                yield
            start: int | None = offset
            self._end_load(result, ErrorCode.NONE, lambda: start)
        except GeneratorExit:
            raise
        except BaseException:
            self.load_interrupted()
            raise

    def _end_load(self, result: Any, stored_error: ErrorCode, find_start: Callable[[], int | None]) -> None:
        """Ends the load: applies the durable state, or stores an error if the state cannot be used.

        Args:
            result: the durable state; None if there is none.
            stored_error: the error code of the share coordinator.
            find_start: returns the start offset by the reset policy; None if the policy gives none yet.
        """
        code = client_error(stored_error)
        if code is ErrorCode.NONE:
            try:
                code = self._restore(result, find_start)
            except Exception as error:
                # Without a final state, later fetches would wait for this load forever.
                log_failure(
                    logger,
                    error,
                    "share partition %r: an internal error while applying the stored state; a later fetch loads the "
                    "state again%s",
                    self,
                    next_step(error),
                )
                code = ErrorCode.UNKNOWN_SERVER_ERROR
        if code is not ErrorCode.NONE:
            if stored_error:
                self._services.load_failed(self, stored_error)
            self._fail_load(code)
        else:
            self._transition(SharePartitionState.ACTIVE)
        self._services.progressed(self)

    def _restore(self, result: Any, find_start: Callable[[], int | None]) -> ErrorCode:
        """Takes over the stored state; returns OFFSET_NOT_AVAILABLE if the reset policy gives no start offset yet.

        Raises:
            ValueError: the stored state is invalid.
        """
        start_offset: int = result.start_offset
        if start_offset == -1:
            initial = find_start()
            if initial is None:
                return ErrorCode.OFFSET_NOT_AVAILABLE
            start_offset = initial
        self.reset(start_offset, batches_of(result.state_batches))
        self._state_epoch = result.state_epoch
        self.writer = self._services.persister.writer(self.group_id, self.partition.topic_id, self.partition.index)
        return ErrorCode.NONE

    def fence(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stops serving the share partition: ends its locks, and completes waiting fetches with the error."""
        if self.state is SharePartitionState.FENCED:
            return
        self._transition(SharePartitionState.FENCED)
        self.error = error
        self.drop_locks()
        self._services.progressed(self)

    def _drop_after(self, error: Exception) -> None:
        """Drops the share partition after an internal error, because the error may have interrupted a change of its
        state.

        The next fetch loads the share partition again. This method must not raise, because responses would then wait
        forever.
        """
        self.interrupted = True  # if there is no memory to drop it now, the next request does so
        try:  # noqa: SIM105 - `suppress` would need memory
            log_failure(
                logger,
                error,
                "share partition %r: an internal error; the next fetch loads the share partition's state again%s",
                self,
                next_step(error),
            )
        except Exception:
            pass  # no memory for a line of the log
        try:  # noqa: SIM105 - `suppress` would need memory
            self._services.drop(self)
        except Exception:
            pass  # the next request drops it

    # ---- fetching

    def available_bytes(self, most: int) -> int:
        """Returns the size of the log batches that contain or follow the next record to deliver.

        The method reads about `most` bytes or fewer. If more batches follow, the result is at least `most`.
        """
        settings = self.settings
        offset, end = self.next_fetch_offset(), self.readable_end(settings)
        if offset >= end or not self.can_acquire(settings.max_locks):
            return 0
        batches = self.partition.read(max(offset, self.partition.log_start_offset), most, end)
        size = sum(map(len, batches))
        return size if not batches or _end_offset(batches[-1]) >= end else max(size, most)

    def _read_more(
        self, batches: list[bytes], size: int, offset: int, end: int, max_records: int, max_bytes: int
    ) -> None:
        """Extends the first read of a fetch until the batches have enough records to acquire."""
        partition = self.partition
        part = FIRST_READ_BYTES
        while size < max_bytes:
            behind = _end_offset(batches[-1])
            if behind >= end or self.acquirable(offset, behind - 1) >= max_records:
                return
            part = min(2 * part, MAX_READ_BYTES)
            more = partition.read(behind, min(max_bytes - size, part), end, at_least_one=False)
            if not more and part < max_bytes - size:  # the next log batch is larger
                more = partition.read(behind, min(max_bytes - size, MAX_BATCH_BYTES), end, at_least_one=False)
            if not more:
                return
            batches += more
            size += sum(map(len, more))

    def _aborted(self, batches: list[bytes], offset: int) -> list[tuple[int, int]]:
        """Returns the ranges of aborted batches among the batches that a fetch has read."""
        return aborted_ranges(self.partition, batches, offset, _end_offset(batches[-1]))

    # ---- acknowledging and releasing

    def acknowledge_records(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], done: Callable[[ErrorCode], None]
    ) -> None:
        """Acknowledges records.

        Args:
            member_id: the member that has acquired them.
            batches: the acknowledgements, for which `acknowledgements.valid` has returned True.
            done: called with the error code: when the new state is durable, or immediately if the acknowledgement is
                refused.
        """
        if self.state is not SharePartitionState.ACTIVE:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER if self.error is ErrorCode.NONE else self.error)
            return
        try:
            self._acknowledge(member_id, batches, done)
        except BaseException:
            self.interrupted = True  # the change may never end: the next request loads the state again
            raise

    def _acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], done: Callable[[ErrorCode], None]
    ) -> None:
        settings, services = self.settings, self._services
        try:
            change = self.acknowledge(
                member_id,
                batches,
                services.wheel,
                services.now.now_ms + settings.lock_ms,
                max_deliveries=settings.max_deliveries,
                allow_renew=settings.allow_renew,
            )
        except Exception as error:
            self._drop_after(error)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if isinstance(change, int):
            done(ErrorCode(change))
            return
        services.counters.acknowledged(batches)
        self._write_change(change, done)

    def release_records(self, member_id: str) -> None:
        """Releases all records that a member has acquired: its session has ended."""
        if self.state is not SharePartitionState.ACTIVE:
            return
        try:
            self._write_change(self.release(member_id, self.settings.max_deliveries), _ignore)
        except Exception as error:
            self._drop_after(error)

    def lock_expired(self, lock: Lock) -> None:
        """Releases the records of an expired lock, even if the write of their new state fails."""
        if self.state is not SharePartitionState.ACTIVE:
            return
        try:
            writes = self.expire(lock, self.settings.max_deliveries)
        except Exception as error:
            self._drop_after(error)
            return
        for batches in writes:
            self._services.counters.expired(batches)
            self._write(batches, self._expiry_written)
        if writes:
            self._services.progressed(self)

    def _expiry_written(self, code: int) -> None:
        if code in _FENCED:
            self._services.drop(self)
        elif self.state is SharePartitionState.ACTIVE and self.settle():
            self._services.progressed(self)

    def _write_change(self, change: Change, done: Callable[[ErrorCode], None]) -> None:
        """Writes a change; then applies it, or reverts it if the write failed."""
        if not change.state_batches:
            done(ErrorCode.NONE)
            return
        self._write(change.state_batches, lambda code: self._written(change, done, code))

    def write_again(self, change: Change, done: Callable[[ErrorCode], None]) -> None:
        """Writes a change whose first write was refused or failed.

        If this write fails, the persister repeats it.
        """
        self.write_message(change.state_batches, lambda code: self._written(change, done, code))

    def _written(self, change: Change, done: Callable[[ErrorCode], None], code: int) -> None:
        """Ends a change with the error code of its write.

        After an internal error of the persister, the write may be durable: the next fetch loads the state again.
        """
        moved = available = False
        unknown = code == ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            if unknown:
                self.interrupted = True
            else:
                moved, available = self.finish(change, code == ErrorCode.NONE, self.settings.max_deliveries)
        except Exception as error:
            self._drop_after(error)
        if unknown or code in _FENCED:
            self._services.drop(self)
        done(client_error(code))
        if moved or available:
            self._services.progressed(self)

    def _write(self, batches: list[tuple[int, int, int, int]], done: Callable[[int], None]) -> None:
        """Writes delivery states. Calls `done` with the error code when the write is durable or has failed."""
        partition = self.partition
        written = None
        if self.writer is not None:
            written = self.writer.write(
                self._state_epoch, partition.leader_epoch, self.start_offset, self.complete_count, batches
            )
        if written is None:
            self.write_message(batches, done)
        else:
            written.on_complete(lambda code: self.write_message(batches, done) if code else done(code))

    def write_message(self, batches: list[tuple[int, int, int, int]], done: Callable[[int], None]) -> None:
        """Sends a request to the persister that writes delivery states.

        The persister repeats a failed write only while this `SharePartition` is active. Afterwards, another
        `SharePartition` of the same partition may already have read the state without these changes. Its writes have
        the same leader epoch and can have the same delivery counts, so the persister could not recognize that the
        repeated write is older.

        Args:
            batches: (first offset, last offset, delivery state, delivery count) of each range of offsets.
            done: receives the error code of the write.
        """
        partition = self.partition
        data = WritePartition(
            partition=partition.index,
            state_epoch=self._state_epoch,
            leader_epoch=partition.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.complete_count,
            state_batches=[
                StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        request = WriteShareGroupStateRequest(
            group_id=self.group_id, topics=[WriteStateData(topic_id=partition.topic_id, partitions=[data])]
        )

        def arrived(response: Any) -> None:
            done(response.results[0].partitions[0].error_code)

        def may_repeat() -> bool:
            return self.state is SharePartitionState.ACTIVE

        when_complete(self._services.persister.write(request, may_repeat), arrived)


def _ignore(code: ErrorCode) -> None:
    """Ignores the result of a release, for which no client waits."""


def _end_offset(batch: bytes) -> int:
    """Returns the offset after the last record of a log batch."""
    return last_offset(batch) + 1
