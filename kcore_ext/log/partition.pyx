"""A partition log's work for every batch and commit: staging, sealing, finishing, and reading new batches.

`kcore.log.partition` and `kcore.log.engine` have the code that does not run for every batch.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport qsort

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.batch.header cimport copy_stamped
from kcore_ext.log.tail_cache cimport PartitionTail

cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item

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
        cdef list batches
        cdef dict rewrites
        sort_by_number(self._dirty)
        for log in self._dirty:
            sealed = SealedPartition.__new__(SealedPartition)
            batches = []
            rewrites = {} if log._rewrites else None
            sealed.log = log
            sealed.key = log.key
            sealed.number = log._number
            sealed.batches = log._batches
            sealed.end_offset = log.end_offset
            if log._meta is not log._durable_meta:
                sealed.meta = log._meta
            if log._snapshot_writer is not None:
                sealed.chunks = log._snapshot_writer.take()
            parts.append(sealed)
            # All memory is allocated: no step can fail until the next partition.
            sealed.rewrites = NOTHING_REWRITTEN
            if rewrites is not None:
                sealed.rewrites = log._rewrites
                log._rewrites = rewrites
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
                self._tails.take(log._tail, sealed.batches)
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
        self._batches.append(batch)
        self.end_offset = base + last_delta + 1
        return base

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
