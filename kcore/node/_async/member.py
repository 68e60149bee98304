"""Members of groups in the client API. A member drives a state machine of `kcore.client.consumer_coordinator`."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any

from kcore.client.consumer_coordinator.base import GroupMemberMachine
from kcore.client.consumer_coordinator.classic import ClassicMember
from kcore.client.consumer_coordinator.consumer import ConsumerMember
from kcore.client.consumer_coordinator.interface import (
    Assigned,
    Lost,
    MemberEvent,
    MemberSettings,
    Outgoing,
    Revoked,
)
from kcore.errors import KcoreError, MemberClosedError
from kcore.node._async.backend import (
    CancelledError,
    Event,
    Stepper,
    guard,
    invoke,
    is_cancelled,
    monotonic,
    now_ms,
    spawn,
    start_request,
)
from kcore.node._async.callers import SingleCaller
from kcore.node._async.calls import AsyncCalls
from kcore.node._async.member_commits import AsyncMemberCommits
from kcore.node._async.missing_topics import AsyncSubscription
from kcore.node.arguments import LONG_MEMBERSHIP_S, check_wait
from kcore.node.member_errors import MemberErrors
from kcore.node.membership import MemberState
from kcore.node.types import GroupMetadata, Offsets, Partition, TopicPartition

Listener = Callable[[Any], Any]
"""A callback of the user that handles an event."""

CLOSE_TIMEOUT_MS = 30_000


class AsyncMember:
    """A member of a group. `group.join(...)` creates it; use it with `with`.

    The member joins, sends heartbeats and rejoins in the background. A partition belongs to it from the `Assigned`
    event until the program's listener or loop has handled the `Revoked` event, or until a `Lost` event.

    A commit, also in a transaction, belongs to the membership that the program has seen last. The program sees the
    membership when its listener or its loop over `events` receives an event. With a consumer, the program sees it at
    each poll. Without listeners and loop, the program sees it when it reads `assignment`. A commit raises
    CommitFailedError if the group has removed the member since then, or if the member gave the partition up. It raises
    this error even if the member has joined again in the background.

    The member logs a background error, for example of a listener, at once. The next call of `start`, `commit`,
    `events`, `poll` or `wait`, or the end of the `with` block, also raises the error. If the coordinator has refused
    the member permanently (state "Fatal"), each of these calls raises the error. Then close the member and join with a
    new member.
    """

    def __init__(
        self,
        calls: AsyncCalls,
        settings: MemberSettings,
        protocol: str,
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        consumed: Callable[[], Any] = dict,
    ) -> None:
        calls.require_owner()  # its timers belong to the running event loop
        self._calls = calls
        kind = ClassicMember if protocol == "classic" else ConsumerMember
        self._machine: GroupMemberMachine = kind(settings, now_ms(), consumed=consumed)
        self._listeners: dict[type, Listener | None] = {
            Assigned: on_assigned,
            Revoked: on_revoked,
            Lost: on_lost if on_lost is not None else on_revoked,
        }
        self._described = f"a member of group {settings.group_id!r}"
        self._subscription = AsyncSubscription(calls, settings.topics, self._described)
        self._internal: Callable[[MemberEvent, bool], None] | None = None  # the consumer's own listener
        self._guard = guard()
        self._stepper = Stepper(self._step, self._ended)
        self._commits = AsyncMemberCommits(self, calls, self._machine, self._guard, self._stepper, self._send)
        self._joined = Event()
        self._closed = Event()
        self._handling = False
        self._polls = True  # True: the driver polls; False: the user's code must poll
        self._errors = MemberErrors(self._machine)
        self._channel = f"member-{uuid.uuid4().hex}"
        self._leave_channel = f"{self._channel}-leave"
        self._started = False
        self._closing = False
        self._failed = Event()  # set when `wait` must check for an error
        self._on_failed: Callable[[], None] | None = None  # wakes the poll of the consumer that has this member
        self._iterating = False
        self._queue: deque[MemberEvent] = deque()
        self._queued = Event()
        self._awaiting = SingleCaller(f"the member of group {settings.group_id!r} waits for events")
        self._unhandled: MemberEvent | None = None  # an event that `events` has returned and the machine waits for

    def __repr__(self) -> str:
        return f"AsyncMember({self._machine.settings.group_id!r}, {self.member_id!r}, {self.state})"

    # ---- the member

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self._machine.member_id

    @property
    def epoch(self) -> int:
        """The member epoch, or in a classic group the generation; -1 outside of the group."""
        return self._machine.epoch

    @property
    def state(self) -> MemberState:
        """The state, for example "Stable" with an assignment, or "Fatal" after an error that ended the membership.

        docs/states.md has all states and their transitions.
        """
        state: MemberState = self._machine.state.value  # type: ignore[attr-defined]
        return state

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that the member owns, sorted."""
        self._calls.require_owner()
        with self._guard:
            if self._internal is None and not self._iterating and not any(self._listeners.values()):
                self._commits.note_membership()
            return tuple(sorted(self._machine.assignment))

    @property
    def group_metadata(self) -> GroupMetadata:
        """The group id, member id, epoch and instance id with which a transaction commits offsets.

        The values describe the membership at the program's last poll or event. Read them at the same time as the
        positions to commit. If the group removes the member later, the coordinator refuses a commit with these values.

        Raises:
            CommitFailedError: the member was not in the group at the last poll or event.
        """
        self._calls.require_owner()
        return self._commits.group_metadata()

    def _metadata_for(self, partitions: Iterable[Partition]) -> GroupMetadata:
        """Returns the metadata with which a transaction commits offsets of the partitions.

        Raises:
            CommitFailedError: the member may not commit these offsets any more, or is not in the group.
        """
        self._require_started()
        return self._commits.metadata_for(partitions)

    def _note_membership(self) -> None:
        """Records that the user's code has seen the member's present state. The caller holds the guard."""
        self._commits.note_membership()

    # ---- beginning and end

    async def __aenter__(self) -> AsyncMember:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        pending = self._errors.take()
        if error is None and pending is not None:
            raise pending

    async def start(self, timeout: float | None = 60.0) -> None:
        """Joins the group, and waits for the first assignment.

        Args:
            timeout: the time limit in seconds; None: no limit; 0: `start` does not wait.

        Raises:
            TimeoutError: the member got no assignment in time. `start` has closed the member.
            KafkaError: the coordinator refused the member. `start` has closed the member.
            MemberClosedError: the member was closed before; `join` returns a new member.
            EngineClosedError, ConnectionClosedError: the node is closed.
        """
        check_wait("timeout", timeout)
        self._calls.require_owner()
        self._require_open()
        self._calls.require_open()
        try:
            self._begin()
            if timeout == 0:
                return
            if not await self._joined.wait(timeout):
                raise TimeoutError(
                    f"group {self._machine.settings.group_id!r} has assigned no partitions to this member within "
                    f"{timeout:g} s"
                )
            self._raise_error()
            self._require_alive()
        except BaseException:
            await self.close()
            raise

    def _begin(self) -> None:
        """Starts to join the group, unless the member was started before."""
        if self._started:
            return
        self._calls.add_resource(self)
        try:
            self._started = True
            self._stepper.start()
        except RuntimeError:  # the system has no thread for the steps, so `close` must not wait for them
            self._started = False
            raise
        except BaseException:  # an interrupt, perhaps before the thread runs: without it, `close` would wait in vain
            self._stepper.start()
            raise

    async def close(self) -> None:
        """Leaves the group once the `Revoked` event is handled.

        A static member keeps its membership for its session timeout. The listeners and the commits have 30 seconds. A
        coordinator that does not respond to the leave delays the close by at most 5 seconds; it removes the member
        after the session timeout.

        Raises:
            ReentrantCallError: a listener or callback of the member calls `close`, and no other code closes the member.
        """
        if not self._may_close():
            return
        self._calls.resources.pop(self, None)
        self._closing = True
        if not self._started:
            with self._guard:
                self._machine.abandon()
            return
        with self._guard:
            self._iterating = False
            self._report_handled()
            self._machine.close(now_ms(), CLOSE_TIMEOUT_MS)
        self._stepper.wake()
        await self._closed.wait(CLOSE_TIMEOUT_MS / 1000 + 10)
        for channel in (self._channel, self._leave_channel):
            self._calls.transport.close_channel(channel)

    def _may_close(self) -> bool:
        """Returns False if `close` must do nothing.

        `close` must do nothing in a forked child, after the end of the event loop, and while the interpreter shuts
        down. It must also do nothing if the caller runs a callback while another call closes the member.

        Raises:
            ReentrantCallError: the caller runs a callback of the member, and `close` would wait for its end.
        """
        if self._calls.abandoned:
            return False
        self._calls.require_owner()
        target = f"its member of group {self._machine.settings.group_id!r}"
        return not self._started or self._calls.callbacks.require_outside(target, self, closing=self._closing)

    async def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the member. A program with only listeners uses `wait` to detect that the member failed.

        Args:
            timeout: the time limit in seconds; None: no limit.

        Returns:
            True once the member is closed; False if the time has passed.

        Raises:
            KcoreError: the member was not started.
            KafkaError: the coordinator refused the member.
            Exception: a listener raised this error; the member is still in its group.
        """
        self._require_started()
        check_wait("timeout", timeout, LONG_MEMBERSHIP_S)
        until_s = None if timeout is None else monotonic() + timeout
        while True:
            self._failed.clear()
            self._raise_error()
            if self._closed.is_set() or not self._started:
                return True
            left_s = None if until_s is None else until_s - monotonic()
            if left_s is not None and left_s <= 0:
                return False
            await self._failed.wait(left_s)

    def _require_open(self) -> None:
        if self._closing:
            closed = f"the member of group {self._machine.settings.group_id!r} is closed"
            raise MemberClosedError(f"{closed}; call join() or consume() of the group again") from self._machine.fatal

    def _require_alive(self) -> None:
        if self._closed.is_set() and not self._closing:
            group_id = self._machine.settings.group_id
            failed = f"the member of group {group_id!r} has failed; this process's log has the reason"
            raise MemberClosedError(f"{failed}; call join() or consume() of the group again")

    def _require_started(self) -> None:
        self._calls.require_owner()
        if not self._started and not self._closing:
            raise KcoreError("the member was not started: call start(), or use the member in a `with` block")

    def _raise_error(self) -> None:
        self._calls.require_owner()
        self._errors.check()

    # ---- commits

    async def commit(
        self, offsets: Offsets, *, wait: bool = True, on_done: Callable[[Exception | None], Any] | None = None
    ) -> None:
        """Commits offsets with the member's epoch: a member that was fenced cannot commit.

        Commits reach the coordinator in the order of the calls. The member sends no request if the group has removed it
        since the last event or poll, or if it gave up one of the partitions. A later rejoin does not change this.

        Args:
            offsets: partition -> the offset of the next record to read, or an `OffsetAndMetadata`.
            wait: False to return at once. The member then does not repeat the commit after an error.
            on_done: called with the error, or None, when the commit is completed.

        Raises:
            CommitFailedError: the member has left the group, was fenced, or has given a partition up.
            KcoreError: the member was not started.
            RebalanceInProgressError: the group rebalances; commit again after the rebalance, in the new epoch.
            KafkaError, PartitionErrors: the coordinator refused offsets.
            TimeoutError: no coordinator acknowledged the commit in time.
            TypeError, ValueError: a key is not a partition, or an offset is negative or not a number.
        """
        self._require_started()
        self._raise_error()
        commit, done = self._commits.begin(offsets, retry=wait, on_done=on_done)
        if wait:
            await done.wait()
            if commit.error is not None:
                raise commit.error

    # ---- events

    async def events(self) -> AsyncIterator[MemberEvent]:
        """Yields `Assigned`, `Revoked` and `Lost` events until the member is closed.

        The member gives revoked partitions up when the loop requests the next event. Until then, the program may commit
        offsets of these partitions. If the member was not started, the loop starts it, and closes it at the end of the
        loop.

        Raises:
            KafkaError: the coordinator refused the member permanently.
            ConcurrentCallError: another task or thread waits for an event.
        """
        self._calls.require_owner()
        owns = not self._started and not self._closing
        with self._awaiting:  # raises before a second loop changes the state of the first loop
            self._iterating = True
        try:
            if owns:
                await self.start(timeout=0)
            while (event := await self._next_event(None)) is not None:
                yield event
        finally:
            self._polls = True
            with self._guard:
                self._iterating = False
                self._report_handled()
            self._stepper.wake()
            if owns:
                await self.close()

    async def poll(self, timeout: float = 0.0) -> MemberEvent | None:
        """Returns the next event, for a loop that also does something else; other loops use `events`.

        The event of the previous call counts as handled: the member gives revoked partitions up. So call `poll` again
        within the rebalance timeout, until the member is closed.

        Args:
            timeout: the time in seconds to wait for an event.

        Returns:
            The event; None if none arrived in time.

        Raises:
            KafkaError: the coordinator refused the member.
            MemberClosedError: the member is closed.
            ConcurrentCallError: another task or thread waits for an event.
            KcoreError: the member was not started.
        """
        self._require_started()
        check_wait("timeout", timeout)
        self._iterating = True
        event = await self._next_event(timeout)
        if event is None and self._closed.is_set():
            self._iterating = False
            self._require_open()
        return event

    async def _next_event(self, timeout: float | None) -> MemberEvent | None:
        """Waits for an event; returns None if the member is closed or the time has passed."""
        until_s = None if timeout is None else monotonic() + timeout
        with self._awaiting:
            with self._guard:
                self._report_handled()
                self._polls = True
            self._stepper.wake()
            while True:
                self._queued.clear()
                if self._queue:
                    break
                self._raise_error()
                left_s = None if until_s is None else until_s - monotonic()
                if self._closed.is_set() or (left_s is not None and left_s <= 0):
                    return None
                await self._queued.wait(left_s)
            with self._guard:
                self._polls = False
                self._commits.note_membership()
                return self._queue.popleft()

    def _report_handled(self) -> None:
        """Reports to the machine that the user's loop has handled its last event."""
        queued = self._iterating and any(event is self._unhandled for event in self._queue)
        if self._unhandled is not None and not queued:
            self._unhandled = None
            self._handling = False
            self._machine.event_done(None, now_ms())

    def _queue_event(self, event: MemberEvent) -> bool:
        """Passes an event to the user's loop. Returns True if the machine must wait until the loop has handled it."""
        if self._iterating or isinstance(event, Assigned):
            self._queue.append(event)
        else:  # no loop runs yet: a later loop begins with the partitions that the member then owns
            removed = set(event.partitions)
            remaining = [Assigned(tuple(key for key in each if key not in removed), each.epoch) for each in self._queue]
            self._queue = deque(each for each in remaining if each.partitions)
        self._queued.set()
        return self._iterating and not isinstance(event, Assigned)

    # ---- the driver

    def _step(self) -> float | None:
        """Advances the machine and performs the actions that it requests; returns the seconds until the next step."""
        with self._guard:
            at_ms = now_ms()
            machine = self._machine
            if self._polls:
                machine.poll(at_ms)
            machine.advance(at_ms)
            requests = machine.take_requests()
            event = None if self._handling else machine.event
            self._handling = self._handling or event is not None
            error = machine.take_error()
            wake_ms = machine.wake_ms()
            closed = machine.closed
        for outgoing in requests:
            self._send(outgoing)
        if error is not None:
            self._fail(error)
        if event is not None:
            spawn(self._handle, event)
        if closed:
            return Stepper.END
        if self._subscription.begin():
            spawn(self._look_for_topics)
        pause_s = None if wake_ms is None else max(0.001, (wake_ms - now_ms()) / 1000)
        check_s = self._subscription.wait_s
        if check_s is not None:
            pause_s = max(0.001, check_s) if pause_s is None else max(0.001, min(pause_s, check_s))
        return pause_s

    def _ended(self) -> None:
        """Ends all waits, because the state machine is closed or a step failed."""
        with self._guard:
            if not self._machine.closed:
                self._machine.abandon()
        self._closed.set()
        self._wake_waits()

    def _wake_waits(self) -> None:
        self._joined.set()
        self._queued.set()
        self._failed.set()
        if self._on_failed is not None:
            self._on_failed()

    async def _look_for_topics(self) -> None:
        await self._subscription.look_up()
        self._stepper.wake()

    def _fail(self, error: BaseException) -> None:
        self._errors.add(error)
        self._wake_waits()

    def _send(self, outgoing: Outgoing) -> None:
        """Sends a request, and passes its response to the machine."""
        start_request(
            self._calls.transport,
            outgoing.request,
            partial(self._receive, outgoing),
            at_most=outgoing.at_most,
            broker=outgoing.broker,
            channel=self._leave_channel if outgoing.apart else "" if outgoing.broker is None else self._channel,
            timeout_s=outgoing.timeout_ms / 1000,
        )

    def _receive(self, outgoing: Outgoing, response: Any, error: BaseException | None) -> None:
        """Passes a response or an error to the machine."""
        changed = True
        try:
            with self._guard:
                if error is None:
                    changed = self._machine.received(outgoing, response, now_ms())
                elif isinstance(error, Exception):
                    self._machine.failed(outgoing, error, now_ms())
        except BaseException as failure:
            with self._guard:
                self._machine.abandon()  # it would wait for the lost part of the result
            if isinstance(failure, Exception):
                self._fail(failure)
            raise
        finally:
            if changed:
                self._stepper.run()

    @property
    def _informs_of_losses(self) -> bool:
        """True if the user's code counts as informed about its membership at an `Assigned` event without a listener.

        The code then has heard of all earlier losses: it has a listener for `Lost` events, or the member has not had
        partitions yet that it could lose.
        """
        return self._listeners[Lost] is not None or not self._joined.is_set()

    async def _handle(self, event: MemberEvent) -> None:
        """Passes an event to the user's listeners or to the user's loop."""
        failure: Exception | None = None
        interrupt: BaseException | None = None
        if self._internal is not None:
            self._internal(event, True)
        listener = self._listeners[type(event)]
        informed = listener is not None or (isinstance(event, Assigned) and self._informs_of_losses)
        if informed and (self._internal is None or self._polls):  # the user of a consumer gets events in its polls only
            with self._guard:
                self._commits.note_membership()
        if listener is not None:
            try:
                with self._calls.callbacks.running(self):
                    await invoke(listener, event)
            except Exception as error:
                failure = error
            except BaseException as error:  # for example CancelledError of a task that the listener awaits
                failure = KcoreError(f"a listener of group {self._machine.settings.group_id!r} ended with {error!r}")
                failure.__cause__ = error
                interrupt = None if isinstance(error, CancelledError) and not is_cancelled() else error
        if self._internal is not None:
            self._internal(event, False)
        with self._guard:
            if self._queue_event(event):
                self._unhandled = event
                return
            self._handling = False
            self._machine.event_done(failure, now_ms())
        if isinstance(event, Assigned) and failure is None:
            self._joined.set()
        self._stepper.wake()
        if interrupt is not None:
            raise interrupt
