"""Compiled loops over runs of stored batches. A load reads every batch, and there can be millions of small ones."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from kcore_ext.batch.layout cimport (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CONTROL_BIT,
    COUNT_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_DELTA_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    MAGIC_AT,
    MAX_SHARED_VALUE,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64
from kcore_ext.batch.crc32c cimport crc32c_of

from typing import NamedTuple

cdef enum:
    KEY_BYTES = 12
    MAGIC = 2

cdef uint64_t MAX_OFFSETS = 1 << 31  # offsets of a batch


class SimpleRun(NamedTuple):
    stop: int
    records: int
    size_bytes: int
    next_offset: int


cdef inline bytes batch_of(list run, Py_ssize_t index):
    return <bytes?>PyTuple_GET_ITEM(<tuple?>PyList_GET_ITEM(run, index), 1)


cdef Py_ssize_t first_batch(const unsigned char* value, Py_ssize_t left, int64_t* base, bint check_crc) noexcept:
    """Returns the size of the first batch in the bytes that are left of a value, and sets `base` to the base offset of
    the next batch.

    Without damage, the length field and the offsets of the batch lead to the next header, or the batch ends with the
    value. In other cases CRCs show which batches are undamaged. With `check_crc`, the CRC of the last batch is also
    compared: its length field may be damaged and include the batches after it. All bytes count as one batch if the
    next batch is not found.
    """
    cdef Py_ssize_t size
    cdef int32_t delta
    cdef int64_t expected
    if left < 2 * HEADER_BYTES or left > MAX_SHARED_VALUE:
        return left
    size = LENGTH_OVERHEAD + <Py_ssize_t>read_int32(value + LENGTH_AT)
    if size == left:
        if not check_crc or has_crc(value, size):
            return left
    elif HEADER_BYTES <= size <= left - HEADER_BYTES and read_int64(value) == base[0]:
        delta = read_int32(value + LAST_DELTA_AT)
        expected = offset_after(base[0], delta)
        if delta >= 0 and read_int64(value + size) == expected and value[size + MAGIC_AT] == MAGIC:
            base[0] = expected
            return size
    return damaged_batch(value, left, base)


cdef Py_ssize_t damaged_batch(const unsigned char* value, Py_ssize_t left, int64_t* base) noexcept:
    """Computes the result of `first_batch` for the case that the first batch or the header after it is damaged."""
    cdef Py_ssize_t size = LENGTH_OVERHEAD + <Py_ssize_t>read_int32(value + LENGTH_AT)
    cdef int32_t delta = read_int32(value + LAST_DELTA_AT)
    cdef int64_t stored = read_int64(value), expected = offset_after(base[0], delta), following
    cdef Py_ssize_t at
    cdef bint has_next = HEADER_BYTES <= size <= left - HEADER_BYTES
    if is_sound(value, left):
        # The length field, the offset delta and the records are right, so a base offset or the next batch is damaged.
        if not has_next or (stored != base[0] and read_int64(value + size) == offset_after(stored, delta)):
            return left     # the batches of another base offset
        base[0] = expected
        return size
    for at in range(HEADER_BYTES, left - HEADER_BYTES + 1):
        following = read_int64(value + at)
        if (
            value[at + MAGIC_AT] == MAGIC
            and is_near(base[0], following)
            and is_sound(value + at, left - at)
            and (at == size or (stored == base[0] and following == expected) or fills(value + at, left - at))
        ):
            base[0] = following
            return at
    if has_next and value[size + MAGIC_AT] == MAGIC:    # the next batch is damaged, too
        following = read_int64(value + size)
        if (delta >= 0 and following == expected) or (stored == base[0] and is_near(base[0], following)):
            base[0] = following
            return size
    return left


cdef inline int64_t offset_after(int64_t base, int32_t delta) noexcept:
    """Returns the offset after a batch. The sum wraps, because damaged offsets can be of any size."""
    return <int64_t>(<uint64_t>base + <uint64_t>(<int64_t>delta) + 1)


cdef inline bint is_near(int64_t base, int64_t following) noexcept:
    """Returns True if `following` may be the offset after a batch with this base offset."""
    return <uint64_t>following - <uint64_t>base - 1 < MAX_OFFSETS


cdef bint is_sound(const unsigned char* batch, Py_ssize_t left) noexcept:
    """Returns True if the bytes begin with a whole batch, apart from its base offset and its leader epoch."""
    cdef Py_ssize_t size = LENGTH_OVERHEAD + <Py_ssize_t>read_int32(batch + LENGTH_AT)
    return (
        HEADER_BYTES <= size <= left
        and batch[MAGIC_AT] == MAGIC
        and read_int32(batch + LAST_DELTA_AT) >= 0
        and has_crc(batch, size)
    )


cdef bint fills(const unsigned char* value, Py_ssize_t left) noexcept:
    """Returns True if the length fields of consecutive batches lead to the end of the bytes.

    A batch within a record of a damaged batch is not at such a position, because further bytes of the record follow.
    """
    cdef Py_ssize_t size
    while left >= HEADER_BYTES and value[MAGIC_AT] == MAGIC:
        size = LENGTH_OVERHEAD + <Py_ssize_t>read_int32(value + LENGTH_AT)
        if size == left:
            return True
        if not HEADER_BYTES <= size < left:
            return False
        value += size
        left -= size
    return False


cdef bint has_crc(const unsigned char* batch, Py_ssize_t size) noexcept:
    """Returns True if the CRC of a batch is right."""
    return crc32c_of(batch + CHECKED_FROM, size - CHECKED_FROM, 0) == <uint32_t>read_int32(batch + CRC_AT)


def spans(base, const unsigned char[::1] value not None):
    cdef list found = []
    cdef Py_ssize_t start = 0, stop
    cdef int64_t following = <int64_t><uint64_t>(base & 0xFFFFFFFFFFFFFFFF)    # a damaged key may have any base offset
    while start < value.shape[0]:
        stop = start + first_batch(&value[start], value.shape[0] - start, &following, True)
        found.append((base, start, stop))
        start, base = stop, following
    return found


cdef inline bint ends_before(const unsigned char* batch, Py_ssize_t size, int64_t base, int64_t offset) noexcept:
    """Returns True if an undamaged header shows that the batch has only offsets below `offset`."""
    cdef int32_t delta
    if size < HEADER_BYTES or read_int64(batch) != base:
        return False
    delta = read_int32(batch + LAST_DELTA_AT)
    return delta >= 0 and offset_after(base, delta) <= offset


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
            size = first_batch(at + start, left, &following, False)
            if size == PyBytes_GET_SIZE(value):
                found.append((base, value))
                size_bytes += size
            elif following <= offset if size < left else ends_before(at + start, size, base, offset):
                pass    # the value has a later batch with the offset
            else:
                found.append((base, PyBytes_FromStringAndSize(<const char*>at + start, size)))
                size_bytes += size
            if PyList_GET_SIZE(found) and (size_bytes >= max_bytes or PyList_GET_SIZE(found) >= max_batches):
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
        if read_int64(at) != base or delta < 0:
            return index
        if read_int32(at + LENGTH_AT) != size - LENGTH_OVERHEAD or at[MAGIC_AT] != 2:
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
