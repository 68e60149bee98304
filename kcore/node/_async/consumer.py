"""Consumers: members of groups that fetch records ahead and return them in order within each partition."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from kcore.client.consumer_coordinator.interface import Assigned, MemberEvent
from kcore.client.fetching import EARLIEST, LATEST, FetchPosition, FetchPositions, ReadSettings
from kcore.errors import KcoreError
from kcore.node._async.backend import Event, guard, monotonic, now_ms
from kcore.node._async.callers import SingleCaller
from kcore.node._async.calls import AsyncCalls
from kcore.node._async.fetcher import AsyncFetcher
from kcore.node._async.member import AsyncMember
from kcore.node.arguments import check_count, check_wait
from kcore.node.interceptors import ConsumerInterceptor, intercept, notify
from kcore.node.requests import to_position
from kcore.node.types import (
    GroupMetadata,
    OffsetAndMetadata,
    Offsets,
    Partition,
    PartitionDict,
    Record,
    TopicPartition,
    as_partition,
    to_ms,
)

T = TypeVar("T")


class AsyncConsumer:
    """A member of a group that reads the records of its partitions: `async for record in group.consume(["jobs"])`.

    A record counts as processed when the program requests the next record. Partitions move only while the program waits
    for records. So no other member receives a record that is being processed, unless this member is fenced.

    Only one task or thread at a time may poll the consumer. Others may commit, pause, seek and close it meanwhile.
    The consumer joins its group at the first call of `poll`, or at the first step of a loop. Before the `with` block or
    the loop, all operations except `close` raise KcoreError. After its end, they raise MemberClosedError.

    Args:
        calls: the node's requests.
        member: a new member of the group, not started yet.
        positions: the positions that the member commits.
        read_settings: the isolation, the reset policy and the limits.
        interceptors: called with records before the program sees them, and with the offsets of successful commits.
    """

    member: AsyncMember
    """The consumer's member of the group, with its state, epoch and id. The program need not poll the member."""

    def __init__(
        self,
        calls: AsyncCalls,
        member: AsyncMember,
        positions: FetchPositions,
        read_settings: ReadSettings,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> None:
        self._calls = calls
        self.member = member
        self._positions = positions
        self._max_records = read_settings.max_records
        self._guard = guard()
        self._arrived = Event()
        self._started = False
        self._closed = False
        self._polling = SingleCaller(f"the consumer of group {member._machine.settings.group_id!r} is polled")
        member._polls = False
        member._internal = self._follow_assignment
        member._on_failed = self._arrived.set
        self._machine = member._machine
        self._fetcher = AsyncFetcher(calls, member, positions, read_settings, self._guard, self._arrived.set)
        self._interceptors = interceptors
        if interceptors:
            self._machine.on_committed = self._committed

    def __repr__(self) -> str:
        return repr(self.member).replace("Member", "Consumer", 1)

    async def __aenter__(self) -> AsyncConsumer:
        try:
            self._start()
            await self.member.start(timeout=0)
        except BaseException:  # for example a KeyboardInterrupt: `__aexit__` will not be called
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self._mark_consumed()
        await self.close()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records()

    async def _records(self) -> AsyncIterator[Record]:
        """Yields records until the consumer is closed. Leaves the group at the end if the loop started the consumer."""
        owns = not self._started
        self._start()
        try:
            await self.member.start(timeout=0)
            cursor = self._positions.cursor
            while cursor or await self._poll_for_loop():
                for record in cursor:
                    yield record
        finally:
            if owns:
                await self.close()

    async def _poll_for_loop(self) -> bool:
        """Waits until the loop has records to yield; returns False once the consumer is closed."""
        arrived = await self._poll(None, self._max_records, self._positions.take_for_loop)
        if arrived and self._interceptors:
            with self._guard:
                records = self._positions.cursor.rest(self._max_records)
            records = self._intercept(records)
            with self._guard:
                self._positions.cursor.load(records)
        return bool(arrived)

    def _intercept(self, records: list[Record]) -> list[Record]:
        return intercept([each.on_consume for each in self._interceptors], records)

    def _committed(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        with self._calls.callbacks.running(self.member):
            notify(partial(each.on_commit, offsets) for each in self._interceptors)

    def _start(self) -> None:
        self._calls.require_owner()
        self.member._require_open()
        if not self._started:
            self._calls.add_resource(self)
            self._fetcher.start()
            self._started = True

    async def close(self) -> None:
        """Leaves the group; with auto-commit, commits the processed records first.

        Raises:
            ReentrantCallError: a listener or callback of the consumer calls `close`, and no other code closes the
                consumer.
        """
        if not self.member._may_close():
            return
        self._calls.resources.pop(self, None)
        with self._guard:
            self._machine.may_rebalance = True
        try:
            await self.member.close()
        finally:  # also if the caller is cancelled
            self._closed = True
            self._fetcher.stop()
            self._arrived.set()
        await self._fetcher.close_sessions()

    # ---- records

    async def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Returns the next records. The records that the previous call returned now count as processed.

        Args:
            timeout: the time in seconds to wait for a record.
            max_records: the largest number of records; None: the consumer's `max_records`.

        Returns:
            Records of one or more partitions, in order within each; empty if none arrived in time.

        Raises:
            OffsetOutOfRangeError: reset is "none", and a partition does not have the consumer's position.
            KafkaError: the coordinator or a broker refused the consumer.
            ConcurrentCallError: another task or thread polls the consumer.
        """
        self._require_usable()
        check_wait("timeout", timeout)
        if max_records is not None:
            check_count("max_records", max_records)
        limit = self._max_records if max_records is None else max_records
        records = list(await self._poll(timeout, limit, self._positions.take_records) or ())
        if not records and self._closed:
            self.member._require_open()
        return self._intercept(records) if records and self._interceptors else records

    def _mark_consumed(self) -> None:
        with self._guard:
            self._positions.mark_consumed()

    async def _poll(self, timeout: float | None, max_records: int, take: Callable[[int], T]) -> T | None:
        """Waits until `take` returns records, or the consumer is closed; returns None after the timeout."""
        with self._polling:
            return await self._await_records(timeout, max_records, take)

    async def _await_records(self, timeout: float | None, max_records: int, take: Callable[[int], T]) -> T | None:
        self._mark_consumed()
        until_s = None if timeout is None else monotonic() + timeout
        self.member._polls = True  # while this call waits, the driver polls the member
        try:
            with self.member._guard:
                self._machine.may_rebalance = True
                at_ms = now_ms()
                self._machine.poll(at_ms)
                wake_ms = self._machine.wake_ms()
            if wake_ms is not None and wake_ms <= at_ms:  # a join or a rebalance that waited for this call
                self.member._stepper.wake()
            while True:
                self._arrived.clear()
                self.member._raise_error()
                self._fetcher.raise_error()
                with self.member._guard:
                    stable = not self._machine.rebalancing
                    if stable:
                        self.member._note_membership()  # before the records are taken: the membership may end meanwhile
                if stable:
                    with self._guard:
                        records = take(max_records)
                    if records or self._closed:
                        self._fetcher.wake()
                        return records
                    self.member._require_alive()
                left_s = None if until_s is None else until_s - monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                # The member does not set `_arrived` at every change, so the wait has a limit.
                await self._arrived.wait(0.05 if self._machine.rebalancing else left_s)
        finally:
            self.member._polls = False
            with self.member._guard:
                self._machine.may_rebalance = False

    def _follow_assignment(self, event: MemberEvent, before: bool) -> None:
        """Updates the partitions that the consumer fetches, for a change of the member's assignment.

        It is called twice for each event. The first call adds newly assigned partitions. The second call, after the
        user's listener, removes revoked and lost partitions.

        Args:
            event: the change of the assignment.
            before: True in the first call; False in the second call.
        """
        with self._guard:
            if isinstance(event, Assigned):
                if before:
                    self._positions.assign(event.partitions)
            elif not before:
                self._positions.drop_polled(event.partitions)
                self._positions.remove(event.partitions)
        self._fetcher.wake()
        self._arrived.set()

    # ---- positions

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that the consumer owns, sorted."""
        return self.member.assignment

    def _require_usable(self) -> None:
        """Refuses operations before the start, after the end, and on another event loop."""
        self._calls.require_owner()
        if self._closed:
            self.member._require_open()
        if not self._started:
            raise KcoreError("the consumer was not started: use it in a `with` block, or loop over its records")

    def _position(self, partition: Partition) -> tuple[TopicPartition, FetchPosition]:
        key = as_partition(partition)
        state = self._positions.by_partition.get(key)
        if state is None:
            raise KeyError(f"{key} is not assigned to this consumer")
        return key, state

    def position(self, partition: Partition) -> int | None:
        """Returns the offset of the next record; None if the consumer has not looked it up yet.

        Raises KeyError if the partition is not assigned to the consumer.
        """
        self._require_usable()
        with self._guard:
            key = as_partition(partition)
            if key not in self._positions.by_partition and key in self._machine.assignment:
                return None  # its `Assigned` event is not handled yet
            _, state = self._position(key)
            return state.buffer.next_offset if state.buffer else state.fetch

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata | datetime) -> None:
        """Continues at another offset.

        Args:
            partition: an assigned partition.
            offset: the offset of the next record. If it is an `OffsetAndMetadata` with a leader epoch, the leader first
                validates it. If the leader's log lacks the record before the offset, the position moves to the first
                offset at which the logs differ; with reset "none", the next poll raises `LogTruncationError` instead.
                If it is a datetime, the next poll looks up the first record at or after this time. If there is no such
                record, the consumer continues at the end of the partition.

        Raises:
            KeyError: the partition is not assigned to the consumer.
            TypeError: `offset` has another type.
            ValueError: the offset is negative.
        """
        self._require_usable()
        if isinstance(offset, datetime):
            self._seek_time((partition,), max(0, to_ms(offset)))
            return
        target = to_position(offset)
        with self._guard:
            key, _ = self._position(partition)
            self._positions.drop_polled([key])
            self._positions.seek(key, target.offset, target.leader_epoch)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continues at the first record of partitions. The next poll looks up the offset of this record.

        Args:
            partitions: assigned partitions; without arguments, all assigned partitions.

        Raises:
            KeyError: a partition is not assigned to the consumer.
        """
        self._require_usable()
        self._seek_time(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Continues after the last record of partitions. The next poll looks up the end offset.

        Args:
            partitions: assigned partitions; without arguments, all assigned partitions.

        Raises:
            KeyError: a partition is not assigned to the consumer.
        """
        self._require_usable()
        self._seek_time(partitions, LATEST)

    def _seek_time(self, partitions: Sequence[Partition], timestamp: int) -> None:
        with self._guard:
            keys = [self._position(each)[0] for each in partitions or list(self._positions.by_partition)]
            self._positions.drop_polled(keys)
            for key in keys:
                self._positions.seek_time(key, timestamp)
        self._fetcher.wake()

    def pause(self, *partitions: Partition) -> None:
        """Pauses partitions: `consumer.pause(("jobs", 0), ("jobs", 1))`.

        The consumer returns no records of these partitions until `resume`. The member keeps the partitions.
        """
        self._require_usable()
        with self._guard:
            for partition in partitions:
                self._position(partition)[1].paused = True

    def resume(self, *partitions: Partition) -> None:
        """Ends the pause of partitions."""
        self._require_usable()
        with self._guard:
            for partition in partitions:
                self._position(partition)[1].paused = False
        self._fetcher.wake()
        self._arrived.set()

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        self._require_usable()
        with self._guard:
            return {key for key, state in self._positions.by_partition.items() if state.paused}

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets; None: the offsets after all records that the consumer returned before this call.

        Raises:
            CommitFailedError: the member has left the group, or was fenced since the last poll: call `poll` again,
                which returns the records after the committed offsets.
            KafkaError, PartitionErrors: the coordinator refused offsets.
        """
        await self.member.commit(self.positions() if offsets is None else offsets)

    def positions(self) -> PartitionDict[OffsetAndMetadata]:
        """Returns the offsets that `commit()` would commit, for example to commit them in a transaction.

        All records that the consumer returned before this call count as processed. The offsets skip transaction markers
        and aborted records. The result leaves out partitions in which the position has not moved.
        """
        self._require_usable()
        self._mark_consumed()
        with self._guard:
            return PartitionDict(self._positions.consumed())

    @property
    def group_metadata(self) -> GroupMetadata:
        """The group id, member id, epoch and instance id with which a transaction commits offsets.

        The values describe the membership at the last poll; see `Member.group_metadata`.

        Raises:
            CommitFailedError: the consumer has not joined the group yet.
        """
        return self.member.group_metadata

    def _metadata_for(self, partitions: Iterable[Partition]) -> GroupMetadata:
        return self.member._metadata_for(partitions)
