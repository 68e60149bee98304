"""Open batches of a producer: `Accumulator.append` encodes a record into the batch of its partition immediately."""

cimport cython
from cpython.bool cimport PyBool_Check
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_Check
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kcore_ext.batch.builder cimport BatchBuilder
from kcore_ext.batch.layout cimport HEADER_BYTES, put_varint, varint_size
from kcore_ext.batch.records cimport RecordView, parse_record
from kcore_ext.client.partitioner cimport partition_of_key

import random
from collections import deque

cdef enum:
    RECORD_BYTES = 32  # an upper bound of a record's size besides key, value and headers

cdef bytes NO_HEADERS = b"\0"  # a count of 0
cdef tuple NO_ARGUMENTS = ()
cdef object randrange = random.randrange


@cython.final
cdef class ProducerBatch:
    """The records of one partition that are sent together.

    Attributes:
        created_s: the time of the first record, in seconds.
        done: an event, which is set when the batch is stored or has failed.
        error: the reason of the failure.
        base_offset: the offset of the first record; -1: unknown.
        log_time_ms: the broker's time of the append in ms, if the topic has append times; else -1.
        sequence: the producer id, epoch and first sequence; None: not sent yet.
        attempts: the number of failed attempts to send it.
        may_be_stored: True if the result of an attempt is unknown.
        in_flight: True while a request with the batch waits for its response.
        number: the position among all batches of the partition that were sent, from 0; -1: not sent yet.
        count: the number of its records.
        size: the size of the batch before compression.
    """

    cdef BatchBuilder builder
    cdef readonly double created_s
    cdef readonly object done
    cdef public object error
    cdef public int64_t base_offset
    cdef public int64_t log_time_ms
    cdef public tuple sequence
    cdef public int attempts
    cdef public bint in_flight
    cdef public bint may_be_stored
    cdef tuple parts  # the batches that replaced this one; None: it was not split
    cdef readonly int64_t number
    cdef readonly int32_t count
    cdef readonly Py_ssize_t size

    def __init__(self):
        raise TypeError("a ProducerBatch is made by an Accumulator")

    def build(self, int64_t producer_id, int producer_epoch, int32_t base_sequence):
        """Returns the encoded batch with the given producer fields, which are -1 if the producer is not idempotent.

        Raises:
            ValueError: the batch was completed before.
        """
        if self.builder is None:
            raise ValueError("the batch is complete: its records were freed")
        self.builder.set_producer(producer_id, producer_epoch, base_sequence)
        return self.builder.build()

    def complete(self, error):
        """Completes the batch: frees the records, and wakes the waiting deliveries.

        Args:
            error: the reason of a failure, or None.
        """
        self.builder = None
        self.error = error
        self.done.set()


cdef class DeliveryBase:
    """The base of synchronous and asynchronous deliveries: a record's batch, position in the batch, and timestamp.

    Attributes:
        batch: the record's batch. After a split it is the part that has the record.
        partition: the topic and the partition.
        offset: the record's offset once the batch is stored; -1: unknown.
        timestamp_ms: the record's timestamp, or the time of its append once the batch is stored.
    """

    cdef ProducerBatch own
    cdef readonly object partition
    cdef int32_t index
    cdef int64_t given_ms

    cdef ProducerBatch follow(self):
        """Returns the record's batch, or after a split the part that has the record.

        The method runs no Python code, so no other thread can run meanwhile.
        """
        cdef ProducerBatch part
        while self.own is not None and self.own.parts is not None:
            for part in self.own.parts:
                if self.index < part.count:
                    break
                self.index -= part.count
            self.own = part
        return self.own

    @property
    def batch(self):
        """The record's batch. After a split it is the part that has the record."""
        return self.follow()

    @property
    def offset(self):
        """The record's offset once the batch is stored; -1: unknown."""
        cdef ProducerBatch batch = self.follow()
        return -1 if batch is None or batch.base_offset < 0 else batch.base_offset + self.index

    @property
    def timestamp_ms(self):
        """The record's timestamp, or the time of its append once the batch is stored."""
        cdef ProducerBatch batch = self.follow()
        return self.given_ms if batch is None or batch.log_time_ms < 0 else batch.log_time_ms


