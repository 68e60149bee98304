"""CRC-32C: by the processor's instruction if it has one (SSE 4.2), else by tables, eight bytes a step.

kcore has its own module because a load checks every batch: a call from C costs a tenth of one through Python objects.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define KCORE_CASTAGNOLI 0x82F63B78u   /* the polynomial, lowest power first */

    static uint32_t kcore_crc_tables[8][256];

    static void kcore_crc_fill(void) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte;
            for (int bit = 0; bit < 8; bit++)
                crc = (crc >> 1) ^ (crc & 1 ? KCORE_CASTAGNOLI : 0);
            kcore_crc_tables[0][byte] = crc;
        }
        for (int table = 1; table < 8; table++)
            for (int byte = 0; byte < 256; byte++) {
                uint32_t crc = kcore_crc_tables[table - 1][byte];
                kcore_crc_tables[table][byte] = (crc >> 8) ^ kcore_crc_tables[0][crc & 0xFF];
            }
    }

    static uint32_t kcore_crc_by_tables(const unsigned char *at, size_t left, uint32_t crc) {
        crc = ~crc;
        for (; left >= 8; at += 8, left -= 8) {
            uint32_t next = 0;
            for (int byte = 0; byte < 4; byte++) {
                next ^= kcore_crc_tables[7 - byte][(crc >> (8 * byte) & 0xFF) ^ at[byte]];
                next ^= kcore_crc_tables[3 - byte][at[4 + byte]];
            }
            crc = next;
        }
        for (; left; at++, left--)
            crc = (crc >> 8) ^ kcore_crc_tables[0][(crc ^ *at) & 0xFF];
        return ~crc;
    }

    #if defined(__x86_64__)
    __attribute__((target("sse4.2")))
    static uint32_t kcore_crc_by_instruction(const unsigned char *at, size_t left, uint32_t crc) {
        uint64_t state = ~crc, word;
        for (; left >= 8; at += 8, left -= 8) {
            memcpy(&word, at, 8);
            state = __builtin_ia32_crc32di(state, word);
        }
        for (; left; at++, left--)
            state = __builtin_ia32_crc32qi((uint32_t)state, *at);
        return ~(uint32_t)state;
    }
    #define kcore_crc_has_instruction() (__builtin_cpu_supports("sse4.2") != 0)
    #else
    #define kcore_crc_by_instruction kcore_crc_by_tables
    #define kcore_crc_has_instruction() 0
    #endif
    """
    void fill_tables "kcore_crc_fill"() noexcept nogil
    bint has_instruction "kcore_crc_has_instruction"() noexcept nogil
    uint32_t by_tables "kcore_crc_by_tables"(const unsigned char* at, size_t left, uint32_t crc) noexcept nogil
    uint32_t by_instruction "kcore_crc_by_instruction"(const unsigned char* at, size_t left, uint32_t crc) noexcept nogil

fill_tables()
cdef bint INSTRUCTION = has_instruction()


cdef uint32_t crc32c_of(const unsigned char* start, Py_ssize_t size, uint32_t crc) noexcept nogil:
    if INSTRUCTION:
        return by_instruction(start, size, crc)
    return by_tables(start, size, crc)


def crc32c(data, uint32_t crc=0):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return crc32c_of(<const unsigned char*>view.buf, view.len, crc)
    finally:
        PyBuffer_Release(&view)


def _crc32c_by_tables(data, uint32_t crc=0):
    """Computes `crc32c` with tables, as on processors without the instruction; for tests."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return by_tables(<const unsigned char*>view.buf, view.len, crc)
    finally:
        PyBuffer_Release(&view)
