# Made by tools/generate_sync.py from _async/consumer.py: change that file, then run the program.
"""Consumers: members of groups that fetch records ahead and return them in order within each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from kcore.client import versions
from kcore.client.aio.broker import Broker
from kcore.client.consumer_coordinator.interface import Assigned, MemberEvent
from kcore.client.fetching import EARLIEST, LATEST, FetchPosition, FetchPositions, FetchSession, ReadSettings
from kcore.client.malformed import MALFORMED, malformed
from kcore.errors import ConnectionClosedError, KafkaError
from kcore.node._sync.backend import Event, SingleTask, guard, monotonic, now_ms, spawn
from kcore.node._sync.callers import SingleCaller
from kcore.node._sync.calls import Calls, backoff_s
from kcore.node._sync.member import Member
from kcore.node._sync.position_lookup import PositionLookup, stand_in
from kcore.node.arguments import check_count, check_wait
from kcore.node.interceptors import ConsumerInterceptor, intercept, notify
from kcore.node.requests import MAX_DECOMPRESSED_BYTES, read_fetched, to_position
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
from kcore.protocol.error_codes import ErrorCode

T = TypeVar("T")

MAX_BYTES = 50 << 20
PARTITION_BYTES = 1 << 20
WAIT_MS = 500
CLOSE_SESSION_S = 1.0
MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors of a Fetch after which the consumer looks up the leader again. The position does not change."""
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Consumer:
    """A member of a group that reads the records of its partitions: `for record in group.consume(["jobs"])`.

    A record counts as processed when the program requests the next record. Partitions move only while the program waits
    for records. So no other member receives a record that is being processed, unless this member is fenced.

    Only one task or thread at a time may poll the consumer. Others may commit, pause, seek and close it meanwhile.

    The consumer joins its group at the first call of `poll`, or at the first step of a loop.

    Args:
        calls: the node's requests.
        member: a new member of the group, not started yet.
        positions: the positions that the member commits.
        read_settings: the isolation, the reset policy and the limits.
        interceptors: called with records before the program sees them, and with the offsets of successful commits.
    """

    member: Member
    """The consumer's member of the group, with its state, epoch and id. The program need not poll the member."""

    def __init__(
        self,
        calls: Calls,
        member: Member,
        positions: FetchPositions,
        read_settings: ReadSettings,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> None:
        self._described = f"a consumer of group {member._machine.settings.group_id!r}"
        self._calls = calls
        self.member = member
        self._positions = positions
        self._isolation = read_settings.isolation
        self._reset = read_settings.reset
        self._max_records = read_settings.max_records
        self._rack = read_settings.rack
        self._guard = guard()
        self._wakeup = Event()
        self._arrived = Event()
        self._sessions: dict[Broker, FetchSession] = {}
        self._in_flight: set[Broker] = set()
        self._error: Exception | None = None
        self._started = False
        self._fetching = SingleTask(self._fetch_loop)
        self._closed = False
        self._attempts = 0
        self._polling = SingleCaller(f"the consumer of group {member._machine.settings.group_id!r} is polled")
        member._polls = False
        member._internal = self._follow_assignment
        member._on_failed = self._arrived.set
        self._machine = member._machine
        self._lookup = PositionLookup(
            calls, self._machine, positions, read_settings, self._guard, self._fail_if_open, self._wakeup.set
        )
        self._interceptors = interceptors
        if interceptors:
            self._machine.on_committed = self._committed

    def __enter__(self) -> Consumer:
        try:
            self._start()
            self.member.start(timeout=0)
        except BaseException:  # for example a KeyboardInterrupt: `__exit__` will not be called
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self._mark_consumed()
        self.close()

    def __iter__(self) -> Iterator[Record]:
        return self._records()

    def _records(self) -> Iterator[Record]:
        """Yields records until the consumer is closed. Leaves the group at the end if the loop started the consumer."""
        owns = not self._started
        self._start()
        try:
            self.member.start(timeout=0)
            cursor = self._positions.cursor
            while cursor or self._poll_for_loop():
                for record in cursor:
                    yield record
        finally:
            if owns:
                self.close()

    def _poll_for_loop(self) -> bool:
        """Waits until the loop has records to yield; returns False once the consumer is closed."""
        arrived = self._poll(None, self._max_records, self._positions.take_for_loop)
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
        self.member._require_open()
        if not self._started:
            self._calls.add_resource(self)
            self._fetching.start()
            self._started = True

    def close(self) -> None:
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
            self.member.close()
        finally:  # also if the caller is cancelled
            self._closed = True
            self._wakeup.set()
            self._arrived.set()
        self._close_sessions()
        self._calls.transport.close_channel(self._channel)

    @property
    def _channel(self) -> str:
        return f"fetch-{self.member._channel}"

    # ---- records

    def poll(self, timeout: float = 0.0, max_records: int | None = None) -> list[Record]:
        """Returns the next records. The records that the previous call returned now count as processed.

        Args:
            timeout: the time in seconds to wait for a record.
            max_records: the largest number of records; None: the consumer's `max_records`.

        Returns:
            Records of one or more partitions, in order within each; empty if none arrived in time.

        Raises:
            OffsetOutOfRangeError: reset is "none", and a partition does not have the consumer's position.
            KafkaError: the coordinator or a broker refused the consumer.
            MemberClosedError: the consumer is closed.
            ConcurrentCallError: another task or thread polls the consumer.
            KcoreError: the consumer was not started.
        """
        self.member._require_started()
        check_wait("timeout", timeout)
        if max_records is not None:
            check_count("max_records", max_records)
        limit = self._max_records if max_records is None else max_records
        records = list(self._poll(timeout, limit, self._positions.take_records) or ())
        if not records and self._closed:
            self.member._require_open()
        return self._intercept(records) if records and self._interceptors else records

    def _mark_consumed(self) -> None:
        with self._guard:
            self._positions.mark_consumed()

    def _poll(self, timeout: float | None, max_records: int, take: Callable[[int], T]) -> T | None:
        """Waits until `take` returns records, or the consumer is closed; returns None after the timeout."""
        with self._polling:
            return self._await_records(timeout, max_records, take)

    def _await_records(self, timeout: float | None, max_records: int, take: Callable[[int], T]) -> T | None:
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
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                with self.member._guard:
                    stable = not self._rebalances()
                    if stable:
                        self.member._note_membership()  # before the records are taken: the membership may end meanwhile
                if stable:
                    with self._guard:
                        records = take(max_records)
                    if records or self._closed:
                        self._wakeup.set()
                        return records
                    self.member._require_alive()
                left_s = None if until_s is None else until_s - monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                # The member does not set `_arrived` at every change, so the wait has a limit.
                self._arrived.wait(0.05 if self._rebalances() else left_s)
        finally:
            self.member._polls = False
            with self.member._guard:
                self._machine.may_rebalance = False

    def _rebalances(self) -> bool:
        """Returns True during a rebalance. The consumer returns no records until the member's events are handled."""
        return self._machine.event is not None or bool(self._machine.revoking)

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
        self._wakeup.set()
        self._arrived.set()

    # ---- positions

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that the consumer owns, sorted."""
        return self.member.assignment

    def _position(self, partition: Partition) -> tuple[TopicPartition, FetchPosition]:
        key = as_partition(partition)
        state = self._positions.by_partition.get(key)
        if state is None:
            raise KeyError(f"{key} is not assigned to this consumer")
        return key, state

    def position(self, partition: Partition) -> int | None:
        """Returns the offset of the next record; None if the consumer has not looked it up yet.

        Raises:
            KeyError: the partition is not assigned to the consumer.
        """
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
        if isinstance(offset, datetime):
            self._seek_time((partition,), max(0, to_ms(offset)))
            return
        target = to_position(offset)
        with self._guard:
            key, _ = self._position(partition)
            self._positions.drop_polled([key])
            self._positions.seek(key, target.offset, target.leader_epoch)
        self._wakeup.set()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Continues at the first record of partitions. The next poll looks up the offset of this record.

        Args:
            partitions: assigned partitions; without arguments, all assigned partitions.

        Raises:
            KeyError: a partition is not assigned to the consumer.
        """
        self._seek_time(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Continues after the last record of partitions. The next poll looks up the end offset.

        Args:
            partitions: assigned partitions; without arguments, all assigned partitions.

        Raises:
            KeyError: a partition is not assigned to the consumer.
        """
        self._seek_time(partitions, LATEST)

    def _seek_time(self, partitions: Sequence[Partition], timestamp: int) -> None:
        with self._guard:
            keys = [self._position(each)[0] for each in partitions or list(self._positions.by_partition)]
            self._positions.drop_polled(keys)
            for key in keys:
                self._positions.seek_time(key, timestamp)
        self._wakeup.set()

    def pause(self, *partitions: Partition) -> None:
        """Pauses partitions: `consumer.pause(("jobs", 0), ("jobs", 1))`.

        The consumer returns no records of these partitions until `resume`. The member keeps the partitions.
        """
        with self._guard:
            for partition in partitions:
                self._position(partition)[1].paused = True

    def resume(self, *partitions: Partition) -> None:
        """Ends the pause of partitions."""
        with self._guard:
            for partition in partitions:
                self._position(partition)[1].paused = False
        self._wakeup.set()
        self._arrived.set()

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        with self._guard:
            return {key for key, state in self._positions.by_partition.items() if state.paused}

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets; None: the offsets after all records that the consumer returned before this call.

        Raises:
            CommitFailedError: the member has left the group, or was fenced since the last poll: call `poll` again,
                which returns the records after the committed offsets.
            KafkaError, PartitionErrors: the coordinator refused offsets.
        """
        self.member.commit(self.positions() if offsets is None else offsets)

    def positions(self) -> PartitionDict[OffsetAndMetadata]:
        """Returns the offsets that `commit()` would commit, for example to commit them in a transaction.

        All records that the consumer returned before this call count as processed. The offsets skip transaction markers
        and aborted records. The result leaves out partitions in which the position has not moved.
        """
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

    # ---- fetching

    def _fetch_loop(self) -> None:
        while not self._closed:
            try:
                self._lookup.begin()
                pause_s = self._send_fetches()
            except (KafkaError, ConnectionClosedError, TimeoutError) as error:
                if isinstance(error, KafkaError) and not error.retriable:
                    self._fail(error)
                pause_s = backoff_s(self._attempts)
                self._attempts += 1
            except Exception as error:  # the loop must not end: the next poll raises the error
                self._fail(error)
                pause_s = backoff_s(self._attempts)
                self._attempts += 1
            else:
                self._attempts = 0
            self._wakeup.wait(pause_s)
            self._wakeup.clear()

    def _fail_if_open(self, error: Exception) -> None:
        if not self._closed:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._arrived.set()

    def _send_fetches(self) -> float | None:
        """Starts a Fetch to each broker that has responded to its last Fetch.

        Returns the seconds until the next attempt; None to wait for a change.
        """
        at_ms = now_ms()
        with self._guard:
            positions = self._positions.to_fetch(at_ms)
            positions = {key: offset for key, offset in positions.items() if self._machine.fetchable(key)}
        if positions:
            for broker, partitions in self._lookup.by_leader(list(positions)):
                with self._guard:
                    moved = self._positions.begin_validation(partitions, self._calls.transport.leader_epoch)
                if moved:
                    self._lookup.validate(broker, moved)
                fetched = {key: positions[key] for key in partitions if key not in moved}
                if fetched and broker not in self._in_flight:
                    self._begin_fetch(broker, fetched)
        with self._guard:
            not_before_ms = [state.not_before_ms for state in self._positions.by_partition.values()]
        deadlines_ms = [deadline_ms for deadline_ms in not_before_ms if deadline_ms > at_ms]
        if deadlines_ms:
            return max(0.001, (min(deadlines_ms) - at_ms) / 1000)
        return 0.05 if self._rebalances() else None

    def _begin_fetch(self, broker: Broker, positions: dict[TopicPartition, int]) -> None:
        self._in_flight.add(broker)
        try:
            spawn(self._fetch, broker, positions)
        except BaseException:
            self._in_flight.discard(broker)
            raise

    def _fetch(self, broker: Broker, positions: dict[TopicPartition, int]) -> None:
        session = self._sessions.setdefault(broker, FetchSession())
        try:
            request = session.request(
                positions,
                committed=self._isolation == "read_committed",
                max_bytes=MAX_BYTES,
                partition_bytes=PARTITION_BYTES,
                min_bytes=1,
                wait_ms=WAIT_MS,
                rack=self._rack,
                epoch_of=self._calls.transport.leader_epoch,
            )
            with self._guard:
                states = self._positions.by_partition
                sent = {key: (offset, states[key].version) for key, offset in positions.items() if key in states}
            response = self._calls.transport.fetch(
                request, at_most=versions.FETCH, broker=broker, channel=self._channel
            )
            try:
                self._store(session, response, sent)
            except MALFORMED as error:
                raise malformed(broker, request, error) from error
        except Exception as error:
            session.failed()
            self._lookup.pause(positions)
            if not isinstance(error, ConnectionClosedError | TimeoutError) and not self._closed:
                self._fail(error)
        finally:
            self._in_flight.discard(broker)
            self._wakeup.set()
            self._arrived.set()

    def _close_sessions(self) -> None:
        """Requests that the brokers free the fetch sessions.

        A broker that does not respond within a second frees its session later. If two tasks or threads close the
        consumer, only the first one sends the requests.
        """
        with self._guard:
            sessions, self._sessions = self._sessions, {}
        for broker, session in sessions.items():
            request = session.close_request(MAX_BYTES)
            if request is None:
                continue
            # A Fetch in flight delays the other responses on its connection.
            channel = self.member._channel if broker in self._in_flight else self._channel
            with suppress(KafkaError, ConnectionClosedError, TimeoutError):
                self._calls.transport.send(
                    request, at_most=versions.FETCH, broker=broker, channel=channel, timeout_s=CLOSE_SESSION_S
                )

    def _store(self, session: FetchSession, response: Any, sent: dict[TopicPartition, tuple[int, int]]) -> None:
        if response.error_code:
            if response.error_code not in SESSION_ERRORS:
                raise KafkaError.of(response.error_code)
            session.reset()
            return
        session.succeeded(response.session_id)
        committed = self._isolation == "read_committed"
        room_bytes = MAX_DECOMPRESSED_BYTES
        for topic in response.responses:
            for row in topic.partitions:
                key = TopicPartition(topic.topic, row.partition_index)
                if key not in sent:
                    session.reset()
                    continue
                offset, version = sent[key]
                if row.error_code:
                    session.resend(key)
                    self._refused(key, offset, version, row.error_code)
                    continue
                if room_bytes <= 0:
                    continue  # its position does not change, so the next response has its records again
                records = read_fetched(key, row, offset, committed, room_bytes)
                room_bytes -= records.decompressed_bytes
                with self._guard:
                    self._positions.store(key, version, offset, records)

    def _refused(self, key: TopicPartition, offset: int, version: int, code: int) -> None:
        """Resets the position, looks up the leader again, or stores an error, depending on a partition's error code."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reset != "none":
            with self._guard:
                state = self._positions.by_partition.get(key)
                if state is not None and state.version == version:
                    self._positions.seek(key, None)
            return
        self._lookup.pause([key])
        if code in MOVED:
            self._calls.transport.forget(stand_in(key))
        else:
            self._fail(KafkaError.of(code, f"at offset {offset}", [key]))
