"""The states of share partitions, in little memory.

A heartbeat of a few bytes creates a state for each partition of a topic, so states must be small. The table has no
separate keys. A state has no header for the garbage collector, because neither states nor tables can be in a cycle.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject_Hash
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef enum:
    FIRST_CAPACITY = 16


@cython.final
@cython.no_gc
cdef class ShareState:
    """Documented in states.pyi."""

    def __cinit__(self):
        self.batches = ()
        self.start_offset = -1
        self.delivery_complete_count = -1
        self.create_timestamp = -1
        self.write_timestamp = -1
        self.highest_state_epoch = -1
        self.highest_leader_epoch = -1
        self.snapshot_offset = -1

    @property
    def group_id(self):
        return self._group_id

    @property
    def topic_id(self):
        return self._topic_id

    @property
    def partition(self):
        return self._partition

    def put_snapshot(
        self, int64_t offset, int32_t snapshot_epoch, int32_t state_epoch, int32_t leader_epoch, int64_t start_offset,
        int32_t complete_count, tuple batches, int64_t create_timestamp, int64_t write_timestamp,
    ):
        if batches is None:
            raise TypeError("batches must be a tuple")
        self.snapshot_epoch = snapshot_epoch
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = complete_count
        self.batches = batches
        self.create_timestamp = create_timestamp
        self.write_timestamp = write_timestamp
        if state_epoch > self.highest_state_epoch:
            self.highest_state_epoch = state_epoch
        if leader_epoch > self.highest_leader_epoch:
            self.highest_leader_epoch = leader_epoch
        self.snapshot_offset = offset

    def put_update(
        self, int32_t snapshot_epoch, int32_t leader_epoch, int64_t start_offset, int32_t complete_count,
        tuple batches,
    ):
        if batches is None:
            raise TypeError("batches must be a tuple")
        self.snapshot_epoch = snapshot_epoch
        if leader_epoch != -1:
            self.leader_epoch = leader_epoch
        self.updated(batches, start_offset, complete_count)

    cdef void updated(self, tuple batches, int64_t start_offset, int32_t complete_count) noexcept:
        """Sets the fields that an update of the current leader changes."""
        self.batches = batches
        self.start_offset = start_offset
        self.delivery_complete_count = complete_count
        if self.highest_leader_epoch < self.leader_epoch:
            self.highest_leader_epoch = self.leader_epoch
        self.updates += 1

    def begin_without_snapshot(self, int64_t offset):
        self.highest_state_epoch = 0
        self.snapshot_offset = offset

    def reset_updates(self):
        self.updates = 0

    def dump(self):
        return (
            self.snapshot_offset, self.snapshot_epoch, self.state_epoch, self.leader_epoch, self.start_offset,
            self.delivery_complete_count, self.batches, self.create_timestamp, self.write_timestamp,
            self.highest_state_epoch, self.highest_leader_epoch, self.updates,
        )

    def restore(self, *fields):
        self.put_snapshot(*fields[:9])
        self.highest_state_epoch, self.highest_leader_epoch, self.updates = fields[9:]


cdef inline uint64_t mixed(str group_id, bytes topic_id, int32_t partition) except? 0:
    """Returns a hash of a share partition, in which the low bits depend on all three arguments.

    Clients cannot predict the result, because Python's hashes of strings depend on a secret of the process.
    """
    cdef uint64_t value = <uint64_t>PyObject_Hash(group_id)
    value = (value ^ <uint64_t>PyObject_Hash(topic_id) * 3) + <uint64_t><int64_t>partition * 0x9E3779B97F4A7C15ULL
    value = (value ^ (value >> 32)) * 0xD6E8FEB86659FD93ULL
    return value ^ (value >> 32)


@cython.final
@cython.no_gc
cdef class ShareStates:
    """Documented in states.pyi."""

    def __dealloc__(self):
        cdef Py_ssize_t at
        if self._slots is not NULL:
            for at in range(self._capacity):
                if self._slots[at] is not NULL:
                    Py_DECREF(<object>self._slots[at])
            PyMem_Free(self._slots)

    def __len__(self):
        return self._used

    def __contains__(self, key):
        return self.find(key[0], key[1], key[2]) is not None

    def get(self, key):
        return self.find(key[0], key[1], key[2])

    def put(self, key, ShareState state not None):
        cdef str group_id = key[0]
        cdef bytes topic_id = key[1]
        cdef int32_t partition = key[2]
        cdef Py_ssize_t at
        if group_id is None or topic_id is None:
            raise TypeError(f"share states: the key {key!r} lacks a group id or a topic id")
        if state._group_id is not None:
            raise ValueError(
                f"share states: the state for {key!r} is already in a table, for partition {state._partition} of "
                f"group {state._group_id!r}"
            )
        if (self._used + 1) * 3 > self._capacity * 2:
            self.grow()
        at = self.slot_of(group_id, topic_id, partition)
        if self._slots[at] is not NULL:
            raise ValueError(f"share states: the share partition {key!r} already has a state: remove it first")
        state._group_id = group_id
        state._topic_id = topic_id
        state._partition = partition
        Py_INCREF(state)
        self._slots[at] = <void*>state
        self._used += 1

    def discard(self, key):
        cdef str group_id = key[0]
        cdef bytes topic_id = key[1]
        cdef Py_ssize_t mask = self._capacity - 1
        cdef Py_ssize_t hole, at, home
        cdef ShareState state, other
        if not self._used or group_id is None or topic_id is None:
            return
        hole = at = self.slot_of(group_id, topic_id, key[2])
        if self._slots[hole] is NULL:
            return
        state = <ShareState>self._slots[hole]
        # Close the gap: a later state of the run moves into it, unless the search for that state begins after the gap.
        # The strings store their hashes, so none of these steps can fail.
        while True:
            at = (at + 1) & mask
            if self._slots[at] is NULL:
                break
            other = <ShareState>self._slots[at]
            home = <Py_ssize_t>(mixed(other._group_id, other._topic_id, other._partition) & <uint64_t>mask)
            if ((at - home) & mask) >= ((at - hole) & mask):
                self._slots[hole] = self._slots[at]
                hole = at
        self._slots[hole] = NULL
        self._used -= 1
        state._group_id = None
        Py_DECREF(state)

    def values(self):
        cdef list found = []
        cdef Py_ssize_t at
        for at in range(self._capacity):
            if self._slots[at] is not NULL:
                found.append(<ShareState>self._slots[at])
        return found

    def lowest_offset(self):
        cdef int64_t lowest = -1
        cdef int64_t offset
        cdef Py_ssize_t at
        for at in range(self._capacity):
            if self._slots[at] is not NULL:
                offset = (<ShareState>self._slots[at]).snapshot_offset
                if lowest < 0 or offset < lowest:
                    lowest = offset
        return lowest

    def has_requested_snapshot(self):
        cdef ShareState state
        cdef Py_ssize_t at
        for at in range(self._capacity):
            if self._slots[at] is not NULL:
                state = <ShareState>self._slots[at]
                if state.create_timestamp == state.write_timestamp:
                    return True
        return False

    cdef ShareState find(self, str group_id, bytes topic_id, int32_t partition):
        """Returns the state of a share partition, or None."""
        cdef Py_ssize_t at
        if not self._used or group_id is None or topic_id is None:
            return None
        at = self.slot_of(group_id, topic_id, partition)
        return None if self._slots[at] is NULL else <ShareState>self._slots[at]

    cdef Py_ssize_t slot_of(self, str group_id, bytes topic_id, int32_t partition) except -1:
        """Returns the slot of a share partition, or the free slot in which it belongs; a free slot always exists."""
        cdef Py_ssize_t mask = self._capacity - 1
        cdef Py_ssize_t at = <Py_ssize_t>(mixed(group_id, topic_id, partition) & <uint64_t>mask)
        cdef ShareState state
        while self._slots[at] is not NULL:
            state = <ShareState>self._slots[at]
            if state._partition == partition and state._topic_id == topic_id and state._group_id == group_id:
                break
            at = (at + 1) & mask
        return at

    cdef int grow(self) except -1:
        """Doubles the number of slots."""
        cdef Py_ssize_t capacity = self._capacity * 2 if self._capacity else FIRST_CAPACITY
        cdef void** slots = <void**>PyMem_Calloc(capacity, sizeof(void*))
        cdef ShareState state
        cdef Py_ssize_t at, to
        if slots is NULL:
            raise MemoryError
        for at in range(self._capacity):
            if self._slots[at] is not NULL:
                state = <ShareState>self._slots[at]
                to = <Py_ssize_t>(mixed(state._group_id, state._topic_id, state._partition) & <uint64_t>(capacity - 1))
                while slots[to] is not NULL:
                    to = (to + 1) & (capacity - 1)
                slots[to] = <void*>state
        PyMem_Free(self._slots)
        self._slots = slots
        self._capacity = capacity
        return 0
