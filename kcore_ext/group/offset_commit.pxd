"""Fast paths of OffsetCommit and TxnOffsetCommit, for other compiled modules."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.group.encoded_commit cimport EncodedCommit
from kcore_ext.group.offset_block cimport CommitTemplate, OffsetBlock
from kcore_ext.group.offset_fetch cimport OffsetTables
from kcore_ext.runtime.encoded cimport EncodedFastPath
from kcore_ext.runtime.shard cimport MachineCore
from kcore_ext.util.slots cimport SlotLayout


cdef class GroupCore(MachineCore):
    cdef public OffsetTables offset_tables


cdef class CommitFastPath(EncodedFastPath):
    cdef readonly int64_t served        # requests that the fast path has served ...
    cdef readonly int64_t served_encoded    # ... and those of them that were not decoded
    cdef object _api
    cdef list _shards                   # for each partition its shard, or None
    cdef object _authorizer
    cdef object _read                   # Operation.READ
    cdef object _group_resource         # ResourceType.GROUP
    cdef object _topic_resource         # ResourceType.TOPIC
    cdef object _topics
    cdef FieldLayout _request
    cdef FieldLayout _topic
    cdef FieldLayout _partition
    cdef bint _has_ids
    cdef type _record_type
    cdef dict _templates                # by the key that `_encode` makes
    cdef list _recent                   # templates by the hash of their key, which are found without a Python object

    cdef Py_ssize_t _encode(self, unsigned char* key, object topics, bint by_id) except -1
    cdef CommitTemplate _valid(self, const unsigned char* key, Py_ssize_t size)
    cdef CommitTemplate _known(self, const unsigned char* key, Py_ssize_t size)
    cdef int _keep(self, const unsigned char* key, Py_ssize_t size, CommitTemplate template) except -1
    cdef CommitTemplate _template(self, object context, object request, bint by_id)
    cdef CommitTemplate _new_template(self, object context, object request, object topics, bint by_id)
    cdef bint _permitted(self, object context, object group_id, CommitTemplate template) except -1
    cdef OffsetBlock _block(self, OffsetTables tables, object group_id, object topics, CommitTemplate template,
                            bint with_ids)
    cdef OffsetBlock _encoded_block(self, OffsetTables tables, object group_id, EncodedCommit* commit,
                                    CommitTemplate template)


cdef class OffsetCommitFastPath(CommitFastPath):
    cdef SlotLayout _of_group           # of a classic group
    cdef SlotLayout _of_member          # of its members
    cdef object _empty                  # two states of a classic group
    cdef object _stable

    cdef bint _restart_timeout(self, PyObject* group, int64_t generation_id, PyObject* member_id, int64_t now_ms) except -1
    cdef object _commit(self, object context, object request, EncodedCommit* encoded, CommitTemplate template,
                        object group_id, int64_t generation_id, object member_id, object instance_id)
    cdef bint _accepted(self, OffsetTables tables, object context, object request, CommitTemplate template,
                        object group_id, int64_t generation_id, object member_id, object instance_id) except -1


cdef class TxnOffsetCommitFastPath(CommitFastPath):
    cdef object _verifier
    cdef object _verified               # the result of a successful verification
    cdef object _write                  # Operation.WRITE
    cdef object _transaction_resource   # ResourceType.TRANSACTIONAL_ID
    cdef object _classic_group          # the class, and its state without members
    cdef object _empty

    cdef bint _accepted(self, OffsetTables tables, object context, object request, object group_id,
                        CommitTemplate template) except -1
