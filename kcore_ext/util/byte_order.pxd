"""Inline functions that read and write big-endian numbers, as the protocol uses them."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #include <stdlib.h>
    #define kcore_wire16 _byteswap_ushort
    #define kcore_wire32 _byteswap_ulong
    #define kcore_wire64 _byteswap_uint64
    #elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define kcore_wire16(x) (x)
    #define kcore_wire32(x) (x)
    #define kcore_wire64(x) (x)
    #else
    #define kcore_wire16 __builtin_bswap16
    #define kcore_wire32 __builtin_bswap32
    #define kcore_wire64 __builtin_bswap64
    #endif
    """
    uint16_t wire16 "kcore_wire16"(uint16_t) noexcept nogil
    uint32_t wire32 "kcore_wire32"(uint32_t) noexcept nogil
    uint64_t wire64 "kcore_wire64"(uint64_t) noexcept nogil


cdef inline int16_t read_int16(const unsigned char* at) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, at, 2)
    return <int16_t>wire16(raw)


cdef inline int32_t read_int32(const unsigned char* at) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, at, 4)
    return <int32_t>wire32(raw)


cdef inline int64_t read_int64(const unsigned char* at) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, at, 8)
    return <int64_t>wire64(raw)


cdef inline void write_int16(unsigned char* at, int16_t value) noexcept nogil:
    cdef uint16_t raw = wire16(<uint16_t>value)
    memcpy(at, &raw, 2)


cdef inline void write_int32(unsigned char* at, int32_t value) noexcept nogil:
    cdef uint32_t raw = wire32(<uint32_t>value)
    memcpy(at, &raw, 4)


cdef inline void write_int64(unsigned char* at, int64_t value) noexcept nogil:
    cdef uint64_t raw = wire64(<uint64_t>value)
    memcpy(at, &raw, 8)
