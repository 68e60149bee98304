"""Compiled loops over runs of stored batches. A load reads every batch, and there can be millions of small ones."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kcore_ext.batch.layout cimport (
    CHECKED_FROM,
    CODEC_BITS,
    CONTROL_BIT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64
from kcore_ext.batch.crc32c cimport crc32c_of

from typing import NamedTuple

cdef enum:
    KEY_BYTES = 12
    LENGTH_AT = 8
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    PRODUCER_ID_AT = 43
    COUNT_AT = 57
    MAGIC = 2

cdef int64_t MAX_OFFSETS = 1 << 31  # offsets of a batch


class SimpleRun(NamedTuple):
    stop: int
    records: int
    size_bytes: int
    next_offset: int


cdef inline bytes batch_of(list run, Py_ssize_t index):
    return <bytes?>PyTuple_GET_ITEM(<tuple?>PyList_GET_ITEM(run, index), 1)


cdef Py_ssize_t first_batch(const unsigned char* value, Py_ssize_t left, int64_t* base) noexcept:
    """Returns the size of the first batch in the bytes that are left, and sets `base` to the base offset of the next one.

    Any one field of the batches may be damaged: the offsets, the length field and the CRC are compared with each other.
    All bytes count as one batch if there is no next batch, or if the bytes are not batches from `base` on.
    """
    cdef Py_ssize_t size
    cdef int64_t following, expected
    cdef bint at_base
    if left < 2 * HEADER_BYTES:
        return left
    size = LENGTH_OVERHEAD + <Py_ssize_t>read_int32(value + LENGTH_AT)
    if size == left:
        return left
    at_base = read_int64(value) == base[0]
    expected = base[0] + read_int32(value + LAST_DELTA_AT) + 1
    if HEADER_BYTES <= size <= left - HEADER_BYTES:
        following = read_int64(value + size)
        if following == expected or (at_base and value[size + MAGIC_AT] == MAGIC):
            if following != expected and (not 0 < following - base[0] <= MAX_OFFSETS or has_crc(value, size)):
                following = expected    # the next batch has a damaged base offset
            base[0] = following
            return size
    if not at_base or expected <= base[0]:
        return left
    size = find_batch(value, left, expected)    # the length field is damaged
    base[0] = expected
    return size


cdef bint has_crc(const unsigned char* batch, Py_ssize_t size) noexcept:
    """Returns True if the CRC of a batch is right."""
    return crc32c_of(batch + CHECKED_FROM, size - CHECKED_FROM, 0) == <uint32_t>read_int32(batch + CRC_AT)


cdef Py_ssize_t find_batch(const unsigned char* value, Py_ssize_t left, int64_t base) noexcept:
    """Returns the position of a later batch with this base offset; the number of bytes that are left without one."""
    cdef Py_ssize_t at
    for at in range(HEADER_BYTES, left - HEADER_BYTES + 1):
        if value[at + MAGIC_AT] == MAGIC and read_int64(value + at) == base:
            return at
    return left


def spans(int64_t base, const unsigned char[::1] value not None):
    cdef list found = []
    cdef Py_ssize_t start = 0, stop
    cdef int64_t following = base
    while start < value.shape[0]:
        stop = start + first_batch(&value[start], value.shape[0] - start, &following)
        found.append((base, start, stop))
        start, base = stop, following
    return found


cdef inline bint ends_before(const unsigned char* batch, Py_ssize_t size, int64_t offset) noexcept:
    """Returns True if a batch has only offsets below `offset`."""
    return size >= HEADER_BYTES and read_int64(batch) + read_int32(batch + LAST_DELTA_AT) < offset


def gather(entries, uint32_t number, int64_t offset, int64_t limit, Py_ssize_t max_bytes, Py_ssize_t max_batches):
    cdef list found = []
    cdef Py_ssize_t size_bytes = 0, start, size, left
    cdef const unsigned char* at
    cdef int64_t base, following
    cdef bytes key, value
    for key, value in entries:
        if PyBytes_GET_SIZE(key) != KEY_BYTES:
            raise ValueError(f"the key of a batch has {KEY_BYTES} bytes, not {PyBytes_GET_SIZE(key)}")
        at = <const unsigned char*>PyBytes_AS_STRING(key)
        base = following = read_int64(at + 4)
        if <uint32_t>read_int32(at) != number:
            return found
        at = <const unsigned char*>PyBytes_AS_STRING(value)
        left = PyBytes_GET_SIZE(value)
        start = 0
        while True:
            if base >= limit:
                return found
            size = first_batch(at + start, left, &following)
            if size == PyBytes_GET_SIZE(value):
                found.append((base, value))
                size_bytes += size
            elif not ends_before(at + start, size, offset):
                found.append((base, PyBytes_FromStringAndSize(<const char*>at + start, size)))
                size_bytes += size
            if size_bytes >= max_bytes or PyList_GET_SIZE(found) >= max_batches:
                return found
            start, left, base = start + size, left - size, following
            if left == 0:
                break
    return found


def count_sound(list run not None, int64_t offset, int64_t cleaned_to, bint check_crc):
    cdef Py_ssize_t index, size, count = PyList_GET_SIZE(run)
    cdef const unsigned char* at
    cdef int32_t delta
    cdef int64_t base
    cdef bytes batch
    for index in range(count):
        batch = batch_of(run, index)
        size = PyBytes_GET_SIZE(batch)
        base = <object>PyTuple_GET_ITEM(<tuple>PyList_GET_ITEM(run, index), 0)
        if size < HEADER_BYTES or base < offset or (base > offset and base > cleaned_to):
            return index
        at = <const unsigned char*>PyBytes_AS_STRING(batch)
        delta = read_int32(at + LAST_DELTA_AT)
        if read_int64(at) != base or read_int32(at + 8) != size - LENGTH_OVERHEAD or at[MAGIC_AT] != 2 or delta < 0:
            return index
        if check_crc and crc32c_of(at + CHECKED_FROM, size - CHECKED_FROM, 0) != <uint32_t>read_int32(at + CRC_AT):
            return index
        offset = base + delta + 1
    return count


def simple_run(list run not None, Py_ssize_t index):
    cdef Py_ssize_t size_bytes = 0, records = 0, count = PyList_GET_SIZE(run)
    cdef int64_t next_offset = -1
    cdef const unsigned char* at
    cdef int32_t in_batch
    cdef bytes batch
    while 0 <= index < count:
        batch = batch_of(run, index)
        if PyBytes_GET_SIZE(batch) < HEADER_BYTES:
            break
        at = <const unsigned char*>PyBytes_AS_STRING(batch)
        in_batch = read_int32(at + COUNT_AT)
        if read_int16(at + ATTRIBUTES_AT) & (CODEC_BITS | TRANSACTIONAL_BIT | CONTROL_BIT) or in_batch <= 0:
            break
        records += in_batch
        size_bytes += PyBytes_GET_SIZE(batch)
        next_offset = read_int64(at) + read_int32(at + LAST_DELTA_AT) + 1
        index += 1
    return SimpleRun(index, records, size_bytes, next_offset)


def replay_producers(list run not None, replay):
    cdef Py_ssize_t index
    cdef bytes batch
    for index in range(PyList_GET_SIZE(run)):
        batch = batch_of(run, index)
        if (
            PyBytes_GET_SIZE(batch) >= HEADER_BYTES
            and read_int64(<const unsigned char*>PyBytes_AS_STRING(batch) + PRODUCER_ID_AT) >= 0
        ):
            replay(batch)
