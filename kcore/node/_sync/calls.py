# Made by tools/generate_sync.py from _async/calls.py: change that file, then run the program.
"""Calls of a node: requests that are repeated while the cluster starts, or while leaders and coordinators move."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, NoReturn, Protocol, TypeVar

from kcore.client.aio.broker import Broker
from kcore.client.malformed import MALFORMED, malformed
from kcore.drivers.forks import connection_refusal, refuse_in_child
from kcore.errors import ConnectionClosedError, EngineClosedError, KafkaError, PartitionErrors
from kcore.node._sync.backend import (
    caller,
    foreign_call,
    interpreter_ends,
    loop_has_ended,
    monotonic,
    running_loop,
    sleep,
)
from kcore.node._sync.callers import CallbackCallers
from kcore.node._sync.transport import Transport
from kcore.node._sync.turns import Turn, Turns
from kcore.node.types import TopicPartition
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.metadata import MetadataResponse

T = TypeVar("T")
V = TypeVar("V")

logger = logging.getLogger(__name__)

REPEATED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors after which a call looks up the broker again and repeats the request, until its time limit."""

BACKOFF_S, MAX_BACKOFF_S = 0.1, 1.0

UNKNOWN_TOPIC_S = 2.0
"""Time in seconds for which a call repeats a request after UNKNOWN_TOPIC_OR_PARTITION, in case the topic is new."""


def may_repeat(error: Exception, elapsed_s: float, local: bool, codes: Collection[int] = REPEATED) -> bool:
    """Returns True if the request that failed with `error` may succeed if it is repeated.

    Args:
        error: the failure of the request.
        elapsed_s: the time in seconds since the call began.
        local: True for an embedded engine, where an unknown topic does not appear later by itself.
        codes: the error codes after which a request is repeated.
    """
    if isinstance(error, PartitionErrors):
        return all(may_repeat(each, elapsed_s, local, codes) for each in error.exceptions)
    if isinstance(error, KafkaError):
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return not local and elapsed_s < UNKNOWN_TOPIC_S
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:  # another broker may become the leader
            return not local
        return error.code in codes
    if isinstance(error, ConnectionClosedError):
        return error.retriable
    return isinstance(error, TimeoutError)


class Resource(Protocol):
    """An object that the node closes before it closes itself."""

    def close(self) -> None:
        """Closes the object."""
        ...


