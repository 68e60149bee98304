"""The decision of a request by an API's fast path or generic path, under the lease of a cluster's node."""

from kcore_ext.runtime.outcome cimport Pending


cdef class Decider:
    """Documented in the stub."""

    cdef object decided(self, object context, object request):
        cdef object response = None
        if self.fast is not None and (self.lease is None or self.lease.valid()):
            response = self.fast(context, request)
            if self.lease is not None and response is not None:
                # The store refuses the commit of a `Pending` that waits for one, if the lease has ended.
                if (<Pending>response).parked if isinstance(response, Pending) else not self.lease.valid():
                    return self.checked(context, request, response)
        return self.handle(context, request) if response is None else response

    def decide(self, context, request):
        return self.decided(context, request)
