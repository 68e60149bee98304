"""The compiled loops of a fetch: looks up partitions, reads them and groups their responses by topic.

A fetch reads one partition, or up to thousands of partitions of a session. `tests.reference.fetch_reader` is the
reference implementation. The reader passes uncommon cases (another leader epoch, an offset out of range, aborted
transactions) to the generic `kcore.broker.data.fetch.read`.

Most partitions of a session have no changes. The reader makes no response for them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kcore_ext.batch.layout cimport LENGTH_AT, LENGTH_OVERHEAD
from kcore_ext.log.partition cimport LogCore
from kcore_ext.codec.fields cimport FieldLayout, get
from kcore_ext.broker.partition cimport PartitionCore
from kcore_ext.broker.producers cimport any_aborted
from kcore_ext.util.byte_order cimport read_int32

cdef enum:                      # fields of a partition of a response
    PARTITION_INDEX = 0
    HIGH_WATERMARK = 1
    LAST_STABLE_OFFSET = 2
    LOG_START_OFFSET = 3
    ABORTED_TRANSACTIONS = 4
    RECORDS = 5

cdef enum:
    MAX_READS = 1_000           # of logs in one request; each takes up to 10 µs
    MAX_BATCHES = 15_000        # in one response; its last read may exceed this; each takes up to 1 µs
    MAX_ABORTED = 5_000         # aborted transactions in one response; its last partition may exceed this
    MAX_FAILURES = 2_000        # of reads in one response; each takes up to 10 µs
    MAX_NEWS = 10_000           # of partitions without records in a session's response; each takes about 1 µs

cdef enum:                      # fields of a topic of a response
    TOPIC = 0
    TOPIC_ID = 1
    PARTITIONS = 2

cdef bytes ZERO_UUID = bytes(16)


@cython.freelist(64)
cdef class FetchItem:
    """Documented in fetch_reader.pyi."""

    def __init__(self, topic, bytes topic_id not None, requested, partition=None, error=0):
        self.topic = topic
        self.topic_id = topic_id
        self.index = requested.partition
        self.set_request(requested)
        self.partition = partition
        self.error = error

    cpdef set_request(self, requested):
        self.current_leader_epoch = requested.current_leader_epoch
        self.fetch_offset = requested.fetch_offset
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.partition_max_bytes = requested.partition_max_bytes


@cython.final
cdef class SessionPartition(FetchItem):
    """Documented in fetch_reader.pyi."""

    def __init__(self, topic, bytes topic_id not None, requested, bint uses_topic_ids=False):
        FetchItem.__init__(self, topic, topic_id, requested)
        self.name = (topic_id if uses_topic_ids else topic or "", self.index)
        self.high_watermark = -1
        self.local_log_start_offset = -1

    @staticmethod
    def of(FetchItem item not None, bint uses_topic_ids):
        cdef SessionPartition member = SessionPartition.__new__(SessionPartition)
        member.topic = item.topic
        member.topic_id = item.topic_id
        member.index = item.index
        member.set_request(item)
        member.partition = item.partition
        member.error = item.error
        member.name = (item.topic_id if uses_topic_ids else item.topic or "", item.index)
        member.high_watermark = -1
        member.local_log_start_offset = -1
        return member

    cpdef bint update(self, data) except -1:
        cdef int64_t high_watermark = data.high_watermark
        cdef int64_t log_start = data.log_start_offset
        cdef bint news = bool(data.records) or data.diverging_epoch.epoch >= 0
        if self.high_watermark != high_watermark:
            news = True
            self.high_watermark = high_watermark
        if self.local_log_start_offset != log_start:
            news = True
            self.local_log_start_offset = log_start
        if data.error_code:
            # After an error, the next response must include the partition, even if its high watermark is unchanged.
            self.high_watermark = -1
            news = True
        return news


def update_members(dict members not None, topics, bint by_id, dict known not None, Py_ssize_t max_name_length):
    cdef SessionPartition member
    cdef bint legal = True
    cdef int64_t index
    for topic in topics:
        key = topic.topic_id if by_id else topic.topic
        found = known.get(key)
        partitions = () if found is None else found.partitions
        if by_id:
            topic_name = None if found is None else found.name
        else:
            topic_name = key
        for requested in topic.partitions:
            index = requested.partition
            name = (key, index)
            member = members.get(name)
            if member is not None:
                member.set_request(requested)
                continue
            legal = legal and len(key) <= max_name_length
            member = SessionPartition.__new__(SessionPartition)
            member.topic = topic_name
            member.topic_id = topic.topic_id
            member.index = index
            member.set_request(requested)
            if 0 <= index < len(partitions):
                member.partition = partitions[index]
            member.error = 0
            member.name = name
            member.high_watermark = -1
            member.local_log_start_offset = -1
            members[name] = member
    return legal


@cython.final
@cython.freelist(64)
cdef class FetchParams:
    """Documented in fetch_reader.pyi."""

    def __init__(
        self, int version, bint read_committed, int64_t max_bytes, int64_t min_bytes, int64_t max_wait_ms, int node_id
    ):
        self.version = version
        self.read_committed = read_committed
        self.max_bytes = max_bytes
        self.min_bytes = min(min_bytes, max_bytes)
        self.max_wait_ms = max_wait_ms
        self.node_id = node_id


@cython.final
@cython.freelist(64)
cdef class Reading:
    """Documented in fetch_reader.pyi."""

    def __init__(self):
        raise TypeError("a Reading is made by FetchReader.read")

    cdef bint is_long(self) noexcept:
        """Returns True if the request has reached a limit. The remaining partitions then have no records in this
        response.
        """
        return self.reads >= MAX_READS or self.batches >= MAX_BATCHES or self.aborted >= MAX_ABORTED

    @property
    def long(self):
        return self.is_long()


@cython.final
cdef class FetchReader:
    """Documented in fetch_reader.pyi."""

    def __init__(self, *, read, refused, partition_data, topic_response, errors):
        self._read = read
        self._refused = refused
        self._none = errors.NONE
        self._unknown_id = errors.UNKNOWN_TOPIC_ID
        self._unknown_partition = errors.UNKNOWN_TOPIC_OR_PARTITION
        self._denied = errors.TOPIC_AUTHORIZATION_FAILED
        self._data = FieldLayout(partition_data, {
            PARTITION_INDEX: "partition_index",
            HIGH_WATERMARK: "high_watermark",
            LAST_STABLE_OFFSET: "last_stable_offset",
            LOG_START_OFFSET: "log_start_offset",
            ABORTED_TRANSACTIONS: "aborted_transactions",
            RECORDS: "records",
        })
        self._topic = FieldLayout(topic_response, {TOPIC: "topic", TOPIC_ID: "topic_id", PARTITIONS: "partitions"})

    # ---- partitions of the request

    def requested(self, topics, bint by_id, dict known not None, may_read):
        cdef list items = []
        cdef FetchItem item
        cdef bytes topic_id
        for topic in topics:
            if by_id:
                topic_id = topic.topic_id
                found = known.get(topic_id)
                name = None if found is None else found.name
            else:
                topic_id = ZERO_UUID
                name = topic.topic
                found = known.get(name)
            error = self._unknown_id if name is None else self._none
            if name is not None and may_read is not None and not may_read(name):
                error, found = self._denied, None
            partitions = () if found is None else found.partitions
            for requested in topic.partitions:
                item = FetchItem.__new__(FetchItem)
                item.topic = name
                item.topic_id = topic_id
                item.index = requested.partition
                item.current_leader_epoch = requested.current_leader_epoch
                item.fetch_offset = requested.fetch_offset
                item.last_fetched_epoch = requested.last_fetched_epoch
                item.partition_max_bytes = requested.partition_max_bytes
                item.error = error
                if 0 <= item.index < len(partitions):
                    item.partition = partitions[item.index]
                elif error is self._none:
                    item.error = self._unknown_partition
                items.append(item)
        return items

    def current(self, members, find, may_read):
        cdef list items = list(members)
        cdef SessionPartition member
        cdef object topic = None
        cdef bint readable = True
        for member in items:
            if member.partition is None or member.partition.closed:
                find(member)
            if may_read is not None and member.topic is not None:
                if member.topic is not topic:
                    topic = member.topic
                    readable = may_read(topic)
                if not readable:
                    member.partition, member.error = None, self._denied
        return items

    # ---- reading

    def read(self, list items not None, FetchParams params not None, bint sparse):
        cdef Reading reading = Reading.__new__(Reading)
        cdef FetchItem item
        reading.results = results = []
        for item in items:
            if item.partition is None:
                reading.failed = True
                results.append(self._refused(item.index, item.error))
            else:
                results.append(self._read_generic(
                    item, params, params.max_bytes - reading.size_bytes, not reading.size_bytes, sparse, reading
                ))
        return reading

    cdef object _read_generic(self, FetchItem item, FetchParams params, int64_t budget, bint first, bint sparse,
                            Reading reading):
        """Returns the response of one partition; None if the session's client already has the partition's state."""
        cdef PartitionCore partition = <PartitionCore?>item.partition
        cdef object log = partition.log
        cdef object index, high_watermark, stable, log_start, records, aborted
        cdef int64_t committed = partition.high_watermark
        cdef int64_t limit = partition.last_stable_offset if params.read_committed else committed
        cdef int64_t offset = item.fetch_offset
        cdef int64_t start, end, most
        cdef bint deferred
        cdef PyObject* values[6]
        if isinstance(log, LogCore):
            start, end = (<LogCore>log).log_start_offset, (<LogCore>log).end_offset
        else:
            start, end = log.log_start_offset, log.end_offset
        if end != committed:
            reading.dirty = True
        if partition.recovering or partition.closed or (
            params.read_committed
            and offset < limit
            and any_aborted(partition.producers)
            and not (reading.is_long() and not first)   # no records: no aborted transactions either
        ):
            return self._read_in_full(item, params, budget, first, reading)
        deferred = False
        if (
            item.last_fetched_epoch >= 0
            or offset < start
            or offset > end
            or (item.current_leader_epoch >= 0 and item.current_leader_epoch != partition.leader_epoch)
        ):
            if reading.failures < MAX_FAILURES:
                return self._read_in_full(item, params, budget, first, reading)
            if sparse:
                return None
            deferred = True  # like a partition that the response's size limit excludes
        records = b""
        aborted = () if params.read_committed else None
        if offset < limit and not deferred:
            most = min(item.partition_max_bytes, budget)
            if first or (most > 0 and not reading.is_long()):
                batches = log.read(offset, most, limit, first)
                reading.reads += 1
                if batches:
                    reading.batches += len(batches)
                    records = batches[0] if len(batches) == 1 else b"".join(batches)
                    reading.size_bytes += len(records)
                else:
                    aborted = None  # as in Kafka, which looks for no aborted transactions if no batch fits
        if sparse and not records:
            if reading.news >= MAX_NEWS or _client_knows(<SessionPartition>item, committed, start):
                return None
            reading.news += 1
        index = item.index
        high_watermark = committed
        stable = partition.last_stable_offset
        log_start = start
        values[PARTITION_INDEX] = <PyObject*>index
        values[HIGH_WATERMARK] = <PyObject*>high_watermark
        values[LAST_STABLE_OFFSET] = <PyObject*>stable
        values[LOG_START_OFFSET] = <PyObject*>log_start
        values[ABORTED_TRANSACTIONS] = <PyObject*>aborted
        values[RECORDS] = <PyObject*>records
        return self._data.make(values)

    def _read_in_full(self, FetchItem item, FetchParams params, int64_t budget, bint first, Reading reading):
        data = self._read(item.partition, item, params, 0 if reading.is_long() else budget, first)
        records = data.records
        reading.reads += 1
        if records:
            reading.size_bytes += len(records)
            reading.batches += count_batches(<bytes?>records)
            if data.aborted_transactions is not None:
                reading.aborted += len(data.aborted_transactions)
        elif data.error_code or (item.last_fetched_epoch >= 0 and data.diverging_epoch.epoch >= 0):
            reading.failed = True
            reading.failures += 1
        return data

    def pending_appends(self, list items not None, bint include_all):
        cdef list found = []
        cdef FetchItem item
        for item in items:
            partition = item.partition
            if partition is not None and (
                partition.unacknowledged_end > partition.high_watermark or (include_all and partition.dirty)
            ):
                found.append((partition, partition.log.end_offset))
        return found

    def idle(self, list items not None, FetchParams params not None):
        cdef FetchItem item
        cdef PartitionCore partition
        cdef int64_t offset
        for item in items:
            if item.partition is None:
                return False
            partition = <PartitionCore?>item.partition
            offset = item.fetch_offset
            if item.last_fetched_epoch >= 0 or partition.closed or partition.recovering:
                return False
            if item.current_leader_epoch >= 0 and item.current_leader_epoch != partition.leader_epoch:
                return False
            if offset < <int64_t>partition.log.log_start_offset or offset > <int64_t>partition.log.end_offset:
                return False
            if offset < (partition.last_stable_offset if params.read_committed else partition.high_watermark):
                return False
        return True

    # ---- responses

    def news(self, list items not None, list results not None, dict members not None):
        cdef SessionPartition member
        cdef Py_ssize_t i
        for i in range(len(items)):
            data = results[i]
            if data is None:
                continue
            member = items[i]
            if not member.update(data):
                results[i] = None
            elif data.records:
                del members[member.name]
                members[member.name] = member
        return self.by_topic(items, results)

    def by_topic(self, list items not None, list results not None):
        cdef list responses = []
        cdef list data = None
        cdef FetchItem item
        cdef FetchItem last = None
        cdef Py_ssize_t i
        cdef PyObject* values[3]
        cdef PyObject* records
        for i in range(len(items)):
            partition = results[i]
            if partition is None:
                continue
            item = items[i]
            records = get(<PyObject*>partition, self._data, RECORDS)
            if records is not NULL and PyBytes_CheckExact(<object>records) and item.partition is not None:
                (<PartitionCore>item.partition).traffic.sent(
                    <const unsigned char*>PyBytes_AS_STRING(<object>records), PyBytes_GET_SIZE(<object>records)
                )
            if last is None or not _same_topic(last, item):
                data = []
                name = item.topic or ""
                values[TOPIC] = <PyObject*>name
                values[TOPIC_ID] = <PyObject*>item.topic_id
                values[PARTITIONS] = <PyObject*>data
                responses.append(self._topic.make(values))
            last = item
            data.append(partition)
        return responses


cdef Py_ssize_t count_batches(bytes records):
    """Returns the number of record batches in a partition's response."""
    cdef const unsigned char* start = <const unsigned char*>PyBytes_AS_STRING(records)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(records), at = 0, count = 0
    cdef int32_t length
    while at + LENGTH_OVERHEAD <= size:
        length = read_int32(start + at + LENGTH_AT)
        if length < 0:
            break
        at += LENGTH_OVERHEAD + length
        count += 1
    return count


cdef inline bint _client_knows(SessionPartition item, int64_t high_watermark, int64_t log_start) noexcept:
    """Returns True if the session's client has these offsets from an earlier response.

    If False, the partition gets a response, and `update` stores the offsets.
    """
    return item.high_watermark == high_watermark and item.local_log_start_offset == log_start


cdef inline bint _same_topic(FetchItem one, FetchItem other) except -1:
    return (one.topic is other.topic or one.topic == other.topic) and (
        one.topic_id is other.topic_id or one.topic_id == other.topic_id
    )
