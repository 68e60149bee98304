"""Offsets of open transactions: a transactional commit adds them; a marker makes them committed offsets or drops them.

They are stored in the dictionaries of `kcore.group.offsets.store`, which defines them and implements the same rules in
Python for single offsets. A test compares both modules.
"""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.object cimport PyObject
from cpython.set cimport PySet_Add, PySet_Discard
from libc.stdint cimport int64_t

from kcore_ext.group.offset_block cimport Entry, OffsetBlock
from kcore_ext.group.offsets cimport OffsetAndMetadata
from kcore_ext.util.shared_text cimport shared_text


cdef dict nested(dict outer, object key):
    """Returns the dictionary under a key; creates it if it is missing."""
    cdef PyObject* found = PyDict_GetItemWithError(outer, key)
    cdef dict inner
    if found is not NULL:
        return <dict?><object>found
    inner = {}
    outer[key] = inner
    return inner


def hold(
    dict pending not None, dict opened not None, int64_t producer_id, str group_id not None, OffsetBlock block not None,
    int64_t first_offset,
):
    cdef dict topics, open_topics, partitions = None, open_partitions = None
    cdef Entry* entry
    cdef OffsetAndMetadata offset
    cdef PyObject* found
    cdef Py_ssize_t i
    cdef PyObject* topic = NULL
    cdef set producers
    if not block.count:
        return
    producer = producer_id
    topics = nested(nested(pending, producer), group_id)
    open_topics = nested(opened, group_id)
    for i in range(block.count):
        entry = &block.entries[i]
        if entry.topic is not topic:
            topic = entry.topic
            name = shared_text(<str>topic)
            partitions = nested(topics, name)
            open_partitions = nested(open_topics, name)
        offset = <OffsetAndMetadata>entry.offset
        if offset.record_offset != -1:
            raise ValueError(f"the offset has a record at {offset.record_offset} already, not at {first_offset + i}")
        offset.record_offset = first_offset + i
        index = <object>entry.index
        PyDict_SetItem(partitions, index, offset)
        found = PyDict_GetItemWithError(open_partitions, index)
        if found is NULL:
            producers = set()
            open_partitions[index] = producers
        else:
            producers = <set?><object>found
        PySet_Add(producers, producer)


def release(dict pending not None, dict opened not None, dict groups not None, int64_t producer_id, bint commit) -> int:
    cdef dict held, topics, open_topics, group_topics
    cdef int added = 0
    producer = producer_id
    found = pending.pop(producer, None)
    if found is None:
        return 0
    held = found
    for group_id, topics in held.items():
        open_topics = opened[group_id]
        for topic, partitions in topics.items():
            close(open_topics, topic, <dict?>partitions, producer)
        if not open_topics:
            del opened[group_id]
        if commit:
            group_topics = nested(groups, group_id)
            for topic, partitions in topics.items():
                added += materialise(group_topics, topic, <dict?>partitions)
    return added


cdef int close(dict open_topics, topic, dict partitions, producer) except -1:
    """Removes a producer from those partitions of a topic for which the producer had pending offsets."""
    cdef dict open_partitions = open_topics[topic]
    cdef PyObject* index
    cdef PyObject* offset
    cdef Py_ssize_t at = 0
    cdef set producers
    while PyDict_Next(partitions, &at, &index, &offset):
        producers = open_partitions[<object>index]
        PySet_Discard(producers, producer)
        if not producers:
            del open_partitions[<object>index]
    if not open_partitions:
        del open_topics[topic]
    return 0


cdef int materialise(dict topics, topic, dict partitions) except -1:
    """Turns a topic's pending offsets into committed offsets, unless a later record has replaced them.

    Returns the number of partitions that had no offset before. If the group had no offsets of the topic, `partitions`
    itself becomes the topic's dictionary of offsets.
    """
    cdef PyObject* found = PyDict_GetItemWithError(topics, topic)
    cdef dict present
    cdef PyObject* index
    cdef PyObject* offset
    cdef Py_ssize_t at = 0
    cdef int added = 0
    if found is NULL:
        topics[topic] = partitions
        return <int>PyDict_Size(partitions)
    present = <dict?><object>found
    while PyDict_Next(partitions, &at, &index, &offset):
        found = PyDict_GetItemWithError(present, <object>index)
        if found is NULL:
            added += 1
        elif (<OffsetAndMetadata?><object>found).record_offset >= (<OffsetAndMetadata?><object>offset).record_offset:
            continue
        PyDict_SetItem(present, <object>index, <object>offset)
    return added
