"""OffsetCommit as it mostly comes, for other compiled modules."""

from kcore_ext.commit_shapes cimport CommitShapes


cdef class OffsetCommitCore(CommitShapes):
    cdef object _classic_group          # its class ...
    cdef object _empty                  # ... and two of its states
    cdef object _stable

    cdef bint _taken_by(self, object group, object machine, object member_id, object instance_id,
                        object generation_id) except -1
