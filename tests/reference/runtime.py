"""Reference implementations of a shard's request handling and of a round's end.

The compiled `ShardCore` and `PipelineCore` are compared with them.
"""

from __future__ import annotations

from typing import Any

from kcore.errors import KafkaError
from kcore.log import LogError
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime import Outcome, Pending, RequestContext, Shard
from kcore.runtime.commit import CommitPipeline
from kcore_ext.batch import BatchBuilder, marker_builder

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 21


class ReferencePipeline(CommitPipeline):
    """A pipeline that calls its participants in Python."""

    __slots__ = ()

    def _seal(self) -> None:
        sealed: list[Any] = []
        while len(sealed) < len(self._participants):
            for participant in self._participants[len(sealed) :]:
                sealed.append(participant)
                try:
                    participant.seal()
                except Exception as error:
                    self.abort_round(error)

    def _release(self, participants: list[Any], responses: list[Pending]) -> None:
        for participant in participants:
            try:
                participant.committed()
            except Exception as error:
                self._failed_after_commit(participant, error)
        for pending in responses:
            pending.complete(pending.after_commit)


class ReferenceShard(Shard[Any]):
    """A shard without the compiled parts."""

    __slots__ = ()

    def run(self, api: Any, context: RequestContext, request: Any) -> Any:
        if not self._active:
            return api.error(context, request, self.refusal)
        try:
            result = api.decide(self.machine, context, request)
        except KafkaError as error:
            result = api.error(context, request, error.code, error.message)
        except Exception:
            self._refuse_pending(ErrorCode.UNKNOWN_SERVER_ERROR)
            result = api.error(context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(result, Outcome):
            if len(result.records):
                refused = self._append(result)
                if refused is not None:
                    return self._refuse(api, context, request, result.reply, refused)
            result = result.reply
        if self._outbox:
            self._release()
        if isinstance(result, Pending):
            if not result.done:
                if result.parked:
                    self._parked[result] = None
                return result
            result = result.response
        if self.dirty:
            pending = Pending(api, context, request)
            self._pipeline.respond_after_commit(pending, result)
            return pending
        if self.committing:
            pending = Pending(api, context, request)
            self._pipeline.respond_after_background(pending, result)
            return pending
        return result

    def respond(self, pending: Pending, response: Any) -> None:
        self._parked.pop(pending, None)
        self._outbox.append((pending, response))

    def _append(self, outcome: Outcome) -> Any:
        try:
            encoded = [
                (record.key.encode_key(), None if record.value is None else record.value.encode_value(record.version))
                for record in outcome.records
            ]
        except Exception as error:
            return self._unencodable(error)
        size = BATCH_OVERHEAD_BYTES
        for key, value in encoded:
            size += RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        if size > self._max_batch_bytes:
            return self._too_large(size)
        if outcome.producer_id >= 0:
            return self._append_transactional(outcome, Encoded(encoded))
        if self._batch is not None and self._batch.size_bytes + size > self._max_batch_bytes:
            if not self.seal():
                return self._lost
            self._batch = None
        self._enlist()
        if self._batch is None:
            self._batch = BatchBuilder(self._max_batch_bytes, base_timestamp_ms=self._now.wall_ms)
            self._next_offset = self._log.end_offset
        try:
            self._replay(outcome.records, -1, self._next_offset)
        except Exception as error:
            return self._mark_for_reload(error)
        self._collect(self._batch, Encoded(encoded))
        self._next_offset += len(encoded)
        return None

    def _append_transactional(self, outcome: Outcome, records: Any) -> Any:
        if not self.seal():
            return ErrorCode.KAFKA_STORAGE_ERROR
        batch = BatchBuilder(
            self._max_batch_bytes,
            base_timestamp_ms=self._now.wall_ms,
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
            transactional=True,
        )
        self._collect(batch, records)
        self._enlist()
        try:
            base_offset = self._log.append_built(batch, self.leader_epoch)
        except (KafkaError, LogError) as error:
            return self._refused_by_log(error)
        try:
            self._replay(outcome.records, outcome.producer_id, base_offset)
        except Exception as error:
            return self._not_replayed(error)
        return None

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int = 0,
    ) -> Any:
        if not self._active:
            return self.refusal
        if not self.seal():
            return ErrorCode.KAFKA_STORAGE_ERROR
        marker = marker_builder(
            int(commit),
            coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=self._now.wall_ms,
            transaction_version=transaction_version,
        )
        self._enlist()
        try:
            offset = self._log.append_built(marker, self.leader_epoch)
        except (KafkaError, LogError) as error:
            return self._refused_by_log(error)
        try:
            self.machine.replay_marker(offset, producer_id, producer_epoch, commit)
        except Exception as error:
            return self._not_replayed(error)
        return ErrorCode.NONE

    def _enlist(self) -> None:
        if not self.dirty:
            self._pipeline.enlist(self)
            self.dirty = True

    def _replay(self, records: Any, producer_id: int, first_offset: int) -> None:
        for offset, record in enumerate(records, first_offset):
            self.machine.replay(offset, producer_id, record.key, record.value)

    def _collect(self, batch: BatchBuilder, records: Any) -> None:
        for key, value in records.pairs:
            assert batch.append(self._now.wall_ms, key, value)

    def seal(self) -> bool:
        batch, self._batch = self._batch, None
        if batch is None or not batch.count:
            return True
        first = self._next_offset - batch.count
        try:
            base_offset = self._log.append_built(batch, self.leader_epoch)
            assert base_offset == first, f"{self.topic}-{self.index}: batch at {base_offset}, replayed at {first}"
        except Exception as error:
            self._abort_round(error)
            return False
        return True

    def committed(self) -> None:
        if self.committing:
            self.committing = False
        else:
            self.dirty = False
        if self._reload and not self.dirty:
            self._reload = False
            self.load()


class Encoded:
    """The encoded records of one request, as (key, value) pairs of bytes."""

    def __init__(self, pairs: list[tuple[bytes | None, bytes | None]]) -> None:
        self.pairs = pairs
