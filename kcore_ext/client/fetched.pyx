"""Fetched records, which become Python objects only when a poll returns them, and the cursor of a loop over them."""

cimport cython
from cpython.buffer cimport Py_buffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t

from kcore_ext.batch.header cimport BatchHeader, check_crc, read_whole
from kcore_ext.batch.layout cimport CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT
from kcore_ext.batch.records cimport RecordReader, RecordView, open_reader, parse_record, take_headers
from kcore_ext.util.named_tuples cimport forget_hash, new_named_tuple

from kcore_ext.batch.header import split_batches
from kcore_ext.batch.records import DEFAULT_MAX_DECOMPRESSED_BYTES

cdef extern from *:
    """
    /* Keeps the memory of freed records for new records. A poll frees about as many records as it makes. Without this
       reuse, each record would pass through the general allocator, and would count as an allocation that makes the
       garbage collector run. */
    #ifdef Py_GIL_DISABLED
    #define KCORE_KEPT 0
    #else
    #define KCORE_KEPT 1024
    #endif
    #define KCORE_FIELDS 7

    static PyTypeObject *kcore_kept_type = NULL;
    static PyObject *kcore_kept[KCORE_KEPT + 1];
    static int kcore_kept_count = 0;

    /* Frees a record, or keeps its memory with its reference to the type. */
    static void kcore_free_record(PyObject *record) {
        PyTypeObject *type = Py_TYPE(record);
        if (type != kcore_kept_type || Py_SIZE(record) != KCORE_FIELDS || PyObject_GC_IsTracked(record)) {
            PyTuple_Type.tp_dealloc(record);  /* of a subclass, or made by other code */
            Py_DECREF(type);
            return;
        }
        for (Py_ssize_t place = 0; place < KCORE_FIELDS; place++) {
            PyObject *field = PyTuple_GET_ITEM(record, place);
            PyTuple_SET_ITEM(record, place, NULL);
            Py_XDECREF(field);
        }
        if (kcore_kept_count < KCORE_KEPT) {
            kcore_kept[kcore_kept_count++] = record;
            return;
        }
        type->tp_free(record);
        Py_DECREF(type);
    }

    static void kcore_keep(PyTypeObject *type) {
        while (kcore_kept_count) {
            kcore_kept_type->tp_free(kcore_kept[--kcore_kept_count]);
            Py_DECREF(kcore_kept_type);
        }
        kcore_kept_type = type;
        type->tp_dealloc = kcore_free_record;
    }

    /* Returns a record without fields that the garbage collector does not track; NULL if no memory is kept. */
    static PyObject *kcore_kept_record(PyTypeObject *type) {
        if (type != kcore_kept_type || !kcore_kept_count)
            return NULL;
        PyObject *record = kcore_kept[--kcore_kept_count];
        _Py_NewReference(record);
        return record;
    }
    """
    void keep "kcore_keep"(PyTypeObject* type) noexcept
    PyObject* kept_record "kcore_kept_record"(PyTypeObject* type) noexcept

cdef extern from "Python.h":
    Py_buffer* PyMemoryView_GET_BUFFER(object view)
    void PyObject_GC_UnTrack(void* tracked)
    void set_field "PyTuple_SET_ITEM" (PyObject* record, Py_ssize_t place, object field)
    void set_record "PyList_SET_ITEM" (object records, Py_ssize_t place, PyObject* record)
    void release "Py_DECREF" (PyObject* record)

cdef enum:
    TOPIC = 0
    PARTITION = 1
    OFFSET = 2
    FIELDS = 7
    FIRST_CAPACITY = 4

cdef Py_ssize_t MAX_DECOMPRESSED_BYTES = DEFAULT_MAX_DECOMPRESSED_BYTES


cdef struct Source:
    # The records of one batch that no poll has taken yet.
    const unsigned char* at
    const unsigned char* end
    int32_t left
    bint appended  # True: every record has the log's append time, `base_timestamp_ms`
    int64_t base_offset
    int64_t base_timestamp_ms


def reuse_memory(type record_type not None):
    """Sets the type of records whose memory `FetchedRecords.take` reuses. A later call replaces the type.

    When Python deletes a record of exactly this type, its memory is kept for a new record. The memory of all other
    objects, for example of a subclass, is freed.

    Args:
        record_type: a NamedTuple without a finalizer, which is also an argument of `FetchedRecords`.

    Raises:
        TypeError: the type is not a NamedTuple of the fields of a record.
    """
    check_record_type(record_type)
    keep(<PyTypeObject*>record_type)


cdef int check_record_type(type record_type) except -1:
    if not issubclass(record_type, tuple) or record_type.__itemsize__ != tuple.__itemsize__ or \
            len(record_type._fields) != FIELDS or record_type.__basicsize__ != tuple.__basicsize__:
        raise TypeError(f"{record_type.__name__} is not a NamedTuple of {FIELDS} fields")
    return 0


