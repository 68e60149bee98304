"""Compiled records of consumer groups: written without key and value objects, applied without conversion.

A join that causes a new assignment writes nine records on average. Making two objects with lists for each, and
converting them back to the group's objects, took half of the time of the join. `kcore.group.consumer.reference_records`
defines each record. A test compares both kinds of records: their bytes, and the state after their replay.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.batch.layout cimport put_varint
from kcore_ext.util.buffer cimport TOPIC_ID_BYTES, put_count, reserve, utf8
from kcore_ext.util.byte_order cimport write_int16, write_int32, write_int64
from kcore_ext.util.record_limits cimport RECORD_OVERHEAD

cdef enum:
    GROUP_EPOCH = 3
    MEMBER_METADATA = 5
    ASSIGNMENT_EPOCH = 6
    TARGET_ASSIGNMENT = 7
    CURRENT_ASSIGNMENT = 8

cdef dict reference_records = {}    # record type -> the function that makes the reference record
cdef object group_of = None         # (shard, group id) -> the group, created if it does not exist
cdef object set_assignment = None            # (group, member id, assignment): sets the member's current assignment


def bind_consumer_records(makers, find_group, set_member_assignment):
    global group_of, set_assignment
    if set(makers) != {GROUP_EPOCH, MEMBER_METADATA, ASSIGNMENT_EPOCH, TARGET_ASSIGNMENT, CURRENT_ASSIGNMENT}:
        raise ValueError(f"not the record types of consumer groups: {sorted(makers)}")
    reference_records.update(makers)
    group_of, set_assignment = find_group, set_member_assignment


@cython.final
@cython.freelist(64)
cdef class ConsumerRecord:
    """Documented in consumer_records.pyi."""

    cdef object as_record(self):
        return reference_records[self.record_type](self)

    @property
    def key(self):
        return self.as_record().key

    @property
    def value(self):
        return self.as_record().value

    @property
    def version(self):
        return 0

    def __eq__(self, other):
        if isinstance(other, ConsumerRecord):
            other = (<ConsumerRecord>other).as_record()
        return self.as_record() == other

    __hash__ = None

    def __repr__(self):
        return repr(self.as_record())


cdef inline ConsumerRecord new_record(int record_type, str group_id, str member_id, object content):
    cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
    record.record_type = record_type
    record.group_id = group_id
    record.member_id = member_id
    record.content = content
    return record


def member_metadata(str group_id not None, str member_id not None, metadata):
    return new_record(MEMBER_METADATA, group_id, member_id, metadata)


def target_assignment(str group_id not None, str member_id not None, dict target not None):
    return new_record(TARGET_ASSIGNMENT, group_id, member_id, target)


def current_assignment(str group_id not None, str member_id not None, current):
    return new_record(CURRENT_ASSIGNMENT, group_id, member_id, current)


def group_epoch(str group_id not None, int32_t epoch, int64_t metadata_hash):
    cdef ConsumerRecord record = new_record(GROUP_EPOCH, group_id, None, None)
    record.epoch = epoch
    record.number = metadata_hash
    return record


def assignment_epoch(str group_id not None, int32_t epoch, int64_t timestamp_ms):
    cdef ConsumerRecord record = new_record(ASSIGNMENT_EPOCH, group_id, None, None)
    record.epoch = epoch
    record.number = timestamp_ms
    return record


def in_one(list records not None):
    for record in records:
        if type(record) is not ConsumerRecord:
            return records
    block = records
    try:
        block = ConsumerRecords(records)
    except (ValueError, OverflowError, TypeError):
        pass  # the codec raises the error with its cause
    return block


@cython.final
cdef class ConsumerRecords:
    """Documented in consumer_records.pyi."""

    def __cinit__(self, list records not None):
        cdef ConsumerRecord record
        cdef Py_ssize_t i, n = len(records)
        # a copy, so that its length stays that of `ends` even if the caller changes the list
        self.records = records = list(records)
        self.ends = <Py_ssize_t*>PyMem_Malloc(2 * n * sizeof(Py_ssize_t) + 1)
        if self.ends is NULL:
            raise MemoryError
        for i in range(n):
            record = <ConsumerRecord?>records[i]
            self.key(record)
            self.ends[2 * i] = self.buffer.used
            self.number(0, 2)  # the version of the value
            self.value(record)
            self.ends[2 * i + 1] = self.buffer.used
        self.size_bytes = self.buffer.used + n * RECORD_OVERHEAD

    def __dealloc__(self):
        PyMem_Free(self.buffer.start)
        PyMem_Free(self.ends)

    def __len__(self):
        return len(self.records)

    def __iter__(self):
        for record in self.records:
            yield (<ConsumerRecord>record).as_record()

    def append_to(self, BatchBuilder batch not None, int64_t timestamp_ms) -> bool:
        cdef Py_ssize_t i, key_at = 0, value_at, end
        cdef unsigned char* at
        for i in range(len(self.records)):
            value_at, end = self.ends[2 * i], self.ends[2 * i + 1]
            at = batch.begin_record(timestamp_ms, value_at - key_at, end - value_at)
            if at is NULL:
                return False
            memcpy(at, self.buffer.start + key_at, value_at - key_at)
            at = put_varint(at + (value_at - key_at), end - value_at)
            memcpy(at, self.buffer.start + value_at, end - value_at)
            at[end - value_at] = 0  # no headers
            key_at = end
        return True

    def replay(self, shard):
        cdef ConsumerRecord record
        cdef object group = None
        cdef str group_id = None
        cdef int record_type
        for made in self.records:
            record = <ConsumerRecord>made
            if record.group_id is not group_id:
                group_id = record.group_id
                group = group_of(shard, group_id)
            record_type = record.record_type
            if record_type == TARGET_ASSIGNMENT:
                group.put_target(record.member_id, record.content)
            elif record_type == CURRENT_ASSIGNMENT:
                set_assignment(group, record.member_id, record.content)
            elif record_type == MEMBER_METADATA:
                group.put_metadata(record.member_id, record.content)
            elif record_type == GROUP_EPOCH:
                group.put_epoch(record.epoch, record.number)
            else:
                group.put_assignment_epoch(record.epoch, record.number)

    # ---- encoding

    cdef int key(self, ConsumerRecord record) except -1:
        """Writes the key of a record: the record type, and each text after its length as an int16.

        The length is not a varint, because keys are never flexible.
        """
        cdef Py_ssize_t size
        cdef const char* text
        self.number(record.record_type, 2)
        for content in (record.group_id, record.member_id):
            if content is None:
                return 0
            text = utf8(content, &size)
            self.number(size, 2)
            reserve(&self.buffer, size)
            memcpy(self.buffer.start + self.buffer.used, text, size)
            self.buffer.used += size
        return 0

    cdef int value(self, ConsumerRecord record) except -1:
        cdef object content = record.content
        cdef int record_type = record.record_type
        if record_type == TARGET_ASSIGNMENT:
            self.target(content)
        elif record_type == CURRENT_ASSIGNMENT:
            self.number(<int32_t>content.member_epoch, 4)
            self.number(<int32_t>content.previous_epoch, 4)
            self.number(<int32_t>content.state, 1)
            self.owned(content.assigned)
            self.owned(content.revoking)
        elif record_type == MEMBER_METADATA:
            return self.member(content)
        else:
            self.number(record.epoch, 4)
            if record.number:  # tagged field 0, which is omitted if it is 0
                self.number(1, 1)
                self.number(8, 2)
                return self.number(record.number, 8)
        return self.number(0, 1)

    cdef int number(self, int64_t value, int size) except -1:
        """Writes a number that fits into `size` bytes: 1, 2, 4 or 8."""
        cdef uint8_t* at
        reserve(&self.buffer, 8)
        at = self.buffer.start + self.buffer.used
        self.buffer.used += size
        if size == 1:
            at[0] = <uint8_t>value
        elif size == 2:
            write_int16(at, <short>value)
        elif size == 4:
            write_int32(at, <int32_t>value)
        else:
            write_int64(at, value)
        return 0

    cdef int count(self, Py_ssize_t value) except -1:
        """Writes the length of an array or text, increased by one, as a varint."""
        reserve(&self.buffer, 5)
        put_count(&self.buffer, value)
        return 0

    cdef int text(self, object content) except -1:
        cdef Py_ssize_t size
        cdef const char* text
        if content is None:
            return self.count(-1)
        text = utf8(content, &size)
        self.count(size)
        reserve(&self.buffer, size)
        memcpy(self.buffer.start + self.buffer.used, text, size)
        self.buffer.used += size
        return 0

    cdef int numbers(self, object listed) except -1:
        """Writes an array of 32-bit numbers; raises an error for other elements."""
        cdef int32_t number
        self.count(len(listed))
        for value in listed:
            number = value
            reserve(&self.buffer, 4)  # an iterable may yield more elements than its length
            write_int32(self.buffer.start + self.buffer.used, number)
            self.buffer.used += 4
        return 0

    cdef int member(self, object metadata) except -1:
        if metadata.classic is not None:
            raise ValueError("a member of the classic protocol needs the reference record")
        self.text(metadata.instance_id)
        self.text(metadata.rack_id)
        self.text(<str?>metadata.client_id)
        self.text(<str?>metadata.client_host)
        names = sorted(metadata.names)
        self.count(len(names))
        for name in names:
            self.text(<str?>name)
        self.text(metadata.regex)
        self.number(<int32_t>metadata.rebalance_timeout_ms, 4)
        self.text(metadata.server_assignor)
        self.number(1, 1)  # one tagged field: the metadata of the classic protocol, which is null
        self.number(1, 2)
        return self.number(0, 1)

    cdef int target(self, dict target) except -1:
        cdef Py_ssize_t at = 0, size = 0
        last = None  # topics with equal partitions share their object
        self.count(len(target))
        for topic_id, partitions in target.items():
            self.topic_id(topic_id)
            if partitions is last:
                self.repeat(at, size)
                continue
            last, at = partitions, self.buffer.used
            self.numbers(partitions)
            self.number(0, 1)
            size = self.buffer.used - at
        return 0

    cdef int owned(self, dict owned) except -1:
        """Writes partitions, and their assignment epochs as tagged field 0."""
        cdef dict partitions
        cdef Py_ssize_t at = 0, size = 0
        last = None
        self.count(len(owned))
        for topic_id, of_topic in owned.items():
            partitions = of_topic
            self.topic_id(topic_id)
            if partitions is last:
                self.repeat(at, size)
                continue
            last, at = partitions, self.buffer.used
            self.owned_partitions(partitions)
            size = self.buffer.used - at
        return 0

    cdef int owned_partitions(self, dict partitions) except -1:
        cdef uint32_t count = <uint32_t>len(partitions), prefix = 1
        self.numbers(partitions)
        if not count:
            return self.number(0, 1)
        self.number(1, 1)
        self.number(0, 1)
        while (count + 1) >> (7 * prefix):
            prefix += 1
        self.count(<Py_ssize_t>(4 * count + prefix) - 1)
        return self.numbers(partitions.values())

    cdef int repeat(self, Py_ssize_t at, Py_ssize_t size) except -1:
        """Appends a copy of `size` bytes of the buffer, which begin at index `at`."""
        reserve(&self.buffer, size)
        memcpy(self.buffer.start + self.buffer.used, self.buffer.start + at, size)
        self.buffer.used += size
        return 0

    cdef int topic_id(self, object topic_id) except -1:
        cdef bytes known = topic_id
        if len(known) != TOPIC_ID_BYTES:
            raise ValueError(f"consumer group: the topic id {known!r} has {len(known)} bytes, not 16")
        reserve(&self.buffer, TOPIC_ID_BYTES)
        memcpy(self.buffer.start + self.buffer.used, <const char*>known, TOPIC_ID_BYTES)
        self.buffer.used += TOPIC_ID_BYTES
        return 0
