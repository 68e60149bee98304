"""The state of a partition's producers, and its change by each batch of an idempotent client.

`kcore.broker.data.producer_state` adds the checks of appends, end markers and expiry.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Size
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy, memmove

from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64, write_int16, write_int32, write_int64

from typing import NamedTuple

cdef enum:
    ROOM_KEPT = 64      # number of notes up to which empty memory is not freed
    ENTRY_BYTES = 31    # of a producer in a snapshot, without its batches
    BATCH_BYTES = 32    # of one of its batches
    MAX_REFUSED = 100   # producers of a partition whose first batch was refused; the oldest is dropped

cdef int64_t MAX_SEQUENCE = 0x7FFFFFFF

MAX_BATCHES = CACHED


class BatchMetadata(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


@cython.final
cdef class ProducerEntry:
    """Documented in producers.pyi."""

    def __cinit__(self, int64_t producer_id):
        self.producer_id = producer_id
        self.now.epoch = -1
        self.now.coordinator_epoch = -1
        self.now.last_timestamp_ms = -1
        self.now.txn_first_offset = -1

    @property
    def epoch(self):
        return self.now.epoch

    @epoch.setter
    def epoch(self, int16_t epoch):
        self.now.epoch = epoch

    @property
    def coordinator_epoch(self):
        return self.now.coordinator_epoch

    @coordinator_epoch.setter
    def coordinator_epoch(self, int32_t epoch):
        self.now.coordinator_epoch = epoch

    @property
    def last_timestamp_ms(self):
        return self.now.last_timestamp_ms

    @last_timestamp_ms.setter
    def last_timestamp_ms(self, int64_t timestamp_ms):
        self.now.last_timestamp_ms = timestamp_ms

    @property
    def txn_first_offset(self):
        return self.now.txn_first_offset

    @txn_first_offset.setter
    def txn_first_offset(self, int64_t offset):
        self.now.txn_first_offset = offset

    @property
    def batches(self):
        cdef int i
        return tuple([metadata_of(&self.now.batches[i]) for i in range(self.now.count)])

    @batches.setter
    def batches(self, tuple batches not None):
        cdef Written written[CACHED]
        cdef int i, count = len(batches)
        if count > CACHED:
            raise ValueError(f"a producer has at most {CACHED} stored batches, not {count}")
        for i in range(count):
            written[i] = written_of(batches[i])
        memcpy(self.now.batches, written, count * sizeof(Written))
        self.now.count = count

    @property
    def last_sequence(self):
        return self.now.batches[self.now.count - 1].last_sequence if self.now.count else -1

    def duplicate(self, int64_t epoch, int64_t first_sequence, int64_t last_sequence):
        cdef int i
        if epoch == self.now.epoch:
            for i in range(self.now.count):
                if (
                    self.now.batches[i].first_sequence == first_sequence
                    and self.now.batches[i].last_sequence == last_sequence
                ):
                    return metadata_of(&self.now.batches[i])
        return None

    def state(self):
        return self.epoch, self.coordinator_epoch, self.last_timestamp_ms, self.txn_first_offset, self.batches

    def restore(self, tuple state not None):
        self.epoch, self.coordinator_epoch, self.last_timestamp_ms, self.txn_first_offset, self.batches = state

    def encode(self):
        cdef int i
        cdef bytes encoded = PyBytes_FromStringAndSize(NULL, ENTRY_BYTES + BATCH_BYTES * self.now.count)
        cdef unsigned char* at = <unsigned char*>PyBytes_AS_STRING(encoded)
        write_int64(at, self.producer_id)
        write_int16(at + 8, self.now.epoch)
        write_int32(at + 10, self.now.coordinator_epoch)
        write_int64(at + 14, self.now.last_timestamp_ms)
        write_int64(at + 22, self.now.txn_first_offset)
        at[30] = <unsigned char>self.now.count
        at += ENTRY_BYTES
        for i in range(self.now.count):
            write_int32(at, self.now.batches[i].first_sequence)
            write_int32(at + 4, self.now.batches[i].last_sequence)
            write_int64(at + 8, self.now.batches[i].base_offset)
            write_int64(at + 16, self.now.batches[i].last_offset)
            write_int64(at + 24, self.now.batches[i].timestamp_ms)
            at += BATCH_BYTES
        return encoded

    @staticmethod
    def decode_all(bytes chunk not None, Py_ssize_t position, dict entries not None):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(chunk)
        cdef const unsigned char* at
        cdef ProducerEntry entry
        cdef int i, count
        if position < 0:
            raise ValueError(f"position {position} is outside of the chunk of producers")
        while position < size:
            if size - position < ENTRY_BYTES:
                raise ValueError("a chunk of producers is truncated")
            at = <const unsigned char*>PyBytes_AS_STRING(chunk) + position
            count = at[30]
            if count > CACHED or size - position < ENTRY_BYTES + BATCH_BYTES * count:
                raise ValueError(f"a chunk of producers is damaged or truncated: a producer with {count} batches")
            entry = ProducerEntry(read_int64(at))
            entry.now.epoch = read_int16(at + 8)
            entry.now.coordinator_epoch = read_int32(at + 10)
            entry.now.last_timestamp_ms = read_int64(at + 14)
            entry.now.txn_first_offset = read_int64(at + 22)
            entry.now.count = count
            at += ENTRY_BYTES
            for i in range(count):
                entry.now.batches[i].first_sequence = read_int32(at)
                entry.now.batches[i].last_sequence = read_int32(at + 4)
                entry.now.batches[i].base_offset = read_int64(at + 8)
                entry.now.batches[i].last_offset = read_int64(at + 16)
                entry.now.batches[i].timestamp_ms = read_int64(at + 24)
                at += BATCH_BYTES
            entries[entry.producer_id] = entry
            position += ENTRY_BYTES + BATCH_BYTES * count

    def wrote(self, int64_t last_offset, bint newest):
        cdef int i
        for i in range(self.now.count - 1 if newest and self.now.count else 0, self.now.count):
            if self.now.batches[i].last_offset == last_offset:
                return True
        return False

    def __repr__(self):
        return f"<ProducerEntry {self.producer_id} {self.state()}>"


cdef object metadata_of(Written* written):
    return BatchMetadata(
        written.first_sequence, written.last_sequence, written.base_offset, written.last_offset, written.timestamp_ms
    )


cdef Written written_of(batch) except *:
    cdef Written written
    (
        written.first_sequence, written.last_sequence, written.base_offset, written.last_offset, written.timestamp_ms
    ) = batch
    return written


cdef class AbortedCore:
    """Documented in producers.pyi."""

    def __cinit__(self):
        self._entries = []


cdef class ProducersCore:
    """Documented in producers.pyi."""

    def __cinit__(self, *arguments, **named):
        self.entries = {}
        self.open_transactions = {}
        self.verification_guards = {}
        self.owners = {}
        self.refused = {}
        # Transactions whose marker is not durable: (first offset, marker's offset). They still limit the last stable
        # offset.
        self._completing = []

    def __dealloc__(self):
        PyMem_Free(self.notes)

    # ---- data

    cdef bint follows(
        self, int64_t producer_id, int16_t epoch, int32_t first_sequence, bint transactional, object transactional_id
    ) except -1:
        """Returns True if a batch can be appended without the generic path.

        This is the case for the next batch of a known producer, in its open transaction or outside of transactions. It
        is also the case for the first batch of an unknown producer outside of transactions. The function does not check
        verification guards, because they concern only the batch that opens a transaction.
        """
        cdef PyObject* found
        cdef State* now
        cdef int64_t last = -1
        found = PyDict_GetItemWithError(self.entries, producer_id)
        if found is NULL:
            return not transactional and not PyDict_Size(self.refused)
        now = &(<ProducerEntry>found).now
        if transactional:
            # Another transactional id must not write into the transaction that this producer id has open.
            found = PyDict_GetItemWithError(self.owners, producer_id)
            if found is NULL or <object>found != transactional_id:
                return False
        if now.count:
            last = now.batches[now.count - 1].last_sequence
        return epoch == now.epoch and first_sequence == last + 1 and transactional == (now.txn_first_offset >= 0)

    def add_data(self, int64_t producer_id, int16_t epoch, batch, bint transactional):
        cdef Written written = written_of(batch)
        self.put(producer_id, epoch, &written, transactional)

    cdef int appended(
        self,
        int64_t producer_id,
        int16_t epoch,
        int32_t sequence,
        int32_t last_delta,
        int64_t base_offset,
        int64_t timestamp_ms,
        bint transactional,
    ) except -1:
        """Applies an appended batch; `sequence` is -1 if a coordinator wrote it."""
        cdef Written written
        written.first_sequence = sequence
        written.last_sequence = sequence
        if sequence >= 0:
            # Sequences wrap from 2147483647 to 0.
            written.last_sequence = <int32_t>((<int64_t>sequence + last_delta) & MAX_SEQUENCE)
        written.base_offset = base_offset
        written.last_offset = base_offset + last_delta
        written.timestamp_ms = timestamp_ms
        return self.put(producer_id, epoch, &written, transactional)

    cdef int put(self, int64_t producer_id, int16_t epoch, Written* batch, bint transactional) except -1:
        cdef State* now = &self.prepare_change(producer_id, batch.base_offset).now
        if epoch != now.epoch:
            now.epoch = epoch
            now.count = 0
        elif now.count == CACHED:
            now.count -= 1
            memmove(now.batches, now.batches + 1, (CACHED - 1) * sizeof(Written))
        now.batches[now.count] = batch[0]
        now.count += 1
        now.last_timestamp_ms = batch.timestamp_ms
        if transactional:
            if now.txn_first_offset < 0:
                now.txn_first_offset = batch.base_offset
                self.open_transactions[producer_id] = batch.base_offset
            if self.verification_guards:
                self.verification_guards.pop(producer_id, None)
        return 0

    # ---- appends that are not durable

    def _prepare_change(self, int64_t producer_id, int64_t offset):
        return self.prepare_change(producer_id, offset)

    cdef ProducerEntry prepare_change(self, int64_t producer_id, int64_t offset):
        cdef Note* note
        cdef ProducerEntry entry
        cdef object key = producer_id
        cdef PyObject* found = PyDict_GetItemWithError(self.entries, key)
        self.make_room()
        note = &self.notes[self.count]
        note.offset = offset
        note.producer_id = producer_id
        note.known = found is not NULL
        if note.known:
            entry = <ProducerEntry>found
            note.before = entry.now
        else:
            entry = self.entries[key] = ProducerEntry(producer_id)
            if PyDict_Size(self.refused):
                self.refused.pop(key, None)
        self.count += 1
        return entry

    cdef int make_room(self) except -1:
        """Reserves memory for the rollback data of one more append."""
        cdef Note* notes
        cdef Py_ssize_t room
        if self.count < self.room:
            return 0
        if self.first > self.count // 2:
            self.count -= self.first
            memmove(self.notes, self.notes + self.first, self.count * sizeof(Note))
            self.first = 0
            return 0
        room = max(4, 2 * self.room)
        notes = <Note*>PyMem_Realloc(self.notes, room * sizeof(Note))
        if notes is NULL:
            raise MemoryError
        self.notes = notes
        self.room = room
        return 0

    cdef void forget_notes(self):
        """Drops all rollback data, and frees memory that exceeds ROOM_KEPT."""
        self.first = self.count = 0
        if self.room > ROOM_KEPT:
            PyMem_Free(self.notes)
            self.notes = NULL
            self.room = 0

    def _has_pending_append(self, int64_t producer_id):
        cdef Py_ssize_t i
        for i in range(self.first, self.count):
            if self.notes[i].producer_id == producer_id:
                return True
        return False

    def durable_entries(self):
        cdef Note* note
        cdef ProducerEntry entry
        cdef Py_ssize_t i
        cdef dict entries
        if self.first == self.count:
            return list(self.entries.values())
        entries = dict(self.entries)
        for i in range(self.count - 1, self.first - 1, -1):
            note = &self.notes[i]
            if note.known:
                entry = entries[note.producer_id] = ProducerEntry(note.producer_id)
                entry.now = note.before
            else:
                entries.pop(note.producer_id, None)
        return list(entries.values())

    def first_unstable_offset(self):
        cdef object first = None
        for first in self.open_transactions.values():
            break
        if self._completing:
            for offset, _ in self._completing:
                if first is None or offset < first:
                    first = offset
        return first

    def committed(self, int64_t high_watermark):
        self.settle(high_watermark)

    cdef int settle(self, int64_t high_watermark) except -1:
        while self.first < self.count and self.notes[self.first].offset < high_watermark:
            self.first += 1
        if self.first == self.count:
            self.forget_notes()
        if self._completing:
            self._completing = [pair for pair in self._completing if pair[1] >= high_watermark]
        return 0

    def refuse(self, int64_t producer_id, int16_t epoch, int32_t sequence):
        if producer_id not in self.entries:
            self.note_refused(producer_id, epoch, sequence)

    cdef int note_refused(self, object producer_id, int16_t epoch, int32_t sequence) except -1:
        """Records the lowest sequence that was refused for an unknown producer."""
        cdef object known = self.refused.get(producer_id)
        if known is not None and known[0] == epoch and known[1] <= sequence:
            return 0
        if known is None and PyDict_Size(self.refused) >= MAX_REFUSED:
            del self.refused[next(iter(self.refused))]
        self.refused[producer_id] = (epoch, sequence)
        return 0

    def _take_back(self, int64_t high_watermark):
        cdef Note* note
        cdef PyObject* found
        cdef State* now
        while self.first < self.count and self.notes[self.count - 1].offset >= high_watermark:
            note = &self.notes[self.count - 1]
            if note.known:
                # The entry exists: only idle entries expire, and an entry with a note has just changed.
                (<ProducerEntry>self.entries[note.producer_id]).now = note.before
            else:
                found = PyDict_GetItemWithError(self.entries, note.producer_id)
                if found is not NULL:
                    now = &(<ProducerEntry>found).now
                    if now.count and now.batches[0].first_sequence >= 0:
                        self.note_refused(note.producer_id, now.epoch, now.batches[0].first_sequence)
                    del self.entries[note.producer_id]
            self.count -= 1     # last, so that a note whose entry could not be restored remains for a retry
        if self.first == self.count:
            self.forget_notes()
        if self._completing:
            self._completing = [pair for pair in self._completing if pair[1] < high_watermark]
