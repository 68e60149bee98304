"""The partition of a record's key, for other compiled modules."""

cdef int partition_of_key(bytes key, int partitions) noexcept