@cython.final
cdef class PartitionQueue:
    """The unacknowledged batches of one partition. `kcore.client.delivery` selects the next batch to send.

    Attributes:
        partition: the topic and the partition.
        batches: the batches in the order of their records.
        not_before_s: the earliest time of the next attempt.
        sequence: the producer id, the epoch and the next sequence.
        chain: the state of the sequence; see `kcore.client.delivery`.
        assigned: the number of batches to which `assign` has assigned a sequence.
    """

    cdef readonly object partition
    cdef readonly object batches
    cdef public double not_before_s
    cdef public tuple sequence
    cdef public int chain
    cdef readonly int64_t assigned
    cdef ProducerBatch open  # the last of `batches` while it accepts records, else None

    def __init__(self, partition):
        self.partition = partition
        self.batches = deque()
        self.sequence = (-1, -1, 0)

    def assign(self, ProducerBatch batch not None, tuple sequence):
        """Sets the sequence of a batch. The batch accepts no more records from now on."""
        if self.open is batch:
            self.open = None
        batch.sequence = sequence
        batch.number = self.assigned
        self.assigned += 1

    def remove(self, ProducerBatch batch not None):
        """Removes a batch; returns False if the queue does not have it."""
        if batch not in self.batches:
            return False
        self.batches.remove(batch)
        if self.open is batch:
            self.open = None
        return True


@cython.final
cdef class TopicQueues:
    """The queues of a topic's partitions, and the partition of its records without a key."""

    cdef list queues  # by partition; None for a partition that has had no records
    cdef int sticky
    cdef Py_ssize_t filled  # bytes that the sticky partition got

    def __init__(self, int partitions):
        self.queues = [None] * partitions
        self.sticky = -1


cdef int whole_number(object partition) except? -1:
    """Converts the number of a partition. A bool or a float does not count as a number."""
    if not PyLong_Check(partition) or PyBool_Check(partition):
        raise TypeError(f"the partition is {partition!r}, not a whole number")
    return partition


