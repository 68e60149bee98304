"""TxnOffsetCommit as it mostly comes, for other compiled modules."""

from kcore_ext.commit_shapes cimport CommitShapes


cdef class TxnOffsetCommitCore(CommitShapes):
    cdef public object _verifier
    cdef object _verified               # the code of a transaction that is as it should be
    cdef object _classic_group          # its class ...
    cdef object _empty                  # ... and the state in which it takes offsets of nobody in particular
