"""CRC-32C: computed with the processor's instruction if it has one (SSE 4.2), else with tables, eight bytes in each
step.

kcore has its own module because a load checks every batch, and a call from C costs a tenth of a call through Python
objects.
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
    /* The processor can start one CRC instruction in each cycle, but its result takes three cycles. Three parts of the
       bytes in parallel therefore take as long as one part. To join two parts, a table advances the state after the
       first part by the length of the second part. */
    #define KCORE_CRC_SHORT 128   /* bytes of each part */
    #define KCORE_CRC_LONG 1024
    #define KCORE_CRC_STREAMS 3

    static uint32_t kcore_crc_short[4][256], kcore_crc_long[4][256];

    /* Returns the state after further zero bytes. The table was made for a fixed number of zero bytes. */
    static inline uint32_t kcore_crc_shift(uint32_t table[4][256], uint32_t state) {
        return table[0][state & 0xFF] ^ table[1][state >> 8 & 0xFF] ^ table[2][state >> 16 & 0xFF] ^ table[3][state >> 24];
    }

    /* Fills a table from the results for the 32 states with a single bit. All other results are XORs of these. */
    static void kcore_crc_fill_shift(uint32_t table[4][256], const uint32_t bits[32]) {
        for (int byte = 0; byte < 4; byte++)
            for (int value = 0; value < 256; value++) {
                uint32_t state = 0;
                for (int bit = 0; bit < 8; bit++)
                    if (value >> bit & 1)
                        state ^= bits[8 * byte + bit];
                table[byte][value] = state;
            }
    }

    static void kcore_crc_fill_shifts(void) {
        uint32_t bits[32];
        for (int bit = 0; bit < 32; bit++) {
            bits[bit] = (uint32_t)1 << bit;
            for (int byte = 0; byte < KCORE_CRC_SHORT; byte++)
                bits[bit] = (bits[bit] >> 8) ^ kcore_crc_tables[0][bits[bit] & 0xFF];
        }
        kcore_crc_fill_shift(kcore_crc_short, bits);
        for (int bit = 0; bit < 32; bit++)
            for (int done = KCORE_CRC_SHORT; done < KCORE_CRC_LONG; done += KCORE_CRC_SHORT)
                bits[bit] = kcore_crc_shift(kcore_crc_short, bits[bit]);
        kcore_crc_fill_shift(kcore_crc_long, bits);
    }

    __attribute__((target("sse4.2")))
    static inline uint32_t kcore_crc_in_parts(
        const unsigned char **at, size_t *left, uint64_t state, size_t part, uint32_t table[4][256]
    ) {
        while (*left >= KCORE_CRC_STREAMS * part) {
            const unsigned char *from = *at, *end = from + part;
            uint64_t second = 0, third = 0, word;
            for (; from < end; from += 8) {
                memcpy(&word, from, 8);
                state = __builtin_ia32_crc32di(state, word);
                memcpy(&word, from + part, 8);
                second = __builtin_ia32_crc32di(second, word);
                memcpy(&word, from + 2 * part, 8);
                third = __builtin_ia32_crc32di(third, word);
            }
            state = kcore_crc_shift(table, (uint32_t)state) ^ (uint32_t)second;
            state = kcore_crc_shift(table, (uint32_t)state) ^ (uint32_t)third;
            *at += KCORE_CRC_STREAMS * part;
            *left -= KCORE_CRC_STREAMS * part;
        }
        return (uint32_t)state;
    }

    __attribute__((target("sse4.2")))
    static uint32_t kcore_crc_by_instruction(const unsigned char *at, size_t left, uint32_t crc) {
        uint64_t state = ~crc, word;
        if (left >= KCORE_CRC_STREAMS * KCORE_CRC_SHORT) {
            state = kcore_crc_in_parts(&at, &left, state, KCORE_CRC_LONG, kcore_crc_long);
            state = kcore_crc_in_parts(&at, &left, state, KCORE_CRC_SHORT, kcore_crc_short);
        }
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
    #define kcore_crc_fill_shifts() ((void)0)
    #define kcore_crc_by_instruction kcore_crc_by_tables
    #define kcore_crc_has_instruction() 0
    #endif
    """
    void fill_tables "kcore_crc_fill"() noexcept nogil
    void fill_shifts "kcore_crc_fill_shifts"() noexcept nogil
    bint has_instruction "kcore_crc_has_instruction"() noexcept nogil
    uint32_t by_tables "kcore_crc_by_tables"(const unsigned char* at, size_t left, uint32_t crc) noexcept nogil
    uint32_t by_instruction "kcore_crc_by_instruction"(const unsigned char* at, size_t left, uint32_t crc) noexcept nogil

fill_tables()
fill_shifts()
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
    """Computes `crc32c` with tables, as on processors without the CRC instruction; for tests."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return by_tables(<const unsigned char*>view.buf, view.len, crc)
    finally:
        PyBuffer_Release(&view)
