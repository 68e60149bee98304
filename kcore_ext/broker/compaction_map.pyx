"""The first half of a compaction pass: reads the new batches once and stores the last offset of each key.

It also counts the live records of each batch, which are the records without a later record of the same key. A batch
without live records may be removed unread. Nearly all batches of a coordinator's log have no live record.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from kcore_ext.batch.layout cimport (
    ATTRIBUTES_AT,
    CODEC_BITS,
    CONTROL_BIT,
    COUNT_AT,
    HEADER_BYTES,
    LAST_DELTA_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64
from kcore_ext.batch.records cimport RecordReader, open_reader

from typing import NamedTuple

from kcore_ext.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES

# The hash depends on a secret of the process, so producers cannot choose keys that collide.
cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000
    #define kcore_hash_of_key Py_HashBuffer
    #else
    /* Python 3.13 exports this function, but declares it only in its internal headers. */
    PyAPI_FUNC(Py_hash_t) _Py_HashBytes(const void*, Py_ssize_t);
    #define kcore_hash_of_key _Py_HashBytes
    #endif
    """
    Py_hash_t hash_of_key "kcore_hash_of_key" (const void* start, Py_ssize_t size) noexcept

cdef enum:
    FIRST_SLOTS = 8
    PAGE_BYTES = 64 * 1024
    MAX_SHARED_KEY_BYTES = 8 * 1024     # longer keys do not share a page
    BATCH_BYTES = 16
    LARGE_PACKED_BYTES = 4096           # compressed bytes that may become 4 MB and take 10 ms with gzip
    WORK_BYTES = 512                    # bytes of a batch that count as one work unit, like a record
    SEQUENCE_BATCHES = 4096             # maximum number of batches in a sequence

ENTRY_BYTES = 96
"""Approximate memory of an entry in bytes, without the bytes of its key. It includes a share of the free slots."""

cdef Py_ssize_t NO_LIMIT = 1 << 62
cdef Py_ssize_t max_decompressed_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES
cdef int64_t entry_bytes = ENTRY_BYTES


class Sizes(NamedTuple):
    clean_bytes: int
    dirty_bytes: int
    first_dirty_ms: int
    next_offset: int


def sizes(list run not None, int64_t mark):
    cdef int64_t clean = 0, dirty = 0, first_dirty_ms = -1, next_offset = -1
    cdef const unsigned char* at
    cdef bytes batch
    cdef Py_ssize_t index
    for index in range(PyList_GET_SIZE(run)):
        batch = <bytes?>PyTuple_GET_ITEM(<tuple?>PyList_GET_ITEM(run, index), 1)
        if PyBytes_GET_SIZE(batch) < HEADER_BYTES:
            raise ValueError(f"{PyBytes_GET_SIZE(batch)} bytes are too few for a batch")
        at = <const unsigned char*>PyBytes_AS_STRING(batch)
        next_offset = read_int64(at) + read_int32(at + LAST_DELTA_AT) + 1
        if next_offset <= mark:
            clean += PyBytes_GET_SIZE(batch)
            continue
        if dirty == 0 and read_int32(at + COUNT_AT):
            first_dirty_ms = read_int64(at + MAX_TIMESTAMP_AT)
        dirty += PyBytes_GET_SIZE(batch)
    return Sizes(clean, dirty, first_dirty_ms, next_offset)