@cython.final
cdef class Accumulator:
    """The batches of a producer that no broker has acknowledged yet.

    `append` needs no lock. It looks up the open batch and encodes the record without running Python code. Meanwhile it
    holds the GIL, so no other thread can change the batch. All other methods need the producer's lock.

    Args:
        delivery_type: a subclass of DeliveryBase without attributes.
        partition_type: called with a topic and a partition number; returns the topic partition.
        event_type: called without arguments for each new batch; returns the event of this batch.
        batch_bytes: the size in bytes at which a batch is full.
        buffer_bytes: the total size of all batches in bytes at which `append` returns None.
        burst_bytes: after records of this total size, `append` returns None once, so that the sending thread can run.
        compression: the codec's number in Kafka's batch format.
        compress: `compress(codec, data) -> bytes`.
        to_bytes: converts a key or a value that is neither bytes, str nor None, or raises TypeError.
        measure: returns an upper bound of the size of a record with headers in bytes, or raises TypeError.
        on_batch: called after the first record was added to a new batch.
        monotonic: returns the time in seconds.
        clock_ms: returns the timestamp of a record that has none, in ms since the epoch; None: the system's clock.
        loop: the event loop of the producer; None: any thread may call `append`.
        running_loop: returns the event loop of the calling code; called if `loop` is not None.

    Attributes:
        queues: partition -> the queue of its batches.
        size: the total size of all batches in bytes.
        closed: True if no more records are accepted.
    """

    cdef PyTypeObject* delivery_type
    cdef object delivery_class, partition_type, event_type, compress, to_bytes, measure, on_batch, monotonic, clock_ms
    cdef object loop, running_loop
    cdef Py_ssize_t batch_bytes, buffer_bytes, burst_bytes, burst
    cdef int compression
    cdef dict topics
    cdef readonly dict queues
    cdef readonly Py_ssize_t size
    cdef public bint closed

    def __init__(
        self, type delivery_type not None, partition_type, event_type, *, Py_ssize_t batch_bytes,
        Py_ssize_t buffer_bytes, Py_ssize_t burst_bytes, int compression, compress, to_bytes, measure, on_batch,
        monotonic, clock_ms=None, loop=None, running_loop=None,
    ):
        if not issubclass(delivery_type, DeliveryBase) or delivery_type.__basicsize__ != DeliveryBase.__basicsize__:
            raise TypeError(f"{delivery_type.__name__} is not a subclass of DeliveryBase without attributes")
        self.delivery_class = delivery_type
        self.delivery_type = <PyTypeObject*>delivery_type
        self.partition_type = partition_type
        self.event_type = event_type
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.burst_bytes = burst_bytes
        self.compression = compression
        self.compress = compress
        self.to_bytes = to_bytes
        self.measure = measure
        self.on_batch = on_batch
        self.monotonic = monotonic
        self.clock_ms = clock_ms
        self.loop = loop
        self.running_loop = running_loop
        self.topics = {}
        self.queues = {}

    def knows(self, str topic not None, int partition):
        """Returns True if `add_topic` was called for the topic, and the topic has the partition."""
        cdef TopicQueues queues = self.topics.get(topic)
        return queues is not None and partition < len(queues.queues)

    def add_topic(self, str topic not None, int partitions):
        """Sets the number of a topic's partitions, which `append` needs. The number never falls."""
        cdef TopicQueues queues = self.topics.get(topic)
        if queues is None:
            self.topics[topic] = TopicQueues(partitions)
        elif partitions > len(queues.queues):
            queues.queues += [None] * (partitions - len(queues.queues))

    @property
    def full(self):
        """True while the batches have reached the limit of the buffer."""
        return self.size >= self.buffer_bytes

    def rest(self):
        """Sets the size of the records since the last pause of `append` to 0. `burst_bytes` limits this size."""
        self.burst = 0

    def remove(self, PartitionQueue queue not None, ProducerBatch batch not None):
        """Removes a batch from a queue, if the queue has it."""
        if queue.remove(batch):
            self.size -= batch.size

    def split(self, PartitionQueue queue not None, ProducerBatch batch not None):
        """Replaces a batch by smaller ones with the same records in the same order.

        A part has at most half of the bytes, unless it has one record. Each delivery then refers to the part with its
        record, and `batch.done` is set. The parts are as old as the batch and have no sequence.

        Returns:
            The parts, which replace the batch in its queue.

        Raises:
            ValueError: the batch has one record, or the queue does not have it.
            MemoryError: nothing was changed.
        """
        cdef ProducerBatch part
        cdef tuple parts
        cdef Py_ssize_t place, inserted = 0
        if batch.builder is None or batch.count < 2:
            raise ValueError("neither a complete batch nor a batch with one record can be split")
        parts = self.parts_of(batch)
        place = queue.batches.index(batch)
        try:
            for part in reversed(parts):
                queue.batches.insert(place, part)
                inserted += 1
        except BaseException:
            for _ in range(inserted):
                del queue.batches[place]
            raise
        queue.remove(batch)
        for part in parts:
            self.size += part.size
        self.size -= batch.size
        batch.parts = parts
        batch.builder = None
        batch.in_flight = False
        batch.done.set()
        return parts

    cdef tuple parts_of(self, ProducerBatch batch):
        """Returns new batches with the records of a batch."""
        cdef BatchBuilder source = batch.builder
        cdef const unsigned char* at = source.records
        cdef const unsigned char* end = source.records + source.records_size
        cdef Py_ssize_t limit = HEADER_BYTES + source.records_size // 2
        cdef RecordView record
        cdef ProducerBatch part = None
        cdef list parts = []
        while at < end:
            if parse_record(&at, end, &record) is not NULL:
                raise AssertionError("the builder of an open batch has encoded an invalid record")
            if part is None or not copy_record(part, source, &record):
                part = self.new_part(batch, limit, &record)
                parts.append(part)
        return tuple(parts)

    cdef ProducerBatch new_part(self, ProducerBatch batch, Py_ssize_t limit, RecordView* record):
        """Returns a part with its first record, even if the record alone exceeds the limit."""
        cdef BatchBuilder source = batch.builder
        cdef ProducerBatch part = ProducerBatch.__new__(ProducerBatch)
        cdef Py_ssize_t bound = RECORD_BYTES + (record.end - record.headers)
        bound += max(record.key_size, 0) + max(record.value_size, 0)
        part.builder = BatchBuilder(
            max(limit, HEADER_BYTES + bound),
            base_timestamp_ms=timestamp_of(source, record),
            compression=self.compression,
            compress=self.compress,
        )
        part.done = self.event_type()
        part.created_s = batch.created_s
        part.base_offset = part.log_time_ms = -1
        part.number = batch.number
        part.size = HEADER_BYTES
        if not copy_record(part, source, record):
            raise AssertionError("a new batch has room for its first record")
        part.builder.max_size_bytes = limit
        return part

    def clear(self):
        """Removes all batches, and returns them."""
        cdef list batches = []
        cdef PartitionQueue queue
        for queue in self.queues.values():
            batches += queue.batches
        self.queues = {}
        self.topics = {}
        self.size = 0
        return batches

    def append(self, topic, value, key, headers, partition, timestamp_ms):
        """Adds a record to the open batch of its partition.

        Args:
            topic: the topic's name.
            value, key: bytes, text or None.
            headers: names and values.
            partition: the partition number; None: the key selects the partition. Records without a key go to one
                partition until a batch is full.
            timestamp_ms: in ms since the epoch; None: now.

        Returns:
            The record's delivery. None: the record was not added. The topic or the partition is unknown, the buffer is
            full, the sending thread must run first, the producer is closed, or the caller runs on another event loop.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: the partition is negative.
            MemoryError: nothing was added.
        """
        cdef DeliveryBase delivery
        cdef TopicQueues queues
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        cdef bytes data = to_field(self, value), name = to_field(self, key)
        cdef int64_t now_ms = wall_ms(self.clock_ms) if timestamp_ms is None else timestamp_ms
        cdef Py_ssize_t bound
        cdef Py_ssize_t before
        cdef int number
        cdef bint fits
        if headers:
            bound = self.measure(name, data, headers)
            headers = exact(headers)
        else:
            bound = RECORD_BYTES
            if name is not None:
                bound += PyBytes_GET_SIZE(name)
            if data is not None:
                bound += PyBytes_GET_SIZE(data)
        if self.closed or self.size >= self.buffer_bytes or self.burst >= self.burst_bytes or self.is_foreign():
            return None
        found = self.topics.get(topic)
        if found is None:
            return None
        queues = <TopicQueues>found
        delivery = <DeliveryBase>self.delivery_type.tp_new(self.delivery_class, <PyObject*>NO_ARGUMENTS, NULL)
        number = self.choose(queues, name, bound) if partition is None else whole_number(partition)
        if number < 0:
            raise ValueError(f"partition {number} is negative")
        if number >= len(queues.queues):
            return None
        found = queues.queues[number]
        if found is None:
            found = self.add_queue(queues, topic, number)
        queue = <PartitionQueue>found
        batch = queue.open
        if batch is not None:
            before = batch.builder.records_size
            if headers:
                fits = batch.builder.append(now_ms, name, data, headers)
            else:
                fits = batch.builder.add(now_ms, name, data, NO_HEADERS, -1)
            if fits:
                self.count_record(queues, batch, delivery, queue, now_ms, batch.builder.records_size - before)
                return delivery
        if not self.begin(queues, queue, delivery, name, data, headers, now_ms, bound):
            return None
        self.on_batch()
        return delivery

    cdef bint is_foreign(self) except -1:
        """Returns True if the caller does not run on the event loop of the producer."""
        return self.loop is not None and self.running_loop() is not self.loop

    cdef bint begin(
        self, TopicQueues queues, PartitionQueue queue, DeliveryBase delivery, bytes key, bytes value, object headers,
        int64_t now_ms, Py_ssize_t bound,
    ) except -1:
        """Begins a batch with a record. The batch has room for the record even if that exceeds the limit.

        While this function creates the batch, another thread can run. If that thread begins a batch of the same
        partition, its batch precedes this one. If it closes the producer, the function returns False.
        """
        cdef ProducerBatch batch = ProducerBatch.__new__(ProducerBatch)
        batch.builder = BatchBuilder(
            max(self.batch_bytes, HEADER_BYTES + bound),
            base_timestamp_ms=now_ms,
            compression=self.compression,
            compress=self.compress,
        )
        batch.done = self.event_type()
        batch.created_s = self.monotonic()
        batch.base_offset = batch.log_time_ms = batch.number = -1
        batch.size = HEADER_BYTES
        if not batch.builder.append(now_ms, key, value, headers):
            raise AssertionError("a new batch has room for its first record")
        batch.builder.max_size_bytes = self.batch_bytes  # the limit for the records after the first
        if self.closed:
            return False
        queue.batches.append(batch)
        queue.open = batch
        self.size += HEADER_BYTES
        self.count_record(queues, batch, delivery, queue, now_ms, batch.builder.records_size)
        return True

    cdef void count_record(
        self, TopicQueues queues, ProducerBatch batch, DeliveryBase delivery, PartitionQueue queue, int64_t now_ms,
        Py_ssize_t size,
    ) noexcept:
        """Completes the delivery of a record that was encoded, and adds its size to the totals."""
        delivery.own = batch
        delivery.partition = queue.partition
        delivery.index = batch.count
        delivery.given_ms = now_ms
        batch.count += 1
        batch.size += size
        queues.filled += size
        self.size += size
        self.burst += size

    cdef int choose(self, TopicQueues queues, bytes key, Py_ssize_t bound) except -1:
        """Returns the partition of a record."""
        cdef int partitions = <int>len(queues.queues)
        if key is not None:
            return partition_of_key(key, partitions)
        if queues.sticky < 0 or queues.filled + bound > self.batch_bytes:
            queues.sticky = randrange(partitions)
            queues.filled = 0
        return queues.sticky

    cdef PartitionQueue add_queue(self, TopicQueues queues, object topic, int number):
        """Adds the queue of a partition, unless another thread has added it in the meantime."""
        partition = self.partition_type(topic, number)
        cdef PartitionQueue queue = self.queues.setdefault(partition, PartitionQueue(partition))
        queues.queues[number] = queue
        return queue


