"""The steps of every transaction, for other compiled modules."""

from libc.stdint cimport int64_t

from kcore_ext.runtime.clock cimport Now
from kcore_ext.runtime.shard cimport ShardCore
from kcore_ext.transaction.transaction cimport STATUSES, Transaction, TransactionBlock


cdef class LocalMarkersCore:
    cdef dict coordinators              # topic -> partition -> (log, shard), of internal topics

    cdef tuple find(self, topic, index)


cdef class TransactionCounters:
    cdef public int64_t commits         # documented in the stub, as are the others
    cdef public int64_t aborts
    cdef public int64_t timeouts


cdef class TransactionShardCore:
    cdef public TransactionCounters counters
    cdef int64_t counts[STATUSES]       # number of ids by state
    cdef public object context
    cdef public object services
    cdef public object timeouts
    cdef public object expiry
    cdef public Now now
    cdef public dict transactions       # the current value of every transactional id
    cdef public dict completions        # running marker phases, by transactional id
    cdef public dict timers             # timers of open transactions, by transactional id
    cdef public int64_t interval_ms     # timeouts are checked at multiples of this
    cdef list prepared                  # prepared ids whose marker phase has not begun
    cdef public bint live               # whether the shard decides; False during a load

    cdef int apply(self, str transactional_id, Transaction value) except -1
    cdef int transition(self, str transactional_id, Transaction before, Transaction value) except -1
    cpdef int64_t deadline(self, Transaction value)
    cdef int begun(self, str transactional_id, Transaction value) except -1
    cdef int send(self, str transactional_id) except -1
    cdef bint end_here(self, str transactional_id, Transaction transaction) except -1
    cdef int send_prepared(self) except -1
    cdef object add_to(
        self, ShardCore shard, str transactional_id, int64_t producer_id, int64_t producer_epoch, partitions,
        int client_version,
    )
    cpdef TransactionBlock block(self, str transactional_id, Transaction value)


cdef class CoordinatorCore:
    cdef object _shards
    cdef list _table                    # for each partition its shard, or None; None while there are no shards
    cdef public object taken            # the code of a successful `add`

    cdef ShardCore active(self, transactional_id)
    cpdef object run(self, api, context, transactional_id, request)
