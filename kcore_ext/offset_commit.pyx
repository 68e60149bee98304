"""OffsetCommit as it mostly comes: topics and partitions that are there, metadata that is short, a group that takes it.

Whatever is not so goes the plain way, which `kcore.group.apis.offset_commit` has in full; that is the definition, and a
test holds the two together. What commits of the same partitions have in common is remembered: see `CommitShapes`.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.clock cimport Now
from kcore_ext.commit_shapes cimport TOPICS, CommitShapes
from kcore_ext.decision cimport outcome_of
from kcore_ext.java_hash cimport partition_of
from kcore_ext.message_shape cimport Shape, read, type_of
from kcore_ext.offset_block cimport CommitPlan, CommitShape, OffsetBlock, plan_of
from kcore_ext.offset_fetch cimport OffsetTables

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object table, object key) except? NULL  # subclasses of dict too

cdef enum:
    TOPIC_IDS_SINCE = 10    # the version of the request
    NO_EXPIRY = -1

cdef enum:                  # fields of a request, by their places in its shape
    GROUP_ID = 1
    GENERATION_ID = 2
    MEMBER_ID = 3
    INSTANCE_ID = 4
    RETENTION_TIME_MS = 5

cdef tuple REQUEST_FIELDS = (
    "topics", "group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id", "retention_time_ms",
)


cdef class OffsetCommitCore(CommitShapes):
    """See offset_commit.pyi."""

    def __init__(self, shards, topics, authorizer, request_type, topic_type, type record_type not None, classic):
        CommitShapes.__init__(
            self, shards, topics, authorizer, Shape(request_type, *REQUEST_FIELDS),
            Shape(topic_type, "name", "partitions", "topic_id"), record_type,
        )
        self._classic_group, self._empty, self._stable = classic

    # ---- in front of the group

    def handle(self, context, request):
        cdef CommitShape shape
        cdef CommitPlan plan
        cdef PyObject* shard
        if self._authorizer is None and type_of(<PyObject*>request) is self._request.type:
            shape = self._shape(context, request, <int>context.api_version >= TOPIC_IDS_SINCE)
            if shape is not None:
                group_id = read(request, self._request, GROUP_ID)
                plan = plan_of(request, shape)
                shard = PyDict_GetItemWithError(self._table, partition_of(<str?>group_id, self._partitions))
                if shard is NULL:
                    return self.routed(context, group_id, plan)
                return (<object>shard).run(self, context, plan)
        return self.handle_any(context, request)

    def recall(self, context, CommitPlan plan not None):
        request = plan.request
        if plan.shape is not None or type_of(<PyObject*>request) is not self._request.type:
            return
        for asked, known, codes in plan.listed:
            if codes is not None:
                return
        plan.shape = self._shape(context, request, <int>context.api_version >= TOPIC_IDS_SINCE)

    # ---- in the group's shard

    def decide(self, machine, context, request):
        cdef CommitPlan plan = request
        cdef CommitShape shape = plan.shape
        cdef OffsetBlock block
        cdef OffsetTables tables
        cdef PyObject* group
        if shape is None:
            return self.decide_any(machine, context, plan)
        asked = plan.request
        group_id = read(asked, self._request, GROUP_ID)
        generation_id = read(asked, self._request, GENERATION_ID)
        tables = machine.offset_tables
        group = PyDict_GetItemWithError(tables.groups, group_id)
        if group is NULL:
            if generation_id >= 0:
                return self.decide_any(machine, context, plan)
        else:
            member_id = read(asked, self._request, MEMBER_ID)
            instance_id = read(asked, self._request, INSTANCE_ID)
            if not self._taken_by(<object>group, machine, member_id, instance_id, generation_id):
                code = (<object>group).validate_offset_commit(
                    member_id, instance_id, generation_id, context.api_version, False, plan
                )
                if code:
                    return self.error(context, plan, code)
                (<object>group).offset_commit_accepted(member_id)
        if read(asked, self._request, RETENTION_TIME_MS) != NO_EXPIRY:
            return self.take_any(machine, plan)
        block = self._block(machine, group_id, read(asked, self._request, TOPICS), shape, True)
        if block is None:
            return self.take_any(machine, plan)
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

def replay_block(shard, int64_t offset, int64_t producer_id, records not None):
    cdef OffsetBlock block
    cdef OffsetTables tables
    cdef PyObject* found
    cdef Py_ssize_t added
    if type(records) is not OffsetBlock:
        return records.replay(shard)
    block = <OffsetBlock>records
    if producer_id >= 0:
        return shard.replay_pending_block(offset, producer_id, block)
    tables = shard.offset_tables
    found = PyDict_GetItemWithError(tables.groups, block.group_id)
    group = shard.get_or_create_group(block.group_id) if found is NULL else <object>found
    # The group's own string: one for all of its offsets, whatever request or record they came in.
    added = block.put(tables.offsets, group.group_id, offset)
    if added:
        shard.offsets.offset_count += added