cdef inline int64_t timestamp_of(BatchBuilder source, RecordView* record) noexcept:
    return <int64_t>(<uint64_t>source.base_timestamp_ms + <uint64_t>record.timestamp_delta)


cdef bint copy_record(ProducerBatch part, BatchBuilder source, RecordView* record) except -1:
    """Adds a record of another batch; returns False if the part has no room for it."""
    cdef int prefix = varint_size(record.header_count)
    cdef Py_ssize_t size = record.end - record.headers
    cdef bytes key = None, value = None
    cdef bytes headers = PyBytes_FromStringAndSize(NULL, prefix + size)
    cdef unsigned char* at = put_varint(<unsigned char*>PyBytes_AS_STRING(headers), record.header_count)
    memcpy(at, record.headers, size)
    if record.key_size >= 0:
        key = PyBytes_FromStringAndSize(<const char*>record.key, record.key_size)
    if record.value_size >= 0:
        value = PyBytes_FromStringAndSize(<const char*>record.value, record.value_size)
    if not part.builder.add(timestamp_of(source, record), key, value, headers, -1):
        return False
    part.count += 1
    part.size = HEADER_BYTES + part.builder.records_size
    return True


cdef inline bytes to_field(Accumulator accumulator, object field):
    if field is None or type(field) is bytes:
        return <bytes>field
    if isinstance(field, str):
        return (<str>field).encode()
    return <bytes?>bytes(accumulator.to_bytes(field))


cdef list exact(object headers):
    """Copies headers whose types `measure` has checked, so that encoding them runs no code of the caller."""
    return [(str(name), None if value is None else bytes(value)) for name, value in headers]


cdef inline int64_t wall_ms(object clock_ms) except? -1:
    cdef timespec now
    if clock_ms is not None:
        return clock_ms()
    if clock_gettime(CLOCK_REALTIME, &now) != 0:
        raise OSError("the clock cannot be read")
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000
