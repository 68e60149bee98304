"""What commits of the same partitions have in common: the checks in front of the group, and the answer.

A client commits the same partitions again and again, and only the offsets differ. What is known of those partitions and
the answer are therefore remembered by topics and partitions: the check in front is a look-up, and equal commits of all
groups get the same response object.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t
from libc.string cimport memcpy

from kcore_ext.clock cimport Now
from kcore_ext.message_shape cimport Shape, get, read, type_of
from kcore_ext.offset_block cimport CommitShape, OffsetBlock, block_of

from kcore_ext.offset_block import unknown_partitions

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object table, object key) except? NULL
    bint PyLong_CheckExact(object)
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_IS_ASCII(object)
    const char* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1

cdef enum:
    NO_EXPIRY = -1
    MAX_SHAPES = 1024       # combinations of partitions that are remembered ...
    MAX_KEY_BYTES = 1024    # ... if they can be said in so many
    TOPIC_BYTES = 22        # of a key, beside its name and partitions: both lengths and the id

cdef bytes ZERO_UUID = bytes(16)


cdef class CommitShapes:
    """See commit_shapes.pyi."""

    def __init__(
        self, shards, topics, authorizer, Shape request not None, Shape topic not None, type record_type not None
    ):
        self._shards = shards
        self._table = shards.by_partition
        self._partitions = shards.partitions
        self._topics = topics
        self._authorizer = authorizer
        self._find_name = topics.by_name
        self._find_id = topics.by_id
        self._shapes = {}
        self._record_type = record_type
        self._request = request
        self._topic = topic
        self._partition = topic.part("partitions", ("partition_index",))
        self._has_ids = topic.named > TOPIC_ID

    @property
    def remembered(self) -> int:
        return len(self._shapes)

    cdef CommitShape _shape(self, object context, object request, bint by_id):
        """What is known of a request's partitions; None if not all of them are there."""
        cdef CommitShape shape
        cdef PyObject* found
        cdef Py_ssize_t i = 0
        topics = read(request, self._request, TOPICS)
        cdef bytes key = self._key(topics, by_id)
        if key is None:
            return None
        found = PyDict_GetItemWithError(self._shapes, key)
        if found is not NULL:
            shape = <CommitShape>found
            for topic in topics:
                if by_id:
                    known = self._find_id(read(topic, self._topic, TOPIC_ID))
                else:
                    known = self._find_name(read(topic, self._topic, NAME))
                if i >= len(shape.topics) or known is not shape.topics[i]:  # deleted, made anew, or grown
                    del self._shapes[key]
                    break
                i += 1
            else:
                return shape
        shape = self._new_shape(context, request, topics, by_id)
        if shape is not None:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[key] = shape
        return shape

    cdef CommitShape _new_shape(self, object context, object request, object topics, bint by_id):
        cdef CommitShape shape
        cdef list found = []
        for topic in topics:
            known = self._find_id(topic.topic_id) if by_id else self._find_name(topic.name)
            partitions = topic.partitions
            # A topic of which nothing is asked is not answered: the plain way knows.
            if known is None or not partitions or unknown_partitions(partitions, known.partitions, 1) is not None:
                return None
            found.append(known)
        if not found:
            return None
        shape = CommitShape.__new__(CommitShape)
        shape.topics = tuple(found)
        shape.names = tuple([known.name for known in found])
        shape.ids = tuple([known.topic_id for known in found])
        shape.response = self.error(context, request, 0)
        return shape

    cdef OffsetBlock _block(self, object machine, object group_id, object topics, CommitShape shape, bint with_ids):
        """The offsets of a commit that its group takes; None if one of them is for the plain way to look at."""
        cdef OffsetBlock block = block_of(
            group_id,
            (<Now?>machine.now).wall_ms,
            NO_EXPIRY,
            machine.config.offset_metadata_max_bytes,
            self._record_type,
        )
        cdef Py_ssize_t i = 0
        for topic in topics:
            # The group was asked: whoever holds the request may have given it more topics meanwhile.
            if i >= len(shape.names):
                return None
            topic_id = shape.ids[i] if with_ids else ZERO_UUID
            if not block.take_all(shape.names[i], topic_id, read(topic, self._topic, PARTITIONS)):
                return None
            i += 1
        machine.offsets.commits += block.count
        return block

    cdef bytes _key(self, object topics, bint by_id):
        """Topics and partitions of a request as bytes; None if it is unusual in any way, or long."""
        cdef unsigned char[MAX_KEY_BYTES] key
        cdef Py_ssize_t size, count, used = 1
        cdef int overflow = 0
        cdef long long number
        cdef int16_t name_bytes
        cdef int32_t index, partition_count
        cdef PyObject* asked
        key[0] = by_id
        if type(topics) is not list and type(topics) is not tuple:
            return None
        for topic in topics:
            if type_of(<PyObject*>topic) is not self._topic.type:
                return None
            name = read(topic, self._topic, NAME)
            topic_id = read(topic, self._topic, TOPIC_ID) if self._has_ids else ZERO_UUID
            partitions = read(topic, self._topic, PARTITIONS)
            if not PyUnicode_CheckExact(name) or not PyUnicode_IS_ASCII(name):
                return None
            if not PyBytes_CheckExact(topic_id) or PyBytes_GET_SIZE(topic_id) != 16:
                return None
            if type(partitions) is not list and type(partitions) is not tuple:
                return None
            size = PyUnicode_GET_LENGTH(name)
            count = len(partitions)
            if used + TOPIC_BYTES + size + 4 * count > MAX_KEY_BYTES:
                return None
            name_bytes, partition_count = <int16_t>size, <int32_t>count
            memcpy(&key[used], &name_bytes, 2)
            memcpy(&key[used + 2], &partition_count, 4)
            memcpy(&key[used + 6], PyBytes_AS_STRING(topic_id), 16)
            memcpy(&key[used + TOPIC_BYTES], PyUnicode_DATA(name), size)
            used += TOPIC_BYTES + size
            for partition in partitions:
                asked = get(<PyObject*>partition, self._partition, 0)
                if asked is NULL or not PyLong_CheckExact(<object>asked):
                    return None
                number = PyLong_AsLongLongAndOverflow(<object>asked, &overflow)
                index = <int32_t>number
                if overflow or index != number:
                    return None
                memcpy(&key[used], &index, 4)
                used += 4
        return PyBytes_FromStringAndSize(<const char*>key, used)
