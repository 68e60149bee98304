"""Positions of the fields of a record batch, and constants of its format: inline code for all compiled modules.

`kcore.protocol.batch_layout` has the same constants for Python.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef enum:
    LENGTH_AT = 8
    LENGTH_OVERHEAD = 12         # base offset and length field, which the length field does not count
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    CHECKED_FROM = 21            # the CRC covers everything from the attributes on
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23           # the last offset delta
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    COUNT_AT = 57
    HEADER_BYTES = 61            # the fixed part of a batch, and the size of the smallest one
    SMALLEST_LENGTH = 49         # the minimum of the length field, which an empty batch has
    CODEC_BITS = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40
    MAX_SHARED_VALUE = 1338     # of several batches; kcore_ext/log/journal.pyi explains it


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


cdef inline unsigned char* put_varint(unsigned char* at, int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    while raw > 0x7F:
        at[0] = <unsigned char>(raw | 0x80)
        raw >>= 7
        at += 1
    at[0] = <unsigned char>raw
    return at + 1


cdef inline const unsigned char* get_unsigned(
    const unsigned char* at, const unsigned char* end, int longest, uint64_t* value
) noexcept nogil:
    """Reads a varint of at most `longest` bytes.

    Returns the end of the varint; NULL if the varint is truncated or too long.
    """
    cdef uint64_t raw = 0
    cdef int shift = 0
    if at < end and at[0] < 0x80:
        value[0] = at[0]
        return at + 1
    while at < end and shift < 7 * longest:
        raw |= <uint64_t>(at[0] & 0x7F) << shift
        if at[0] < 0x80:
            value[0] = raw
            return at + 1
        at += 1
        shift += 7
    return NULL


cdef inline const unsigned char* get_varlong(
    const unsigned char* at, const unsigned char* end, int64_t* value
) noexcept nogil:
    """Reads a zig-zag varint of 64 bits: at most ten bytes. Returns as `get_unsigned` does."""
    cdef uint64_t raw = 0
    at = get_unsigned(at, end, 10, &raw)
    value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return at


cdef inline const unsigned char* get_varint(
    const unsigned char* at, const unsigned char* end, int32_t* value
) noexcept nogil:
    """Reads a zig-zag varint of 32 bits: at most five bytes. Like Kafka, it ignores the bits of the fifth byte that do
    not fit into 32 bits.
    """
    cdef uint64_t raw = 0
    at = get_unsigned(at, end, 5, &raw)
    value[0] = <int32_t>(<uint32_t>raw >> 1) ^ -<int32_t>(raw & 1)
    return at
