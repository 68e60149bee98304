"""A shard: one partition of an internal topic, the state machine in it, and the batch that is being decided."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kcore.errors import KafkaError
from kcore.log.errors import LogError
from kcore.process_logging import log_failure
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.loader import LoadReport, ShardLog, replay_log
from kcore.runtime.machine import Outcome, ShardContext, StateMachine
from kcore.runtime.pending import Pending
from kcore_ext.runtime.shard import ShardCore

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices
    from kcore_ext.runtime.timer_wheel import Timer, TimerWheel

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=StateMachine)


class ShardState(Enum):
    """Where a shard is in its life."""

    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


# The life of a shard, whole: what may follow what.
TRANSITIONS: dict[ShardState, frozenset[ShardState]] = {
    ShardState.INITIAL: frozenset({ShardState.LOADING, ShardState.CLOSED}),
    ShardState.LOADING: frozenset({ShardState.ACTIVE, ShardState.FAILED, ShardState.CLOSED}),
    ShardState.ACTIVE: frozenset({ShardState.FAILED, ShardState.CLOSED}),
    ShardState.FAILED: frozenset({ShardState.LOADING, ShardState.CLOSED}),
    ShardState.CLOSED: frozenset(),
}


class ShardTimer(ABC):
    """A timeout within a shard. It fires as a decision, like any request, and looks again at what it finds then.

    Subclasses hold ids, not closures, and must check that the state they were armed for still stands.
    """

    __slots__ = ("generation", "shard")
    shard: Shard[Any]
    generation: int

    @abstractmethod
    def fire(self) -> Outcome | None:
        """Decides what the timeout means now."""

    def __call__(self) -> None:
        """Called by the driver when the wheel gives the timer out; nothing if the shard was loaded again since."""
        if self.generation == self.shard.generation:
            self.shard.perform(self.fire)


class Shard(ShardCore, Generic[M]):
    """One partition of an internal topic with its state machine.

    What is done for every request is compiled: see `ShardCore`. Here is the rest: transactions, the commit, timers,
    the shard's life, and what is to be done when something is wrong.

    Args:
        topic: the internal topic's name.
        index: the partition.
        log: the partition's log.
        factory: makes an empty state machine; called at each load.
        pipeline: commits what is decided.
        wheel: the node's timers.
        slices: where long work runs.
        now: the time of the round.
        max_batch_bytes: the topic's max.message.bytes; what one decision writes must fit in one batch.
        overlaps: see `Participant`: all who read the machine do so in a decision of the shard.

    Attributes:
        state: LOADING shards answer COORDINATOR_LOAD_IN_PROGRESS, all others but ACTIVE ones NOT_COORDINATOR.
        machine: the state machine; a new one after each load.
        report: what the last load did.
    """

    __slots__ = (
        "_on_state",
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
    """What `_append` returns if facts were not taken because the log did not take them, or memory half of them."""
    _taken = ErrorCode.NONE
    """What `append_marker` returns of a marker that was."""

    def __init__(
        self,
        topic: str,
        index: int,
        log: ShardLog,
        factory: Callable[[ShardContext], M],
        *,
        pipeline: CommitPipeline,
        wheel: TimerWheel,
        slices: Slices,
        now: Now,
        max_batch_bytes: int = 1_048_588,
        allows_background_commit: bool = True,
    ) -> None:
        self.topic = topic
        self.index = index
        self.factory = factory
        self.leader_epoch = log.leader_epoch
        self.state = ShardState.INITIAL
        self.generation = 0  # counts loads: what belongs to an earlier one must not touch this one
        self.report = LoadReport()
        self.allows_background_commit = allows_background_commit
        self.dirty = self.committing = False
        self._log = log
        self._pipeline = pipeline
        self._wheel = wheel
        self._slices = slices
        self._now = now
        self._max_batch_bytes = max_batch_bytes
        self._batch = None
        self._reload = False
        self._on_state: Callable[[Shard[M]], None] | None = None
        self.machine = factory(ShardContext(self, now))

    # ---- requests

    @property
    def refusal(self) -> ErrorCode:
        """The code for a request that comes while the shard is not ACTIVE."""
        if self.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    @property
    def slices(self) -> Slices:
        """Where long work of the node runs."""
        return self._slices

    @property
    def parked(self) -> int:
        """How many requests wait here for something else than a commit."""
        return len(self._parked)

    def _failed(self, api: Api[Any, Any], context: RequestContext, request: Any, error: Exception) -> Any:
        """The answer to a request whose decision raised."""
        if isinstance(error, KafkaError):
            return api.error(context, request, error.code, error.message)
        self._refuse_answers(ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(error, MemoryError):
            self.start_over(error)  # the decision may have changed a half of what is soft
        log_failure(logger, error, "%s-%d: %s failed", self.topic, self.index, type(api).__name__)
        return api.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def perform(self, action: Callable[[], Outcome | None]) -> ErrorCode | None:
        """Decides something that no client asked this shard for: a timer, a slice of work, a question within the node.

        Returns:
            Why nothing was decided; None if all of it was taken, or there was nothing to write.
        """
        if self.state is not ShardState.ACTIVE:
            return self.refusal
        refused: ErrorCode | None = None
        try:
            outcome = action()
        except Exception as error:
            refused = ErrorCode.UNKNOWN_SERVER_ERROR
            self._refuse_answers(refused)
            outcome = None
            if isinstance(error, MemoryError):
                self.start_over(error)
            log_failure(logger, error, "%s-%d: %s failed", self.topic, self.index, action)
        if outcome is not None and outcome.records:
            refused = self._append(outcome)
            if refused is not None:
                self._unwritten(action, refused)
        if self._outbox:
            self._release()
        return refused

    def _unwritten(self, what: object, refused: ErrorCode) -> None:
        logger.error("%s-%d: %s was not written: %s", self.topic, self.index, what, refused.name)
        self._refuse_answers(refused)

    def _release(self) -> None:
        """Gives the responses in the outbox out, or to the round that they wait for.

        A response leaves the outbox behind that: one that cannot be given out stays for the next call.
        """
        outbox = self._outbox
        done = 0
        try:
            if self.dirty or self.committing:
                answer = self._pipeline.answer_later if self.dirty else self._pipeline.answer_after_background
                for pending, response in outbox:
                    answer(pending, response)
                    done += 1
            else:
                for pending, response in outbox:
                    done += 1
                    if not pending.done:
                        pending.complete(response)
        finally:
            del outbox[:done]

    def _refuse(self, api: Api[Any, Any], context: RequestContext, request: Any, reply: Any, code: ErrorCode) -> Any:
        """The answer to a request whose facts were not taken."""
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            code = api.storage_error
        if isinstance(reply, Pending) and not reply.done:
            reply.abandon()
        self._refuse_answers(code)
        if self._outbox:
            self._release()
        return api.error(context, request, code)

    def _refuse_answers(self, code: ErrorCode) -> None:
        """The decision came to nothing: what it would have answered to others stands on facts that do not exist."""
        self._outbox = [
            (pending, pending.api.error(pending.context, pending.request, code)) for pending, _ in self._outbox
        ]

    # ---- facts

    def _unencodable(self, error: Exception) -> ErrorCode:
        logger.error("%s-%d: a decided record cannot be encoded", self.topic, self.index, exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _too_large(self, size_bytes: int) -> ErrorCode:
        logger.error("%s-%d: a decision of %d bytes is too large to write", self.topic, self.index, size_bytes)
        return ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka's mapping of MESSAGE_TOO_LARGE

    def _refused_by_log(self, error: Exception) -> ErrorCode:
        """Returns the code for a producer's batch or marker that the log did not take.

        A refusal of the log staged nothing. Any other error may have staged the batch, so the round fails.
        """
        if isinstance(error, KafkaError):
            return error.code
        if not isinstance(error, LogError):
            self._reload_after(error)
        log_failure(logger, error, "%s-%d: the log refused a transaction's batch", self.topic, self.index)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _not_replayed(self, error: Exception) -> ErrorCode:
        """Fails the round: memory and what is staged disagree."""
        self._reload_after(error)
        log_failure(logger, error, "%s-%d: memory and staged records disagree", self.topic, self.index)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _reload_after(self, error: Exception) -> None:
        """Fails the whole round, and stops deciding: memory is ahead of what the log took."""
        self._pipeline.abort_round(error)
        if self.state is ShardState.ACTIVE:
            self._transition(ShardState.FAILED, "the log and memory disagree")

    # ---- commit (Participant)

    def failed(self, error: LogError) -> None:
        """Forgets everything decided since the last commit: drops this memory and loads the log again.

        It may be called again if it raised. The shard stops deciding before it stops being dirty.
        """
        self._batch = None
        if self.state is ShardState.ACTIVE:
            self._transition(ShardState.FAILED, "commit failed")
        self._let_go()  # what a transition that broke off has left
        if self.state is ShardState.FAILED:
            self.load()
        self.dirty = self.committing = self._reload = False

    def _diverge(self, error: Exception) -> ErrorCode:
        """Stops deciding: memory has a part of a decision that the log will not have.

        Earlier decisions of the round still commit; the shard is loaded behind that commit.
        """
        self._reload = True
        self._transition(ShardState.FAILED, "memory and log disagree")
        log_failure(logger, error, "%s-%d: memory is read from the log again", self.topic, self.index)
        return self._lost

    def start_over(self, error: Exception) -> None:
        """Drops this memory and loads the log again, behind the round that is open: soft state was lost on the way."""
        if self.state is not ShardState.ACTIVE:
            return
        if not self.dirty:
            self._pipeline.enlist(self)
            self.dirty = True
        self._diverge(error)

    # ---- timers and long work

    def schedule(self, deadline_ms: int, timer: ShardTimer) -> Timer:
        """Arms a timer of this shard. One that is still armed when the shard goes fires into nothing."""
        timer.shard = self
        timer.generation = self.generation
        return self._wheel.add(deadline_ms, timer)

    def in_slices(self, work: Iterator[Outcome | None]) -> None:
        """Runs `work` between rounds, an item a slice, for as long as this load of the shard lives."""
        self._slices.add(self._sliced(work, self.generation))

    def _sliced(self, work: Iterator[Outcome | None], generation: int) -> Iterator[None]:
        while self.generation == generation and self.state is ShardState.ACTIVE:
            try:
                outcome = next(work)
            except StopIteration:
                return
            if outcome is not None:
                self.perform(lambda outcome=outcome: outcome)  # type: ignore[misc]
            yield

    # ---- life

    def when_state_changes(self, callback: Callable[[Shard[M]], None]) -> None:
        """Tells one observer of each change of state."""
        self._on_state = callback

    def load(self) -> None:
        """Starts to replay the log into a fresh machine, in slices; ACTIVE once it is at the end."""
        self._check_transition(ShardState.LOADING, "load")
        self.generation += 1
        # Queued first: a shard that is LOADING without work in the slices would stay so for ever.
        self._slices.add(self._load(self.generation))
        self._transition(ShardState.LOADING, "load")

    def load_again(self) -> bool:
        """Loads a shard that failed; whether it does.

        What is not in the log yet would be missing: a shard that waits for a commit is loaded behind it anyway.
        """
        if self.state is not ShardState.FAILED or self.dirty or self.committing:
            return False
        self.load()
        return True

    def _load(self, generation: int) -> Iterator[None]:
        if self.generation != generation or self.state is not ShardState.LOADING:
            return
        try:
            report = LoadReport()
            started_ms = self._now.update()
            machine = self.factory(ShardContext(self, self._now))
            for _ in replay_log(self._log, machine, report):
                yield
                if self.generation != generation:
                    return
            report.elapsed_ms = self._now.update() - started_ms
        except Exception as error:
            self._transition(ShardState.FAILED, "load failed")
            log_failure(
                logger,
                error,
                "%s-%d cannot be loaded, and refuses every request; "
                "stop the server and let `kcore log repair` skip what cannot be read",
                self.topic,
                self.index,
            )
            return
        self.machine, self.report = machine, report
        self._transition(ShardState.ACTIVE, "loaded")
        self.perform(self._loaded)

    def _loaded(self) -> None:
        self.machine.on_loaded()

    def unload(self) -> None:
        """Gives the partition up: parked requests get NOT_COORDINATOR, later ones too.

        What was decided must be committed before: an unload never loses a fact that somebody waits for.
        """
        assert not self.dirty, "commit before an unload"
        assert not self.committing, "land before an unload"
        self._transition(ShardState.CLOSED, "unload")

    def _transition(self, state: ShardState, reason: str) -> None:
        """Changes the state: the only place that does."""
        self._check_transition(state, reason)
        before = self.state
        self.state = state
        self._active = state is ShardState.ACTIVE
        if before is ShardState.ACTIVE:
            self._leave()
        if self._on_state is not None:
            self._on_state(self)
        logger.debug("%s-%d: %s -> %s: %s", self.topic, self.index, before.value, state.value, reason)

    def _check_transition(self, state: ShardState, reason: str) -> None:
        assert state in TRANSITIONS[self.state], f"{self.topic}-{self.index}: {self.state} -> {state} ({reason})"

    def _leave(self) -> None:
        """Ends the soft state with the memory that it belongs to."""
        self.generation += 1
        try:
            self.machine.on_unloaded()
        except Exception as error:
            log_failure(logger, error, "%s-%d: the state machine failed to unload", self.topic, self.index)
        self._let_go()

    def _let_go(self) -> None:
        """Fails every request that waits for this memory. A request stays listed until it is answered."""
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
