from kcore_ext.runtime.lease cimport LocalLease


cdef class Decider:
    cdef public object fast             # the fast path; None without one
    cdef public object handle           # (context, request) -> response, `Pending` or None
    cdef public LocalLease lease        # the lease of a cluster's node, checked around `fast`; None: none is needed
    cdef public object checked          # (context, request, response of `fast`) -> response, if the lease may end before it

    cdef object decided(self, object context, object request)
