"""Updates of share partitions that a partition leader writes in the share coordinator of the same node.

`kcore.share.apis.write_share_group_state` serves every write. A `StateWriter` serves only writes that become one
ShareUpdate record. It declines a write if the share partition has no state, an epoch is fenced, a snapshot is due, or
the shard is not ready. Only the general `combine` of `kcore.share.batches` joins and splits state batches; the loops
here handle batches that lie apart. A test compares the records and states of both paths.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.runtime.outcome cimport Pending, pending_of
from kcore_ext.runtime.shard cimport PipelineCore, ShardCore, ready_shard
from kcore_ext.share.states cimport ShareState, ShareStates
from kcore_ext.util.byte_order cimport write_int16, write_int32, write_int64
from kcore_ext.util.record_limits cimport RECORD_OVERHEAD

cdef enum:
    # ShareUpdateValue v0: version, snapshot epoch, leader epoch, start offset; a varint with the number of batches;
    # each batch with first and last offset, state, count and an empty tag section; the tag section with the count.
    HEAD_BYTES = 18
    BATCH_BYTES = 20
    TAIL_BYTES = 7
    VARINT_BYTES = 5
    MAX_COUNT = 0x7FFFFFFF

cdef bytes NO_HEADERS = b"\0"


@cython.final
@cython.freelist(64)
cdef class StateUpdate:
    """Documented in state_update.pyi."""

    def __init__(self):
        raise TypeError("a StateUpdate is made by StateWriter.write")

    def __len__(self):
        return 1

    def append_to(self, BatchBuilder batch not None, int64_t timestamp_ms) -> bool:
        return batch.add(timestamp_ms, self.key, self.value, NO_HEADERS, -1)

    cdef int apply(self) except -1:
        """Applies the record to the state of the share partition."""
        self.state.updated(self.batches, self.start_offset, self.complete_count)
        return 0


def replay_update(int64_t offset, int64_t producer_id, StateUpdate update not None):
    update.apply()


@cython.final
cdef class StateWriter:
    """Documented in state_update.pyi."""

    def __init__(self, api, coordinator, find_topic, combine, identity, str name not None,
                 bytes record_key not None):
        self._api = api
        self._coordinator = coordinator
        self._find_topic = find_topic
        self._combine = combine
        self._group_id = identity[0]
        self._name = name
        self._record_key = record_key
        self._topic_id = identity[1]
        self._partition = identity[2]

    def write(
        self, int64_t state_epoch, int64_t leader_epoch, int64_t start_offset, int64_t complete_count,
        list batches not None,
    ):
        cdef ShardCore shard = self.ready(state_epoch, leader_epoch)
        if shard is None:
            return None
        return self.append(shard, start_offset, complete_count, batches)

    cdef ShardCore ready(self, int64_t state_epoch, int64_t leader_epoch):
        """Returns the shard if the next write of this leader would be accepted as an update, else None."""
        cdef ShareState state
        cdef ShardCore shard
        shards = self._coordinator.shards
        if shards is None:
            return None
        shard = ready_shard(shards.by_partition, self._name)
        if shard is None:
            return None
        machine = shard.machine
        state = (<ShareStates?>machine.states).find(self._group_id, self._topic_id, self._partition)
        if state is None:
            return None
        if leader_epoch < state.highest_leader_epoch or state_epoch < state.highest_state_epoch:
            return None
        if state.updates >= <int64_t>machine.max_updates:
            return None     # the generic path writes a snapshot
        topic = self._find_topic(self._topic_id)
        if topic is None or self._partition >= <int64_t>topic.partitions:
            return None
        self._state = state
        return shard

    cdef Pending append(self, ShardCore shard, int64_t start_offset, int64_t complete_count, list batches):
        """Writes an update to the shard that `ready` has returned.

        Returns:
            A `Pending` of the error code; None if the shard has refused the record.
        """
        cdef Pending pending
        if not shard._active or complete_count > MAX_COUNT:
            return None
        pending = pending_of(self._api, None, None)
        if shard.append(self.update_of(start_offset, complete_count, batches), -1, -1) is not None:
            return None
        PipelineCore.respond_after_commit(shard._pipeline, pending, 0)
        return pending

    cdef StateUpdate update_of(self, int64_t start_offset, int64_t complete_count, list batches):
        """Makes the record of a change, and the state after it."""
        cdef StateUpdate update = StateUpdate.__new__(StateUpdate)
        cdef list present
        cdef tuple batch
        cdef Py_ssize_t size, count
        cdef unsigned char* start
        cdef unsigned char* at
        cdef ShareState state = self._state
        self._state = None
        present = clipped(batches, start_offset)
        if present is None:
            present = list(self._combine((), batches, start_offset))
        update.batches = behind(state.batches, present, start_offset)
        if update.batches is None:
            update.batches = self._combine(state.batches, present, start_offset)
        count = PyList_GET_SIZE(present)
        if count >= MAX_COUNT:
            raise OverflowError(f"a record with {count} state batches is too large")
        value = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + VARINT_BYTES + BATCH_BYTES * count + TAIL_BYTES)
        start = at = <unsigned char*>PyBytes_AS_STRING(value)
        write_int16(at, 0)
        write_int32(at + 2, state.snapshot_epoch)
        write_int32(at + 6, state.leader_epoch)
        write_int64(at + 10, start_offset)
        at = put_length(at + HEAD_BYTES, count + 1)
        for batch in present:
            write_int64(at, batch[0])
            write_int64(at + 8, batch[1])
            at[16] = <unsigned char><int>batch[2]
            write_int16(at + 17, <int16_t>batch[3])
            at[19] = 0
            at += BATCH_BYTES
        at[0] = 1       # one tagged field: tag 0, 4 bytes
        at[1] = 0
        at[2] = 4
        write_int32(at + 3, <int32_t>complete_count)
        size = at + TAIL_BYTES - start
        update.key = self._record_key
        update.value = (<bytes>value)[:size]
        update.state = state
        update.start_offset = start_offset
        update.complete_count = <int32_t>complete_count
        update.size_bytes = RECORD_OVERHEAD + PyBytes_GET_SIZE(self._record_key) + size
        return update


cdef inline unsigned char* put_length(unsigned char* at, Py_ssize_t length) noexcept:
    """Writes an unsigned varint and returns the address after it."""
    while length >= 0x80:
        at[0] = <unsigned char>(length & 0x7F) | 0x80
        length >>= 7
        at += 1
    at[0] = <unsigned char>length
    return at + 1


cdef list clipped(list batches, int64_t start_offset):
    """Returns the state batches from an offset on; None if they do not ascend, or if two of them would have to be
    joined.
    """
    cdef list present = []
    cdef tuple batch
    cdef tuple last = None
    cdef int64_t first
    for batch in batches:
        first = batch[0]
        if <int64_t>batch[1] < start_offset:
            continue
        if first > <int64_t>batch[1]:
            return None
        if first < start_offset:
            first = start_offset
            batch = (first, batch[1], batch[2], batch[3])
        if last is not None and not lies_apart(last, batch):
            return None
        present.append(batch)
        last = batch
    return present


cdef tuple behind(tuple current, list added, int64_t start_offset):
    """Combines stored batches with ascending batches from the start offset on.

    Returns None unless a gap separates the stored batches from the added ones.
    """
    cdef list kept
    cdef Py_ssize_t count = len(current)
    if not count or <int64_t>(<tuple>current[count - 1])[1] < start_offset:
        return tuple(added)
    if PyList_GET_SIZE(added) and <int64_t>(<tuple>added[0])[0] <= <int64_t>(<tuple>current[count - 1])[1] + 1:
        return None
    kept = clipped(list(current), start_offset)
    if kept is None:
        return None     # adjacent batches that Kafka joins at another write
    kept += added
    return tuple(kept)


cdef inline bint lies_apart(tuple left, tuple right) except -1:
    """Returns True if batch `right` begins after batch `left` ends, and both must stay separate batches.

    They stay separate if there is a gap between them, or if their delivery states or counts differ.
    """
    cdef int64_t end = left[1]
    cdef int64_t first = right[0]
    return first > end + 1 or (first == end + 1 and (left[2] != right[2] or left[3] != right[3]))