@cython.final
cdef class OffsetMap:
    """Documented in compaction_map.pyi."""

    def __cinit__(self, int64_t max_bytes):
        self.left_bytes = max_bytes
        self.pages = []

    def __dealloc__(self):
        cdef int number
        for number in range(TABLES):
            PyMem_Free(self.tables[number].slots)
        PyMem_Free(self.batches)

    @property
    def full(self):
        return self.left_bytes <= 0 and self.reader is None

    @property
    def within_batch(self):
        return self.reader is not None

    def offset_of(self, bytes key not None):
        return self.latest(<const unsigned char*>PyBytes_AS_STRING(key), <int32_t>PyBytes_GET_SIZE(key))

    # ---- the keys

    cdef Slot* find(self, const unsigned char* key, int32_t size, uint64_t hash) noexcept:
        """Returns the key's slot, or the free slot for it; NULL if its table has no slots."""
        cdef KeyTable* table = &self.tables[hash % TABLES]
        cdef size_t at = hash // TABLES
        cdef Slot* slot
        if table.slots is NULL:
            return NULL
        while True:
            slot = table.slots + (at & table.mask)
            if slot.key is NULL:
                return slot
            if slot.hash == hash and slot.key_size == size and memcmp(slot.key, key, size) == 0:
                return slot
            at += 1

    cdef int64_t latest(self, const unsigned char* key, int32_t size) noexcept:
        """Returns the offset of the key's latest record; -1 if the surveyed part has none."""
        cdef Slot* slot = self.find(key, size, <uint64_t>hash_of_key(key, size))
        return -1 if slot is NULL or slot.key is NULL else slot.offset

    cdef int put(self, const unsigned char* key, int32_t size, int64_t offset, int32_t batch) except -1:
        """Adds a record of the key at `offset` in the surveyed batch `batch`; offsets must ascend."""
        cdef uint64_t hash = <uint64_t>hash_of_key(key, size)
        cdef KeyTable* table = &self.tables[hash % TABLES]
        cdef Slot* slot = self.find(key, size, hash)
        cdef unsigned char* kept
        if slot is not NULL and slot.key is not NULL:
            self.batches[slot.batch].live -= 1
        else:
            if slot is NULL or (table.used + 1) * 4 > (table.mask + 1) * 3:
                self.grow(table)
                slot = self.find(key, size, hash)
            kept = self.keep(key, size)
            slot.key = kept
            slot.key_size = size
            slot.hash = hash
            table.used += 1
            self.left_bytes -= size + entry_bytes
        slot.offset = offset
        slot.batch = batch
        return 0

    cdef int grow(self, KeyTable* table) except -1:
        cdef size_t count = FIRST_SLOTS if table.slots is NULL else 2 * (table.mask + 1)
        cdef Slot* slots = <Slot*>PyMem_Calloc(count, sizeof(Slot))
        cdef size_t old, at
        if slots is NULL:
            raise MemoryError
        if table.slots is not NULL:
            for old in range(table.mask + 1):
                if table.slots[old].key is not NULL:
                    at = table.slots[old].hash // TABLES
                    while slots[at & (count - 1)].key is not NULL:
                        at += 1
                    slots[at & (count - 1)] = table.slots[old]
            PyMem_Free(table.slots)
        table.slots = slots
        table.mask = count - 1
        return 0

    cdef unsigned char* keep(self, const unsigned char* key, int32_t size) except NULL:
        """Copies the key into memory that is freed with the map."""
        cdef bytes page
        cdef unsigned char* at
        if size > MAX_SHARED_KEY_BYTES:
            page = PyBytes_FromStringAndSize(<const char*>key, size)
            self.pages.append(page)
            return <unsigned char*>PyBytes_AS_STRING(page)
        if size >= self.page_left:
            page = PyBytes_FromStringAndSize(NULL, PAGE_BYTES)
            self.pages.append(page)
            self.page = <unsigned char*>PyBytes_AS_STRING(page)
            self.page_left = PAGE_BYTES
        at = self.page
        memcpy(at, key, size)
        self.page += size
        self.page_left -= size
        return at

    # ---- the batches

    cdef int begin(self, int64_t base_offset, int32_t live) except -1:
        cdef Surveyed* batches
        cdef Py_ssize_t room
        if self.count == self.room:
            room = 2 * self.room + 64
            batches = <Surveyed*>PyMem_Realloc(self.batches, room * sizeof(Surveyed))
            if batches is NULL:
                raise MemoryError
            self.batches = batches
            self.room = room
        self.batches[self.count].base_offset = base_offset
        self.batches[self.count].live = live
        self.count += 1
        self.left_bytes -= BATCH_BYTES
        return 0

    cdef Py_ssize_t take(self, bytes batch, bint whole, object decompress, Py_ssize_t work) except? -1:
        """Adds the keys of a batch until the work units are used up. Returns the number of unused units.

        If unread records are left, `reader` is set, and the next call continues with them. `whole` is True if the batch
        may be removed unread.
        """
        cdef RecordReader reader = self.reader
        cdef int64_t base
        cdef int32_t index
        self.reader = None  # an exception leaves no batch to continue
        if reader is None or self.unfinished is not batch:
            reader = open_reader(batch, 0, decompress, max_decompressed_bytes)
            self.begin(
                reader.header.base_offset, reader.header.record_count if whole else reader.header.record_count + 1
            )
        self.unfinished = None
        base = reader.header.base_offset
        index = <int32_t>self.count - 1
        while True:
            if work <= 0 and reader.left > 0:
                self.reader = reader
                self.unfinished = batch
                return work
            if not reader.move():
                return work - 1 - PyBytes_GET_SIZE(batch) // WORK_BYTES
            work -= 1
            if reader.record.key_size < 0:
                self.batches[index].live -= 1
            else:
                self.put(reader.record.key, reader.record.key_size, base + reader.record.offset_delta, index)

    def survey(
        self, list run not None, Py_ssize_t index, int64_t start, int64_t newest_ms, Py_ssize_t work, decompress
    ):
        cdef bytes batch
        cdef const unsigned char* at
        cdef int attributes
        while 0 <= index < PyList_GET_SIZE(run) and work > 0 and (self.left_bytes > 0 or self.reader is not None):
            batch = <bytes?>PyTuple_GET_ITEM(<tuple?>PyList_GET_ITEM(run, index), 1)
            if PyBytes_GET_SIZE(batch) < HEADER_BYTES:
                break
            at = <const unsigned char*>PyBytes_AS_STRING(batch)
            attributes = read_int16(at + ATTRIBUTES_AT)
            if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) or read_int64(at + MAX_TIMESTAMP_AT) > newest_ms:
                break
            if attributes & CODEC_BITS and PyBytes_GET_SIZE(batch) > LARGE_PACKED_BYTES:
                break  # the caller decompresses it in slices
            # Two kinds of batches must be read before they are removed: a batch of a producer, which may have to stay
            # as an empty batch, and a batch that begins below the log's start.
            work = self.take(batch, read_int64(at + PRODUCER_ID_AT) < 0 and read_int64(at) >= start, decompress, work)
            if self.reader is not None:
                break
            index += 1
        return index, work

    def add(self, bytes batch not None, decompress, Py_ssize_t work=NO_LIMIT):
        return self.take(batch, False, decompress, work)

    def step_over(self, int64_t base_offset):
        self.begin(base_offset, 1)

    def base_offset(self, Py_ssize_t index):
        if not 0 <= index < self.count:
            raise IndexError(f"there is no batch {index} among {self.count}")
        return self.batches[index].base_offset

    def next_sequence(self, Py_ssize_t index, Py_ssize_t shortest):
        cdef Py_ssize_t at = max(index, 0), gone = 0
        cdef Py_ssize_t stop = min(self.count, at + max(SEQUENCE_BATCHES, shortest))
        while at < stop and self.batches[at].live <= 0:
            at += 1
        if at - index >= shortest:
            return at, True
        while at < stop:
            gone = gone + 1 if self.batches[at].live <= 0 else 0
            at += 1
            if gone >= shortest:
                return at - gone, False
        return at, False

    def remove(self, Py_ssize_t start, Py_ssize_t stop, dict changes not None):
        cdef Py_ssize_t index
        for index in range(max(start, 0), min(stop, self.count)):
            changes[self.batches[index].base_offset] = None
