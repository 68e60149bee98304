"""The fast path of EndTxn, for other compiled modules."""

from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout
from kcore_ext.transaction.coordinator cimport CoordinatorCore


cdef class EndTxnFastPath:
    cdef readonly int64_t served        # the number of requests that the fast path served
    cdef object _api
    cdef CoordinatorCore _coordinator
    cdef object _authorizer
    cdef object _write                  # Operation.WRITE
    cdef object _transaction_resource   # ResourceType.TRANSACTIONAL_ID
    cdef FieldLayout _request
    cdef FieldLayout _response
