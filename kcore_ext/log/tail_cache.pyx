"""The newest committed batches of each partition in memory, so that readers at the end need no storage access.

The total size of all partitions is limited: the cache first releases the batches that were committed first. Any thread
may read: each call of this module completes before another thread gets the interpreter's lock.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t

from kcore_ext.batch.layout cimport HEADER_BYTES, LAST_DELTA_AT
from kcore_ext.util.byte_order cimport read_int32, read_int64

cpdef enum:
    TRIM_THRESHOLD = 256    # released entries at the head of a partition's list before it is rebuilt without them
    BATCH_OVERHEAD = 64     # memory of a batch besides its bytes: the object, its list entries

cdef enum:
    MAX_FOUND = 15_000      # batches that one read returns, in a few milliseconds


cdef inline int64_t base_of(list batches, Py_ssize_t place):
    """Returns the base offset of a batch, which is the first field of its header."""
    return read_int64(<unsigned char*>PyBytes_AS_STRING(<bytes>batches[place]))


@cython.final
cdef class PartitionTail:
    """Documented in tail_cache.pyi."""

    def __cinit__(self):
        self.batches = []

    def __len__(self):
        return PyList_GET_SIZE(self.batches) - self.head

    cdef int evict_one(self) except -1:
        """Releases the batch of the oldest ring entry, unless the batch was released before."""
        self.entries -= 1
        if self.entries < PyList_GET_SIZE(self.batches) - self.head:
            self.release_one()
        self.trim()
        return 0

    cdef int release_one(self) except -1:
        """Releases the oldest batch; there must be one."""
        self.batches[self.head] = None
        self.head += 1
        return 0

    cdef int trim(self) except -1:
        """Shortens the list if it begins with many released batches."""
        cdef Py_ssize_t count = PyList_GET_SIZE(self.batches)
        cdef Py_ssize_t head = self.head
        if head >= TRIM_THRESHOLD and head * 2 >= count:
            try:
                del self.batches[:head]
            except MemoryError:
                head = 0  # the list stays longer than needed until the next batch is released
            if head:
                self.head = 0
        return 0

    def drop_below(self, int64_t offset):
        while self.head < PyList_GET_SIZE(self.batches) and base_of(self.batches, self.head) < offset:
            self.release_one()
        self.trim()

    def drop_deleted(self, int64_t log_start_offset):
        while self.head < PyList_GET_SIZE(self.batches) and self.end_of(self.head) <= log_start_offset:
            self.release_one()
        self.trim()

    cdef int64_t end_of(self, Py_ssize_t place) except -1:
        """Returns the offset after a batch.

        The base offset of the next batch is the end of this batch. Only the newest batch has to be read for its end.
        """
        if place + 1 < PyList_GET_SIZE(self.batches):
            return base_of(self.batches, place + 1)
        return base_of(self.batches, place) + read_int32(
            <unsigned char*>PyBytes_AS_STRING(<bytes>self.batches[place]) + LAST_DELTA_AT
        ) + 1

    def clear(self):
        self.release_all()

    cdef int release_all(self) noexcept:
        """Releases every batch. Allocates no memory, because it is called when memory runs out."""
        cdef Py_ssize_t head = self.head
        while head < PyList_GET_SIZE(self.batches):
            self.batches[head] = None
            head += 1
        self.head = head
        return 0

    def read(self, int64_t offset, int64_t limit, Py_ssize_t max_bytes, bint at_least_one):
        return self.find(offset, limit, max_bytes, at_least_one)

    cdef list find(self, int64_t offset, int64_t limit, Py_ssize_t max_bytes, bint at_least_one):
        cdef Py_ssize_t count = PyList_GET_SIZE(self.batches)
        cdef Py_ssize_t low = self.head, high = count, middle
        cdef Py_ssize_t size = 0
        cdef list found
        cdef bytes batch
        if low == count or offset < base_of(self.batches, low):
            return None
        while high - low > 1:
            middle = (low + high) >> 1
            if base_of(self.batches, middle) <= offset:
                low = middle
            else:
                high = middle
        found = []
        while low < count:
            batch = <bytes>self.batches[low]
            if self.end_of(low) > limit:
                break
            size += PyBytes_GET_SIZE(batch)
            if size > max_bytes and (found or not at_least_one):
                break
            found.append(batch)
            low += 1
            if PyList_GET_SIZE(found) >= MAX_FOUND:
                break
        return found


@cython.final
cdef class TailCache:
    """Documented in tail_cache.pyi."""

    def __cinit__(self, Py_ssize_t max_bytes):
        self.max_bytes = max_bytes

    def __dealloc__(self):
        while self.count:
            Py_DECREF(<object>self.order[self.first].tail)
            self.first = (self.first + 1) & (self.room - 1)
            self.count -= 1
        PyMem_Free(self.order)

    def add(self, PartitionTail tail not None, list batches not None):
        self.take(tail, batches)

    cdef int take(self, PartitionTail tail, list batches) except -1:
        """Adds committed batches. If memory runs out, releases all batches of the tail; readers then use the storage.
        """
        cdef Py_ssize_t size
        cdef PartitionTail oldest
        cdef bytes batch
        if not self.max_bytes:
            return 0
        try:
            for batch in batches:
                if PyBytes_GET_SIZE(batch) < HEADER_BYTES:
                    raise ValueError(f"a batch has at least {HEADER_BYTES} bytes, not {PyBytes_GET_SIZE(batch)}")
                size = PyBytes_GET_SIZE(batch) + BATCH_OVERHEAD
                tail.batches.append(batch)
                self.remember(tail, size)
                self.size_bytes += size
        except MemoryError:
            # Without this, a batch in the middle of the tail could be missing, and readers would skip it.
            tail.release_all()
        while self.size_bytes > self.max_bytes:
            oldest = <PartitionTail>self.order[self.first].tail
            self.size_bytes -= self.order[self.first].size
            self.first = (self.first + 1) & (self.room - 1)
            self.count -= 1
            oldest.evict_one()
            Py_DECREF(oldest)
        return 0

    cdef int remember(self, PartitionTail tail, Py_ssize_t size) except -1:
        cdef TailEntry* wider
        cdef Py_ssize_t place
        if self.count == self.room:
            wider = <TailEntry*>PyMem_Malloc(max(64, 2 * self.room) * sizeof(TailEntry))
            if wider is NULL:
                raise MemoryError
            for place in range(self.count):
                wider[place] = self.order[(self.first + place) & (self.room - 1)]
            PyMem_Free(self.order)
            self.order = wider
            self.first = 0
            self.room = max(64, 2 * self.room)
        place = (self.first + self.count) & (self.room - 1)
        Py_INCREF(tail)
        tail.entries += 1
        self.order[place].tail = <PyObject*>tail
        self.order[place].size = size
        self.count += 1
        return 0
