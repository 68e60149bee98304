"""The positions of a consumer: lookups of missing positions, and validation after a change of the leader (KIP-320)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from kcore.client import versions
from kcore.client.aio.broker import Broker
from kcore.client.consumer_coordinator.base import GroupMemberMachine
from kcore.client.fetching import EARLIEST, LATEST, FetchPositions, ReadSettings, Unvalidated
from kcore.client.malformed import MALFORMED, malformed
from kcore.errors import ConnectionClosedError, KafkaError, LogTruncationError, PartitionErrors
from kcore.node._async.backend import now_ms, spawn
from kcore.node._async.calls import AsyncCalls, backoff_s
from kcore.node.requests import committed_offsets, list_offsets_request, offset_fetch_request, validation_request
from kcore.node.types import OffsetAndMetadata, TopicPartition
from kcore.protocol.error_codes import ErrorCode

ERROR_PAUSE_MS = 100
MEMBERSHIP_CHANGED = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Errors of OffsetFetch for a member whose epoch has changed, or that was fenced."""


class AsyncPositionLookup:
    """The lookup and validation of a consumer's positions. They run concurrently with fetches of other partitions.

    Args:
        calls: the node's requests.
        machine: the state machine of the consumer's member.
        positions: the offset of the next record, for each partition of the consumer.
        read_settings: the isolation and the reset policy.
        guard: a lock that the caller and this object hold while they use the positions.
        fail: called with an error that the next poll raises.
        changed: called when a position has changed, or may be looked up again.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        machine: GroupMemberMachine,
        positions: FetchPositions,
        read_settings: ReadSettings,
        guard: AbstractContextManager[Any],
        fail: Callable[[Exception], None],
        changed: Callable[[], None],
    ) -> None:
        self._described = f"a consumer of group {machine.settings.group_id!r}"
        self._calls = calls
        self._machine = machine
        self._positions = positions
        self._isolation = read_settings.isolation
        self._reset = read_settings.reset
        self._guard = guard
        self._fail = fail
        self._changed = changed
        self._looking: set[tuple[TopicPartition, int]] = set()  # the positions of running lookups: partition, version
        self._attempts = 0
        self._leaderless = 0  # consecutive lookups of leaders in which some partitions had no leader

    # ---- missing positions

    def begin(self) -> None:
        """Begins to look up the missing positions for which no lookup is running."""
        with self._guard:
            states = self._positions.by_partition
            missing = {key: states[key].version for key in self._positions.missing(now_ms())}
            missing = {key: version for key, version in missing.items() if (key, version) not in self._looking}
            self._looking.update(missing.items())
        if missing:
            self._spawn(self._run, missing)

    def _spawn(self, function: Callable[..., Any], versions_before: dict[TopicPartition, int], *args: Any) -> None:
        """Starts a background task that runs `function`, a method of this class.

        `function` ends the lookup of the partitions with `_end`. If the task cannot start, this method calls `_end`.
        """
        try:
            spawn(function, versions_before, *args)
        except BaseException:
            self._end(versions_before)
            raise

    def _end(self, versions_before: dict[TopicPartition, int]) -> None:
        """Ends the lookup of positions; positions that are still missing may be looked up again."""
        with self._guard:
            self._looking.difference_update(versions_before.items())

    async def _run(self, missing: dict[TopicPartition, int]) -> None:
        remaining = dict(missing)  # without the partitions that another task looks up
        try:
            grouped = await self._look_up(missing)
            while grouped:
                broker, partitions = grouped.pop()
                part = {key: remaining.pop(key) for key in partitions}
                if grouped:  # a broker that does not respond must not delay the lookups at the others
                    self._spawn(self._list_offsets, part, broker)
                else:
                    await self._list_offsets(part, broker)
        except Exception as error:
            passing = isinstance(error, PartitionErrors | ConnectionClosedError | TimeoutError)
            if not (passing or (isinstance(error, KafkaError) and error.retriable)):
                self._fail(error)
            with self._guard:
                states = self._positions.by_partition
                unknown = [key for key in remaining if key in states and states[key].fetch is None]
            self.pause(unknown, round(backoff_s(self._attempts) * 1000))
            self._attempts += 1
        else:
            self._attempts = 0
        finally:
            self._end(remaining)
            self._changed()

    async def _look_up(self, missing: dict[TopicPartition, int]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Sets the positions of partitions with a committed offset; returns the other partitions, grouped by leader.

        Raises:
            KafkaError: the reset policy is "none", and a partition has no committed offset.
        """
        with self._guard:
            states = self._positions.by_partition
            # After a reset, the committed offset of a partition no longer applies.
            new = [key for key in missing if key in states and states[key].initial]
        committed = await self._fetch_committed(new) if new else {}
        with self._guard:
            for key in new:
                if key in committed:
                    self._positions.locate(key, missing[key], committed[key].offset, committed[key].leader_epoch)
        uncommitted = [key for key in missing if key not in committed]
        if not uncommitted:
            return []
        self._changed()  # partitions with a committed offset need not wait for the others
        if self._reset == "none":
            with self._guard:
                sought = [key for key in uncommitted if key in states and states[key].timestamp is not None]
            if refused := [key for key in uncommitted if key not in sought]:
                error = KafkaError.of(
                    ErrorCode.OFFSET_OUT_OF_RANGE, "no committed offset, and reset is 'none'", refused
                )
                if not sought:
                    raise error
                self._fail(error)
                self.pause(refused)
            uncommitted = sought
        return await self.by_leader(uncommitted)

    async def _fetch_committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns committed offsets.

        A member of a consumer group sends its epoch, so that the coordinator refuses a fenced member.
        """
        machine = self._machine
        coordinator = machine.coordinator
        if coordinator is None:
            raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        request = offset_fetch_request(machine.settings.group_id, partitions, True, *machine.reader)

        def read(response: Any) -> dict[TopicPartition, OffsetAndMetadata]:
            offsets = committed_offsets(response)
            topics = response.groups[0].topics
            named = {TopicPartition(topic.name, row.partition_index) for topic in topics for row in topic.partitions}
            left_out = [key for key in partitions if key not in named]
            if left_out:  # the reset policy must not decide because a response is incomplete
                raise LookupError(f"the response lacks the offsets of {left_out}")
            return offsets

        try:
            return await self._calls.call(
                request, read, at_most=versions.FETCH_OFFSETS, broker=coordinator, repeat=False
            )
        except KafkaError as error:
            if error.code in MEMBERSHIP_CHANGED:  # the member's next heartbeat response has its partitions
                raise KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            raise

    async def _list_offsets(self, versions_before: dict[TopicPartition, int], broker: Broker) -> None:
        """Sets positions to the start or the end of their logs, or to the offset at a timestamp.

        The consumer looks up partitions with an error again after a pause.
        """
        try:
            rows = await self._log_offsets(list(versions_before), broker)
            repeated = []
            with self._guard:
                for key, version in versions_before.items():
                    if not rows[key].error_code and rows[key].offset >= 0:
                        self._positions.locate(key, version, rows[key].offset, None)
                    elif rows[key].error_code or not self._positions.fall_back_to_end(key, version):
                        repeated.append(key)
            for key in repeated:
                if rows[key].error_code:
                    refused = KafkaError.of(rows[key].error_code, None, [key])
                    if not refused.retriable:
                        self._fail(refused)
                self.retry([key])
        except Exception as error:
            passing = isinstance(error, ConnectionClosedError | TimeoutError)
            if not (passing or (isinstance(error, KafkaError) and error.retriable)):
                self._fail(error)
            self.retry(versions_before)
        finally:
            self._end(versions_before)
            self._changed()

    async def _log_offsets(self, partitions: list[TopicPartition], broker: Broker) -> dict[TopicPartition, Any]:
        """Requests the offsets of partitions from a broker; returns the entry of each partition in the response."""
        policy = EARLIEST if self._reset == "earliest" else LATEST
        timestamps = dict.fromkeys(partitions, policy)
        with self._guard:
            for key in partitions:
                state = self._positions.by_partition.get(key)
                if state is not None and state.timestamp is not None:
                    timestamps[key] = state.timestamp
        request = list_offsets_request(timestamps, self._isolation, self._calls.transport.leader_epoch)
        response = await self._calls.transport.send(request, broker=broker)
        try:
            rows = {
                TopicPartition(each.name, row.partition_index): row
                for each in response.topics
                for row in each.partitions
            }
            left_out = [key for key in partitions if key not in rows]
            if left_out:
                raise LookupError(f"the response lacks the offsets of {left_out}")
        except MALFORMED as error:
            raise malformed(broker, request, error) from error
        return rows

    # ---- leaders

    async def by_leader(self, partitions: list[TopicPartition]) -> list[tuple[Broker, list[TopicPartition]]]:
        """Groups partitions by their leaders. The consumer looks up leaderless partitions again after a pause."""
        remaining = partitions
        pauses = False
        while remaining:
            try:
                grouped = await self._calls.transport.by_leader(remaining)
            except KafkaError as error:
                refused = set(error.partitions).intersection(remaining)
                if not refused:
                    raise
                if not error.retriable:
                    self._fail(error)
                pauses = True
                self.pause(refused, round(backoff_s(self._leaderless) * 1000))
                remaining = [each for each in remaining if each not in refused]
            else:
                self._leaderless = self._leaderless + 1 if pauses else 0
                return grouped
        self._leaderless += 1
        return []

    def pause(self, partitions: Iterable[TopicPartition], pause_ms: int = ERROR_PAUSE_MS) -> None:
        """Postpones the next fetches and lookups of partitions."""
        with self._guard:
            self._positions.pause(partitions, now_ms() + pause_ms)

    def retry(self, partitions: Iterable[TopicPartition]) -> None:
        """Pauses partitions, and removes their leaders from the cache, so that the next lookup requests the leaders."""
        self.pause(partitions)
        self._calls.transport.forget_leaders(partitions)

    # ---- validation

    def validate(self, broker: Broker, moved: dict[TopicPartition, Unvalidated]) -> None:
        """Begins to validate positions, which `FetchPositions.begin_validation` has marked."""
        try:
            spawn(self._validate, broker, moved)
        except BaseException:
            with self._guard:
                self._positions.fail_validation(moved)
            raise

    async def _validate(self, broker: Broker, moved: dict[TopicPartition, Unvalidated]) -> None:
        """Requests the end offsets of the positions' epochs from a new leader, and moves the positions that are not in
        the leader's log (KIP-320).
        """
        remaining = dict(moved)
        try:
            response = await self._calls.transport.send(validation_request(moved), broker=broker)
            self._read_validation(response, remaining)
        except Exception as error:
            self.retry(remaining)
            if not isinstance(error, ConnectionClosedError | TimeoutError):
                self._fail(error)
        finally:
            with self._guard:
                self._positions.fail_validation(remaining)  # also the positions that the response left out
            self._changed()

    def _read_validation(self, response: Any, remaining: dict[TopicPartition, Unvalidated]) -> None:
        """Applies the leader's response, and removes the positions that the response validates or moves from
        `remaining`.
        """
        divergent: dict[TopicPartition, int | None] = {}
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.topic, row.partition)
                sent = remaining.get(key)
                if sent is None:
                    continue
                if row.error_code:
                    self.retry([key])
                    if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        self._fail(KafkaError.of(row.error_code, None, [key]))
                    continue
                reset = self._reset != "none"
                with self._guard:
                    valid = self._positions.end_validation(key, sent, row.leader_epoch, row.end_offset, reset)
                del remaining[key]
                if not valid:
                    self.pause([key])
                    divergent[key] = row.end_offset if row.end_offset >= 0 else None
        if divergent:
            self._fail(LogTruncationError("the log was truncated below the consumer's position", divergent))
