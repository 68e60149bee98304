"""Reads an encoded OffsetCommit request without making objects.

`read_commit` reads only what clients usually send: versions 8 to 10, lengths and counts of one byte, no tagged fields,
no null topics. It returns False for every other request; the codec then decodes it or finds the error.
"""

from libc.stdint cimport int32_t
from libc.string cimport memcpy

from kcore_ext.util.byte_order cimport read_int32, read_int64

cdef enum:
    LAST_VERSION = 10
    UUID_BYTES = 16
    NUMBERS_BYTES = 16          # partition, offset and leader epoch


cdef inline const unsigned char* _text(
    const unsigned char* at, const unsigned char* end, bint nullable, EncodedText* text
) noexcept:
    """Reads a compact string of at most 126 bytes. Returns the position after it; NULL if there is no such string."""
    if at is NULL or at >= end or at[0] >= 0x80:
        return NULL
    if at[0] == 0:
        text.at = NULL
        text.size = 0
        return at + 1 if nullable else NULL
    text.at = at + 1
    text.size = at[0] - 1
    return text.at + text.size if text.size < end - at else NULL


cdef inline const unsigned char* _count(const unsigned char* at, const unsigned char* end, int* count) noexcept:
    """Reads the count of a compact array of 1 to 126 elements. Returns the position after it; NULL for other counts."""
    if at is NULL or at >= end or not 2 <= at[0] < 0x80:
        return NULL
    count[0] = at[0] - 1
    return at + 1


cdef inline const unsigned char* _no_tags(const unsigned char* at, const unsigned char* end) noexcept:
    """Returns the position after an empty tag section; NULL for another one."""
    return at + 1 if at is not NULL and at < end and at[0] == 0 else NULL


cdef bint read_commit(
    const unsigned char* body, Py_ssize_t size, int version, Py_ssize_t max_elements, EncodedCommit* commit
) noexcept:
    cdef const unsigned char* end = body + size
    cdef const unsigned char* at = body
    cdef int i, partitions = 0
    if not COMPACT_SINCE <= version <= LAST_VERSION:
        return False
    at = _text(at, end, False, &commit.group_id)
    if at is NULL or end - at < 4:
        return False
    commit.generation_id = read_int32(at)
    at = _text(at + 4, end, False, &commit.member_id)
    at = _text(at, end, True, &commit.instance_id)
    at = _count(at, end, &commit.topic_count)
    if at is NULL or commit.topic_count > MAX_TOPICS:
        return False
    commit.key[0] = version >= TOPIC_IDS_SINCE
    commit.key_bytes = 1
    for i in range(commit.topic_count):
        at = _topic(at, end, commit, i, partitions)
        if at is NULL:
            return False
        partitions += commit.partition_counts[i]
    return _no_tags(at, end) is end and commit.topic_count + partitions <= max_elements


cdef const unsigned char* _topic(
    const unsigned char* at, const unsigned char* end, EncodedCommit* commit, int topic, int first
) noexcept:
    """Reads a topic, whose first partition gets the index `first`, and adds it to the key.

    Returns:
        The position after the topic; NULL for a request that must be decoded.
    """
    cdef unsigned char* key = &commit.key[commit.key_bytes]
    cdef const unsigned char* topic_id = NULL
    cdef EncodedText name, metadata
    cdef int32_t count, partition
    cdef int i
    name.at, name.size = NULL, 0
    if not commit.key[0]:
        at = _text(at, end, False, &name)
    elif end - at >= UUID_BYTES:
        topic_id = at
        at += UUID_BYTES
    else:
        return NULL
    at = _count(at, end, &commit.partition_counts[topic])
    if at is NULL:
        return NULL
    count = commit.partition_counts[topic]
    commit.key_bytes += TOPIC_BYTES + name.size + 4 * count
    if commit.key_bytes > MAX_KEY_BYTES:
        return NULL
    key = put_topic(key, name.at, name.size, topic_id, count)
    for i in range(count):
        if end - at < NUMBERS_BYTES:
            return NULL
        commit.partitions[first + i] = at
        partition = read_int32(at)
        memcpy(key, &partition, 4)
        key += 4
        at = _no_tags(_text(at + NUMBERS_BYTES, end, True, &metadata), end)
        if at is NULL:
            return NULL
    return _no_tags(at, end)


cdef EncodedOffset read_offset(const unsigned char* partition) noexcept:
    cdef EncodedOffset offset
    cdef const unsigned char* metadata = partition + NUMBERS_BYTES
    offset.partition = read_int32(partition)
    offset.offset = read_int64(partition + 4)
    offset.leader_epoch = read_int32(partition + 12)
    offset.metadata.at = metadata + 1
    offset.metadata.size = metadata[0] - 1 if metadata[0] else 0    # an empty string for null
    return offset
