"""A shard: one partition of an internal topic, the state machine in it, and the batch that is being decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kcore.errors import KafkaError
from kcore.log.errors import CorruptLogError, LogError
from kcore.printable import counted
from kcore.process_logging import limited_logger, log_failure, log_name, next_step
from kcore.protocol.compression import compress
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.failed_requests import log_failed_request
from kcore.runtime.load_retry import LoadRetry
from kcore.runtime.loader import LoadReport, ReadableLog, ReadAhead, Replay, ShardLog
from kcore.runtime.machine import Outcome, ShardContext, StateMachine
from kcore.runtime.pending import Pending
from kcore.runtime.shard_state import TRANSITIONS, ShardState
from kcore.runtime.shard_timer import ShardTimer
from kcore_ext.runtime.shard import ShardCore

if TYPE_CHECKING:
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.shard_services import ShardServices
    from kcore.runtime.slices import Slices
    from kcore_ext.runtime.timer_wheel import Timer

logger = limited_logger(__name__)

M = TypeVar("M", bound=StateMachine)

MAX_BATCH_BYTES = 1_048_588
"""Default maximum size of a record batch in bytes: Kafka's default of `max.message.bytes`."""


def _unchanged(outcome: Outcome) -> Outcome:
    return outcome


class Shard(ShardCore, Generic[M]):
    """One partition of an internal topic with its state machine.

    `ShardCore`, the compiled base class, has the code that runs for every request. This class adds the commit, timers,
    the life cycle and the handling of errors.

    Args:
        topic: the internal topic's name.
        index: the partition.
        log: the partition's log.
        factory: makes an empty state machine; called at each load.
        services: the components that all shards of the node use.
        max_batch_bytes: the topic's max.message.bytes; the records of one decision must fit in one batch.
        codec: the codec of the batches, 0 for none. `max_batch_bytes` limits the batch before compression.
        allows_background_commit: True if no response shows state that is not durable yet. Another thread may then write
            the commit while the engine decides further requests.

    Attributes:
        state: the state. Only ACTIVE shards serve requests; LOADING shards return COORDINATOR_LOAD_IN_PROGRESS, all
            others NOT_COORDINATOR.
        machine: the state machine; each load makes a new one.
        report: the statistics of the last load.
    """

    __slots__ = (
        "_ahead",
        "_on_state",
        "_retry",
        "_slices",
        "_wheel",
        "factory",
        "generation",
        "index",
        "report",
        "state",
        "topic",
    )

    machine: M
    _lost = ErrorCode.KAFKA_STORAGE_ERROR
    """Error code of a decision whose records the log refused, or whose records were replayed only in part."""
    _taken = ErrorCode.NONE
    """The code that `append_marker` returns if it has appended the marker."""

    def __init__(
        self,
        topic: str,
        index: int,
        log: ShardLog,
        factory: Callable[[ShardContext], M],
        services: ShardServices,
        *,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        codec: int = 0,
        allows_background_commit: bool = True,
    ) -> None:
        self.topic = topic
        self.index = index
        self.factory = factory
        self.leader_epoch = log.leader_epoch
        self.state = ShardState.INITIAL
        self.generation = 0  # counts loads: timers and slices of an earlier load must not touch this one
        self.report = LoadReport()
        self.allows_background_commit = allows_background_commit
        self.dirty = self.committing = False
        self._log = log
        self._pipeline, self._wheel, self._slices, self._now = services
        self._max_batch_bytes = max_batch_bytes
        self._codec = codec
        self._compress = compress
        self._batch = None
        self._reload = False
        self._on_state: Callable[[Shard[M]], None] | None = None
        self._ahead = ReadAhead()
        self._retry = LoadRetry(self._wheel, self._now, self.load_again)
        self.machine = factory(ShardContext(self, self._now))

    # ---- requests

    @property
    def refusal(self) -> ErrorCode:
        """The error code for requests that arrive while the shard is not ACTIVE."""
        if self.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    @property
    def log(self) -> ShardLog:
        """The log of the shard's partition."""
        log: ShardLog = self._log
        return log

    @property
    def max_batch_bytes(self) -> int:
        """The largest size of a batch, and so of a decision's records, in bytes before compression."""
        return self._max_batch_bytes

    @max_batch_bytes.setter
    def max_batch_bytes(self, limit: int) -> None:
        # The open batch has room for the earlier limit only.
        if limit != self._max_batch_bytes and (self._batch is None or self.seal()):
            self._max_batch_bytes = limit

    def __repr__(self) -> str:
        return f"shard {self.topic}-{self.index}"

    @property
    def slices(self) -> Slices:
        """The node's queue of long work."""
        return self._slices

    @property
    def parked(self) -> int:
        """The number of parked requests, which wait for something other than a commit."""
        return len(self._parked)

    def _failed(self, api: Api[Any, Any], context: RequestContext, request: Any, error: Exception) -> Any:
        """Returns the error response to a request whose decision raised."""
        if isinstance(error, KafkaError):
            return api.error(context, request, error.code, error.message)
        self._refuse_pending(ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(error, MemoryError):
            self.reload_after_round(error)  # the decision may have changed a part of the soft state
        message = "shard %s-%d: %s failed; the client gets UNKNOWN_SERVER_ERROR%s"
        log_failed_request(logger, error, message, api, context, self.topic, self.index)
        return api.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def perform(self, action: Callable[[], Outcome | None], name: object = None) -> ErrorCode | None:
        """Runs a decision that no client requested: of a timer, a slice of work, or another component of the node.

        Args:
            action: makes the decision.
            name: the name of the work in log lines; None: `action`.

        Returns:
            The error code if the records of the decision were refused. None if they were appended, or if there were
            no records.
        """
        if self.state is not ShardState.ACTIVE:
            return self.refusal
        refused: ErrorCode | None = None
        try:
            outcome = action()
        except Exception as error:
            refused = ErrorCode.UNKNOWN_SERVER_ERROR
            self._refuse_pending(refused)
            outcome = None
            if isinstance(error, MemoryError):
                self.reload_after_round(error)
            log_failure(
                logger,
                error,
                "shard %s-%d: the action %s failed; none of its records are written%s",
                self.topic,
                self.index,
                log_name(action) if name is None else name,
                next_step(error),
            )
        if outcome is not None and outcome.records:
            refused = self._append(outcome)
            if refused is not None:
                self._unwritten(log_name(action) if name is None else name, refused)
        if self._outbox:
            self._release()
        return refused

    def _unwritten(self, action: object, refused: ErrorCode) -> None:
        try:
            logger.error(
                "shard %s-%d: the records of %s were refused with %s, and none of them is written; an earlier line of "
                "this shard has the cause",
                self.topic,
                self.index,
                f"the action {action}" if isinstance(action, str | ShardTimer) else "a component of this node",
                refused.name,
            )
        finally:
            self._refuse_pending(refused)

    def _release(self) -> None:
        """Completes the responses in the outbox, or adds them to the commit on which they depend. The outbox contains
        the responses that a decision has made to parked requests.

        If handling a response raises, the responses after it stay in the outbox for the next call.
        """
        outbox = self._outbox
        done = 0
        try:
            if self.dirty or self.committing:
                respond = self._pipeline.respond_after_commit if self.dirty else self._pipeline.respond_after_background
                for pending, response in outbox:
                    respond(pending, response)
                    done += 1
            else:
                for pending, response in outbox:
                    done += 1
                    if not pending.done:
                        pending.complete(response)
        finally:
            del outbox[:done]

    def _refuse(self, api: Api[Any, Any], context: RequestContext, request: Any, reply: Any, code: ErrorCode) -> Any:
        """Returns the error response to a request whose records were refused."""
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            code = api.storage_error
        if isinstance(reply, Pending) and not reply.done:
            reply.abandon()
        self._refuse_pending(code)
        if self._outbox:
            self._release()
        return api.error(context, request, code)

    def _refuse_pending(self, code: ErrorCode) -> None:
        """Replaces the responses in the outbox by errors, because they depend on records that were not written."""
        self._outbox = [
            (pending, pending.api.error(pending.context, pending.request, code)) for pending, _ in self._outbox
        ]

    # ---- records

    def _unencodable(self, error: Exception) -> ErrorCode:
        logger.error(
            "shard %s-%d: a record cannot be encoded; none of the records of its request is written%s",
            self.topic,
            self.index,
            next_step(error),
            exc_info=error,
        )
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _too_large(self, size_bytes: int) -> ErrorCode:
        logger.error(
            "shard %s-%d: one change of the state needs records of %d bytes, more than max.message.bytes of the topic; "
            "kcore writes none of these records; if a group or transaction is this large on purpose, raise "
            "max.message.bytes of the topic %s",
            self.topic,
            self.index,
            size_bytes,
            self.topic,
        )
        return ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka's mapping of MESSAGE_TOO_LARGE

    def _refused_by_log(self, error: Exception) -> ErrorCode:
        """Returns the error code for a producer's batch or a marker that the log refused.

        After a KafkaError or LogError, no batch is staged. After any other error, the batch may be staged, so the round
        fails.
        """
        if isinstance(error, KafkaError):
            return error.code
        if not isinstance(error, LogError):
            self._abort_round(error)
        log_failure(
            logger,
            error,
            "shard %s-%d: the log cannot store a batch or a marker of a transaction; the sender gets "
            "KAFKA_STORAGE_ERROR and tries again%s",
            self.topic,
            self.index,
            "; if this repeats, check the disk" if isinstance(error, LogError) else next_step(error),
        )
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _not_replayed(self, error: Exception) -> ErrorCode:
        """Fails the round, because memory does not match the staged records."""
        self._abort_round(error)
        log_failure(
            logger,
            error,
            "shard %s-%d: the state in memory and the records of the commit differ after an error; the commit fails, "
            "and the shard loads its state again%s",
            self.topic,
            self.index,
            next_step(error),
        )
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _abort_round(self, error: Exception) -> None:
        """Aborts the whole round and stops deciding, because memory is ahead of the log."""
        self._pipeline.abort_round(error)
        if self.state is ShardState.ACTIVE:
            self._transition(ShardState.FAILED, "memory does not match the log")

    # ---- commit (Participant)

    def failed(self, error: LogError) -> None:
        """Drops all decisions since the last commit: discards the shard's memory and loads the log again.

        If this method raises, it may be called again. It first sets the state to FAILED, so that the shard decides
        nothing, and clears `dirty` only at its end.
        """
        self._batch = None
        if self.state is ShardState.ACTIVE:
            self._transition(ShardState.FAILED, "commit failed")
        self._fail_waiting()  # again, because an interrupted transition may have left some requests
        if self.state is ShardState.FAILED:
            self.load()
        self.dirty = self.committing = self._reload = False

    def _mark_for_reload(self, error: Exception) -> ErrorCode:
        """Stops handling requests until the log is loaded again: a decision has changed a part of the state in memory,
        and its records will not be in the log.

        Earlier decisions of the round are still committed; the shard is loaded after that commit.
        """
        self._reload = True
        self._transition(ShardState.FAILED, "memory does not match the log")
        log_failure(
            logger,
            error,
            "shard %s-%d: after an error, the state in memory may differ from the log; the shard refuses requests, "
            "and loads its state from the log again after the next commit%s",
            self.topic,
            self.index,
            next_step(error),
        )
        return self._lost

    def reload_after_round(self, error: Exception) -> None:
        """Discards the shard's memory after the open round, and loads the log again.

        Args:
            error: an error that has left soft state, such as timers, incomplete.
        """
        if self.state is not ShardState.ACTIVE:
            return
        self.join_round()
        self._mark_for_reload(error)

    def join_round(self) -> None:
        """Takes part in the open round, so that this shard loads its log again if the round fails."""
        if not self.dirty:
            self._pipeline.enlist(self)
            self.dirty = True

    # ---- timers and long work

    def schedule(self, deadline_ms: int, timer: ShardTimer) -> Timer:
        """Arms a timer of this shard. A timer that fires after the shard was unloaded or loaded again has no effect."""
        timer.shard = self
        timer.generation = self.generation
        return self._wheel.add(deadline_ms, timer)

    def in_slices(self, work: Iterator[Outcome | None]) -> None:
        """Runs `work` between rounds, one item for each slice, until the shard is unloaded or loaded again."""
        self._slices.add(self._sliced(work, self.generation), self)

    def _sliced(self, work: Iterator[Outcome | None], generation: int) -> Iterator[None]:
        while self.generation == generation and self.state is ShardState.ACTIVE:
            try:
                outcome = next(work)
            except StopIteration:
                return
            if outcome is not None:
                self.perform(partial(_unchanged, outcome), log_name(work))
            yield

    # ---- life cycle

    def when_state_changes(self, callback: Callable[[Shard[M]], None]) -> None:
        """Sets the one callback that is called after each change of state."""
        self._on_state = callback

    def load(self) -> None:
        """Starts to replay the log into a new machine, in slices. The shard becomes ACTIVE at the end of the log."""
        self._check_transition(ShardState.LOADING, "load")
        self.generation += 1
        # Queued first: a shard that is LOADING without a queued load would stay LOADING forever.
        self._slices.add(self._load(self.generation), self)
        self._transition(ShardState.LOADING, "load")

    def restart(self, reason: str) -> None:
        """Discards the shard's memory and loads the log again. No change may be staged."""
        assert not self.dirty, "commit before a restart"
        assert not self.committing, "finish the background commit before a restart"
        if self.state is ShardState.ACTIVE:
            self._transition(ShardState.FAILED, reason)
        self.load_again()

    def load_again(self) -> bool:
        """Starts to load a FAILED shard. Returns True if the load was started.

        A shard that waits for a commit is loaded after that commit anyway; an earlier load would miss the staged
        records.
        """
        if self.state is not ShardState.FAILED or self.dirty or self.committing:
            return False
        self.load()
        return True

    def _load(self, generation: int) -> Iterator[None]:
        if not self._still_loads(generation):
            return
        try:
            started_ms = self._now.update()
            replay = self._ahead.finish()
            if replay is None:
                replay = self._new_replay()
            for _ in replay.run(self._log):
                yield
                if not self._still_loads(generation):
                    return
            report = replay.report
            report.elapsed_ms = self._now.update() - started_ms
            if report.unknown:
                logger.warning(
                    "shard %s-%d: the load skipped %s of unknown types, which a newer version of kcore may have "
                    "written; to use these records, run the version that wrote them",
                    self.topic,
                    self.index,
                    counted(report.unknown, "records"),
                )
        except Exception as error:
            if not self._still_loads(generation):
                return  # the shard was unloaded and its log closed
            pause_ms = self._retry.pause_ms
            self._transition(ShardState.FAILED, "load failed")
            self._report_failed_load(error, pause_ms)
            return
        self.machine, self.report = replay.machine, report
        self._transition(ShardState.ACTIVE, "loaded")
        self.perform(self._loaded)

    def _still_loads(self, generation: int) -> bool:
        """Returns False if the shard was unloaded, or another load has begun, since the load of `generation` began."""
        return self.generation == generation and self.state is ShardState.LOADING

    def _new_replay(self) -> Replay:
        return Replay(self.factory(ShardContext(self, self._now)))

    def read_ahead(self, log: ReadableLog) -> None:
        """Replays the log that another node writes, in slices.

        A later load continues after the replayed records (`continue_from`).
        """
        self._slices.add(self._ahead.begin(log, self._new_replay(), self), self)

    def stop_reading_ahead(self) -> Replay | None:
        """Ends `read_ahead`; returns its replay, or None if the replay is unusable."""
        replay = self._ahead.finish()
        return replay if replay is not None and replay.paused else None

    def continue_from(self, ahead: Shard[M]) -> None:
        """Makes the next load continue after the records that `ahead`, a shard of the same partition, has replayed."""
        replay = ahead.stop_reading_ahead()
        if replay is not None and ahead.max_batch_bytes == self.max_batch_bytes:
            replay.machine.context.shard = self
            replay.report.read_ahead = replay.report.records
            self._ahead.replay = replay

    def _report_failed_load(self, error: Exception, pause_ms: int) -> None:
        if isinstance(error, CorruptLogError) or not isinstance(error, (LogError, MemoryError)):
            hint = "; to skip damaged records, stop the server and run `kcore log repair`"
        else:
            hint = ""
        log_failure(
            logger,
            error,
            "shard %s-%d cannot be loaded and refuses every request; the next attempt is in %g s%s",
            self.topic,
            self.index,
            pause_ms / 1000,
            hint,
        )

    def _loaded(self) -> None:
        self.machine.on_loaded()

    def unload(self) -> None:
        """Unloads the shard: parked and later requests get NOT_COORDINATOR.

        The caller must commit decided records before, so that the unload loses no record for which a client waits. The
        call can be repeated after an exception.
        """
        assert not self.dirty, "commit before an unload"
        assert not self.committing, "finish the background commit before an unload"
        if self.state is ShardState.CLOSED:
            self._end_soft_state()
            return
        self._transition(ShardState.CLOSED, "unload")

    def _transition(self, state: ShardState, reason: str) -> None:
        """Changes the state. No other code assigns `state`."""
        self._check_transition(state, reason)
        before = self.state
        self.state = state
        self._active = state is ShardState.ACTIVE
        self._schedule_retry(before)
        if before is ShardState.ACTIVE:
            self._end_soft_state()
        if self._on_state is not None:
            self._on_state(self)
        logger.debug("shard %s-%d: %s -> %s: %s", self.topic, self.index, before.value, state.value, reason)

    def _schedule_retry(self, before: ShardState) -> None:
        """Arms the timer of the next load unless the shard is loaded or closed."""
        if self.state in (ShardState.ACTIVE, ShardState.CLOSED):
            self._retry.end()
        elif before is ShardState.LOADING:
            self._retry.failed()
        else:
            self._retry.begin()

    def _check_transition(self, state: ShardState, reason: str) -> None:
        assert state in TRANSITIONS[self.state], f"{self.topic}-{self.index}: {self.state} -> {state} ({reason})"

    def _end_soft_state(self) -> None:
        """Ends the soft state of this load: timers, slices, parked requests."""
        self.generation += 1
        try:
            self.machine.on_unloaded()
        except Exception as error:
            self._fail_waiting()  # first: there may be no memory for the line
            log_failure(
                logger,
                error,
                "shard %s-%d: an error while unloading the state; waiting requests fail, and their clients try again%s",
                self.topic,
                self.index,
                next_step(error),
            )
        self._fail_waiting()

    def _fail_waiting(self) -> None:
        """Completes every request that waits for this load of the shard with an error.

        A request is removed only after its completion, so this method can be repeated after an exception.
        """
        outbox, parked = self._outbox, self._parked
        while outbox:
            pending = outbox[0][0]
            if not pending.done:
                pending.fail(ErrorCode.NOT_COORDINATOR)
            del outbox[0]
        while parked:
            pending = next(iter(parked))
            if not pending.done:
                pending.fail(ErrorCode.NOT_COORDINATOR)
            parked.pop(pending, None)
