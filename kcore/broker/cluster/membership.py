"""The membership of one node: renews its leases, and polls the state of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.cluster.store import METADATA
from kcore.log.errors import FencedWriteError, LogError
from kcore.process_logging import log_failure, next_step
from kcore_ext.runtime.lease import LocalLease

if TYPE_CHECKING:
    from kcore.clock import Clock
    from kcore.cluster.store import ClusterStore, Lease, RegisteredNode
    from kcore.log.storage import SharedStorage
    from kcore.log.write_set import StoredPartition
    from kcore_ext.runtime.timer_wheel import TimerWheel

logger = logging.getLogger(__name__)


NODE_LEASE: Final = "its lease"
CONTROLLER_LEASE: Final = "the controller's lease"
"""The names of the node's lease and of the controller's lease in log lines."""


class Timing(NamedTuple):
    """The intervals of a node's membership, in ms.

    Attributes:
        ttl_ms: the time for which a renewal extends a lease.
        margin_ms: the time before the lease's end at which this node stops serving. It covers the different speeds of
            the clocks of the node and the store.
        renew_ms: the time between two renewals.
        poll_ms: the time between two polls of the metadata log and the nodes.
        controller_ttl_ms: the time for which a renewal extends the controller's lease. It may be shorter than `ttl_ms`,
            because the epoch of the metadata log refuses the writes of an earlier controller.
    """

    ttl_ms: int = 6_000
    margin_ms: int = 500
    renew_ms: int = 1_500
    poll_ms: int = 200
    controller_ttl_ms: int = 2_000

    @property
    def controller_renew_ms(self) -> int:
        """The time between two renewals of the controller's lease."""
        return max(1, self.controller_ttl_ms // 4)

    @property
    def controller_margin_ms(self) -> int:
        """The time before the end of the controller's lease at which the controller stops handling requests."""
        return self.controller_ttl_ms // 8


class Runner(Protocol):
    """The interface of a function that runs a blocking call of the store. It passes the result to a callback on the
    engine's thread.
    """

    def __call__(self, call: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Runs `call` immediately, or on another thread.

        Args:
            call: the blocking call.
            done: called with the result, or with the LogError that `call` raised.
        """
        ...


def run_inline(call: Callable[[], Any], done: Callable[[Any], None]) -> None:
    """Runs a call of the store on the calling thread (`Runner`), for stores that do not block."""
    try:
        result = call()
    except Exception as error:
        result = log_error_of(error)
    done(result)


def log_error_of(error: BaseException) -> LogError:
    """Converts an exception of a store call to a LogError. The LogError becomes the result of the call."""
    if isinstance(error, LogError):
        return error
    log_failure(
        logger,
        error,
        "cluster: this node's call to the cluster's store failed with an unexpected error (the traceback shows which "
        "call); the node tries again later%s",
        next_step(error),
    )
    return LogError(f"unexpected: {error}")


class ClusterState(NamedTuple):
    """The result of one poll.

    Attributes:
        nodes: the registered nodes.
        controller: the controller's lease, or None.
        metadata: the state of the metadata log.
    """

    nodes: list[RegisteredNode]
    controller: Lease | None
    metadata: StoredPartition | None


class Membership:
    """One incarnation of a node: the time from its registration until it is fenced or ends.

    The local deadline of a lease is computed from the time just before this node sent the renewal. So even after a late
    response, the local deadline is earlier than the store's deadline, if both clocks run at the same speed.

    If the lease ended before it was renewed, the controller may have moved partitions of this node in between. So the
    node serves again only after a poll that began after the renewal.

    Args:
        store: the coordination part of the store.
        lease: the node's lease, as `register` returned it.
        register_sent_ms: the monotonic time in ms just before the call of `register`.
        clock: the node's clock.
        wheel: the node's timers.
        timing: the intervals.
        run: runs calls of the store.

    Attributes:
        lease: the node's lease.
        controller: the controller's lease while this node holds it, else None.
        local: the lease by this node's clock. It shows until when this node may serve requests.
        on_poll: called with the state of the cluster after each poll. Returns True if this node leads exactly the
            partitions that the metadata log assigns to it.
        on_controller: called with True when this node has become the controller, with False when it has lost the role.
        on_fenced: called once when this incarnation has ended.
    """

    __slots__ = (
        "_clock",
        "_controller_until_ms",
        "_lapsed_until_ms",
        "_polling",
        "_renewing",
        "_repeats_poll",
        "_steady_from_ms",
        "_store",
        "_wheel",
        "controller",
        "lease",
        "local",
        "on_controller",
        "on_fenced",
        "on_poll",
        "run",
        "run_renewal",
        "stopped",
        "timing",
    )

    def __init__(
        self,
        store: ClusterStore,
        lease: Lease,
        register_sent_ms: int,
        clock: Clock,
        wheel: TimerWheel,
        timing: Timing,
        run: Runner = run_inline,
    ) -> None:
        self._store = store
        self._clock = clock
        self._wheel = wheel
        self.run = self.run_renewal = run
        self._renewing: set[str] = set()  # the leases whose renewal has not ended
        self._polling = False
        # True if a change was notified during a poll of the cluster, which may have missed the change
        self._repeats_poll = False
        self.timing = timing
        self.lease = lease
        self.controller: Lease | None = None
        self._controller_until_ms = 0  # the end of the controller's lease by this node's clock
        self.local = LocalLease(clock, register_sent_ms + timing.ttl_ms - timing.margin_ms)
        self._lapsed_until_ms = 0  # the new end of a lease that was renewed too late, until the next poll
        self.stopped = False
        self._steady_from_ms = 0
        self.on_poll: Callable[[ClusterState], bool] = _ignore
        self.on_controller: Callable[[bool], object] = _ignore
        self.on_fenced: Callable[[], None] = lambda: None

    def is_serving(self) -> bool:
        """Returns True if this node may serve reads now. The call reads the clock."""
        return self.local.is_valid()

    @property
    def fenced(self) -> bool:
        """True after this incarnation has ended; the process must register again."""
        return self.local.ended

    def is_controller(self) -> bool:
        """Returns True if this node holds the controller's lease, as of the last response of the store."""
        return self.controller is not None

    def may_decide(self) -> bool:
        """Returns True if this node is certainly the controller now. The call reads the clock.

        Without this check, a controller whose process was paused for longer than its lease would decide with old
        metadata.
        """
        return self.controller is not None and self._clock.monotonic_ms() < self._controller_until_ms

    def start(self) -> None:
        """Starts the renewals of the leases and the polls of the cluster's state."""
        self._schedule(self.timing.renew_ms, self._renew)
        self._schedule(self.timing.controller_renew_ms, self._renew_controller)
        self.poll()

    def stop(self) -> None:
        """Ends renewals and polls; the leases stay as they are."""
        self.stopped = True

    def _schedule(self, delay_ms: int, action: Callable[[], None]) -> None:
        if not self.stopped:
            self._wheel.add(self._clock.monotonic_ms() + delay_ms, action)

    def is_steady(self) -> bool:
        """Returns True if no call of the store has failed for the duration of a lease.

        After an outage of the store, all leases have expired. The controller fences no node until the nodes have had
        time to renew their leases.
        """
        return self._clock.monotonic_ms() >= self._steady_from_ms

    def _failed_call(self, error: LogError, what: str) -> None:
        self._steady_from_ms = self._clock.monotonic_ms() + self.timing.ttl_ms
        log_failure(
            logger,
            error,
            "cluster: node %d cannot %s; the node tries again; if this repeats, check the cluster's store and the "
            "network to the store",
            self.lease.holder,
            what,
        )

    # ---- renewals

    def _renew(self) -> None:
        if self.stopped or self.fenced:
            return
        self._schedule(self.timing.renew_ms, self._renew)
        self._renew_lease(self.lease, self.timing.ttl_ms, NODE_LEASE, self._renewed)

    def _renew_controller(self) -> None:
        if self.stopped or self.fenced:
            return
        self._schedule(self.timing.controller_renew_ms, self._renew_controller)
        controller = self.controller
        if controller is not None:
            self._renew_lease(
                controller,
                self.timing.controller_ttl_ms,
                CONTROLLER_LEASE,
                lambda result, sent_ms: self._renewed_controller(result, controller, sent_ms),
            )

    def _renew_lease(
        self, lease: Lease, ttl_ms: int, what: str, renewed: Callable[[list[bool] | LogError, int], None]
    ) -> None:
        """Begins to renew a lease. Does nothing while an earlier renewal of the lease is still running.

        Args:
            lease: the lease to renew: the node's or the controller's.
            ttl_ms: the time in ms for which the lease is extended.
            what: the name of the lease in log lines.
            renewed: called with the result of the store and the monotonic time in ms at which the renewal began.
        """
        if what in self._renewing:
            return
        sent_ms = self._clock.monotonic_ms()

        def arrived(result: list[bool] | LogError) -> None:
            self._renewing.discard(what)
            renewed(result, sent_ms)

        self._renewing.add(what)
        try:
            self.run_renewal(lambda: self._store.renew([lease], ttl_ms), arrived)
        except BaseException as error:
            self._renewing.discard(what)  # the call was not started, for example because no thread could be
            if not isinstance(error, Exception):
                raise
            # The next renewal is scheduled already. An exception would make the timer run again and schedule another.
            log_failure(
                logger,
                error,
                "cluster: node %d cannot start to renew %s; the node tries again; check the process's limits of "
                "threads and memory",
                self.lease.holder,
                what,
            )

    def _renewed(self, result: list[bool] | LogError, sent_ms: int) -> None:
        if isinstance(result, LogError):
            self._failed_call(result, f"renew {NODE_LEASE}")
            return
        if not result[0]:
            self.lost()
            return
        until_ms = sent_ms + self.timing.ttl_ms - self.timing.margin_ms
        if self._clock.monotonic_ms() < self.local.deadline_ms:
            self.local.deadline_ms = until_ms
        else:
            self._lapsed_until_ms = until_ms
            self.refresh_soon()

    def _renewed_controller(self, result: list[bool] | LogError, controller: Lease, sent_ms: int) -> None:
        if isinstance(result, LogError):
            self._failed_call(result, f"renew {CONTROLLER_LEASE}")
        elif self.controller != controller:
            pass  # another epoch of the controller has begun meanwhile
        elif result[0]:
            self._controller_until_ms = self._controller_end_ms(sent_ms)
        else:
            self.resign_controller()

    def _controller_end_ms(self, sent_ms: int) -> int:
        """Returns the end, by this node's clock, of a controller's lease that was requested at `sent_ms`."""
        return sent_ms + self.timing.controller_ttl_ms - self.timing.controller_margin_ms

    def lost(self) -> None:
        """Ends this incarnation, because the store refuses its renewals."""
        if self.fenced:
            return
        self.local.ended = True
        logger.error(
            "cluster: node %d was fenced: the cluster's store refuses its lease. The node serves no requests until it "
            "has registered again. If this repeats, check whether the process is paused, overloaded or disconnected "
            "from the store",
            self.lease.holder,
        )
        if self.controller is not None:
            self.resign_controller()
        self.on_fenced()

    def resign_controller(self) -> None:
        """Gives up the role of the controller, because another node has taken it over."""
        self.controller = None
        logger.warning(
            "cluster: node %d is not the controller any more, because another node has taken over the role",
            self.lease.holder,
        )
        self.on_controller(False)

    # ---- polls

    def poll(self) -> None:
        """Reads the cluster's state now, and again after `poll_ms`. Becomes the controller if there is none."""
        if self.stopped or self.fenced:
            return
        self._schedule(self.timing.poll_ms, self.poll)
        if not self._polling:
            try:
                self.refresh()
            except Exception as error:  # as for a renewal
                log_failure(
                    logger,
                    error,
                    "cluster: node %d cannot read the state of the cluster; the node tries again; if this repeats, "
                    "check the cluster's store",
                    self.lease.holder,
                )

    def refresh_soon(self) -> None:
        """Schedules a read of the cluster's state after the current call."""
        self._schedule(0, self.refresh)

    def refresh(self) -> None:
        """Polls the cluster's state now, for example because the store has notified of a change.

        If a poll is under way, another poll follows, because the current poll may have missed the change.
        """
        if self._polling:
            self._repeats_poll = True
            return
        if self.stopped or self.fenced:
            return
        self._polling = True
        try:
            storage = self._store.storage()
            sent_ms, lapsed_until_ms = self._clock.monotonic_ms(), self._lapsed_until_ms
            self.run(lambda: self._read_state(storage), lambda result: self._polled(result, sent_ms, lapsed_until_ms))
        except BaseException:
            self._polling = False
            raise

    def _read_state(self, storage: SharedStorage) -> tuple[ClusterState, Lease | None]:
        """Reads the cluster's state; takes the controller's lease if it is free."""
        controller = self._store.controller()
        taken = None
        if controller is None or not controller.remaining_ms:
            taken = self._store.take_controller(self.lease, self.timing.controller_ttl_ms)
            controller = self._store.controller() if taken is None else taken
        return ClusterState(self._store.nodes(), controller, storage.look_up(METADATA)), taken

    def _polled(self, result: tuple[ClusterState, Lease | None] | LogError, sent_ms: int, lapsed_until_ms: int) -> None:
        self._polling = False
        if self._repeats_poll:
            self._repeats_poll = False
            self.refresh_soon()
        if isinstance(result, FencedWriteError):
            self.lost()
            return
        if isinstance(result, LogError):
            self._failed_call(result, "read the state of the cluster")
            return
        state, taken = result
        if self.fenced:
            taken = None
        if taken is not None:
            if self.controller is not None:
                self.resign_controller()
            self.controller = taken
            self._controller_until_ms = self._controller_end_ms(sent_ms)
            logger.warning("cluster: node %d is the controller in epoch %d", taken.holder, taken.epoch)
        elif state.controller is not None and 0 < state.controller.remaining_ms < self.timing.poll_ms:
            self._schedule(state.controller.remaining_ms, self.refresh)  # the lease may have ended by then
        current = self.on_poll(state)
        if lapsed_until_ms and current and not self.fenced:
            self.local.deadline_ms = max(self.local.deadline_ms, lapsed_until_ms)
            if self._lapsed_until_ms == lapsed_until_ms:
                self._lapsed_until_ms = 0
        if taken is not None:
            self.on_controller(True)


def _ignore(value: object) -> bool:
    """Does nothing."""
    return True
