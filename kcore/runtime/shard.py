"""A shard: one partition of an internal topic, the state machine in it, and the batch that is being decided."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kcore.errors import KafkaError
from kcore.log.errors import LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.loader import LoadReport, ShardLog, replay_log
from kcore.runtime.machine import Outcome, Record, RecordBlock, ShardContext, StateMachine
from kcore.runtime.pending import Pending
from kcore_ext.batch import BatchBuilder, build_control_batch

if TYPE_CHECKING:
    from kcore.clock import Now
    from kcore.runtime.api import Api, RequestContext
    from kcore.runtime.commit import CommitPipeline
    from kcore.runtime.slices import Slices
    from kcore_ext.timer_wheel import Timer, TimerWheel

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=StateMachine)

BATCH_OVERHEAD_BYTES = 61  # the header of a record batch v2
RECORD_OVERHEAD_BYTES = 21  # at most: length, attributes, timestamp and offset deltas, key and value lengths


class EncodedRecords:
    """Records as they go to the log, for decisions whose records are a list: the plain way (see `RecordBlock`).

    Args:
        records: they are encoded at once; whatever their keys and values raise is raised here.

    Attributes:
        size_bytes: what they take in a batch at most, without its header.
    """

    __slots__ = ("_encoded", "size_bytes")

    def __init__(self, records: list[Record]) -> None:
        self._encoded = [
            (record.key.encode_key(), None if record.value is None else record.value.encode_value(record.version))
            for record in records
        ]
        size_bytes = 0
        for key, value in self._encoded:
            size_bytes += RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        self.size_bytes = size_bytes

    def append_to(self, batch: BatchBuilder, timestamp_ms: int) -> bool:
        """Adds them to a batch; False if one did not fit."""
        return all(batch.append(timestamp_ms, key, value) for key, value in self._encoded)


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


class Shard(Generic[M]):
    """One partition of an internal topic with its state machine.

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

    Attributes:
        state: LOADING shards answer COORDINATOR_LOAD_IN_PROGRESS, all others but ACTIVE ones NOT_COORDINATOR.
        machine: the state machine; a new one after each load.
        report: what the last load did.
    """

    __slots__ = (
        "_batch",
        "_log",
        "_max_batch_bytes",
        "_next_offset",
        "_now",
        "_on_state",
        "_outbox",
        "_parked",
        "_pipeline",
        "_reload",
        "_slices",
        "_wheel",
        "dirty",
        "factory",
        "generation",
        "index",
        "leader_epoch",
        "machine",
        "report",
        "state",
        "topic",
    )

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
    ) -> None:
        self.topic = topic
        self.index = index
        self.factory = factory
        self.leader_epoch = log.leader_epoch
        self.state = ShardState.INITIAL
        self.generation = 0  # counts loads: what belongs to an earlier one must not touch this one
        self.report = LoadReport()
        self.dirty = False
        self._log = log
        self._pipeline = pipeline
        self._wheel = wheel
        self._slices = slices
        self._now = now
        self._max_batch_bytes = max_batch_bytes
        self._batch: BatchBuilder | None = None
        self._next_offset = 0
        self._outbox: list[tuple[Pending, Any]] = []
        self._parked: set[Pending] = set()
        self._reload = False
        self._on_state: Callable[[Shard[M]], None] | None = None
        self.machine: M = factory(ShardContext(self, now))

    # ---- requests

    @property
    def refusal(self) -> ErrorCode:
        """The code for a request that comes while the shard is not ACTIVE."""
        if self.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    @property
    def parked(self) -> int:
        """How many requests wait here for something else than a commit."""
        return len(self._parked)

    def run(self, api: Api[Any, Any], context: RequestContext, request: Any) -> Any:
        """Decides one request. Returns the response, or a `Pending` if it is parked or must wait for the commit."""
        if self.state is not ShardState.ACTIVE:
            return api.error(context, request, self.refusal)
        try:
            result = api.decide(self.machine, context, request)
        except KafkaError as error:
            result = api.error(context, request, error.code, error.message)
        except Exception:
            logger.exception("%s-%d: %s failed", self.topic, self.index, type(api).__name__)
            result = api.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._refuse_answers(ErrorCode.UNKNOWN_SERVER_ERROR)
        if type(result) is Outcome:
            if result.records:
                refused = self._append(result)
                if refused is not None:
                    return self._refuse(api, context, request, result.reply, refused)
            result = result.reply
        if self._outbox:
            self._release()
        if isinstance(result, Pending):
            if not result.done:
                if result.parked:
                    self._parked.add(result)
                return result
            result = result.response
        if self.dirty:
            # What was decided, or read, stands on facts that are not durable yet: the answer waits for them.
            pending = Pending(api, context, request)
            self._pipeline.answer_later(pending, result)
            return pending
        return result

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
        except Exception:
            logger.exception("%s-%d: %s failed", self.topic, self.index, action)
            refused = ErrorCode.UNKNOWN_SERVER_ERROR
            self._refuse_answers(refused)
            outcome = None
        if outcome is not None and outcome.records:
            refused = self._append(outcome)
            if refused is not None:
                logger.error("%s-%d: %s was not written: %s", self.topic, self.index, action, refused.name)
                self._refuse_answers(refused)
        if self._outbox:
            self._release()
        return refused

    def answer(self, pending: Pending, response: Any) -> None:
        """Answers a parked request after the commit of everything decided up to the end of this decision."""
        self._parked.discard(pending)
        self._outbox.append((pending, response))

    def _release(self) -> None:
        outbox, self._outbox = self._outbox, []
        if self.dirty:
            for pending, response in outbox:
                self._pipeline.answer_later(pending, response)
        else:
            for pending, response in outbox:
                pending.complete(response)

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

    def _append(self, outcome: Outcome) -> ErrorCode | None:
        """Encodes, replays and collects the facts of one decision. Returns a code if nothing of it was taken;
        KAFKA_STORAGE_ERROR stands for the API's own `storage_error`.
        """
        records: Any = outcome.records
        if isinstance(records, list):
            try:
                records = EncodedRecords(records)
            except Exception:
                logger.exception("%s-%d: a decided record cannot be encoded", self.topic, self.index)
                return ErrorCode.UNKNOWN_SERVER_ERROR
        size_bytes = BATCH_OVERHEAD_BYTES + records.size_bytes
        if size_bytes > self._max_batch_bytes:
            logger.error("%s-%d: a decision of %d bytes is too large to write", self.topic, self.index, size_bytes)
            return ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka's mapping of MESSAGE_TOO_LARGE
        if outcome.producer_id >= 0:
            return self._append_transactional(outcome, records)
        batch = self._batch
        if batch is not None and batch.size_bytes + size_bytes > self._max_batch_bytes:
            if not self._close_batch():
                return ErrorCode.KAFKA_STORAGE_ERROR
            batch = None
        if batch is None:
            batch = self._batch = BatchBuilder(self._max_batch_bytes, base_timestamp_ms=self._now.wall_ms)
            self._next_offset = self._log.end_offset
        if not self._replay(outcome, self._next_offset):
            self._diverge()
            return ErrorCode.KAFKA_STORAGE_ERROR
        taken = records.append_to(batch, self._now.wall_ms)
        assert taken, "the batch was opened with room for the whole decision"
        self._next_offset += len(outcome.records)
        if not self.dirty:
            self._enlist()
        return None

    def _append_transactional(self, outcome: Outcome, records: EncodedRecords | RecordBlock) -> ErrorCode | None:
        """A batch of its own. It is staged before it is replayed: the log may refuse its producer (a newer epoch)."""
        if not self._close_batch():
            return ErrorCode.KAFKA_STORAGE_ERROR
        batch = BatchBuilder(
            self._max_batch_bytes,
            base_timestamp_ms=self._now.wall_ms,
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
            transactional=True,
        )
        taken = records.append_to(batch, self._now.wall_ms)
        assert taken, "the batch was opened with room for the whole decision"
        try:
            base_offset = self._log.append(batch.build_bytearray(), self.leader_epoch)
        except KafkaError as error:
            return error.code
        except LogError as error:
            logger.error("%s-%d: the log refused a transaction's facts: %s", self.topic, self.index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._enlist()
        if not self._replay(outcome, base_offset):
            self._lose(LogError(f"{self.topic}-{self.index}: a staged record cannot be replayed"))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def append_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, commit: bool) -> ErrorCode:
        """Writes the end of a producer's transaction behind everything decided so far, and applies it (KIP-98).

        Args:
            producer_id: whose transaction.
            producer_epoch: the epoch that the marker carries.
            coordinator_epoch: the epoch of the transaction coordinator.
            commit: how it ended.

        Returns:
            NONE, or why nothing was written.
        """
        if self.state is not ShardState.ACTIVE:
            return self.refusal
        if not self._close_batch():
            return ErrorCode.KAFKA_STORAGE_ERROR
        marker = build_control_batch(
            int(commit),
            coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=self._now.wall_ms,
        )
        try:
            offset = self._log.append(bytearray(marker), self.leader_epoch)
        except KafkaError as error:
            return error.code
        except LogError as error:
            logger.error("%s-%d: the log refused a marker: %s", self.topic, self.index, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._enlist()
        try:
            self.machine.replay_marker(offset, producer_id, producer_epoch, commit)
        except Exception as error:
            logger.exception("%s-%d: a staged marker cannot be replayed", self.topic, self.index)
            self._lose(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _replay(self, outcome: Outcome, first_offset: int) -> bool:
        """Applies the facts to memory; False if a bug stands in the way, and memory holds half of them."""
        records = outcome.records
        try:
            if isinstance(records, list):
                for offset, record in enumerate(records, first_offset):
                    self.machine.replay(offset, outcome.producer_id, record.key, record.value)
            else:
                machine: Any = self.machine
                machine.replay_block(first_offset, outcome.producer_id, records)
        except Exception:
            logger.exception("%s-%d: a decided record cannot be replayed", self.topic, self.index)
            return False
        return True

    def _enlist(self) -> None:
        if not self.dirty:
            self.dirty = True
            self._pipeline.enlist(self)

    def _close_batch(self) -> bool:
        """Hands the open batch to the log's staging; False if the log refused it, and the round is lost."""
        batch, self._batch = self._batch, None
        if batch is None or not batch.count:
            return True
        first = self._next_offset - batch.count
        try:
            base_offset = self._log.append(batch.build_bytearray(), self.leader_epoch)
            # State was replayed at these offsets: another writer in between would make memory and log disagree.
            assert base_offset == first, f"{self.topic}-{self.index}: batch at {base_offset}, replayed at {first}"
        except Exception as error:
            self._lose(error)
            return False
        return True

    def _lose(self, error: Exception) -> None:
        """Memory is ahead of what the log took: the whole round fails, and with it this memory goes."""
        self._pipeline.doom(error)
        if self.state is ShardState.ACTIVE:
            self._transition(ShardState.FAILED, f"the log refused a batch: {error}")

    # ---- commit (Participant)

    def seal(self) -> None:
        """The round closes: the open batch goes to the log's staging."""
        self._close_batch()

    def committed(self) -> None:
        """Everything decided is durable."""
        self.dirty = False
        if self._reload:
            self._reload = False
            self.load()

    def failed(self, error: LogError) -> None:
        """Nothing decided since the last commit exists: forget this memory and load the log again."""
        self._batch = None
        self.dirty = self._reload = False
        if self.state is ShardState.ACTIVE:
            self._transition(ShardState.FAILED, f"commit failed: {error}")
        if self.state is ShardState.FAILED:
            self.load()

    def _diverge(self) -> None:
        """Memory is ahead of the log by half a decision: forget it. What was decided before still commits."""
        self._transition(ShardState.FAILED, "memory and log disagree")
        if self.dirty:
            self._reload = True
        else:
            self._batch = None
            self.load()

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
        self._transition(ShardState.LOADING, "load")
        self.generation += 1
        self._slices.add(self._load(self.generation))

    def _load(self, generation: int) -> Iterator[None]:
        report = LoadReport()
        started_ms = self._now.update()
        try:
            machine = self.factory(ShardContext(self, self._now))
            for _ in replay_log(self._log, machine, report):
                yield
                if self.generation != generation:
                    return
        except Exception:
            logger.exception("%s-%d cannot be loaded", self.topic, self.index)
            self._transition(ShardState.FAILED, "load failed")
            return
        report.elapsed_ms = self._now.update() - started_ms
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
        self._transition(ShardState.CLOSED, "unload")

    def _transition(self, state: ShardState, reason: str) -> None:
        """The one gate of every change of state."""
        assert state in TRANSITIONS[self.state], f"{self.topic}-{self.index}: {self.state} -> {state} ({reason})"
        logger.debug("%s-%d: %s -> %s: %s", self.topic, self.index, self.state.value, state.value, reason)
        leaving_active = self.state is ShardState.ACTIVE
        self.state = state
        if leaving_active:
            self._leave()
        if self._on_state is not None:
            self._on_state(self)

    def _leave(self) -> None:
        """Soft state ends with the memory it belongs to."""
        self.generation += 1
        try:
            self.machine.on_unloaded()
        except Exception:
            logger.exception("%s-%d: its machine did not let go", self.topic, self.index)
        outbox, self._outbox = self._outbox, []
        parked, self._parked = self._parked, set()
        for pending in (*(pending for pending, _ in outbox), *parked):
            pending.fail(ErrorCode.NOT_COORDINATOR)
