"""Reads an encoded OffsetCommit request without making objects."""

from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy, memset

cdef enum:
    COMPACT_SINCE = 8                       # the first version with compact lengths ...
    TOPIC_IDS_SINCE = 10                    # ... and with topic ids instead of names
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


cdef inline unsigned char* put_topic(
    unsigned char* key, const void* name, Py_ssize_t name_bytes, const void* topic_id, int32_t partitions
) noexcept:
    """Writes a topic into the key of a combination of partitions, without the partitions.

    Args:
        key: the position in the key.
        name: the topic's name.
        name_bytes: the size of the name; 0 if the request identifies topics by their ids.
        topic_id: the topic's id; NULL for zeros.
        partitions: the number of partitions.

    Returns:
        The position of the first partition.
    """
    cdef int16_t size = <int16_t>name_bytes
    memcpy(key, &size, 2)
    memcpy(key + 2, &partitions, 4)
    if topic_id is NULL:
        memset(key + 6, 0, 16)
    else:
        memcpy(key + 6, topic_id, 16)
    if name_bytes:
        memcpy(key + TOPIC_BYTES, name, name_bytes)
    return key + TOPIC_BYTES + name_bytes
