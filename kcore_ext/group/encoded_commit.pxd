"""Reads an encoded OffsetCommit request without making objects."""

from libc.stdint cimport int32_t, int64_t

cdef enum:
    COMPACT_SINCE = 8                       # the first version with compact lengths
    MAX_KEY_BYTES = 1024                    # largest key of a combination of partitions
    TOPIC_BYTES = 22                        # size of a topic in a key, besides its name and partitions
    MAX_TOPICS = MAX_KEY_BYTES // TOPIC_BYTES
    MAX_PARTITIONS = MAX_KEY_BYTES // 4

cdef struct EncodedText:
    const unsigned char* at                 # NULL: null
    Py_ssize_t size

cdef struct EncodedCommit:
    EncodedText group_id
    EncodedText member_id
    EncodedText instance_id
    int32_t generation_id
    int topic_count
    Py_ssize_t key_bytes
    int partition_counts[MAX_TOPICS]        # by topic
    const unsigned char* partitions[MAX_PARTITIONS]     # the partitions of all topics
    unsigned char key[MAX_KEY_BYTES]

cdef struct EncodedOffset:                  # one partition
    int32_t partition
    int64_t offset
    int32_t leader_epoch
    EncodedText metadata

# Returns False for a request that must be decoded: another version, long or many values, tagged fields, malformed bytes.
cdef bint read_commit(
    const unsigned char* body, Py_ssize_t size, int version, Py_ssize_t max_elements, EncodedCommit* commit
) noexcept
cdef EncodedOffset read_offset(const unsigned char* partition) noexcept    # of an `EncodedCommit`
