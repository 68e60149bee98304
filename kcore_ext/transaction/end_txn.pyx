"""The fast path of EndTxn: a producer of transaction version 2 (KIP-890) ends its open transaction.

`kcore.transaction.apis.end_txn` serves every request; the fast path declines (returns None) every request that is not
the common case, before it changes any state. A test compares both paths.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.codec.fields cimport FieldLayout, read, type_of
from kcore_ext.runtime.shard cimport ShardCore
from kcore_ext.transaction.transaction cimport ONGOING, Transaction, prepare
from kcore_ext.transaction.coordinator cimport CoordinatorCore, TransactionShardCore

cdef enum:
    BUMPS_SINCE = 5         # the version of EndTxn from which each end increases the producer epoch
    BUMPING = 2             # the transaction.version of such a request
    LAST_EPOCH = 32766      # the highest epoch of a producer id; the next transaction gets another producer id

cdef enum:                  # fields of the request
    TRANSACTIONAL_ID = 0
    PRODUCER_ID = 1
    PRODUCER_EPOCH = 2
    COMMITTED = 3

cdef enum:                  # fields of the response
    NEXT_PRODUCER_ID = 0
    NEXT_PRODUCER_EPOCH = 1


cdef class EndTxnFastPath:
    """Documented in end_txn.pyi."""

    def __init__(self, api, CoordinatorCore coordinator not None, authorizer, permission, *, request, response):
        self._api = api
        self._coordinator = coordinator
        self._authorizer = authorizer
        self._write, self._transaction_resource = permission
        self._request = FieldLayout(request, {
            TRANSACTIONAL_ID: "transactional_id", PRODUCER_ID: "producer_id", PRODUCER_EPOCH: "producer_epoch",
            COMMITTED: "committed",
        })
        self._response = FieldLayout(response, {NEXT_PRODUCER_ID: "producer_id", NEXT_PRODUCER_EPOCH: "producer_epoch"})

    def serve(self, context, request):
        cdef ShardCore shard
        cdef TransactionShardCore machine
        cdef Transaction transaction
        cdef PyObject* found
        cdef PyObject* identity[2]
        cdef object producer_id, producer_epoch
        if <int>context.api_version < BUMPS_SINCE or type_of(<PyObject*>request) is not self._request.type:
            return None
        transactional_id = read(request, self._request, TRANSACTIONAL_ID)
        if type(transactional_id) is not str:
            return None
        shard = self._coordinator.active(transactional_id)
        if shard is None or shard._outbox:
            return None
        machine = <TransactionShardCore>shard.machine
        found = PyDict_GetItemWithError(machine.transactions, transactional_id)
        if found is NULL:
            return None
        transaction = <Transaction?><object>found
        if (
            transaction.status != ONGOING
            or transaction.producer_epoch >= LAST_EPOCH
            or transaction.producer_id != <int64_t>read(request, self._request, PRODUCER_ID)
            or transaction.producer_epoch != <int64_t>read(request, self._request, PRODUCER_EPOCH)
        ):
            return None
        if self._authorizer is not None and not self._authorizer.allowed(
            context, self._write, self._transaction_resource, transactional_id
        ):
            return None
        transaction = prepare(
            transaction, read(request, self._request, COMMITTED), BUMPING, machine.now.wall_ms, None
        )
        producer_id = transaction.producer_id
        producer_epoch = transaction.producer_epoch
        identity[NEXT_PRODUCER_ID] = <PyObject*>producer_id
        identity[NEXT_PRODUCER_EPOCH] = <PyObject*>producer_epoch
        response = self._response.make(identity)
        self.served += 1
        response = shard.write_and_respond(
            self._api, context, request, machine.block(transactional_id, transaction), response, -1, -1
        )
        machine.send_prepared()
        return response
