"""Maps record keys to partitions as Java's producer does, so that equal keys share a partition."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Computes Kafka's 32-bit MurmurHash2 of `data`, unsigned."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key in a topic with that number of partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
