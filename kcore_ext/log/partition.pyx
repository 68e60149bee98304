"""A partition log's work for every batch and commit: staging, sealing, finishing, and reading new batches.

`kcore.log.partition` and `kcore.log.engine` have the code that does not run for every batch.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.batch.crc32c cimport crc32c_of
from kcore_ext.batch.header cimport copy_stamped
from kcore_ext.batch.layout cimport MAX_SHARED_VALUE
from kcore_ext.util.byte_order cimport write_int32, write_int64
from kcore_ext.log.tail_cache cimport PartitionTail

cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item

cdef enum:
    BATCH_HEAD_BYTES = 16   # before each batch of a journal entry: partition number, base offset, size of the batch
    ENTRY_HEAD_BYTES = 32   # before the batches: CRC, size of the batches, number, flags, identity
    IDENTITY_BYTES = 16
    KEY_BYTES = 12          # of a key of the log: partition number, base offset

MAX_VALUE_BYTES = MAX_SHARED_VALUE

cdef enum:
    IS_LIVE, IS_ABSENT, IS_DROPPED, IS_CLOSED

LIVE, ABSENT, DROPPED, CLOSED = IS_LIVE, IS_ABSENT, IS_DROPPED, IS_CLOSED

# Bits of EngineCore._interrupted_change.
STAGING, COMMITTING = 1, 2

# Shared by all sealed partitions without rewrites, and never changed.
cdef dict NOTHING_REWRITTEN = {}


@cython.final
cdef class SealedPartition:
    """Documented in partition.pyi."""

    def __repr__(self):
        return f"<{len(self.batches)} batches of {self.key} up to {self.end_offset}>"


cdef struct Numbered:
    uint32_t number
    PyObject* log


cdef int compare(const void* left, const void* right) noexcept nogil:
    cdef uint32_t first = (<Numbered*>left).number, second = (<Numbered*>right).number
    return (first > second) - (first < second)


cdef int sort_by_number(list logs) except -1:
    """Sorts partition logs by their numbers. After an exception, the list is unchanged."""
    cdef Py_ssize_t place, count = PyList_GET_SIZE(logs)
    cdef PyObject** items = (<PyListObject*>logs).ob_item
    cdef Numbered* numbered
    if count < 2:
        return 0
    numbered = <Numbered*>PyMem_Malloc(count * sizeof(Numbered))
    if numbered is NULL:
        raise MemoryError
    for place in range(count):
        numbered[place].number = (<LogCore>items[place])._number
        numbered[place].log = items[place]
    qsort(numbered, count, sizeof(Numbered), compare)
    for place in range(count):
        items[place] = numbered[place].log
    PyMem_Free(numbered)
    return 0


cdef class EngineCore:
    """Documented in partition.pyi."""

    def __cinit__(self, *arguments, **named):
        self._dirty = []

    def _seal_dirty(self):
        cdef list parts = []
        cdef list clean = []
        cdef LogCore log
        cdef SealedPartition sealed
        cdef list bases, batches
        cdef dict rewrites
        sort_by_number(self._dirty)
        for log in self._dirty:
            sealed = SealedPartition.__new__(SealedPartition)
            bases, batches = [], []
            rewrites = {} if log._rewrites else None
            log.pair_up()
            sealed.log = log
            sealed.key = log.key
            sealed.number = log._number
            sealed.bases = log._bases
            sealed.batches = log._batches
            sealed.end_offset = log.end_offset
            if log._meta is not log._durable_meta:
                sealed.meta = log._meta
            if log._snapshot_writer is not None:
                sealed.chunks = log._snapshot_writer.take()
            parts.append(sealed)
            # All memory is allocated. No step can fail until the next partition, so batches and base offsets change
            # together.
            sealed.rewrites = NOTHING_REWRITTEN
            if rewrites is not None:
                sealed.rewrites = log._rewrites
                log._rewrites = rewrites
            log._bases = bases
            log._batches = batches
            log._staged = False
            log._sealed = sealed
        self._dirty = clean
        return parts

    def _show(self, write_set not None):
        cdef SealedPartition sealed
        cdef LogCore log
        cdef bytes batch
        for sealed in <list?>write_set.partitions:
            log = sealed.log
            if sealed.rewrites:
                log._rewritten(sealed.rewrites)
            if sealed.batches and log.high_watermark != sealed.end_offset:
                self._tails.take(log._tail, sealed.bases, sealed.batches)
                log.high_watermark = sealed.end_offset
                for batch in sealed.batches:
                    log.appended_bytes += PyBytes_GET_SIZE(batch)
            if sealed.meta is not None:
                log._mark_meta_durable(sealed.meta)
            log._sealed = None
        for log in <list?>write_set.drops:
            log._durable_meta = None
            log._tail.clear()
            (<dict?>self._garbage)[log._number] = None


cdef class LogCore:
    """Documented in partition.pyi."""

    def __cinit__(self, *arguments, **named):
        self._bases = []
        self._batches = []
        self._rewrites = {}
        self._tail = PartitionTail()

    # ---- staging

    def append(self, batch, int32_t leader_epoch):
        return self.put(batch, leader_epoch)

    cdef int64_t put(self, batch, int32_t leader_epoch) except -1:
        cdef int32_t last_delta = 0
        cdef bytes taken
        if self._state != IS_LIVE:
            self._revive()
        taken = copy_stamped(batch, self.end_offset, leader_epoch, &last_delta)
        if taken is None:
            self._refuse_batch(batch)
        if leader_epoch != self.leader_epoch:
            self._begin_epoch(leader_epoch, self.end_offset)
        return self.stage(taken, last_delta)

    def append_built(self, BatchBuilder batch not None, int32_t leader_epoch):
        return self.put_built(batch, leader_epoch)

    cdef int64_t put_built(self, BatchBuilder batch, int32_t leader_epoch) except -1:
        cdef bytes built
        if self._state != IS_LIVE:
            self._revive()
        built = batch.built(self.end_offset, leader_epoch, -1)
        if leader_epoch != self.leader_epoch:
            self._begin_epoch(leader_epoch, self.end_offset)
        return self.stage(built, batch.last_offset_delta)

    cdef int64_t stage(self, bytes batch, int32_t last_delta) except -1:
        cdef int64_t base = self.end_offset
        self.request_round()
        self.pair_up()
        self._bases.append(base)
        self._batches.append(batch)
        self.end_offset = base + last_delta + 1
        return base

    cdef int pair_up(self) except -1:
        """Removes a base offset without a batch. Such an offset remains if memory ran out within an earlier `stage`."""
        if PyList_GET_SIZE(self._bases) != PyList_GET_SIZE(self._batches):
            del self._bases[PyList_GET_SIZE(self._batches):]
        return 0

    def _stage(self):
        self.request_round()

    cdef int request_round(self) except -1:
        if not self._staged:
            self._engine._dirty.append(self)
            self._staged = True
        return 0

    # ---- reading

    def read(self, int64_t offset, Py_ssize_t max_bytes, upto_offset=None, bint at_least_one=True):
        cdef int64_t limit = self.high_watermark
        cdef list found
        if self._state > IS_ABSENT:
            self._refuse()
        if upto_offset is not None and upto_offset < limit:
            limit = upto_offset
        if offset < self.log_start_offset or offset > self.end_offset:
            self._out_of_range(offset)
        if offset >= limit:
            return []
        found = self._tail.find(offset, limit, max_bytes, at_least_one)
        if found is None:
            return self._read_stored(offset, limit, max_bytes, at_least_one)
        return found


# ---- the journal


cdef int check_paired(SealedPartition sealed) except -1:
    """Refuses a partition with different numbers of base offsets and batches, because loops use one index for both
    lists.
    """
    if PyList_GET_SIZE(sealed.bases) != PyList_GET_SIZE(sealed.batches):
        raise SystemError(f"{sealed.key}: {len(sealed.bases)} base offsets do not match {len(sealed.batches)} batches")
    return 0


def journal_entry(list partitions not None, Py_ssize_t max_bytes, bytes identity not None, uint32_t number, uint32_t flags):
    cdef SealedPartition sealed
    cdef Py_ssize_t size = 0, batches = 0, place
    cdef bytes entry, batch
    cdef unsigned char* start
    cdef unsigned char* at
    if PyBytes_GET_SIZE(identity) != IDENTITY_BYTES:
        raise ValueError(f"an identity has {IDENTITY_BYTES} bytes: {identity!r}")
    for sealed in partitions:
        if sealed.chunks or sealed.rewrites or sealed.meta is not None:
            return None
        check_paired(sealed)
        for batch in sealed.batches:
            size += PyBytes_GET_SIZE(batch)
        batches += PyList_GET_SIZE(sealed.batches)
        if size > max_bytes:
            return None
    size += BATCH_HEAD_BYTES * batches
    entry = PyBytes_FromStringAndSize(NULL, ENTRY_HEAD_BYTES + size)
    start = <unsigned char*>PyBytes_AS_STRING(entry)
    write_int32(start + 4, <int32_t>size)
    write_int32(start + 8, <int32_t>number)
    write_int32(start + 12, <int32_t>flags)
    memcpy(start + 16, PyBytes_AS_STRING(identity), IDENTITY_BYTES)
    at = start + ENTRY_HEAD_BYTES
    for sealed in partitions:
        for place in range(PyList_GET_SIZE(sealed.batches)):
            batch = <bytes>sealed.batches[place]
            size = PyBytes_GET_SIZE(batch)
            write_int32(at, <int32_t>sealed.number)
            write_int64(at + 4, sealed.bases[place])
            write_int32(at + 12, <int32_t>size)
            memcpy(at + BATCH_HEAD_BYTES, PyBytes_AS_STRING(batch), size)
            at += BATCH_HEAD_BYTES + size
    write_int32(start, <int32_t>crc32c_of(start + 4, at - start - 4, 0))
    return entry


def sort_batches(list write_sets not None, dict by_number not None):
    cdef SealedPartition sealed
    cdef list batches
    cdef Py_ssize_t place
    cdef int64_t last
    for write_set in write_sets:
        for sealed in write_set.partitions:
            if not sealed.batches:
                continue
            check_paired(sealed)
            batches = by_number.get(sealed.number)
            if batches is None:
                batches = by_number[sealed.number] = []
            last = -1
            if PyList_GET_SIZE(batches):
                last = (<tuple>batches[PyList_GET_SIZE(batches) - 1])[0]
            for place in range(PyList_GET_SIZE(sealed.batches)):
                # If this call repeats a call that ran out of memory, skip the batches that the earlier call has added.
                if <int64_t>sealed.bases[place] > last:
                    batches.append((sealed.bases[place], sealed.batches[place]))


cdef bytes key_of(uint32_t number, int64_t base):
    """Returns the key of a value of the log."""
    cdef bytes key = PyBytes_FromStringAndSize(NULL, KEY_BYTES)
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(key)
    write_int32(at, <int32_t>number)
    write_int64(at + 4, base)
    return key


cdef bytes value_of(list batches, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size):
    """Returns the batches [start, stop), which have `size` bytes, as one value of the log."""
    cdef bytes batch = <bytes?>(<tuple?>batches[start])[1]
    cdef bytes value
    cdef char* at
    cdef Py_ssize_t place
    if stop - start == 1:
        return batch
    value = PyBytes_FromStringAndSize(NULL, size)
    at = PyBytes_AS_STRING(value)
    for place in range(start, stop):
        batch = <bytes>(<tuple>batches[place])[1]
        memcpy(at, PyBytes_AS_STRING(batch), PyBytes_GET_SIZE(batch))
        at += PyBytes_GET_SIZE(batch)
    return value


def log_pairs(dict by_number not None):
    cdef list pairs = []
    cdef list batches
    cdef Py_ssize_t size = 0, value_bytes, more, start, place
    cdef uint32_t number
    for owner in sorted(by_number):
        number = owner
        batches = <list?>by_number[owner]
        start = value_bytes = 0
        for place in range(PyList_GET_SIZE(batches)):
            more = PyBytes_GET_SIZE(<bytes?>(<tuple?>batches[place])[1])
            size += BATCH_HEAD_BYTES + more
            if place > start and value_bytes + more > MAX_SHARED_VALUE:
                pairs.append((key_of(number, batches[start][0]), value_of(batches, start, place, value_bytes)))
                start, value_bytes = place, 0
            value_bytes += more
        if PyList_GET_SIZE(batches):
            pairs.append((
                key_of(number, batches[start][0]), value_of(batches, start, PyList_GET_SIZE(batches), value_bytes)
            ))
    return pairs, size