@cython.final
cdef class FetchedRecords:
    """The records of one partition that a broker has returned and that no poll has taken yet.

    `add` checks the bytes of the records. `take` makes the objects, so that at any time only the records of one poll
    exist as objects.

    Args:
        record_type: a NamedTuple of topic, partition, offset, timestamp in ms, key, value and headers.
        topic: the topic's name.
        partition: the partition's number.

    Attributes:
        following: the offset after the last batch; -1 before the first.
        decompressed_bytes: size of the decompressed batches.
        leader_epoch: the leader epoch of the last batch; -1 before the first batch.
    """

    cdef type record_type
    cdef str topic
    cdef object partition
    cdef list owners  # the bytes that `sources` point to
    cdef Source* sources
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count  # of sources
    cdef Py_ssize_t first  # the source of the next record
    cdef Py_ssize_t left
    cdef readonly int64_t following
    cdef readonly Py_ssize_t decompressed_bytes
    cdef readonly int32_t leader_epoch

    def __cinit__(self, type record_type not None, str topic not None, partition):
        check_record_type(record_type)
        self.record_type = record_type
        self.topic = topic
        self.partition = partition
        self.owners = []
        self.following = -1
        self.leader_epoch = -1

    def __dealloc__(self):
        PyMem_Free(self.sources)

    def __len__(self):
        return self.left

    @property
    def next_offset(self):
        """The offset of the next record; -1 if there is none."""
        cdef Source source
        cdef RecordView view
        if not self.left:
            return -1
        source = self.sources[self.first]
        parse_record(&source.at, source.end, &view)
        return offset_of(&source, &view)

    def add(
        self, data, int64_t position, list aborted, decompress,
        Py_ssize_t most_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES
    ):
        """Checks the batches of a response and adds their records.

        A kilobyte can decompress to many megabytes. The function therefore stops after the batch with which the
        decompressed size reaches `most_bytes`. The next fetch, from `following`, returns the rest.

        Args:
            data: the batches as bytes, or as a view whose bytes do not change while it exists; the last batch may be
                cut off.
            position: the first offset to return.
            aborted: pairs (first offset, producer id) of the aborted transactions whose records are left out, by
                descending offset; the function removes elements from the list. None: all records are returned.
            decompress: `decompress(codec, data, max_size_bytes) -> bytes`.
            most_bytes: the size of decompressed batches after which further batches are left out.

        Raises:
            CorruptBatchError: a batch is invalid. The batches before it were added.
        """
        cdef BatchHeader header
        cdef set open_aborted = set()
        cdef object held = memoryview(data)  # `sources` point to its bytes
        cdef const unsigned char* start = <const unsigned char*>PyMemoryView_GET_BUFFER(held).buf
        cdef Py_ssize_t at, size
        split = split_batches(held)
        if split.error is not None and not split.batches:
            raise split.error
        for at, size in split.batches:
            if self.decompressed_bytes >= most_bytes:
                break
            header = read_whole(start, at + size, at)
            check_crc(start, header)
            while aborted and aborted[len(aborted) - 1][0] <= header.base_offset:
                open_aborted.add(aborted.pop()[1])
            if header.attributes & CONTROL_BIT:
                open_aborted.discard(header.producer_id)
            elif not (open_aborted and header.attributes & TRANSACTIONAL_BIT and header.producer_id in open_aborted):
                self.add_batch(held, header, position, decompress)
            if header.next_offset > self.following:
                self.following = header.next_offset
            self.leader_epoch = header.partition_leader_epoch

    cdef int add_batch(self, object data, BatchHeader header, int64_t position, object decompress) except -1:
        """Checks each record of a batch, and adds those from `position` on."""
        cdef RecordReader reader = open_reader(data, header.position, decompress, MAX_DECOMPRESSED_BYTES)
        cdef Source source
        cdef const unsigned char* begin
        cdef bint skips = header.base_offset < position
        source.at = reader.at
        source.end = reader.end
        source.left = reader.left
        source.appended = header.attributes & LOG_APPEND_TIME_BIT != 0
        source.base_offset = header.base_offset
        source.base_timestamp_ms = header.max_timestamp_ms if source.appended else header.base_timestamp_ms
        owner = data
        if reader.decompressed is not None:
            owner = reader.decompressed
            self.decompressed_bytes += len(reader.decompressed)
        begin = reader.at
        while reader.move():
            if skips:
                if offset_of(&source, &reader.record) < position:
                    source.left -= 1
                else:
                    skips = False
                    source.at = begin
            begin = reader.at
        if source.left:
            self.reserve()
            self.owners.append(owner)
            self.sources[self.count] = source
            self.count += 1
            self.left += source.left
        return 0

    cdef int reserve(self) except -1:
        """Makes room for one more `Source` (the untaken records of one batch)."""
        cdef Py_ssize_t wanted = 2 * self.capacity if self.capacity else FIRST_CAPACITY
        cdef void* moved
        if self.count == self.capacity:
            moved = PyMem_Realloc(self.sources, wanted * sizeof(Source))
            if moved is NULL:
                raise MemoryError
            self.sources = <Source*>moved
            self.capacity = wanted
        return 0

    def take(self, Py_ssize_t limit):
        """Makes at most `limit` records, in the order of their offsets, and removes them from this object.

        Raises:
            MemoryError: there is not enough memory for all the records; no record was removed.
        """
        cdef Py_ssize_t count = self.left if limit > self.left else limit if limit > 0 else 0
        cdef Py_ssize_t index = self.first
        cdef Py_ssize_t place
        cdef Source source
        cdef RecordView view
        cdef int64_t timestamp_ms, previous_ms = 0
        cdef object timestamp = 0
        cdef PyObject* made
        cdef list records = PyList_New(count)
        if not count:
            return records
        source = self.sources[index]
        for place in range(count):
            if not source.left:
                index += 1
                source = self.sources[index]
            parse_record(&source.at, source.end, &view)
            source.left -= 1
            timestamp_ms = source.base_timestamp_ms
            if not source.appended:
                timestamp_ms = <int64_t>(<uint64_t>timestamp_ms + <uint64_t>view.timestamp_delta)
            if timestamp_ms != previous_ms:  # records often have the same timestamp as the one before
                timestamp = timestamp_ms
                previous_ms = timestamp_ms
            made = self.make(offset_of(&source, &view), timestamp, &view)
            set_record(records, place, made)
        if not source.left:
            index += 1
        else:
            self.sources[index] = source
        self.first = index
        self.left -= count
        if not self.left:
            self.owners.clear()
            self.count = self.first = 0
        return records

    cdef PyObject* make(self, int64_t offset, object timestamp, RecordView* view) except NULL:
        """Returns a new reference to a record.

        The garbage collector does not track the record. A record consists of strings, integers, bytes and tuples of
        them, and so cannot be part of a cycle.
        """
        cdef PyObject* record = kept_record(<PyTypeObject*>self.record_type)
        if record is NULL:
            record = new_named_tuple(<PyTypeObject*>self.record_type, FIELDS)
            PyObject_GC_UnTrack(record)
        else:
            forget_hash(record)
        try:
            fill(record, 0, self.topic)
            fill(record, 1, self.partition)
            fill(record, 2, offset)
            fill(record, 3, timestamp)
            fill(record, 4, field_of(view.key, view.key_size))
            fill(record, 5, field_of(view.value, view.value_size))
            fill(record, 6, take_headers(view) if view.header_count else ())
        except:
            release(record)
            raise
        return record


