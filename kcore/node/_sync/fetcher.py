# Made by tools/generate_sync.py from _async/fetcher.py: change that file, then run the program.
"""The fetching side of a consumer: at most one Fetch at a time to each leader, and the fetch sessions (KIP-227)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

from kcore.client import versions
from kcore.client.aio.broker import Broker
from kcore.client.fetching import FetchPositions, FetchSession, ReadSettings
from kcore.client.malformed import MALFORMED, malformed
from kcore.errors import ConnectionClosedError, KafkaError
from kcore.node._sync.backend import Event, SingleTask, now_ms, spawn
from kcore.node._sync.calls import Calls, backoff_s
from kcore.node._sync.member import Member
from kcore.node._sync.position_lookup import PositionLookup
from kcore.node.requests import MAX_DECOMPRESSED_BYTES, read_fetched
from kcore.node.types import TopicPartition
from kcore.protocol.error_codes import ErrorCode

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
"""Errors of a partition, or of a whole response, after which the consumer looks up the leader again. The position does
not change. Every retriable error of a whole response has the same effect.
"""
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Fetcher:
    """A background loop that fetches the records of a consumer's partitions ahead, and stores them in the positions.

    Args:
        calls: the node's requests.
        member: the consumer's member. It determines which partitions are fetched.
        positions: the positions of the consumer, with the fetched records.
        read_settings: the isolation, the reset policy and the limits.
        guard: a lock that the consumer and this object hold while they use the positions.
        on_arrived: called when records or an error have arrived.
    """

    def __init__(
        self,
        calls: Calls,
        member: Member,
        positions: FetchPositions,
        read_settings: ReadSettings,
        guard: AbstractContextManager[Any],
        on_arrived: Callable[[], None],
    ) -> None:
        self._machine = member._machine
        self._described = f"a consumer of group {self._machine.settings.group_id!r}"
        self._calls = calls
        self._positions = positions
        self._read_settings = read_settings
        self._guard = guard
        self._on_arrived = on_arrived
        self._wakeup = Event()
        self._sessions: dict[Broker, FetchSession] = {}
        self._in_flight: set[Broker] = set()
        self._error: Exception | None = None
        self._fetching = SingleTask(self._fetch_loop)
        self._closed = False
        self._attempts = 0
        self._member_channel = member._channel
        self._channel = f"fetch-{member._channel}"
        self._lookup = PositionLookup(calls, self._machine, positions, read_settings, guard, self._fail, self.wake)

    def start(self) -> None:
        """Starts the loop, unless it is running."""
        self._fetching.start()

    def wake(self) -> None:
        """Makes the loop look for partitions that can be fetched now."""
        self._wakeup.set()

    def raise_error(self) -> None:
        """Raises the pending error, which only one call raises."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self) -> None:
        """Ends the loop. Later errors have no effect."""
        self._closed = True
        self._wakeup.set()

    def close_sessions(self) -> None:
        """Requests that the brokers free the fetch sessions, and closes the connections.

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
            channel = self._member_channel if broker in self._in_flight else self._channel
            with suppress(KafkaError, ConnectionClosedError, TimeoutError):
                self._calls.transport.send(
                    request, at_most=versions.FETCH, broker=broker, channel=channel, timeout_s=CLOSE_SESSION_S
                )
        self._calls.transport.close_channel(self._channel)

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

    def _fail(self, error: Exception) -> None:
        if not self._closed:
            self._error = error
            self._on_arrived()

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
        return 0.05 if self._machine.rebalancing else None

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
                committed=self._read_settings.isolation == "read_committed",
                max_bytes=MAX_BYTES,
                partition_bytes=PARTITION_BYTES,
                min_bytes=1,
                wait_ms=WAIT_MS,
                rack=self._read_settings.rack,
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
            if not isinstance(error, ConnectionClosedError | TimeoutError):
                self._fail(error)
        finally:
            self._in_flight.discard(broker)
            self._wakeup.set()
            self._on_arrived()

    def _store(self, session: FetchSession, response: Any, sent: dict[TopicPartition, tuple[int, int]]) -> None:
        if response.error_code:
            if response.error_code in SESSION_ERRORS:
                session.reset()
                return
            error = KafkaError.of(response.error_code)
            if error.code not in MOVED and not error.retriable:
                raise error
            session.failed()
            self._lookup.retry(sent)
            return
        session.succeeded(response.session_id)
        committed = self._read_settings.isolation == "read_committed"
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
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self._read_settings.reset != "none":
            with self._guard:
                state = self._positions.by_partition.get(key)
                if state is not None and state.version == version:
                    self._positions.seek(key, None)
            return
        self._lookup.pause([key])
        if code in MOVED:
            self._calls.transport.forget_leaders([key])
        else:
            self._fail(KafkaError.of(code, f"at offset {offset}", [key]))
