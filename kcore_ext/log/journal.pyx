"""The journal's work for every commit: encoding entries, and sorting their batches for LMDB and for readers.

`kcore.log.journal_file` describes the layout of an entry.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from kcore_ext.batch.crc32c cimport crc32c_of
from kcore_ext.batch.layout cimport MAX_SHARED_VALUE
from kcore_ext.log.partition cimport SealedPartition
from kcore_ext.util.byte_order cimport read_int32, read_int64, write_int32, write_int64

cdef enum:
    BATCH_HEAD_BYTES = 16   # before each batch of an entry: partition number, base offset, size of the batch
    ENTRY_HEAD_BYTES = 32   # before the batches: CRC, size of the batches, number, flags, identity
    NUMBER_AT = 8           # the number of an entry
    IDENTITY_BYTES = 16
    KEY_BYTES = 12          # of a key of the log: partition number, base offset
    OFFSET_BYTES = 8        # the base offset, which is also at the start of a batch

MAX_VALUE_BYTES = MAX_SHARED_VALUE


def journal_entry(list partitions not None, Py_ssize_t max_bytes, bytes identity not None, uint32_t number, uint32_t flags):
    cdef SealedPartition sealed
    cdef Py_ssize_t size = 0, batches = 0
    cdef bytes entry, batch
    cdef unsigned char* start
    cdef unsigned char* at
    if PyBytes_GET_SIZE(identity) != IDENTITY_BYTES:
        raise ValueError(f"an identity has {IDENTITY_BYTES} bytes: {identity!r}")
    for sealed in partitions:
        if sealed.chunks or sealed.rewrites or sealed.meta is not None:
            return None
        for batch in sealed.batches:
            size += PyBytes_GET_SIZE(batch)
        batches += PyList_GET_SIZE(sealed.batches)
        if size > max_bytes:
            return None
    size += BATCH_HEAD_BYTES * batches
    entry = PyBytes_FromStringAndSize(NULL, ENTRY_HEAD_BYTES + size)
    start = <unsigned char*>PyBytes_AS_STRING(entry)
    write_int32(start + 4, <int32_t>size)
    write_int32(start + NUMBER_AT, <int32_t>number)
    write_int32(start + 12, <int32_t>flags)
    memcpy(start + 16, PyBytes_AS_STRING(identity), IDENTITY_BYTES)
    at = start + ENTRY_HEAD_BYTES
    for sealed in partitions:
        for batch in sealed.batches:
            size = PyBytes_GET_SIZE(batch)
            write_int32(at, <int32_t>sealed.number)
            memcpy(at + 4, PyBytes_AS_STRING(batch), OFFSET_BYTES)
            write_int32(at + 12, <int32_t>size)
            memcpy(at + BATCH_HEAD_BYTES, PyBytes_AS_STRING(batch), size)
            at += BATCH_HEAD_BYTES + size
    write_int32(start, <int32_t>crc32c_of(start + 4, at - start - 4, 0))
    return entry


cdef struct EntryBatch:
    uint32_t number             # of the partition
    int64_t base_offset
    const unsigned char* start
    Py_ssize_t size


cdef const unsigned char* read_batch(const unsigned char* at, bytes entry, EntryBatch* batch) except NULL:
    """Reads the batch of an entry that begins at `at` with its head. Returns the end of the batch."""
    cdef const unsigned char* end = end_of(entry)
    if end - at >= BATCH_HEAD_BYTES:
        batch.number = <uint32_t>read_int32(at)
        batch.base_offset = read_int64(at + 4)
        batch.size = <uint32_t>read_int32(at + 12)
        batch.start = at + BATCH_HEAD_BYTES
        if batch.size <= end - batch.start:
            return batch.start + batch.size
    number = <uint32_t>read_int32(start_of(entry) + NUMBER_AT)
    raise ValueError(f"entry {number} ends within a batch, after {end - at} bytes")


cdef const unsigned char* start_of(bytes entry) except NULL:
    if PyBytes_GET_SIZE(entry) < ENTRY_HEAD_BYTES:
        raise ValueError(f"an entry of {PyBytes_GET_SIZE(entry)} bytes; the head alone has {ENTRY_HEAD_BYTES} bytes")
    return <const unsigned char*>PyBytes_AS_STRING(entry)


cdef inline const unsigned char* end_of(bytes entry) noexcept:
    return <const unsigned char*>PyBytes_AS_STRING(entry) + PyBytes_GET_SIZE(entry)


def sort_batches(list entries not None, dict by_number not None):
    cdef bytes entry
    cdef const unsigned char* at
    cdef EntryBatch batch
    cdef list batches
    cdef Py_ssize_t count
    for entry in entries:
        at = start_of(entry) + ENTRY_HEAD_BYTES
        while at < end_of(entry):
            at = read_batch(at, entry, &batch)
            batches = by_number.get(batch.number)
            if batches is None:
                batches = by_number[batch.number] = []
            count = PyList_GET_SIZE(batches)
            # If this call repeats a call that ran out of memory, skip the batches that the earlier call has added.
            if not count or batch.base_offset > <int64_t>(<tuple>batches[count - 1])[0]:
                batches.append((batch.base_offset, batch.start[:batch.size]))


cdef int compare(const void* left, const void* right) noexcept nogil:
    cdef const EntryBatch* first = <const EntryBatch*>left
    cdef const EntryBatch* second = <const EntryBatch*>right
    if first.number != second.number:
        return 1 if first.number > second.number else -1
    return (first.base_offset > second.base_offset) - (first.base_offset < second.base_offset)


cdef Py_ssize_t sort_all(list entries, EntryBatch* batches) except -1:
    """Sorts the batches of the entries by partition and offset. Returns their number, without duplicates.

    Args:
        batches: an array with room for one batch for each `BATCH_HEAD_BYTES` of the entries.
    """
    cdef bytes entry
    cdef const unsigned char* at
    cdef Py_ssize_t count = 0, kept = 0, place
    for entry in entries:
        at = start_of(entry) + ENTRY_HEAD_BYTES
        while at < end_of(entry):
            at = read_batch(at, entry, &batches[count])
            count += 1
    with nogil:
        qsort(batches, count, sizeof(EntryBatch), compare)
        for place in range(count):
            if not kept or compare(&batches[kept - 1], &batches[place]):
                batches[kept] = batches[place]
                kept += 1
    return kept


cdef tuple pair_of(EntryBatch* batches, Py_ssize_t count, Py_ssize_t size):
    """Returns key and value of consecutive batches of one partition, which have `size` bytes."""
    cdef bytes key = PyBytes_FromStringAndSize(NULL, KEY_BYTES)
    cdef bytes value = PyBytes_FromStringAndSize(NULL, size)
    cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(key)
    cdef Py_ssize_t place
    write_int32(at, <int32_t>batches[0].number)
    write_int64(at + 4, batches[0].base_offset)
    at = <unsigned char*>PyBytes_AS_STRING(value)
    for place in range(count):
        memcpy(at, batches[place].start, batches[place].size)
        at += batches[place].size
    return key, value


def log_pairs(list entries not None):
    cdef list pairs = [], firsts = []
    cdef list kept_entries = list(entries)     # another thread may change the list
    cdef Py_ssize_t most = 1, count, start = 0, place, value_bytes = 0, size = 0
    cdef EntryBatch* batches
    cdef bytes entry
    for entry in kept_entries:
        most += PyBytes_GET_SIZE(entry) // BATCH_HEAD_BYTES
    batches = <EntryBatch*>PyMem_Malloc(most * sizeof(EntryBatch))
    if batches is NULL:
        raise MemoryError
    try:
        count = sort_all(kept_entries, batches)
        for place in range(count):
            if not place or batches[place].number != batches[place - 1].number:
                firsts.append((batches[place].number, batches[place].base_offset))
            if place > start and (
                batches[place].number != batches[start].number
                or value_bytes + batches[place].size > MAX_SHARED_VALUE
            ):
                pairs.append(pair_of(batches + start, place - start, value_bytes))
                start, value_bytes = place, 0
            value_bytes += batches[place].size
            size += BATCH_HEAD_BYTES + batches[place].size
        if count:
            pairs.append(pair_of(batches + start, count - start, value_bytes))
    finally:
        PyMem_Free(batches)
    return pairs, firsts, size
