"""Committed offsets, small: an offset of a group is 80 bytes here, where a Python object would be 230."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

cdef bytes ZERO_UUID = bytes(16)
cdef char* ZERO_BYTES = PyBytes_AS_STRING(ZERO_UUID)


cdef tuple _fields(OffsetAndMetadata entry):
    # A function, not a method: a class with C methods carries a table pointer in every instance.
    return (
        entry.record_offset,
        entry.committed_offset,
        entry.leader_epoch,
        entry.metadata,
        entry.commit_timestamp_ms,
        entry.expire_timestamp_ms,
        entry.topic_id,
    )


@cython.final
cdef class OffsetAndMetadata:
    """One committed offset, materialised or pending. Made by replaying its record; immutable after that.

    Kafka's class of the same name, with the topic id inside instead of beside: topics are keyed by name, the id is
    only remembered to tell a recreated topic from the one that the offset was committed for.
    """

    def __cinit__(
        self,
        int64_t record_offset,
        int64_t committed_offset,
        int32_t leader_epoch,
        str metadata not None,
        int64_t commit_timestamp_ms,
        int64_t expire_timestamp_ms,
        bytes topic_id not None,
    ):
        if PyBytes_GET_SIZE(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {PyBytes_GET_SIZE(topic_id)}")
        self.record_offset = record_offset
        self.committed_offset = committed_offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        memcpy(self.topic_uuid, PyBytes_AS_STRING(topic_id), 16)

    @property
    def topic_id(self) -> bytes:
        return PyBytes_FromStringAndSize(self.topic_uuid, 16)

    def belongs_to(self, bytes topic_id not None) -> bool:
        if PyBytes_GET_SIZE(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {PyBytes_GET_SIZE(topic_id)}")
        cdef char* other = PyBytes_AS_STRING(topic_id)
        return (
            memcmp(self.topic_uuid, other, 16) == 0
            or memcmp(self.topic_uuid, ZERO_BYTES, 16) == 0
            or memcmp(other, ZERO_BYTES, 16) == 0
        )

    def __eq__(self, other):
        if not isinstance(other, OffsetAndMetadata):
            return NotImplemented
        return _fields(self) == _fields(<OffsetAndMetadata>other)

    def __hash__(self):
        return hash(_fields(self))

    def __repr__(self):
        return (
            f"OffsetAndMetadata(record_offset={self.record_offset}, committed_offset={self.committed_offset}, "
            f"leader_epoch={self.leader_epoch}, metadata={self.metadata!r}, "
            f"commit_timestamp_ms={self.commit_timestamp_ms}, expire_timestamp_ms={self.expire_timestamp_ms}, "
            f"topic_id={self.topic_id!r})"
        )
