"""The runtime's work for every request: deciding, collecting records into batches, and replaying them.

`kcore.runtime.shard` and `kcore.runtime.commit` have the code that runs once per commit or load, or after errors.

Any allocation may fail, and a signal handler may raise between any two Python bytecodes that this module calls. Two
rules make these exceptions harmless. A shard or partition enlists in the round before it changes anything, so that a
failed round restores every change. `PipelineCore.changing` counts the changes that have begun and not ended. If it is
not 0 when the round is to be written, a change was interrupted, and the round fails.

No `except` block has a `return`. For such a `return`, Cython releases the exception's traceback. If memory ran out when
the traceback was made, the traceback is NULL, and its release ends the process.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder, end_marker, non_transactional_builder, transactional_builder
from kcore_ext.batch.layout cimport HEADER_BYTES
from kcore_ext.runtime.encoded cimport request_of
from kcore_ext.runtime.outcome cimport Outcome, Pending, pending_of
from kcore_ext.group.offset_block cimport OffsetBlock
from kcore_ext.util.record_limits cimport RECORD_OVERHEAD


@cython.final
cdef class EncodedRecords:
    """Documented in shard.pyi."""

    def __cinit__(self, records):
        cdef bytes key, value
        self.encoded = []
        for record in records:
            key = record.key.encode_key()
            typed = record.value
            value = None if typed is None else typed.encode_value(record.version)
            self.encoded.append((key, value))
            self.size_bytes += RECORD_OVERHEAD
            if key is not None:
                self.size_bytes += len(key)
            if value is not None:
                self.size_bytes += len(value)

    def append_to(self, BatchBuilder batch not None, int64_t timestamp_ms) -> bool:
        for key, value in self.encoded:
            if not batch.add(timestamp_ms, key, value, b"\0", -1):
                return False
        return True


cdef class ParticipantCore:
    """Documented in shard.pyi."""

    cdef int stage(self) except -1:
        self.seal()
        return 0

    cdef int end_commit(self) except -1:
        self.committed()
        return 0


cdef class ShardLogCore(ParticipantCore):
    """Documented in shard.pyi."""

    cdef int64_t append_batch(self, BatchBuilder batch, int32_t leader_epoch) except -1:
        return self.append_built(batch, leader_epoch)

    cdef int64_t next_offset(self) except -1:
        return self.end_offset


cdef class MachineCore:
    """Documented in shard.pyi."""

    cdef int replay_records(self, int64_t first_offset, int64_t producer_id, object block) except -1:
        self.replay_block(first_offset, producer_id, block)
        return 0


cdef int64_t append_batch(object log, BatchBuilder batch, int32_t leader_epoch) except -1:
    """Calls `append_built` of a `ShardLog`."""
    if isinstance(log, ShardLogCore):
        return (<ShardLogCore>log).append_batch(batch, leader_epoch)
    return log.append_built(batch, leader_epoch)


cdef int64_t next_offset(object log) except -1:
    """Returns `end_offset` of a `ShardLog`."""
    return (<ShardLogCore>log).next_offset() if isinstance(log, ShardLogCore) else log.end_offset


cdef bint contains(list participants, object participant) noexcept:
    for enlisted in participants:
        if enlisted is participant:
            return True
    return False


cdef int64_t last_round = 0     # of all pipelines


cdef int64_t new_round() noexcept:
    global last_round
    last_round += 1
    return last_round


cdef class PipelineCore:
    """Documented in shard.pyi."""

    def __cinit__(self, *arguments, **named):
        self._participants = []
        self._responses = []
        self._round = new_round()
        self.allows_background_commit = True

    @property
    def dirty(self) -> bool:
        return len(self._participants) > 0 or len(self._responses) > 0

    @property
    def committing(self) -> bool:
        return self._background_responses is not None

    @property
    def has_uncommitted(self) -> bool:
        return self.dirty or self.committing

    @property
    def waiting(self) -> int:
        return len(self._responses)

    def when_dirty(self, callback):
        self._on_dirty = callback

    cpdef enlist(self, participant):
        cdef bint allows_background_commit, enlisted
        cdef ParticipantCore core = None
        # All calls that may raise come first: a participant is enlisted completely or not at all.
        if isinstance(participant, ParticipantCore):
            core = <ParticipantCore>participant
            enlisted = core._round == self._round
            allows_background_commit = core.allows_background_commit
        else:
            enlisted = contains(self._participants, participant)
            allows_background_commit = participant.allows_background_commit
        if not enlisted:
            if self._on_dirty is not None and len(self._participants) == 0:
                self._on_dirty()
            self._participants.append(participant)
            if core is not None:
                core._round = self._round
        if not allows_background_commit:
            self.allows_background_commit = False

    cpdef respond_after_commit(self, Pending pending, response):
        self._responses.append(pending)
        if pending.after_commit is None:    # after an interrupt, a response may be added a second time
            pending.after_commit = response

    cpdef respond_after_background(self, Pending pending, response):
        self._background_responses.append(pending)
        if pending.after_commit is None:
            pending.after_commit = response

    def _take_round(self):
        # Everything is allocated before anything changes: a round is taken completely or not at all.
        cdef tuple taken = (self._participants, self._responses)
        cdef list participants = []
        cdef list responses = []
        self.interrupted = True
        self._taken_round, self._round = self._round, new_round()
        self._participants = participants
        self._responses = responses
        self.allows_background_commit = True
        return taken

    def _give_back(self, list participants not None, list responses not None):
        self._round = self._taken_round
        self._participants = participants
        self._responses = responses
        self.interrupted = False

    def _begin_background(self, list participants not None, list responses not None):
        cdef ShardCore shard
        for participant in participants:
            if isinstance(participant, ShardCore):
                shard = <ShardCore>participant
                shard.dirty = False
                shard.committing = True
        self._background_responses = responses

    def _seal(self):
        cdef list participants = self._participants
        cdef Py_ssize_t sealed = 0
        while sealed < len(participants):   # sealing may enlist participants
            participant = participants[sealed]
            try:
                if isinstance(participant, ParticipantCore):
                    (<ParticipantCore>participant).stage()
                else:
                    participant.seal()
            except Exception as error:
                self.abort_round(error)
            sealed += 1

    def _release(self, list participants not None, list responses not None):
        for participant in participants:
            try:
                if isinstance(participant, ParticipantCore):
                    (<ParticipantCore>participant).end_commit()
                else:
                    participant.committed()
            except Exception as error:
                self._failed_after_commit(participant, error)
        for pending in responses:
            try:
                (<Pending>pending).complete((<Pending>pending).after_commit)
            except Exception as error:
                self._response_failed(pending, error)


cdef class ShardCore:
    """Documented in shard.pyi."""

    def __cinit__(self, *arguments, **named):
        self._outbox = []
        self._parked = {}

    def run(self, api, context, request):
        cdef Outcome outcome
        cdef Pending pending
        if not self._active:
            return api.error(context, request, self.refusal)
        try:
            result = api.decide(self.machine, context, request)
        except Exception as error:
            result = self._failed(api, context, request, error)
        if type(result) is Outcome:
            outcome = <Outcome>result
            result = outcome.reply
            if len(outcome.records):
                refused = self.append(outcome.records, outcome.producer_id, outcome.producer_epoch)
                if refused is not None:
                    return self._refuse(api, context, request, result, refused)
        if self._outbox:
            self._release()
        if isinstance(result, Pending):
            pending = <Pending>result
            if not pending.done:
                if pending.parked:
                    self._parked[pending] = None
                return pending
            result = pending.response
        return self.when_durable(api, context, request, result)

    cdef object write_and_respond(
        self, api, context, request, records, response, int64_t producer_id, int producer_epoch
    ):
        """Appends the records of a fast path, and returns its response, which waits for the commit.

        The shard must be active and have no responses to release, as `ready_shard` checks.
        """
        cdef Pending pending
        refused = self.append(records, producer_id, producer_epoch)
        if refused is not None:
            return self._refuse(api, context, request_of(request), response, refused)
        if self._outbox:
            self._release()
        pending = pending_of(api, context, request)
        pending.after_commit = response
        self._pipeline._responses.append(pending)
        return pending

    cdef object when_durable(self, api, context, request, response):
        """Returns the response, or a `Pending` for it if it may depend on records that are not durable yet."""
        cdef Pending pending
        if self.dirty:
            pending = pending_of(api, context, request)
            self._pipeline.respond_after_commit(pending, response)
            return pending
        if self.committing:
            pending = pending_of(api, context, request)
            self._pipeline.respond_after_background(pending, response)
            return pending
        return response

    def respond(self, Pending pending not None, response):
        self._outbox.append((pending, response))
        self._parked.pop(pending, None)     # last, so that a request is always in `_outbox` or `_parked`

    cpdef object write(self, Outcome outcome):
        if not self._active:
            return self.refusal
        refused = self.append(outcome.records, outcome.producer_id, outcome.producer_epoch)
        if refused is not None:
            self._unwritten(outcome.records, refused)
        if self._outbox:
            self._release()
        return refused

    def _append(self, Outcome outcome not None):
        return self.append(outcome.records, outcome.producer_id, outcome.producer_epoch)

    cdef object append(self, object records, int64_t producer_id, int producer_epoch):
        """Adds records to the round and applies them to memory. Returns None, or the reason of a refusal."""
        cdef object encoded = records
        cdef object refused = None
        cdef Py_ssize_t size
        cdef BatchBuilder batch
        cdef PipelineCore pipeline = self._pipeline
        if type(records) is list:
            try:
                encoded = EncodedRecords(records)
            except Exception as error:
                refused = self._unencodable(error)
            if refused is not None:
                return refused
        if type(records) is OffsetBlock:
            size = HEADER_BYTES + (<OffsetBlock>records).size_bytes
        else:
            size = HEADER_BYTES + <Py_ssize_t>encoded.size_bytes
        if size > self._max_batch_bytes:
            return self._too_large(size)
        if producer_id >= 0:
            return self._append_transactional(records, encoded, producer_id, producer_epoch)
        batch = self._batch
        if batch is not None and HEADER_BYTES + batch.records_size + size > self._max_batch_bytes:
            if not self.seal_batch():
                return self._lost
            batch = None
        self.enlist()
        if batch is None:
            self._next_offset = next_offset(self._log)
            batch = non_transactional_builder(self._max_batch_bytes, self._now.wall_ms)
            if self._codec:
                self.set_codec(batch)
            self._batch = batch
        pipeline.changing += 1
        try:
            self.replay(records, -1, self._next_offset)
        except Exception as error:
            refused = self._mark_for_reload(error)
        if refused is None:
            try:
                self.collect(batch, encoded)
            except Exception as error:
                refused = self._not_replayed(error)
        if refused is None:
            self._next_offset += len(records)
        pipeline.changing -= 1
        return refused

    cdef object _append_transactional(self, object records, object encoded, int64_t producer_id, int producer_epoch):
        """Writes the records as a separate batch. Stages it before the replay, because the log may refuse the epoch."""
        cdef BatchBuilder batch
        cdef int64_t base_offset = 0
        cdef object refused = None
        cdef PipelineCore pipeline = self._pipeline
        if not self.seal_batch():
            return self._lost
        batch = transactional_builder(
            self._max_batch_bytes, self._now.wall_ms, producer_id, producer_epoch
        )
        if self._codec:
            self.set_codec(batch)
        self.collect(batch, encoded)
        self.enlist()
        pipeline.changing += 1
        try:
            base_offset = append_batch(self._log, batch, self.leader_epoch)
        except Exception as error:
            refused = self._refused_by_log(error)
        if refused is None:
            try:
                self.replay(records, producer_id, base_offset)
            except Exception as error:
                refused = self._not_replayed(error)
        pipeline.changing -= 1
        return refused

    def append_marker(
        self, int64_t producer_id, int16_t producer_epoch, int32_t coordinator_epoch, bint commit,
        int transaction_version=0,
    ):
        cdef BatchBuilder marker
        cdef int64_t offset = 0
        cdef object refused = None
        cdef PipelineCore pipeline = self._pipeline
        if not self._active:
            return self.refusal
        if not self.seal_batch():
            return self._lost
        marker = end_marker(
            commit, coordinator_epoch, producer_id, producer_epoch, self._now.wall_ms, transaction_version
        )
        self.enlist()
        pipeline.changing += 1
        try:
            offset = append_batch(self._log, marker, self.leader_epoch)
        except Exception as error:
            refused = self._refused_by_log(error)
        if refused is None:
            try:
                self.machine.replay_marker(offset, producer_id, producer_epoch, commit)
            except Exception as error:
                refused = self._not_replayed(error)
        pipeline.changing -= 1
        return self._taken if refused is None else refused

    cdef int set_codec(self, BatchBuilder batch) except -1:
        """Makes a new batch compress its records."""
        batch.attributes |= self._codec
        batch.compress = self._compress
        batch.keeps_codec = True
        return 0

    cdef int enlist(self) except -1:
        """Joins the round before anything changes, because a failed round restores only its participants."""
        if not self.dirty:
            PipelineCore.enlist(self._pipeline, self)
            self.dirty = True
        return 0

    def seal(self):
        return self.seal_batch()

    cdef int stage(self) except -1:
        return self.seal_batch()

    cdef bint seal_batch(self) except -1:
        cdef BatchBuilder batch = self._batch
        cdef int64_t first, base_offset
        cdef bint staged = True
        cdef PipelineCore pipeline = self._pipeline
        if batch is None or not batch.count:
            self._batch = None
            return True
        first = self._next_offset - batch.count
        pipeline.changing += 1
        self._batch = None
        try:
            base_offset = append_batch(self._log, batch, self.leader_epoch)
            # The records were replayed at these offsets. If the log had another writer, memory would not match the log.
            assert base_offset == first, f"{self.topic}-{self.index}: batch at {base_offset}, replayed at {first}"
        except Exception as error:
            self._abort_round(error)
            staged = False
        pipeline.changing -= 1
        return staged

    def committed(self):
        self.end_commit()

    cdef int end_commit(self) except -1:
        if self.committing:
            self.committing = False
        else:
            self.dirty = False
        if self._reload and not self.dirty:
            self._reload = False
            self.load()
        return 0

    def _replay(self, records, int64_t producer_id, int64_t first_offset):
        self.replay(records, producer_id, first_offset)

    cdef int replay(self, object records, int64_t producer_id, int64_t first_offset) except -1:
        """Applies records to memory. After an exception, only some of the records are applied."""
        cdef object machine = self.machine
        if type(records) is not list:
            if isinstance(machine, MachineCore):
                return (<MachineCore>machine).replay_records(first_offset, producer_id, records)
            machine.replay_block(first_offset, producer_id, records)
            return 0
        for record in records:
            machine.replay(first_offset, producer_id, record.key, record.value)
            first_offset += 1
        return 0

    def _collect(self, BatchBuilder batch not None, records):
        self.collect(batch, records)

    cdef int collect(self, BatchBuilder batch, object records) except -1:
        """Adds encoded records to a batch with room for them."""
        cdef bint taken
        if type(records) is OffsetBlock:
            taken = (<OffsetBlock>records).write(batch, self._now.wall_ms)
        else:
            taken = records.append_to(batch, self._now.wall_ms)
        assert taken, "the batch was opened with room for the whole decision"
        return 0
