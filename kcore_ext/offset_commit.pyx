"""OffsetCommit as it mostly comes: topics and partitions that are there, metadata that is short, a group that takes it.

Whatever is not so goes the plain way, which `kcore.group.apis.offset_commit` has in full; that is the definition, and a
test holds the two together. A client commits the same partitions again and again, and only the offsets differ. What is
known of those partitions and the answer are therefore remembered by topics and partitions: the check in front is a
look-up, and equal commits of all groups get the same response object.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from kcore_ext.clock cimport Now
from kcore_ext.codec_plan cimport Schema, schema_of
from kcore_ext.decision cimport outcome_of
from kcore_ext.java_hash cimport partition_of
from kcore_ext.offset_block cimport CommitPlan, CommitShape, Layout, OffsetBlock, block_of, layout_of, plan_of
from kcore_ext.offset_fetch cimport OffsetTables

from kcore_ext.offset_block import unknown_partitions

cdef extern from "Python.h":
    PyTypeObject* Py_TYPE(object)
    PyObject* PyDict_GetItemWithError(object table, object key) except? NULL  # subclasses of dict too
    bint PyLong_CheckExact(object)
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_IS_ASCII(object)
    const char* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1

cdef enum:
    TOPIC_IDS_SINCE = 10    # the version of the request
    MAX_SHAPES = 1024       # combinations of partitions that are remembered ...
    MAX_KEY_BYTES = 1024    # ... if they can be said in so many
    TOPIC_BYTES = 22        # of a key, beside its name and partitions: both lengths and the id
    NO_EXPIRY = -1


cdef inline PyObject* slot(object message, Py_ssize_t at) noexcept:
    return (<PyObject**>(<char*><PyObject*>message + at))[0]


cdef inline object read(object message, Py_ssize_t at, str name):
    """A field. One that was never set has an empty slot, and its class knows what that means."""
    cdef PyObject* value = slot(message, at)
    return <object>value if value is not NULL else getattr(message, name)


cdef Py_ssize_t place_of(Schema schema, str name) except -1:
    cdef int i
    for i in range(schema.n):
        if <str>schema.names[i] == name:
            return schema.offsets[i]
    raise TypeError(f"{schema.cls.__name__} has no field {name}")


cdef class OffsetCommitCore:
    """See offset_commit.pyi."""

    def __init__(self, shards, topics, authorizer, request_type, topic_type, type record_type not None, classic):
        cdef Schema request = schema_of(<PyTypeObject*>request_type)
        cdef Schema topic = schema_of(<PyTypeObject*>topic_type)
        self._shards = shards
        self._table = shards.by_partition
        self._partitions = shards.partitions
        self._topics = topics
        self._authorizer = authorizer
        self._find_name = topics.by_name
        self._find_id = topics.by_id
        self._record_type = record_type
        self._shapes = {}
        self._classic_group, self._empty, self._stable = classic
        self._request_class = request_type
        self._request_type = <PyTypeObject*>request_type
        self._topic_class = topic_type
        self._topic_type = <PyTypeObject*>topic_type
        self._at.group_id = place_of(request, "group_id")
        self._at.generation_id = place_of(request, "generation_id_or_member_epoch")
        self._at.member_id = place_of(request, "member_id")
        self._at.instance_id = place_of(request, "group_instance_id")
        self._at.retention_time_ms = place_of(request, "retention_time_ms")
        self._at.topics = place_of(request, "topics")
        self._at.name = place_of(topic, "name")
        self._at.topic_id = place_of(topic, "topic_id")
        self._at.partitions = place_of(topic, "partitions")

    @property
    def remembered(self) -> int:
        return len(self._shapes)

    # ---- in front of the group

    def handle(self, context, request):
        cdef CommitShape shape
        cdef CommitPlan plan
        cdef PyObject* shard
        if self._authorizer is None and Py_TYPE(request) is self._request_type:
            shape = self._shape(context, request, <int>context.api_version >= TOPIC_IDS_SINCE)
            if shape is not None:
                group_id = read(request, self._at.group_id, "group_id")
                plan = plan_of(request, shape)
                shard = PyDict_GetItemWithError(self._table, partition_of(<str?>group_id, self._partitions))
                if shard is NULL:
                    return self.routed(context, group_id, plan)
                return (<object>shard).run(self, context, plan)
        return self.handle_any(context, request)

    def recall(self, context, CommitPlan plan not None):
        request = plan.request
        if plan.shape is not None or Py_TYPE(request) is not self._request_type:
            return
        for asked, known, codes in plan.listed:
            if codes is not None:
                return
        plan.shape = self._shape(context, request, <int>context.api_version >= TOPIC_IDS_SINCE)

    cdef CommitShape _shape(self, object context, object request, bint by_id):
        """What is known of a request's partitions; None if not all of them are there."""
        cdef CommitShape shape
        cdef PyObject* found
        cdef Py_ssize_t i = 0
        topics = read(request, self._at.topics, "topics")
        cdef bytes key = self._key(topics, by_id)
        if key is None:
            return None
        found = PyDict_GetItemWithError(self._shapes, key)
        if found is not NULL:
            shape = <CommitShape>found
            for topic in topics:
                if by_id:
                    known = self._find_id(read(topic, self._at.topic_id, "topic_id"))
                else:
                    known = self._find_name(read(topic, self._at.name, "name"))
                if known is not shape.topics[i]:  # deleted, made anew, or grown
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

    cdef bytes _key(self, object topics, bint by_id):
        """Topics and partitions of a request as bytes; None if it is unusual in any way, or long."""
        cdef unsigned char[MAX_KEY_BYTES] key
        cdef Py_ssize_t size, count, used = 1
        cdef int overflow = 0
        cdef long long number
        cdef int32_t index
        cdef Layout* layout
        cdef PyObject* asked
        key[0] = by_id
        if type(topics) is not list and type(topics) is not tuple:
            return None
        for topic in topics:
            if Py_TYPE(topic) is not self._topic_type:
                return None
            name = read(topic, self._at.name, "name")
            topic_id = read(topic, self._at.topic_id, "topic_id")
            partitions = read(topic, self._at.partitions, "partitions")
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
            memcpy(&key[used], &size, 2)
            memcpy(&key[used + 2], &count, 4)
            memcpy(&key[used + 6], PyBytes_AS_STRING(topic_id), 16)
            memcpy(&key[used + TOPIC_BYTES], PyUnicode_DATA(name), size)
            used += TOPIC_BYTES + size
            for partition in partitions:
                layout = layout_of(partition)
                asked = slot(partition, layout.partition_index) if layout.type is Py_TYPE(partition) else NULL
                if asked is NULL or not PyLong_CheckExact(<object>asked):
                    return None
                number = PyLong_AsLongLongAndOverflow(<object>asked, &overflow)
                index = <int32_t>number
                if overflow or index != number:
                    return None
                memcpy(&key[used], &index, 4)
                used += 4
        return PyBytes_FromStringAndSize(<const char*>key, used)

    # ---- in the group's shard

    def decide(self, machine, context, request):
        cdef CommitPlan plan = request
        cdef CommitShape shape = plan.shape
        cdef OffsetBlock block
        cdef OffsetTables tables
        cdef PyObject* group
        cdef Py_ssize_t i = 0
        if shape is None:
            return self.decide_any(machine, context, plan)
        asked = plan.request
        group_id = read(asked, self._at.group_id, "group_id")
        generation_id = read(asked, self._at.generation_id, "generation_id_or_member_epoch")
        tables = machine.offset_tables
        group = PyDict_GetItemWithError(tables.groups, group_id)
        if group is NULL:
            if generation_id >= 0:
                return self.decide_any(machine, context, plan)
        else:
            member_id = read(asked, self._at.member_id, "member_id")
            instance_id = read(asked, self._at.instance_id, "group_instance_id")
            if not self._taken_by(<object>group, machine, member_id, instance_id, generation_id):
                code = (<object>group).validate_offset_commit(
                    member_id, instance_id, generation_id, context.api_version, False, plan
                )
                if code:
                    return self.error(context, plan, code)
                (<object>group).offset_commit_accepted(member_id)
        if read(asked, self._at.retention_time_ms, "retention_time_ms") != NO_EXPIRY:
            return self.take_any(machine, plan)
        block = block_of(
            group_id,
            (<Now?>machine.now).wall_ms,
            NO_EXPIRY,
            machine.config.offset_metadata_max_bytes,
            self._record_type,
        )
        for topic in read(asked, self._at.topics, "topics"):
            if not block.take_all(shape.names[i], shape.ids[i], read(topic, self._at.partitions, "partitions")):
                return self.take_any(machine, plan)
            i += 1
        machine.offsets.commits += block.count
        return outcome_of(block, shape.response)

    cdef bint _taken_by(self, object group, object machine, object member_id, object instance_id,
                        object generation_id) except -1:
        """Whether a classic group takes the commit of a member of its generation, or of nobody while it is empty.

        Then the member's session begins anew. False: ask the group.
        """
        cdef PyObject* found
        if type(group) is not self._classic_group:
            return False
        state = group.state
        if state is self._empty:
            return generation_id < 0 and not member_id
        if state is not self._stable or instance_id is not None or generation_id != group.generation_id:
            return False
        found = PyDict_GetItemWithError(group.members, member_id)
        if found is NULL:
            return False
        member = <object>found
        member.timer.extend((<Now?>machine.now).now_ms + <int64_t>member.session_timeout_ms)
        return True


# ---- replay

def replay_block(shard, int64_t offset, int64_t producer_id, OffsetBlock block not None):
    cdef OffsetTables tables
    cdef PyObject* found
    cdef Py_ssize_t added
    if producer_id >= 0:
        return shard.replay_pending_block(offset, producer_id, block)
    tables = shard.offset_tables
    found = PyDict_GetItemWithError(tables.groups, block.group_id)
    group = shard.get_or_create_group(block.group_id) if found is NULL else <object>found
    # The group's own string: one for all of its offsets, whatever request or record they came in.
    added = block.put(tables.offsets, group.group_id, offset)
    if added:
        shard.offsets.offset_count += added
