"""The compiled state changes of transactions whose partitions are all on this node.

`TransactionShard`, `TransactionCoordinator` and `LocalMarkers` have all other code: loads, timeouts, expiry, partitions
of other nodes, and failures.
"""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.runtime.clock cimport Now
from kcore_ext.runtime.outcome cimport Outcome
from kcore_ext.util.java_hash cimport partition_of
from kcore_ext.runtime.shard cimport ShardCore
from kcore_ext.runtime.timer_wheel cimport Timer
from kcore_ext.transaction.transaction cimport (
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    TransactionBlock,
    add,
    complete,
    is_prepared,
    may_follow,
)

cdef enum:
    NONE_CODE = 0
    MAX_MARKERS_AT_ONCE = 500   # a transaction with more partitions writes its markers in slices


cdef class LocalMarkersCore:
    """Documented in coordinator.pyi."""

    def __cinit__(self):
        self.coordinators = {}

    cdef tuple find(self, topic, index):
        """Returns the pair (log, shard) of a partition; None if this node does not have the partition.

        The shard is None for a partition that belongs to no shard. The method caches partitions of internal topics,
        because every transaction with offsets has such a partition, and because they are never deleted.
        """
        cdef PyObject* known = PyDict_GetItem(self.coordinators, topic)
        cdef dict partitions
        cdef tuple found
        if known is not NULL:
            known = PyDict_GetItem(<object>known, index)
            if known is not NULL:
                found = <tuple>known
                if (<ShardCore>found[1])._active and not found[0].closed:
                    return found
        found = self.look_up(topic, index)
        if found is not None and isinstance(found[1], ShardCore):
            partitions = self.coordinators.setdefault(topic, {})
            partitions[index] = found
        return found


cdef class TransactionCounters:
    """Documented in coordinator.pyi."""


