"""Results of a decision: `Outcome` (records and a response) and `Pending` (a response that is completed later)."""

cimport cython

import logging

from kcore.protocol.error_codes import ErrorCode

from kcore_ext.runtime.encoded cimport request_of

logger = logging.getLogger("kcore.runtime.pending")


@cython.final
@cython.freelist(16)
cdef class Outcome:
    """Documented in outcome.pyi."""

    def __init__(self, records, reply=None, int64_t producer_id=-1, int producer_epoch=-1):
        self.records = records
        self.reply = reply
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch

    def __eq__(self, other):
        if not isinstance(other, Outcome):
            return NotImplemented
        cdef Outcome outcome = <Outcome>other
        return (
            self.producer_id == outcome.producer_id
            and self.producer_epoch == outcome.producer_epoch
            and self.records == outcome.records
            and self.reply == outcome.reply
        )

    __hash__ = None

    def __repr__(self):
        return f"Outcome({self.records!r}, {self.reply!r}, {self.producer_id}, {self.producer_epoch})"


@cython.freelist(256)
cdef class Pending:
    """Documented in outcome.pyi."""

    def __init__(self, api, context, request, *, bint parked=False):
        self.api = api
        self.context = context
        self._request = request
        self.parked = parked

    @property
    def request(self):
        self._request = request_of(self._request)
        return self._request

    cpdef complete(self, response):
        assert not self.done, "a pending response is completed exactly once"
        self.done = True
        self.response = response
        callback = self.callback
        if callback is not None:
            self.callback = None
            try:
                if self.arrival is NULL:
                    callback(response)
                else:
                    self.arrival(callback, response)
            except Exception as error:
                try:
                    logger.error("the receiver of a response of %s raised an error", self.api.name, exc_info=error)
                except Exception:
                    pass    # no memory for a log line: the other responses of the round are completed anyway
                fail_receiver(callback, error)

    def fail(self, code, message=None):
        try:
            response = self.api.error(self.context, self.request, code, message)
        except Exception:
            response = second_error(self, code)
        self.complete(response)

    cpdef on_complete(self, callback):
        if self.done:
            callback(self.response)
        else:
            assert self.callback is None, "only one callback may wait for a response"
            self.callback = callback

    def redirect(self, callback):
        self.callback = None    # no `abandon`, which also ends the operation of a parked fetch
        self.on_complete(callback)

    cdef int tell(self, object waiter, Arrival arrival) except -1:
        assert not self.done and self.callback is None, "only one callback may wait, and only for a pending response"
        self.arrival = arrival
        self.callback = waiter
        return 0

    def abandon(self):
        self.callback = None


cdef object second_error(Pending pending, object code):
    """Returns an error response after a first attempt to build it has failed, perhaps because memory was exhausted.

    If further attempts fail, too, returns the exception. An exception cannot be encoded, so a server closes the
    connection, and an embedded engine raises the exception.
    """
    cdef object response = None
    for code in (code, ErrorCode.UNKNOWN_SERVER_ERROR):
        try:
            response = pending.api.error(pending.context, pending.request, code)
        except Exception as error:
            response = error
        if not isinstance(response, Exception):
            break
    return response


cdef int fail_receiver(object callback, object error) except -1:
    """Completes the response that the callback belongs to, after the callback has raised an exception. Otherwise, the
    client would wait forever.

    If the callback is a method of another `Pending`, that `Pending` is completed with an error response. If there is no
    memory for the error response, the other `Pending` is completed with the exception. An exception cannot be encoded,
    so the connection is closed. The response slots of a connection handle their own errors.
    """
    cdef Pending waiting
    receiver = getattr(getattr(callback, "func", callback), "__self__", None)  # also of a `functools.partial`
    if not isinstance(receiver, Pending):
        return 0
    waiting = <Pending>receiver
    if waiting.done:
        return 0
    try:
        response = waiting.api.error(waiting.context, waiting.request, ErrorCode.UNKNOWN_SERVER_ERROR)
    except Exception:
        response = error
    waiting.complete(response)
    return 0


cdef Pending pending_of(object api, object context, object request):
    cdef Pending pending = Pending.__new__(Pending)
    pending.api = api
    pending.context = context
    pending._request = request
    return pending
