"""An encoder for the share partitions of a group (record type 15) that creates no object for each topic.

A record has every topic of its group. Creating 20,000 objects and encoding them took 30 ms.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from kcore_ext.util.buffer cimport TOPIC_ID_BYTES, Buffer, put_count, reserve, utf8
from kcore_ext.util.byte_order cimport write_int32

cdef enum:
    VERSION_BYTES = 2
    COUNT_BYTES = 5         # at most: a varint of 32 bits
    TOPIC_OVERHEAD = 27     # at most: the id, both lengths and the end of a topic


def encode_state(dict initializing not None, dict initialized not None, dict deleting not None):
    cdef Buffer buffer
    cdef bytes encoded
    buffer.start = NULL
    buffer.used = buffer.room = 0
    try:
        reserve(&buffer, VERSION_BYTES)
        buffer.start[0] = buffer.start[1] = 0
        buffer.used = VERSION_BYTES
        for topics in (initializing, initialized):
            put_topics(&buffer, topics)
        reserve(&buffer, COUNT_BYTES)
        put_count(&buffer, len(deleting))
        for topic_id, name in deleting.items():
            put_name(&buffer, topic_id, name, 0)
            put_end(&buffer)
        reserve(&buffer, 1)
        put_end(&buffer)
        encoded = PyBytes_FromStringAndSize(<const char*>buffer.start, buffer.used)
    finally:
        PyMem_Free(buffer.start)
    return encoded


cdef int put_topics(Buffer* buffer, dict topics) except -1:
    cdef Py_ssize_t count, written
    cdef int32_t number
    reserve(buffer, COUNT_BYTES)
    put_count(buffer, len(topics))
    for topic_id, topic in topics.items():
        name, partitions = topic
        count = len(partitions)
        put_name(buffer, topic_id, name, 4 * count)
        put_count(buffer, count)
        written = 0
        for partition in sorted(partitions) if count > 1 else partitions:
            number = partition
            written += 1
            if written > count:
                raise ValueError(f"share group: topic {name!r} has more partitions than the {count} of its set's length")
            write_int32(buffer.start + buffer.used, number)
            buffer.used += 4
        if written != count:
            raise ValueError(f"share group: topic {name!r} has {written} partitions, but its set's length is {count}")
        put_end(buffer)
    return 0


cdef int put_name(Buffer* buffer, bytes topic_id, str name, Py_ssize_t more) except -1:
    """Writes the id and the name of a topic, and reserves memory for `more` bytes of partitions and for the end of the
    topic.
    """
    cdef Py_ssize_t size
    cdef const char* text
    if topic_id is None or len(topic_id) != TOPIC_ID_BYTES:
        raise ValueError(f"share group: the id of topic {name!r} is {topic_id!r}, not 16 bytes")
    if name is None:
        raise ValueError(f"share group: the topic with id {topic_id.hex()} has no name")
    text = utf8(name, &size)
    reserve(buffer, TOPIC_OVERHEAD + size + more)
    memcpy(buffer.start + buffer.used, <const char*>topic_id, TOPIC_ID_BYTES)
    buffer.used += TOPIC_ID_BYTES
    put_count(buffer, size)
    memcpy(buffer.start + buffer.used, text, size)
    buffer.used += size
    return 0


cdef inline void put_end(Buffer* buffer) noexcept:
    """Writes an empty tag section. The caller has reserved the memory."""
    buffer.start[buffer.used] = 0
    buffer.used += 1