cdef inline void fill(PyObject* record, Py_ssize_t place, object field) noexcept:
    Py_INCREF(field)  # the tuple takes this reference
    set_field(record, place, field)


cdef inline object field_of(const unsigned char* start, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>start, size)


cdef inline int64_t offset_of(Source* source, RecordView* view) noexcept nogil:
    return <int64_t>(<uint64_t>source.base_offset + <uint64_t><int64_t>view.offset_delta)


@cython.final
cdef class RecordCursor:
    """An iterator over records for a program's loop. It tracks which records the program has finished.

    The current record is the record that was returned last. It is finished when the program requests the next record.
    """

    cdef list records
    cdef Py_ssize_t at        # the place of the next record
    cdef Py_ssize_t reported  # finished records before this place were returned by `finished`

    def __cinit__(self):
        self.records = []

    def __iter__(self):
        return self

    def __next__(self):
        cdef list records = self.records
        cdef Py_ssize_t at = self.at
        if at >= len(records):
            raise StopIteration
        self.at = at + 1
        return records[at]

    def __len__(self):
        return len(self.records) - self.at

    def load(self, list records not None):
        """Begins with new records. All earlier records must be finished or dropped."""
        self.records = records
        self.at = 0
        self.reported = 0

    def finished(self, bint current):
        """Returns the partitions of the records that were finished since the last call, and their next offsets.

        Args:
            current: True if the current record is finished, too.
        """
        cdef dict ends = {}
        cdef list records = self.records
        cdef Py_ssize_t place, end = self.at if current else self.at - 1
        cdef tuple record, previous = None
        for place in range(self.reported, end):
            record = <tuple>records[place]
            if previous is not None and not same_partition(previous, record):
                ends[previous[:OFFSET]] = previous[OFFSET] + 1
            previous = record
        if previous is not None:
            ends[previous[:OFFSET]] = previous[OFFSET] + 1
            if records is self.records:
                self.reported = end
        return ends

    def drop(self, partitions):
        """Removes the records of partitions, including the current record."""
        cdef list kept = []
        cdef Py_ssize_t place, at = 0
        cdef tuple record
        for place in range(self.reported, len(self.records)):
            record = <tuple>self.records[place]
            if record[:OFFSET] not in partitions:
                kept.append(record)
                if place < self.at:
                    at += 1
        self.records = kept
        self.at = at
        self.reported = 0

    def rest(self, Py_ssize_t limit):
        """Removes the next records from the loop, at most `limit`, and returns them."""
        cdef list records = self.records[self.at : self.at + limit]
        del self.records[self.at : self.at + limit]
        return records


cdef inline bint same_partition(tuple one, tuple other) noexcept:
    # The records of one response share these objects.
    return one[PARTITION] is other[PARTITION] and one[TOPIC] is other[TOPIC]