class Calls:
    """The requests of one node.

    Args:
        transport: sends the requests.
        local: True for an embedded engine, which is always the leader and the coordinator.
        timeout_s: the time limit of a call with its repetitions.

    Attributes:
        resources: the open members, consumers and producers, the newest last.
        callbacks: the tasks or threads that run listeners and callbacks.
        loop: the event loop of the node; None: any thread may call the node.
        loop_ended: True once `abandon` was called, because the node's event loop has ended.
    """

    def __init__(self, transport: Transport, local: bool, timeout_s: float) -> None:
        self.transport = transport
        self.local = local
        self.timeout_s = timeout_s
        self.resources: dict[Resource, None] = {}
        self.callbacks = CallbackCallers()
        self.loop = running_loop()
        self._closed = False
        self._refusal = ""  # in a forked child: the text of its errors
        self.loop_ended = False
        self._turns: dict[str, count[int]] = {}
        self._closings = Turns()
        refuse_in_child(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a node and its objects belong to one process: open or connect a node in each process")

    def leave_to_parent(self, reason: str) -> None:
        """Implements `ForkedDriver.leave_to_parent`: refuses calls in the child, which has no threads of members and
        producers.
        """
        self._refusal = reason if self.local else connection_refusal()
        self._closed = True
        self.resources = {}

    @property
    def closed(self) -> bool:
        """True once `close` was called, and in a forked child process."""
        return self._closed

    @property
    def forked(self) -> bool:
        """True in a forked child process.

        The child does not have the threads of the parent, and a lock that such a thread held stays locked.
        """
        return bool(self._refusal)

    @property
    def abandoned(self) -> bool:
        """True if a wait would never end: in a forked child, after the end of the event loop, or while the interpreter
        shuts down.
        """
        return self.forked or self.loop_ended or interpreter_ends()

    def abandon(self) -> None:
        """Gives up open members, consumers and producers with a warning, because their event loop has ended."""
        self.loop_ended = self._closed = True
        abandoned, self.resources = list(self.resources), {}
        if abandoned:
            logger.warning(
                "node: the event loop ended before the node was closed, so %s were not closed: groups remove their "
                "members after the session timeout, and records that producers have not stored are lost; close the "
                "node before its loop ends, for example with `async with`",
                ", ".join(sorted({type(each).__name__ for each in abandoned})),
            )

    def require_owner(self) -> None:
        """Refuses a forked child, which lacks the node's threads, and callers on another event loop.

        Raises:
            EngineClosedError, ConnectionClosedError: this process is a forked child.
            ConcurrentCallError: the caller does not run on the event loop of the node.
        """
        if self._refusal:
            self.require_open()
        if self.loop is not None and running_loop() is not self.loop:
            raise foreign_call(self.loop)

    def now_ms(self) -> int:
        """Returns the time of new records in ms since the epoch, from the embedded engine's or the system's clock."""
        clock_ms = self.transport.clock_ms
        return time.time_ns() // 1_000_000 if clock_ms is None else clock_ms()

    def require_open(self) -> None:
        """Refuses work on a closed node, because the work would wait for responses until its time limit.

        Raises:
            EngineClosedError: the node is an embedded engine, and is closed.
            ConnectionClosedError: the node is a connection to a cluster, and is closed.
        """
        if self._closed:
            reason = self._refusal or "the node is closed"
            raise EngineClosedError(reason) if self.local else ConnectionClosedError(reason)

    def add_resource(self, resource: Resource) -> None:
        """Registers an object, so that `close` closes it.

        Raises:
            EngineClosedError, ConnectionClosedError: the node is closed, so the object must not start.
        """
        self.resources[resource] = None
        if self._closed:  # checked last: `close` may have run meanwhile
            self.resources.pop(resource, None)
            self.require_open()

    def next_partition(self, topic: str, partitions: int) -> int:
        """Returns the partition of the next record without a key. Each call for a topic returns its next partition in
        turn.

        Args:
            topic: the name of the topic.
            partitions: the number of partitions of the topic.
        """
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns.setdefault(topic, count(1))  # another thread may have been faster
        return next(turns) % partitions

    def close(self) -> None:
        """Closes open members, consumers and producers, the newest first, then the transport.

        New members, consumers and producers cannot start any more. A second caller waits until the first caller has
        closed all objects, because members need the transport to leave their groups.

        After the end of the node's event loop, a call on another loop abandons the objects.

        Raises:
            ConcurrentCallError: the node's event loop is running in another thread. The node stays open.
            ReentrantCallError: a listener or callback of a member calls `close`.
        """
        if self.loop_has_ended():
            self.abandon()
            self.transport.close()
            return
        if self._refusal or self._closings.is_open_for(caller()):  # the caller's own signal handler does not wait
            self._close_all()
            return
        self.callbacks.require_outside("the node")
        self._closed = True
        turn = Turn()
        try:
            self._closings.wait(turn)
            turn.caller = caller()
            self._close_all()
        finally:
            self._closings.leave(turn)

    def loop_has_ended(self) -> bool:
        """Returns True if the node's event loop has ended. In a forked child, always returns False.

        Raises:
            ConcurrentCallError: the node's event loop is running in another thread.
        """
        return self.loop is not None and not self._refusal and loop_has_ended(self.loop)

    def _close_all(self) -> None:
        """Closes all objects and the transport, and then raises the first error of an object."""
        first_error: Exception | None = None
        while self.resources:
            resource, _ = self.resources.popitem()
            try:
                resource.close()
            except Exception as error:
                first_error = error if first_error is None else first_error
        self.transport.close()
        if first_error is not None:
            raise first_error

    def call(
        self,
        request: Any,
        read: Callable[[Any], T],
        *,
        at_most: int | None = None,
        broker: Broker | None = None,
        channel: str = "",
        repeat: bool = True,
        codes: Collection[int] = REPEATED,
    ) -> T:
        """Sends a request and reads its response.

        Args:
            request: a typed request.
            read: converts the response, or raises its error.
            at_most: the highest version of the request to use; None: no limit.
            broker: the broker to send to; None: the broker that serves the request.
            channel: see `Cluster.send`.
            repeat: False for a request that must not be sent twice.
            codes: the error codes after which the request is repeated.

        Raises:
            KafkaError, PartitionErrors: the server refused the request.
            MalformedResponseError: the response lacks entries that it must contain.
            ConnectionClosedError, TimeoutError: no broker responded in time.
        """
        started_s = monotonic()
        attempt = 0
        unanswered: Exception | None = None
        while True:
            try:
                response = self.transport.send(request, at_most=at_most, broker=broker, channel=channel)
                try:
                    return read(response)
                except MALFORMED as error:
                    raise malformed(broker or self.transport.known_broker(request), request, error) from error
            except (KafkaError, PartitionErrors, ConnectionClosedError, TimeoutError) as error:
                if not repeat:
                    raise
                if isinstance(error, ConnectionClosedError | TimeoutError):
                    unanswered = error
                elif unanswered is not None:
                    error.add_note(
                        "the client sent this request more than once, and an earlier attempt got no response "
                        f"({unanswered}): the server may have processed that attempt, and refused the repetition"
                    )
                self.transport.forget(request)
                self.pause(error, started_s, attempt, codes)
            attempt += 1

    def call_leaders(
        self,
        values: Mapping[TopicPartition, V],
        make_request: Callable[[Mapping[TopicPartition, V]], Any],
        read: Callable[..., Mapping[TopicPartition, int]],
    ) -> dict[TopicPartition, int]:
        """Sends requests to the leaders of partitions, until the responses contain an offset for each partition.

        Args:
            values: partition -> the value that a request contains for it, for example a timestamp.
            make_request: builds a request from the values of some partitions.
            read: converts a response, or raises its error. Its argument `total` is the number of partitions in the
                request.

        Raises:
            KafkaError, PartitionErrors: the server refused partitions.
            MalformedResponseError: a response lacks partitions.
            ConnectionClosedError, TimeoutError: no leader responded in time.
        """
        offsets: dict[TopicPartition, int] = {}
        started_s = monotonic()
        attempt = 0
        while len(offsets) < len(values):
            missing = {partition: value for partition, value in values.items() if partition not in offsets}
            try:
                for broker, partitions in self.transport.by_leader(list(missing)):
                    request = make_request({each: missing[each] for each in partitions})
                    read_all = partial(read, total=len(partitions))
                    received = self.call(request, read_all, broker=broker, repeat=False)
                    lacking = next((each for each in partitions if each not in received), None)
                    if lacking is not None:
                        topic, number = lacking
                        raise malformed(broker, request, f"the response lacks the offset of {topic}-{number}")
                    offsets |= received
            except (KafkaError, PartitionErrors, ConnectionClosedError, TimeoutError) as error:
                # The leaders may have changed: group the partitions again, and take the new leader epochs.
                self.transport.forget(make_request(missing))
                self.pause(error, started_s, attempt)
                attempt += 1
        return offsets

    def pause(self, error: Exception, started_s: float, attempt: int, codes: Collection[int] = REPEATED) -> None:
        """Pauses before the caller repeats a request, or raises the error if a repetition is useless.

        Args:
            error: the error of the last attempt.
            started_s: the time of the first attempt.
            attempt: the number of earlier repetitions.
            codes: the error codes after which a request is repeated.
        """
        elapsed_s = monotonic() - started_s
        ended = self._closed and isinstance(error, ConnectionClosedError)
        may_succeed = may_repeat(error, elapsed_s, self.local, codes)
        if self._refusal or ended or elapsed_s >= self.timeout_s or not may_succeed:
            raise error
        sleep(backoff_s(attempt))

    def coordinator(self, key_type: int, key: str) -> Broker:
        """Returns the coordinator of a group or a transactional id; waits while the coordinator starts or moves."""
        broker: Broker = self._look_up(lambda: self.transport.coordinator(key_type, key))
        return broker

    def brokers(self) -> list[Broker]:
        """Returns all brokers; waits while no broker is reachable."""
        brokers: list[Broker] = self._look_up(self.transport.brokers)
        return brokers

    def metadata(self, topics: Iterable[str] | None, create: bool = False) -> MetadataResponse:
        """Returns the metadata of topics (None: of all topics); waits while no broker is reachable."""
        response: MetadataResponse = self._look_up(lambda: self.transport.metadata(topics, create))
        return response

    def connect(self, wait_s: float) -> None:
        """Sends the first request of a connection to a cluster.

        Args:
            wait_s: the time in seconds for which the request is repeated while no broker is ready.

        Raises:
            ConnectionClosedError, TimeoutError: no broker is ready.
            KafkaError, AuthenticationError: a broker refuses the request or the credentials.
        """
        started_s = monotonic()
        for attempt in count():
            try:
                self.transport.metadata([])
                return
            except (KafkaError, ConnectionClosedError, TimeoutError) as error:
                elapsed_s = monotonic() - started_s
                if not wait_s or not may_repeat(error, elapsed_s, self.local):
                    raise
                if elapsed_s >= wait_s:
                    raise ConnectionClosedError(
                        f"no broker was ready within {wait_s:g} s; the last attempt failed: {error}"
                    ) from error
                sleep(min(backoff_s(attempt), wait_s - elapsed_s))

    def _look_up(self, function: Callable[[], Any]) -> Any:
        """Calls `function` until it succeeds, for at most the time limit of a call."""
        started_s = monotonic()
        attempt = 0
        while True:
            try:
                return function()
            except (KafkaError, ConnectionClosedError, TimeoutError) as error:
                self.pause(error, started_s, attempt)
            attempt += 1


def backoff_s(attempt: int) -> float:
    """Returns the pause before a repetition: exponential, with 20 % jitter, as in Kafka's clients."""
    return float(min(MAX_BACKOFF_S, BACKOFF_S * 2 ** min(attempt, 10) * random.uniform(0.8, 1.2)))
