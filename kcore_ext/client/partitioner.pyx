"""Maps record keys to partitions as Java's producer does, so that equal keys share a partition."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

cdef enum:
    MULTIPLIER = 0x5BD1E995

cdef uint32_t SEED = 0x9747B28C


cdef inline uint32_t hash_of(const unsigned char* at, Py_ssize_t size) noexcept nogil:
    """Computes Kafka's 32-bit MurmurHash2 over little-endian words."""
    cdef uint32_t hashed = SEED ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        word = at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word *= <uint32_t>MULTIPLIER
        word = (word ^ word >> 24) * <uint32_t>MULTIPLIER
        hashed = hashed * <uint32_t>MULTIPLIER ^ word
        at += 4
        size -= 4
    if size:
        if size > 2:
            hashed ^= <uint32_t>at[2] << 16
        if size > 1:
            hashed ^= <uint32_t>at[1] << 8
        hashed = (hashed ^ at[0]) * <uint32_t>MULTIPLIER
    hashed = (hashed ^ hashed >> 13) * <uint32_t>MULTIPLIER
    return hashed ^ hashed >> 15


cdef int partition_of_key(bytes key, int partitions) noexcept:
    cdef uint32_t hashed = hash_of(<const unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    return <int>((hashed & 0x7FFFFFFF) % <uint32_t>partitions)


def murmur2(bytes data not None) -> int:
    """Computes Kafka's 32-bit MurmurHash2 of `data`, unsigned."""
    return hash_of(<const unsigned char*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def partition_of(bytes key not None, int partitions) -> int:
    """Returns the partition of a key in a topic with `partitions` partitions.

    Raises:
        ValueError: the number of partitions is below 1.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return partition_of_key(key, partitions)
