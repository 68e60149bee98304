def murmur2(data: bytes) -> int:
    """Computes Kafka's 32-bit MurmurHash2 of `data`, unsigned."""

def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key in a topic with `partitions` partitions."""
