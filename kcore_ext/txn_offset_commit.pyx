"""TxnOffsetCommit as it mostly comes: partitions that are there, a transaction that takes them, a group that does.

Whatever is not so goes the plain way, which `kcore.group.apis.txn_offset_commit` has in full; that is the definition,
and a test holds the two together. What commits of the same partitions have in common is remembered: see `CommitShapes`.
"""

from cpython.object cimport PyObject

from kcore_ext.commit_shapes cimport TOPICS, CommitShapes
from kcore_ext.decision cimport Outcome, outcome_of
from kcore_ext.java_hash cimport partition_of
from kcore_ext.message_shape cimport Shape, read, type_of
from kcore_ext.offset_block cimport CommitPlan, CommitShape, OffsetBlock, plan_of
from kcore_ext.offset_fetch cimport OffsetTables

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object table, object key) except? NULL  # subclasses of dict too

cdef enum:
    ADDS_PARTITION_SINCE = 5    # the version of the request

cdef enum:                  # fields of a request, by their places in its shape
    TRANSACTIONAL_ID = 1
    GROUP_ID = 2
    PRODUCER_ID = 3
    PRODUCER_EPOCH = 4
    GENERATION_ID = 5
    MEMBER_ID = 6
    INSTANCE_ID = 7

cdef tuple REQUEST_FIELDS = (
    "topics", "transactional_id", "group_id", "producer_id", "producer_epoch", "generation_id", "member_id",
    "group_instance_id",
)


cdef class TxnOffsetCommitCore(CommitShapes):
    """See txn_offset_commit.pyi."""

    def __init__(
        self, shards, topics, verifier, authorizer, verified, request_type, topic_type, type record_type not None,
        classic,
    ):
        CommitShapes.__init__(
            self, shards, topics, authorizer, Shape(request_type, *REQUEST_FIELDS),
            Shape(topic_type, "name", "partitions"), record_type,
        )
        self._verifier = verifier
        self._verified = verified
        self._classic_group, self._empty = classic

    def handle(self, context, request):
        cdef CommitShape shape
        cdef PyObject* found
        if self._authorizer is not None or type_of(<PyObject*>request) is not self._request.type:
            return self.handle_any(context, request)
        group_id = read(request, self._request, GROUP_ID)
        if not group_id:
            return self.handle_any(context, request)
        shape = self._shape(context, request, False)
        if shape is None:
            return self.handle_any(context, request)
        found = PyDict_GetItemWithError(self._table, partition_of(<str?>group_id, self._partitions))
        if found is NULL:
            return self.handle_any(context, request)
        shard = <object>found
        plan = plan_of(request, shape)
        verdict = self._verifier.verify(
            read(request, self._request, TRANSACTIONAL_ID),
            read(request, self._request, PRODUCER_ID),
            read(request, self._request, PRODUCER_EPOCH),
            shard.topic,
            shard.index,
            <int>context.api_version >= ADDS_PARTITION_SINCE,
        )
        if verdict is not self._verified:
            return self.go_on(shard, context, plan, verdict)
        return shard.run(self, context, plan)

    def decide(self, machine, context, request):
        cdef CommitPlan plan = request
        cdef CommitShape shape = plan.shape
        cdef OffsetBlock block
        cdef OffsetTables tables
        cdef Outcome outcome
        cdef PyObject* found
        if shape is None:
            return self.decide_any(machine, context, plan)
        asked = plan.request
        group_id = read(asked, self._request, GROUP_ID)
        generation_id = read(asked, self._request, GENERATION_ID)
        tables = machine.offset_tables
        found = PyDict_GetItemWithError(tables.groups, group_id)
        if found is NULL:
            if generation_id >= 0:
                return self.decide_any(machine, context, plan)
        else:
            group = <object>found
            if generation_id >= 0 or type(group) is not self._classic_group or group.state is not self._empty:
                code = group.validate_offset_commit(
                    read(asked, self._request, MEMBER_ID),
                    read(asked, self._request, INSTANCE_ID),
                    generation_id, context.api_version, True, plan,
                )
                if code:
                    return self.refused(context, plan, code)
        # Kafka writes no topic ids here: these requests carry names.
        block = self._block(machine, group_id, read(asked, self._request, TOPICS), shape, False)
        if block is None:
            return self.taken(machine, plan)
        outcome = outcome_of(block, shape.response)
        outcome.producer_id = read(asked, self._request, PRODUCER_ID)
        outcome.producer_epoch = read(asked, self._request, PRODUCER_EPOCH)
        return outcome
