"""The state of a transactional id, its record in the log, and the changes of the state.

`kcore.transaction` has the rules as tables and documents them. A test compares the changes with those of a reference
implementation, and the bytes with those of the codec.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.set cimport PyFrozenSet_New
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.batch.layout cimport put_varint
from kcore_ext.util.byte_order cimport write_int16, write_int32, write_int64
from kcore_ext.util.record_limits cimport MAX_STRING, RECORD_OVERHEAD

from types import MappingProxyType

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    NO_PRODUCER_ID = -1
    NO_EPOCH = -1
    LAST_EPOCH = 32766      # the last epoch of a producer; the coordinator uses the next one to fence it
    BUMPS_SINCE = 2         # the transaction.version from which each end increases the epoch (KIP-890)
    KEY_OVERHEAD = 4        # type and length
    NONE_CODE = 0
    INVALID_PRODUCER_ID_MAPPING = 49
    CONCURRENT_TRANSACTIONS = 51
    PRODUCER_FENCED = 90
    CURRENT = 0             # the epoch of an EndTxn relative to that of the id
    BEFORE_BUMP = 1
    OTHER = 2

cdef tuple states = ()              # the members of TransactionStatus
cdef int previous[STATUSES]         # a bit for every state that may precede
cdef int completion[STATUSES]       # the state after a prepared one; -1 for all others
cdef object NO_PARTITIONS = MappingProxyType({})
cdef frozenset NOTHING = frozenset()


def bind_states(members, before, completed):
    global states
    cdef int status
    states = tuple(members)
    if [int(state) for state in states] != list(range(STATUSES)):
        raise ValueError(f"the states of a transaction are numbered from 0 to {STATUSES - 1}: {states}")
    for status in range(STATUSES):
        previous[status] = 0
        for state in before[states[status]]:
            previous[status] |= 1 << <int>state
        completion[status] = completed.get(states[status], -1)
    return NO_PARTITIONS


cdef bint may_follow(int status, int before) noexcept:
    return previous[status] >> before & 1


cdef bint is_prepared(Transaction transaction) noexcept:
    return completion[transaction.status] >= 0


cdef inline uint8_t* put_text(uint8_t* at, const char* text, Py_ssize_t size) noexcept:
    memcpy(at, text, size)
    return at + size


cdef inline uint8_t* put_count(uint8_t* at, Py_ssize_t count, bint flexible) noexcept:
    """Writes the length of an array; in a flexible version as a varint, increased by one."""
    cdef uint32_t left
    if not flexible:
        write_int32(at, <int32_t>count)
        return at + 4
    left = <uint32_t>(count + 1)
    while left > 0x7F:
        at[0] = <uint8_t>(left | 0x80)
        at += 1
        left >>= 7
    at[0] = <uint8_t>left
    return at + 1


cdef inline Py_ssize_t count_size(Py_ssize_t count, bint flexible) noexcept:
    cdef uint32_t left
    cdef Py_ssize_t size = 1
    if not flexible:
        return 4
    left = <uint32_t>(count + 1)
    while left > 0x7F:
        size += 1
        left >>= 7
    return size


cdef inline uint8_t* put_tag(uint8_t* at, int tag, int64_t value) noexcept:
    """Writes a tagged field of 8 bytes."""
    at[0] = <uint8_t>tag
    at[1] = 8
    write_int64(at + 2, value)
    return at + 10


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Transaction:
    """Documented in transaction.pyi."""

    def __init__(
        self,
        int64_t producer_id,
        int64_t previous_producer_id,
        int64_t next_producer_id,
        int32_t producer_epoch,
        int32_t last_producer_epoch,
        int32_t timeout_ms,
        state,
        partitions not None,
        int64_t start_ms,
        int64_t last_update_ms,
        int32_t client_version,
    ):
        cdef int status = state
        if not 0 <= status < STATUSES:
            raise ValueError(f"{state} is not a state of a transaction")
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = last_producer_epoch
        self.timeout_ms = timeout_ms
        self.status = status
        self.partitions = partitions
        self.start_ms = start_ms
        self.last_update_ms = last_update_ms
        self.client_version = client_version

    def __repr__(self):
        return (
            f"Transaction({self.state.name}, producer {self.producer_id} (before {self.previous_producer_id}, next "
            f"{self.next_producer_id}), epoch {self.producer_epoch} (before {self.last_producer_epoch}), timeout "
            f"{self.timeout_ms} ms, {dict(self.partitions)}, start {self.start_ms}, last update "
            f"{self.last_update_ms}, version {self.client_version})"
        )

    @property
    def state(self):
        return states[self.status]

    @property
    def exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def completed_identity(self) -> tuple:
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def topic_partitions(self):
        return iter([(topic, index) for topic, indexes in self.partitions.items() for index in indexes])

    def encode_value(self, int version) -> bytes:
        if not 0 <= version <= 1:
            raise ValueError(f"a transaction's record has version 0 or 1, not {version}")
        cdef bytes data = PyBytes_FromStringAndSize(NULL, self.value_size(version))
        self.put_value(<uint8_t*>PyBytes_AS_STRING(data), version)
        return data

    cdef Py_ssize_t value_size(self, int version) except -1:
        """Returns the number of bytes that `put_value` writes."""
        cdef bint flexible = version > 0
        cdef Py_ssize_t size = 2 + 8 + 2 + 4 + 1 + 8 + 8, length
        if self.status == EMPTY:
            size += 1 if flexible else 4
        else:
            size += count_size(len(self.partitions), flexible)
            for topic, indexes in self.partitions.items():
                PyUnicode_AsUTF8AndSize(topic, &length)
                if length > MAX_STRING:
                    raise ValueError(f"a topic's name of {length} bytes does not fit in a record")
                size += (count_size(length, True) + 1 if flexible else 2) + length
                size += count_size(len(indexes), flexible) + 4 * len(indexes)
        if flexible:
            size += 1
            if self.previous_producer_id != NO_PRODUCER_ID:
                size += 10
            if self.next_producer_id != NO_PRODUCER_ID:
                size += 10
            if self.client_version:
                size += 4
        return size

    cdef uint8_t* put_value(self, uint8_t* at, int version) except NULL:
        """Writes the version and then the fields in the order of the message; returns the end of the value."""
        cdef bint flexible = version > 0
        cdef Py_ssize_t length
        cdef const char* text
        write_int16(at, version)
        write_int64(at + 2, self.producer_id)
        write_int16(at + 10, self.producer_epoch)
        write_int32(at + 12, self.timeout_ms)
        at[16] = <uint8_t>self.status
        at += 17
        if self.status == EMPTY:
            at = put_count(at, -1, flexible)
        else:
            at = put_count(at, len(self.partitions), flexible)
            for topic, indexes in self.partitions.items():
                text = PyUnicode_AsUTF8AndSize(topic, &length)
                if flexible:
                    at = put_count(at, length, True)
                else:
                    write_int16(at, <int>length)
                    at += 2
                at = put_count(put_text(at, text, length), len(indexes), flexible)
                for index in indexes if len(indexes) == 1 else sorted(indexes):
                    write_int32(at, index)
                    at += 4
                if flexible:
                    at[0] = 0
                    at += 1
        write_int64(at, self.last_update_ms)
        write_int64(at + 8, self.start_ms)
        at += 16
        return self.put_tags(at) if flexible else at

    cdef uint8_t* put_tags(self, uint8_t* at) noexcept:
        """Writes the tagged fields that differ from their defaults (KIP-890)."""
        cdef uint8_t* count = at
        at[0] = 0
        at += 1
        if self.previous_producer_id != NO_PRODUCER_ID:
            at = put_tag(at, 0, self.previous_producer_id)
            count[0] += 1
        if self.next_producer_id != NO_PRODUCER_ID:
            at = put_tag(at, 1, self.next_producer_id)
            count[0] += 1
        if self.client_version:
            at[0] = 2
            at[1] = 2
            write_int16(at + 2, self.client_version)
            at += 4
            count[0] += 1
        return at


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class TransactionBlock:
    """Documented in transaction.pyi."""

    def __cinit__(self, str transactional_id not None, Transaction value not None, int version, make_record):
        if not 0 <= version <= 1:
            raise ValueError(f"a transaction's record has version 0 or 1, not {version}")
        cdef Py_ssize_t size
        PyUnicode_AsUTF8AndSize(transactional_id, &size)
        if size > MAX_STRING:
            raise ValueError(f"a transactional id of {size} bytes does not fit in the key of a record")
        self.transactional_id = transactional_id
        self.value = value
        self.version = version
        self.make_record = make_record
        self.key_size = KEY_OVERHEAD + size
        self.value_size = value.value_size(version)
        self.size_bytes = RECORD_OVERHEAD + self.key_size + self.value_size

    def __len__(self):
        return 1

    def __iter__(self):
        return iter([self.make_record(self.transactional_id, self.value, self.version)])

    def __repr__(self):
        return f"<TransactionBlock of {self.transactional_id!r}: {self.value!r}>"

    def append_to(self, BatchBuilder batch not None, int64_t timestamp_ms) -> bool:
        cdef Py_ssize_t size
        cdef const char* text = PyUnicode_AsUTF8AndSize(self.transactional_id, &size)
        cdef uint8_t* at = batch.begin_record(timestamp_ms, self.key_size, self.value_size)
        if at is NULL:
            return False
        write_int16(at, 0)              # the record's type
        write_int16(at + 2, <int>size)
        at = put_varint(put_text(at + KEY_OVERHEAD, text, size), self.value_size)
        self.value.put_value(at, self.version)[0] = 0   # no headers
        return True


# ---- steps

cpdef add(
    Transaction transaction, int64_t producer_id, int64_t producer_epoch, additions, int client_version, int64_t wall_ms
):
    cdef bint ongoing
    cdef dict partitions = None
    cdef dict grown = None      # topic -> its partitions as a set, for topics that had partitions: one copy for each
    cdef object present, topic, index
    cdef Transaction made
    if transaction is None:
        return INVALID_PRODUCER_ID_MAPPING
    if is_prepared(transaction):
        # This check precedes all checks of the producer: since KIP-890, the producer may already know its id and epoch
        # after the completion.
        return CONCURRENT_TRANSACTIONS
    if transaction.producer_id != producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer_epoch:
        return PRODUCER_FENCED
    ongoing = transaction.status == ONGOING
    for topic, index in additions:
        if grown is not None and topic in grown:
            (<set>grown[topic]).add(index)
            continue
        present = (transaction.partitions if partitions is None else partitions).get(topic, NOTHING)
        if index not in present:
            if partitions is None:
                partitions = dict(transaction.partitions)
            if present:
                if grown is None:
                    grown = {}
                grown[topic] = set(present)
                (<set>grown[topic]).add(index)
                continue
            # Not `frozenset((index,))`: the code that Cython 3.3.1 generates for it crashes if there is no memory.
            partitions[topic] = PyFrozenSet_New((index,))
    if grown is not None:
        for topic, present in grown.items():
            partitions[topic] = PyFrozenSet_New(present)
    if ongoing and partitions is None:
        return NONE_CODE
    made = Transaction.__new__(Transaction)
    made.producer_id = producer_id
    made.previous_producer_id = transaction.producer_id
    made.next_producer_id = NO_PRODUCER_ID
    made.producer_epoch = transaction.producer_epoch
    made.last_producer_epoch = transaction.last_producer_epoch
    made.timeout_ms = transaction.timeout_ms
    made.status = ONGOING
    made.partitions = transaction.partitions if partitions is None else partitions
    made.start_ms = transaction.start_ms if ongoing else wall_ms
    made.last_update_ms = wall_ms
    made.client_version = client_version
    return made


def check_since_v5(tuple table not None, Transaction transaction, int64_t producer_id, int64_t producer_epoch,
                   bint commit):
    cdef int epoch = OTHER
    cdef bint overflowed
    if transaction is None:
        return table[0]
    overflowed = (
        transaction.previous_producer_id == producer_id
        and producer_epoch == LAST_EPOCH
        and transaction.producer_epoch == 0
    )
    if is_prepared(transaction):
        epoch = CURRENT     # the code is independent of the epoch
    elif transaction.producer_id != producer_id and not overflowed:
        return table[0]
    elif overflowed or transaction.producer_epoch == producer_epoch + 1:
        epoch = BEFORE_BUMP
    elif transaction.producer_epoch == producer_epoch:
        epoch = CURRENT
    return table[1 + (transaction.status * 3 + epoch) * 2 + commit]


cpdef Transaction prepare(Transaction transaction, bint commit, int version, int64_t wall_ms, take):
    cdef int64_t next_id = NO_PRODUCER_ID
    cdef int32_t epoch = transaction.producer_epoch, last_epoch = transaction.last_producer_epoch
    if version >= BUMPS_SINCE:
        if epoch >= LAST_EPOCH:
            taken = take()
            if taken is None:
                return None
            next_id = taken
        last_epoch = epoch
        epoch = min(epoch, LAST_EPOCH) + 1      # a client may use the epoch 32767 of an earlier fence
    return prepared(
        transaction,
        commit,
        epoch,
        last_epoch,
        next_id,
        transaction.start_ms if transaction.status == ONGOING else wall_ms,
        wall_ms,
        version,
    )


cpdef Transaction prepared(
    Transaction transaction, bint commit, int32_t epoch, int32_t last_epoch, int64_t next_id, int64_t start_ms,
    int64_t wall_ms, int version,
):
    cdef Transaction made = Transaction.__new__(Transaction)
    made.producer_id = transaction.producer_id
    made.previous_producer_id = transaction.producer_id
    made.next_producer_id = next_id
    made.producer_epoch = epoch
    made.last_producer_epoch = last_epoch
    made.timeout_ms = transaction.timeout_ms
    made.status = PREPARE_COMMIT if commit else PREPARE_ABORT
    made.partitions = transaction.partitions
    made.start_ms = start_ms
    made.last_update_ms = wall_ms
    made.client_version = version
    return made


cpdef Transaction complete(Transaction transaction, int64_t wall_ms):
    cdef Transaction made = Transaction.__new__(Transaction)
    if not is_prepared(transaction):
        raise ValueError(f"the end of this transaction was not decided: {transaction}")
    made.producer_id = transaction.producer_id
    made.producer_epoch = transaction.producer_epoch
    if transaction.next_producer_id != NO_PRODUCER_ID:
        made.producer_id = transaction.next_producer_id
        made.producer_epoch = 0
    made.previous_producer_id = transaction.producer_id
    made.next_producer_id = NO_PRODUCER_ID
    made.last_producer_epoch = transaction.last_producer_epoch
    made.timeout_ms = transaction.timeout_ms
    made.status = completion[transaction.status]
    made.partitions = NO_PARTITIONS
    made.start_ms = transaction.start_ms
    made.last_update_ms = wall_ms
    made.client_version = transaction.client_version
    return made
