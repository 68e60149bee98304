"""EndTxn as it mostly comes, for other compiled modules."""

from kcore_ext.message_shape cimport Shape
from kcore_ext.transaction_core cimport CoordinatorCore


cdef class EndTxnCore:
    cdef public CoordinatorCore _coordinator
    cdef public object _authorizer
    cdef Shape _request
    cdef Shape _response
