"""EndTxn as it mostly comes: a producer that follows KIP-890 ends the transaction that it has open.

Whatever is not so goes the plain way, which `kcore.transaction.apis.end_txn` has in full; that is the definition, and a
test holds the two together.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.decision cimport outcome_of
from kcore_ext.message_shape cimport Shape, read, type_of
from kcore_ext.transaction cimport ONGOING, Transaction, prepare
from kcore_ext.transaction_core cimport CoordinatorCore, TransactionMachine

cdef enum:
    BUMPS_SINCE = 5         # the version of the request from which each end raises the epoch ...
    BUMPING = 2             # ... and the transaction.version that it stands for
    LAST_EPOCH = 32766      # the last one that a producer may hold: behind it comes another producer id

cdef enum:                  # fields of a request, by their places in its shape
    TRANSACTIONAL_ID = 0
    PRODUCER_ID = 1
    PRODUCER_EPOCH = 2
    COMMITTED = 3


cdef class EndTxnCore:
    """See end_txn.pyi."""

    def __init__(self, CoordinatorCore coordinator not None, authorizer, request_type, response_type):
        self._coordinator = coordinator
        self._authorizer = authorizer
        self._request = Shape(request_type, "transactional_id", "producer_id", "producer_epoch", "committed")
        self._response = Shape(response_type, "producer_id", "producer_epoch")

    def handle(self, context, request):
        if self._authorizer is None and type_of(<PyObject*>request) is self._request.type:
            transactional_id = read(request, self._request, TRANSACTIONAL_ID)
            if transactional_id:
                return self._coordinator.run(self, context, transactional_id, request)
        return self.handle_any(context, request)

    def decide(self, machine, context, request):
        cdef TransactionMachine shard
        cdef Transaction transaction
        cdef PyObject* found
        cdef PyObject* identity[2]
        cdef object producer_id, producer_epoch
        if <int>context.api_version < BUMPS_SINCE or type_of(<PyObject*>request) is not self._request.type:
            return self.decide_any(machine, context, request)
        shard = machine
        transactional_id = read(request, self._request, TRANSACTIONAL_ID)
        found = PyDict_GetItemWithError(shard.transactions, transactional_id)
        if found is NULL:
            return self.decide_any(machine, context, request)
        transaction = <Transaction?><object>found
        if (
            transaction.status != ONGOING
            or transaction.producer_epoch >= LAST_EPOCH
            or transaction.producer_id != <int64_t>read(request, self._request, PRODUCER_ID)
            or transaction.producer_epoch != <int64_t>read(request, self._request, PRODUCER_EPOCH)
        ):
            return self.decide_any(machine, context, request)
        transaction = prepare(
            transaction, read(request, self._request, COMMITTED), BUMPING, shard.now.wall_ms, None
        )
        producer_id = transaction.producer_id
        producer_epoch = transaction.producer_epoch
        identity[0] = <PyObject*>producer_id
        identity[1] = <PyObject*>producer_epoch
        return outcome_of(shard.block(transactional_id, transaction), self._response.make(identity))
