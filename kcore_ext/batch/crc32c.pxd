"""CRC-32C as other compiled modules see it."""

from libc.stdint cimport uint32_t


cdef uint32_t crc32c_of(const unsigned char* start, Py_ssize_t size, uint32_t crc) noexcept nogil