cdef class TransactionShardCore:
    """Documented in coordinator.pyi."""

    def __cinit__(self):
        self.counters = TransactionCounters()
        self.transactions = {}
        self.completions = {}
        self.timers = {}
        self.prepared = []

    cpdef TransactionBlock block(self, str transactional_id, Transaction value):
        services = self.services
        return TransactionBlock(transactional_id, value, 1 if services.level() >= 1 else 0, services.make_record)

    def add(
        self, ShardCore shard not None, str transactional_id not None, int64_t producer_id, int64_t producer_epoch,
        partitions, int client_version,
    ):
        return self.add_to(shard, transactional_id, producer_id, producer_epoch, partitions, client_version)

    cdef object add_to(
        self, ShardCore shard, str transactional_id, int64_t producer_id, int64_t producer_epoch, partitions,
        int client_version,
    ):
        cdef PyObject* found = PyDict_GetItem(self.transactions, transactional_id)
        cdef Transaction before = None if found is NULL else <Transaction>found
        result = add(before, producer_id, producer_epoch, partitions, client_version, self.now.wall_ms)
        if type(result) is not Transaction:
            return result
        return shard.write(Outcome(self.block(transactional_id, <Transaction>result)))

    # ---- replay

    def replay(self, offset, producer_id, key, Transaction value):
        self.apply(key.transactional_id, value)

    def replay_block(self, first_offset, producer_id, TransactionBlock block not None):
        self.apply(block.transactional_id, block.value)

    cdef int apply(self, str transactional_id, Transaction value) except -1:
        """Applies one transition of a transactional id. If `value` is None, removes the id."""
        cdef PyObject* found = PyDict_GetItem(self.transactions, transactional_id)
        cdef Transaction before = None if found is NULL else <Transaction>found
        if value is None:
            if before is not None:
                del self.transactions[transactional_id]
                self.counts[before.status] -= 1
            return 0
        if self.live:
            self.transition(transactional_id, before, value)
        self.transactions[transactional_id] = value
        if before is not None:
            self.counts[before.status] -= 1
        self.counts[value.status] += 1
        return 0

    def count(self, int status):
        return self.counts[status] if 0 <= status < STATUSES else 0

    cdef int transition(self, str transactional_id, Transaction before, Transaction value) except -1:
        """Checks that the table allows a change of state, and updates the timers and the queue of prepared ids."""
        if before is None:
            assert value.status == EMPTY, f"{transactional_id!r} begins as {value.state.name}"
        else:
            assert may_follow(value.status, before.status), (
                f"{transactional_id!r}: {before.state.name} -> {value.state.name}"
            )
            assert value.producer_id != before.producer_id or value.producer_epoch >= before.producer_epoch, (
                f"{transactional_id!r}: epoch {before.producer_epoch} -> {value.producer_epoch}"
            )
        if value.status == ONGOING:
            if before is None or before.status != ONGOING:
                self.begun(transactional_id, value)
        elif is_prepared(value):
            self.prepared.append(transactional_id)
            if value.status == PREPARE_COMMIT:
                self.counters.commits += 1
            else:
                self.counters.aborts += 1
        elif before is not None and is_prepared(before) and self.completions:
            self.completions.pop(transactional_id, None)
        return 0

    cdef int begun(self, str transactional_id, Transaction value) except -1:
        """Arms the timer of an open transaction.

        An earlier timer of the id is not changed, because it re-arms itself when it fires.
        """
        cdef PyObject* timer = PyDict_GetItem(self.timers, transactional_id)
        cdef int64_t deadline_ms = self.deadline(value)
        if timer is NULL or (<Timer?><object>timer).deadline_ms > deadline_ms:
            self.timeouts.arm(transactional_id, deadline_ms)
        return 0

    cpdef int64_t deadline(self, Transaction value):
        cdef int64_t left_ms = value.start_ms + value.timeout_ms - self.now.wall_ms
        # The remaining time is at most the timeout. It would be longer if the clock was ahead when the transaction
        # began, and was then set back.
        cdef int64_t soonest_ms = self.now.now_ms + max(0, min(left_ms, <int64_t>value.timeout_ms))
        # The next time at which Kafka's scanner would find the transaction due; always later than now.
        return soonest_ms // self.interval_ms * self.interval_ms + self.interval_ms

    # ---- markers

    def await_markers(self, str transactional_id not None):
        self.prepared.append(transactional_id)

    def take_prepared(self) -> list:
        prepared, self.prepared = self.prepared, []
        return prepared

    def send_markers(self):
        self.send_prepared()

    cdef int send_prepared(self) except -1:
        cdef list prepared
        cdef ShardCore shard
        if not self.prepared:
            return 0
        shard = <ShardCore?>self.context.shard
        shard._pipeline.changing += 1
        try:
            while self.prepared:
                prepared, self.prepared = self.prepared, []
                for transactional_id in prepared:
                    self.send(transactional_id)
        except Exception as error:
            # The log contains the prepared ids, so a load of the log starts writing their markers again.
            shard.reload_after_round(error)
        shard._pipeline.changing -= 1
        return 0

    def send_markers_of(self, str transactional_id not None):
        self.send(transactional_id)

    cdef int send(self, str transactional_id) except -1:
        """Begins or continues writing the markers of a prepared id."""
        cdef PyObject* found = PyDict_GetItem(self.transactions, transactional_id)
        cdef Transaction transaction
        if not self.live or found is NULL or not is_prepared(<Transaction>found):
            return 0
        transaction = <Transaction>found    # keeps a reference: the completion replaces the value in the dictionary
        completion = self.completions.get(transactional_id) if self.completions else None
        if completion is not None:
            completion.proceed()
        elif not self.end_here(transactional_id, transaction):
            self.complete_later(transactional_id, None)
        return 0

    cdef bint end_here(self, str transactional_id, Transaction transaction) except -1:
        """Writes every marker and the completion, if all partitions are on this node and their number is small.

        Returns:
            False if a partition is not on this node, or if there are too many partitions. In this case, no marker was
            written.
        """
        cdef list partitions
        cdef tuple log_and_shard
        cdef bint written = True
        cdef dict results
        writer = self.services.markers
        if not isinstance(writer, LocalMarkersCore):
            return False
        partitions = []
        for topic, indexes in transaction.partitions.items():
            if len(partitions) + len(indexes) > MAX_MARKERS_AT_ONCE:
                return False
            for index in indexes:
                log_and_shard = (<LocalMarkersCore>writer).find(topic, index)
                if log_and_shard is None:
                    return False
                partitions.append(log_and_shard)
        codes = []
        commit = transaction.status == PREPARE_COMMIT
        epoch = self.context.shard.leader_epoch
        for log_and_shard in partitions:
            code = writer.put(
                log_and_shard[0], log_and_shard[1], transaction.producer_id, transaction.producer_epoch, commit, epoch,
                transaction.client_version,
            )
            codes.append(code)
            if code != NONE_CODE:
                written = False
        if not self.live:
            return True     # the shard is loaded again, and the load starts writing the markers again
        if written:
            completed = self.block(transactional_id, complete(transaction, self.now.wall_ms))
            written = (<ShardCore?>self.context.shard).write(Outcome(completed)) is None
            if not self.live:
                return True
        if not written:
            self.complete_later(transactional_id, dict(zip(transaction.topic_partitions(), codes)))
        return True


cdef class CoordinatorCore:
    """Documented in coordinator.pyi."""

    @property
    def shards(self):
        return self._shards

    @shards.setter
    def shards(self, shards):
        self._shards = shards
        self._table = None if shards is None else shards.by_partition

    cdef ShardCore active(self, transactional_id):
        """Returns the shard of an id; None if it is not on this node or not active."""
        cdef ShardCore shard
        if self._table is None or not transactional_id:
            return None
        shard = self._table[partition_of(<str?>transactional_id, <int>len(self._table))]
        if shard is None or not shard._active:
            return None
        return shard if isinstance(shard.machine, TransactionShardCore) else None

    def add(self, transactional_id, int64_t producer_id, int64_t producer_epoch, partitions, int client_version):
        cdef ShardCore shard = self.active(transactional_id)
        if shard is None:
            return self.add_generic(transactional_id, producer_id, producer_epoch, partitions, client_version)
        failure = None
        try:
            code = (<TransactionShardCore>shard.machine).add_to(
                shard, transactional_id, producer_id, producer_epoch, partitions, client_version
            )
        except Exception as error:
            failure = error
        if failure is not None:
            return self.add_failed(shard, transactional_id, failure)
        return self.taken if code is None else self.refused(code)

    cpdef object run(self, api, context, transactional_id, request):
        cdef ShardCore shard = self.active(transactional_id)
        if shard is None:
            return self.run_generic(api, context, transactional_id, request)
        result = shard.run(api, context, request)
        (<TransactionShardCore?>shard.machine).send_prepared()
        return result
