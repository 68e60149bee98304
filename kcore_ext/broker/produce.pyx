"""Fast path of Produce: checks each batch in one pass, appends all batches and makes the response.

Nearly every request of a healthy producer takes this path. All checks come before the first append, so a request that
fails a check goes to the generic path without a change of state. The headers of all batches and their producers are
checked before the records of any batch. So a transaction that must be verified first goes to the generic path at once,
and only that path reads its records. The generic path in `kcore.broker.apis.produce` defines the checks and their
errors.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from kcore_ext.batch.layout cimport (
    ATTRIBUTES_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    CHECKED_FROM,
    CODEC_BITS,
    CONTROL_BIT,
    COUNT_AT,
    CRC_AT,
    HEADER_BYTES,
    LAST_DELTA_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
)
from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64
from kcore_ext.batch.records cimport RecordView, parse_record
from kcore_ext.runtime.clock cimport Now
from kcore_ext.batch.crc32c cimport crc32c_of
from kcore_ext.runtime.outcome cimport Pending
from kcore_ext.log.partition cimport LogCore
from kcore_ext.codec.fields cimport FieldLayout, get, item_of, length_of, type_of
from kcore_ext.broker.partition cimport PartitionCore
from kcore_ext.broker.producers cimport ProducersCore
from kcore_ext.runtime.shard cimport PipelineCore

from kcore_ext.batch import CorruptBatchError
from kcore_ext.batch.survey import survey

cdef extern from "Python.h":
    bint PyLong_CheckExact(object) noexcept
    bint PyUnicode_CheckExact(object) noexcept
    long PyLong_AsLongAndOverflow(object, int*) except? -1

cdef enum:
    SMALLEST_RECORD = 7             # seven one-byte fields
    ZSTD = 4
    FIRST_VERSION_WITH_ZSTD = 7
    FIRST_VERSION_WITH_TOPIC_IDS = 13
    FIRST_VERSION = 3
    NO_TIMESTAMP = -1
    # A longer request goes to the generic path, which appends in slices:
    FAST_BATCHES = 512
    FAST_BYTES = 4_194_304
    FAST_DECOMPRESSED_BYTES = 2_097_152     # longer batches are decompressed in slices

cdef enum:                          # fields of a request
    TOPIC_DATA = 0
    ACKS = 1
    TRANSACTIONAL_ID = 2

cdef enum:                          # field of a response
    RESPONSES = 0

cdef enum:                          # fields of a topic, in requests and responses
    NAME = 0
    TOPIC_ID = 1
    PARTITION_DATA = 2              # of a request
    PARTITION_RESPONSES = 2         # of a response

cdef enum:                          # fields of a partition, in requests and responses
    INDEX = 0
    RECORDS = 1                     # of a request
    BASE_OFFSET = 1                 # of a response
    LOG_START_OFFSET = 2            # of a response

cdef int64_t LATEST = 0x7FFFFFFFFFFFFFFF


cdef struct Survey:
    int64_t earliest_ms
    int64_t latest_ms
    int32_t keyless


@cython.final
cdef class AppendLimits:
    """Documented in produce.pyi."""

    def __cinit__(
        self,
        Py_ssize_t max_bytes,
        int64_t before_max_ms,
        int64_t after_max_ms,
        int codec,
        bint needs_keys,
        bint create_time,
    ):
        self.max_bytes = max_bytes
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.codec = codec
        self.needs_keys = needs_keys
        self.create_time = create_time


@cython.final
@cython.no_gc
@cython.freelist(4)
cdef class Batches:
    """The batches of one request; owns references to their partitions."""

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            Py_XDECREF(self.items[i].partition)
        PyMem_Free(self.items)

    cdef Batch* add(self) except NULL:
        """Adds an uninitialized batch and returns it."""
        cdef Batch* items
        cdef Py_ssize_t room
        if self.count == self.room:
            room = 2 * self.room + 4
            items = <Batch*>PyMem_Realloc(self.items, room * sizeof(Batch))
            if items is NULL:
                raise MemoryError
            self.items = items
            self.room = room
        self.items[self.count].partition = NULL
        self.count += 1
        return &self.items[self.count - 1]


cdef bint walk(const unsigned char* batch, Py_ssize_t size, Survey* survey) noexcept nogil:
    """Parses every record of an uncompressed batch with create times. Returns False for an invalid record, or if the
    offset deltas are not 0, 1, 2, ...
    """
    cdef const unsigned char* at = batch + HEADER_BYTES
    cdef const unsigned char* end = batch + size
    cdef int64_t base_timestamp_ms = read_int64(batch + BASE_TIMESTAMP_AT)
    cdef int64_t timestamp_ms
    cdef int32_t count = read_int32(batch + COUNT_AT)
    cdef int32_t number
    cdef RecordView record
    survey.earliest_ms = LATEST
    survey.latest_ms = NO_TIMESTAMP
    survey.keyless = 0
    if count < 0 or count > (end - at) // SMALLEST_RECORD:
        return False
    for number in range(count):
        if parse_record(&at, end, &record) is not NULL or record.offset_delta != number:
            return False
        timestamp_ms = <int64_t>(<uint64_t>base_timestamp_ms + <uint64_t>record.timestamp_delta)
        if timestamp_ms > survey.latest_ms:
            survey.latest_ms = timestamp_ms
        if timestamp_ms < survey.earliest_ms and timestamp_ms != NO_TIMESTAMP:
            survey.earliest_ms = timestamp_ms
        survey.keyless += record.key_size < 0
    return at is end


cdef class ProduceFastPath:
    """Documented in produce.pyi."""

    def __init__(
        self,
        api not None,
        *,
        dict names not None,
        dict ids not None,
        PipelineCore pipeline not None,
        Now now not None,
        allowed,
        str forbidden not None,
        decompress,
    ):
        self._api = api
        self._names = names
        self._ids = ids
        self._pipeline = pipeline
        self._now = now
        self._allowed = allowed
        self._forbidden = forbidden
        self._decompress = decompress
        self._request = FieldLayout(
            api.request_type, {TOPIC_DATA: "topic_data", ACKS: "acks", TRANSACTIONAL_ID: "transactional_id"}
        )
        self._topic = self._request.part(
            "topic_data", {NAME: "name", TOPIC_ID: "topic_id", PARTITION_DATA: "partition_data"}
        )
        self._data = self._topic.part("partition_data", {INDEX: "index", RECORDS: "records"})
        self._response = FieldLayout(api.response_type, {RESPONSES: "responses"})
        self._topic_response = self._response.part(
            "responses", {NAME: "name", TOPIC_ID: "topic_id", PARTITION_RESPONSES: "partition_responses"}
        )
        self._partition_response = self._topic_response.part(
            "partition_responses", {INDEX: "index", BASE_OFFSET: "base_offset", LOG_START_OFFSET: "log_start_offset"}
        )

    def serve(self, context, request):
        cdef Batches batches
        cdef int version
        cdef Py_ssize_t i
        if self.declines:
            return None
        version = context.api_version
        batches = Batches.__new__(Batches)
        self._decompress_left = FAST_DECOMPRESSED_BYTES
        if type_of(<PyObject*>request) is not self._request.type or version < FIRST_VERSION:
            return None
        if not self.collect(context, <PyObject*>request, version, batches):
            return None
        if not self.check_producers(batches, <PyObject*>request):
            return None
        for i in range(batches.count):
            if not self.check_records(&batches.items[i]):
                return None
        return self.append(context, request, batches)

    # ---- checks

    cdef bint collect(self, object context, PyObject* request, int version, Batches batches) except -1:
        """Checks everything except producers and records, and collects the batches."""
        cdef PyObject* topics = get(request, self._request, TOPIC_DATA)
        cdef PyObject* acks = get(request, self._request, ACKS)
        cdef PyObject* topic
        cdef PyObject* key
        cdef Py_ssize_t i
        cdef int overflow = 0
        cdef long requested_acks
        if acks is NULL or not PyLong_CheckExact(<object>acks) or length_of(topics) < 0:
            return False
        requested_acks = PyLong_AsLongAndOverflow(<object>acks, &overflow)
        if overflow or (requested_acks != -1 and requested_acks != 1):
            return False
        if length_of(topics) > FAST_BATCHES:
            return False  # before the permission of any topic is decided
        for i in range(length_of(topics)):
            topic = item_of(topics, i)
            if get(topic, self._topic, NAME) is NULL or get(topic, self._topic, TOPIC_ID) is NULL:
                return False
            if version >= FIRST_VERSION_WITH_TOPIC_IDS:
                key = get(topic, self._topic, TOPIC_ID)
                if not PyBytes_CheckExact(<object>key):
                    return False
                found = self._ids.get(<object>key)
            else:
                key = get(topic, self._topic, NAME)
                if not PyUnicode_CheckExact(<object>key):
                    return False
                found = self._names.get(<object>key)
            if found is None or found.internal or found.name == self._forbidden:
                return False
            if self._allowed is not None and not self._allowed(context, found.name):
                return False
            if not self.collect_topic(topic, i, found.partitions, version, batches):
                return False
        return batches.count > 0

    cdef bint collect_topic(
        self, PyObject* topic, Py_ssize_t place, object found, int version, Batches batches
    ) except -1:
        """Checks and collects the batches of one topic."""
        cdef PyObject* row = get(topic, self._topic, PARTITION_DATA)
        cdef PyObject* data
        cdef Py_ssize_t i
        cdef Batch* batch
        if length_of(row) <= 0:
            return False
        for i in range(length_of(row)):
            data = item_of(row, i)
            if type_of(data) is not self._data.type:
                return False
            batch = batches.add()
            batch.topic = topic
            batch.place = place
            batch.index = get(data, self._data, INDEX)
            batch.records = get(data, self._data, RECORDS)
            if not self.find_partition(batch, found):
                return False
            if not self.check_header(batch, (<PartitionCore>batch.partition).config.limits, version):
                return False
            batches.size_bytes += PyBytes_GET_SIZE(<object>batch.records)
            if batches.count > FAST_BATCHES or batches.size_bytes > FAST_BYTES:
                return False
        return True

    cdef bint find_partition(self, Batch* batch, object found) except -1:
        """Sets the batch's partition. Returns False if it does not exist or does not accept batches now."""
        cdef list partitions = found
        cdef PartitionCore partition
        cdef int overflow = 0
        cdef long index
        if batch.index is NULL or not PyLong_CheckExact(<object>batch.index):
            return False
        index = PyLong_AsLongAndOverflow(<object>batch.index, &overflow)
        if overflow or not 0 <= index < len(partitions):
            return False
        partition = <PartitionCore?>partitions[index]
        Py_INCREF(partition)
        batch.partition = <PyObject*>partition
        return not partition.recovering and not partition.closed

    cdef bint check_header(self, Batch* batch, AppendLimits limits, int version) except -1:
        """Checks the header of a batch, without regard to its producer."""
        cdef const unsigned char* at
        cdef Py_ssize_t size
        cdef int attributes, codec
        if batch.records is NULL or not PyBytes_CheckExact(<object>batch.records):
            return False
        at = <const unsigned char*>PyBytes_AS_STRING(<object>batch.records)
        size = PyBytes_GET_SIZE(<object>batch.records)
        if size < HEADER_BYTES or size > limits.max_bytes or not limits.create_time:
            return False
        if read_int64(at) != 0 or read_int32(at + LENGTH_AT) != size - LENGTH_OVERHEAD or at[MAGIC_AT] != 2:
            return False
        attributes = read_int16(at + ATTRIBUTES_AT)
        codec = attributes & CODEC_BITS
        batch.last_delta = read_int32(at + LAST_DELTA_AT)
        batch.max_timestamp_ms = read_int64(at + MAX_TIMESTAMP_AT)
        batch.producer_id = read_int64(at + PRODUCER_ID_AT)
        batch.producer_epoch = read_int16(at + PRODUCER_EPOCH_AT)
        batch.base_sequence = read_int32(at + BASE_SEQUENCE_AT)
        batch.codec = codec
        batch.transactional = (attributes & TRANSACTIONAL_BIT) != 0
        return not (
            attributes & (CONTROL_BIT | LOG_APPEND_TIME_BIT)
            or (codec == ZSTD and version < FIRST_VERSION_WITH_ZSTD)
            or (limits.codec >= 0 and codec != limits.codec)
            or batch.last_delta < 0
            or <int64_t>batch.last_delta + 1 != read_int32(at + COUNT_AT)
            or (batch.producer_id >= 0 and batch.base_sequence < 0)
        )

    def _decompress_bounded(self, codec, data, Py_ssize_t max_size_bytes):
        """Decompresses records; a request may decompress at most `FAST_DECOMPRESSED_BYTES` here."""
        records = self._decompress(codec, data, min(max_size_bytes, self._decompress_left))
        self._decompress_left -= len(records)
        return records

    cdef bint check_records(self, Batch* batch) except -1:
        """Returns True if the CRC and the records of a batch are valid, so that the batch can be appended unchanged."""
        cdef const unsigned char* at = <const unsigned char*>PyBytes_AS_STRING(<object>batch.records)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(<object>batch.records)
        cdef AppendLimits limits = (<PartitionCore>batch.partition).config.limits
        cdef int64_t wall_ms = self._now.wall_ms
        cdef Survey found
        if batch.codec:
            try:
                found.earliest_ms, found.latest_ms, found.keyless, consecutive = survey(
                    <object>batch.records, decompress=self._decompress_bounded
                )
            except CorruptBatchError:
                consecutive = False
            if not consecutive:
                return False
        elif crc32c_of(at + CHECKED_FROM, size - CHECKED_FROM, 0) != <uint32_t>read_int32(at + CRC_AT):
            return False
        elif not walk(at, size, &found):
            return False
        return (
            wall_ms >= 0
            and limits.before_max_ms >= 0
            and found.earliest_ms >= wall_ms - limits.before_max_ms
            and found.latest_ms - wall_ms <= limits.after_max_ms
            and found.latest_ms == batch.max_timestamp_ms
            and not (found.keyless and limits.needs_keys)
        )

    cdef bint check_producers(self, Batches batches, PyObject* request) except -1:
        """Checks that each batch of a producer has the producer's next sequence, and that all transactional batches
        have the same producer.
        """
        cdef PyObject* transactional_id = NULL
        cdef ProducersCore producers
        cdef Batch* batch
        cdef Batch* first = NULL
        cdef object owner = None
        cdef Py_ssize_t i
        self._round += 1
        for i in range(batches.count):
            batch = &batches.items[i]
            if batch.transactional:
                transactional_id = get(request, self._request, TRANSACTIONAL_ID)
                if (
                    batch.producer_id < 0
                    or self._allowed is not None  # the transactional id needs its own authorization
                    or transactional_id is NULL
                    or not PyUnicode_CheckExact(<object>transactional_id)
                ):
                    return False
                if first is NULL:
                    first = batch
                elif batch.producer_id != first.producer_id or batch.producer_epoch != first.producer_epoch:
                    return False
            if batch.producer_id < 0:
                continue
            producers = (<PartitionCore>batch.partition).producers
            if producers.looked_at == self._round:
                return False  # a second batch for the partition cannot be checked before the first is appended
            producers.looked_at = self._round
            owner = <object>transactional_id if batch.transactional else None
            if not producers.follows(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional, owner
            ):
                return False
        return True

    # ---- appends

    cdef object append(self, object context, object request, Batches batches):
        """Appends all batches and returns the response, which waits for the commit."""
        cdef Pending pending
        cdef PyObject* values[3]
        cdef PyObject* topic
        cdef list topics = []
        cdef list partition_responses = None
        cdef Py_ssize_t i, place = -1
        cdef bint failed = False
        values[RESPONSES] = <PyObject*>topics
        response = self._response.make(values)
        for i in range(batches.count):
            if batches.items[i].place != place:
                place = batches.items[i].place
                topic = batches.items[i].topic
                partition_responses = []
                values[NAME] = get(topic, self._topic, NAME)
                values[TOPIC_ID] = get(topic, self._topic, TOPIC_ID)
                values[PARTITION_RESPONSES] = <PyObject*>partition_responses
                topics.append(self._topic_response.make(values))
            try:
                result = self.append_one(&batches.items[i])
            except Exception as error:
                result = self._api.append_failed(
                    context, <object>batches.items[i].partition, <object>batches.items[i].index, error
                )
                failed = True
            partition_responses.append(result)
        if failed:
            return self._api.respond(
                context, request, response, True, [<object>batches.items[i].partition for i in range(batches.count)]
            )
        pending = Pending.__new__(Pending)
        pending.api = self._api
        pending.context = context
        pending._request = request
        PipelineCore.respond_after_commit(self._pipeline, pending, response)
        return pending

    cdef object append_one(self, Batch* batch):
        """Appends a batch and makes its response."""
        cdef PyObject* values[3]
        cdef PartitionCore partition = <PartitionCore>batch.partition
        cdef int64_t base_offset = partition.take(
            <object>batch.records,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_delta,
            batch.max_timestamp_ms,
            batch.transactional,
        )
        cdef object offset = base_offset, log_start_offset
        if isinstance(partition.log, LogCore):
            log_start_offset = (<LogCore>partition.log).log_start_offset
        else:
            log_start_offset = partition.log.log_start_offset
        values[INDEX] = batch.index
        values[BASE_OFFSET] = <PyObject*>offset
        values[LOG_START_OFFSET] = <PyObject*>log_start_offset
        return self._partition_response.make(values)
