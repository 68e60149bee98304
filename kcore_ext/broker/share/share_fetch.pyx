"""Fast path of ShareFetch: requests of an open session whose acknowledgements are valid.

`kcore.broker.apis.share_fetch` serves every request. The fast path declines (returns None) every request that is not
the common case, before any change. It declines requests that open, change or end a session, renewals, and requests with
a refused or unloaded partition. After the acknowledgements are durable, the generic path continues a request that must
wait for records, or that meets an error. A test compares both paths.

Each acknowledgement becomes one record of this node's share coordinator, without requests and responses between leader
and coordinator. All records of a round have the same commit.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kcore_ext.broker.partition cimport PartitionCore
from kcore_ext.broker.share.acknowledgements cimport count, valid
from kcore_ext.broker.share.changes cimport Change
from kcore_ext.broker.share.share_partition cimport Delivery, SharePartitionCore
from kcore_ext.codec.fields cimport FieldLayout, read, type_of
from kcore_ext.runtime.outcome cimport Pending
from kcore_ext.runtime.shard cimport ShardCore

from kcore.errors import LogError

cdef enum:
    FAST_PARTITIONS = 1_000     # of a session and a request together; more go to the generic path
    MAX_DISCARDED = 8 << 20     # maximum `examined_bytes` of a request that are not part of its response
    RECORD_LIMIT = 1            # the acquire mode in which the number of records is exact
    MAX_EPOCH = 0x7FFFFFFF      # of a session
    RESERVE_THRESHOLD_BYTES = 16_384    # longer responses count as memory as soon as they are made
    KAFKA_STORAGE_ERROR = 56

cdef enum:                      # fields of a request
    GROUP_ID = 0
    MEMBER_ID = 1
    EPOCH = 2
    MAX_WAIT_MS = 3
    MIN_BYTES = 4
    MAX_BYTES = 5
    MAX_RECORDS = 6
    BATCH_SIZE = 7
    ACQUIRE_MODE = 8
    IS_RENEW_ACK = 9
    TOPICS = 10
    FORGOTTEN = 11

cdef enum:                      # fields of a topic, and of a partition, of a request
    TOPIC_ID = 0
    PARTITIONS = 1
    PARTITION_INDEX = 0
    BATCHES = 1

cdef enum:                      # fields of a response and of its partitions; its topics are as in a request
    LOCK_TIMEOUT_MS = 0
    RESPONSES = 1
    DATA_INDEX = 0
    DATA_ERROR = 1
    DATA_ACKNOWLEDGE_ERROR = 2
    DATA_ACKNOWLEDGE_MESSAGE = 3
    DATA_RECORDS = 4
    DATA_ACQUIRED = 5
    RANGE_FIRST = 0
    RANGE_LAST = 1
    RANGE_COUNT = 2


cdef class SessionCore:
    """Documented in share_fetch.pyi."""

    def advance(self):
        self.move()

    cdef int move(self) except -1:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        return 0


@cython.final
@cython.freelist(64)
cdef class ShareFetchPending(Pending):
    """Documented in share_fetch.pyi."""

    def __init__(self, api, context, request):
        self.api = api
        self.context = context
        self._request = request
        self.parked = True

    def abandon(self):
        self.callback = None
        self.gone = True
        operation, self.operation = self.operation, None
        if operation is not None:
            operation.forget()


cdef ShareFetchPending share_fetch_pending(object api, object context, object request):
    cdef ShareFetchPending pending = ShareFetchPending.__new__(ShareFetchPending)
    pending.api = api
    pending.context = context
    pending._request = request
    pending.parked = True
    return pending


@cython.final
@cython.freelist(64)
cdef class FetchRun:
    """One request: its acknowledgements, then its fetch."""

    cdef int arrived(self) except -1:
        """Counts an acknowledgement that is durable or refused. After the last one, begins the fetch."""
        self.outstanding -= 1
        if self.outstanding:
            return 0
        response = None
        if not self.pending.gone:
            try:
                response = self.path.respond(self)
            except Exception as error:
                response = self.path._failure
                try:
                    self.path._api.fetch_failed(self.context, error)
                except Exception:
                    pass  # no memory for the call: completing the response is more important
        # The list refers to this object. Without this statement, only the garbage collector would free the two.
        self.acknowledged = None
        if response is not None and response is not self.pending and not self.pending.done:
            self.pending.complete(response)
        return 0


@cython.final
@cython.freelist(64)
cdef class Acknowledgement:
    """The acknowledgements of one partition in a request.

    An exception leaves `RunList.interrupted` set, so that the next request reloads the share partition.
    """

    def __call__(self, error):
        """Receives the result of a write by the generic path."""
        self.waits = False
        self.error = error
        self.run.arrived()

    def __del__(self):
        # An exception has interrupted a callback, so no result arrives. Without the following call, the client would
        # wait forever.
        if self.waits:
            self(self.run.path._codes.UNKNOWN_SERVER_ERROR)

    cdef int begin(self) except -1:
        """Changes the delivery state, and writes the change."""
        cdef SharePartitionCore share_partition = self.share_partition
        try:
            share_partition.interrupted = True
            self.write()
            share_partition.interrupted = False
        except Exception as error:
            self.error = self.run.path._codes.UNKNOWN_SERVER_ERROR
            if self.waits:
                self.waits = False
                self.run.outstanding -= 1
            share_partition._drop_after(error)
        return 0

    cdef int write(self) except -1:
        cdef SharePartitionCore share_partition = self.share_partition
        cdef FetchRun run = self.run
        cdef Pending written
        settings = run.settings
        change = share_partition.begin(
            run.member_id, self.batches, share_partition._wheel,
            share_partition._now.now_ms + <int64_t>settings.lock_ms, settings.max_deliveries, settings.allow_renew,
        )
        if type(change) is not Change:
            self.error = run.path._codes(change)
            return 0
        self.change = <Change>change
        count(self.batches, share_partition._counters.acknowledgements)
        if not PyList_GET_SIZE(self.change.state_batches):
            return 0
        written = share_partition.writer.append(
            self.shard, share_partition.start_offset, share_partition.complete_count, self.change.state_batches
        )
        if written is None:
            run.outstanding += 1
            self.waits = True
            share_partition.write_again(change, self)
        else:
            written.tell(self, write_arrived)
            run.outstanding += 1
            self.waits = True
        return 0

    cdef int written(self, object code) except -1:
        """Ends the change with the result of its write. The generic path repeats a failed write."""
        cdef SharePartitionCore share_partition = self.share_partition
        cdef int news = 0
        cdef bint repeated = False
        try:
            if code:
                share_partition.interrupted = True
                share_partition.write_again(self.change, self)
                share_partition.interrupted = False
                repeated = True
            else:
                news = share_partition.end(self.change, True, self.run.settings.max_deliveries)
        except Exception as error:
            if code:
                self.error = self.run.path._codes.UNKNOWN_SERVER_ERROR
            share_partition._drop_after(error)
        if not repeated:
            self.waits = False
            self.run.arrived()
        if news:
            share_partition._purgatory.complete_watched(share_partition)
        return 0


cdef object write_arrived(object acknowledgement, object code):
    (<Acknowledgement>acknowledgement).written(code)


cdef class ShareFetchFastPath:
    """Documented in share_fetch.pyi."""

    def __init__(
        self, api, share_partitions, room, authorizer, permissions, *, active, codes, failure
    ):
        self._api = api
        self._sessions = share_partitions.sessions.by_key
        self._groups = share_partitions.by_group
        self._settings = share_partitions.cached_settings
        self._ids = share_partitions.partitions.ids
        self._room = room
        self._authorizer = authorizer
        self._read, self._group_resource, self._topic_resource = permissions
        self._active = active
        self._codes = codes
        self._failure = failure
        self._request = FieldLayout(api.request_type, {
            GROUP_ID: "group_id", MEMBER_ID: "member_id", EPOCH: "share_session_epoch", MAX_WAIT_MS: "max_wait_ms",
            MIN_BYTES: "min_bytes", MAX_BYTES: "max_bytes", MAX_RECORDS: "max_records", BATCH_SIZE: "batch_size",
            ACQUIRE_MODE: "share_acquire_mode", IS_RENEW_ACK: "is_renew_ack", TOPICS: "topics",
            FORGOTTEN: "forgotten_topics_data",
        })
        self._topic = self._request.part("topics", {TOPIC_ID: "topic_id", PARTITIONS: "partitions"})
        self._partition = self._topic.part(
            "partitions", {PARTITION_INDEX: "partition_index", BATCHES: "acknowledgement_batches"}
        )
        self._response = FieldLayout(
            api.response_type, {LOCK_TIMEOUT_MS: "acquisition_lock_timeout_ms", RESPONSES: "responses"}
        )
        self._topic_response = self._response.part("responses", {TOPIC_ID: "topic_id", PARTITIONS: "partitions"})
        self._data = self._topic_response.part("partitions", {
            DATA_INDEX: "partition_index", DATA_ERROR: "error_code",
            DATA_ACKNOWLEDGE_ERROR: "acknowledge_error_code", DATA_ACKNOWLEDGE_MESSAGE: "acknowledge_error_message",
            DATA_RECORDS: "records", DATA_ACQUIRED: "acquired_records",
        })
        self._range = self._data.part(
            "acquired_records", {RANGE_FIRST: "first_offset", RANGE_LAST: "last_offset", RANGE_COUNT: "delivery_count"}
        )

    def serve(self, context, request):
        cdef FetchRun run
        cdef Acknowledgement acknowledgement
        cdef PyObject* found
        if type_of(<PyObject*>request) is not self._request.type:
            return None
        group_id = read(request, self._request, GROUP_ID)
        member_id = read(request, self._request, MEMBER_ID)
        found = PyDict_GetItemWithError(self._sessions, (group_id, member_id))  # only valid member ids have one
        if found is NULL:
            return None     # no session; while share groups are disabled, there are no sessions either
        run = FetchRun.__new__(FetchRun)
        run.path = self
        run.context = context
        run.request = request
        run.group_id = <str?>group_id
        run.member_id = <str?>member_id
        run.session = <SessionCore?><object>found
        if not self.collect(run):
            return None
        if not PyList_GET_SIZE(run.acknowledged):
            run.acknowledged = None
            if not self.find(run):
                return None
            run.session.move()
            self.served += 1
            return self.acquire(run)
        run.pending = share_fetch_pending(self._api, context, request)
        run.session.move()
        self.served += 1
        run.outstanding = 1
        for acknowledgement in list(run.acknowledged):
            acknowledgement.begin()
        run.arrived()
        return run.pending.response if run.pending.done else run.pending

    # ---- checks

    cdef bint collect(self, FetchRun run) except -1:
        """Checks the request and collects its acknowledgements.

        Returns False if the generic path must serve the request.
        """
        cdef object request = run.request
        cdef dict members = run.session.partitions
        cdef dict group
        cdef PyObject* found
        cdef Py_ssize_t count = len(members)
        cdef Acknowledgement acknowledgement
        cdef tuple key
        if (
            run.session.epoch != read(request, self._request, EPOCH)
            or read(request, self._request, IS_RENEW_ACK)
            or read(request, self._request, MAX_BYTES) <= 0
            or len(read(request, self._request, FORGOTTEN))
        ):
            return False
        if self._authorizer is not None and not self._authorizer.allowed(
            run.context, self._read, self._group_resource, run.group_id
        ):
            return False
        found = PyDict_GetItemWithError(self._settings, run.group_id)
        if found is NULL:
            return False
        run.settings = <object>found
        found = PyDict_GetItemWithError(self._groups, run.group_id)
        if found is NULL:
            return False
        group = <dict?><object>found
        run.acknowledged = []
        self._round += 1
        for topic in read(request, self._request, TOPICS):
            topic_id = read(topic, self._topic, TOPIC_ID)
            for data in read(topic, self._topic, PARTITIONS):
                key = (topic_id, read(data, self._partition, PARTITION_INDEX))
                count += 1
                if count > FAST_PARTITIONS or key not in members:
                    return False
                batches = read(data, self._partition, BATCHES)
                if not len(batches):
                    continue
                acknowledgement = self.checked(run, group, key, batches)
                if acknowledgement is None:
                    return False
                run.acknowledged.append(acknowledgement)
        return count <= FAST_PARTITIONS

    cdef Acknowledgement checked(self, FetchRun run, dict group, tuple key, object batches):
        """Returns the acknowledgements of one partition; None if the generic path must check them."""
        cdef Acknowledgement acknowledgement
        cdef SharePartitionCore share_partition = self.ready(run.context, group, key)
        cdef ShardCore shard
        if share_partition is None or share_partition.writer is None or share_partition.looked_at == self._round:
            return None
        share_partition.looked_at = self._round
        if not valid(batches, run.context.api_version, False):
            return None
        shard = share_partition.writer.ready(share_partition._state_epoch, share_partition.partition.leader_epoch)
        if shard is None:
            return None
        acknowledgement = Acknowledgement.__new__(Acknowledgement)
        acknowledgement.run = run
        acknowledgement.key = key
        acknowledgement.share_partition = share_partition
        acknowledgement.shard = shard
        acknowledgement.batches = batches
        acknowledgement.error = 0
        return acknowledgement

    cdef SharePartitionCore ready(self, object context, dict group, tuple key):
        """Returns a share partition that delivers records to this client, or None."""
        cdef PyObject* found = PyDict_GetItemWithError(self._ids, key[0])
        cdef PartitionCore partition
        cdef SharePartitionCore share_partition
        cdef list partitions
        cdef int64_t index = key[1]
        if found is NULL:
            return None
        topic = <object>found
        if self._authorizer is not None and not self._authorizer.allowed(
            context, self._read, self._topic_resource, topic.name
        ):
            return None
        partitions = topic.partitions
        if not 0 <= index < PyList_GET_SIZE(partitions):
            return None
        partition = <PartitionCore?>partitions[index]
        found = PyDict_GetItemWithError(group, key)
        if found is NULL:
            return None
        share_partition = <SharePartitionCore?><object>found
        if (
            share_partition.interrupted
            or share_partition.state is not self._active
            or share_partition.partition is not partition
            or partition.recovering
            or partition.closed
        ):
            return None
        return share_partition

    # ---- fetching

    cdef object respond(self, FetchRun run):
        """Fetches for a request whose acknowledgements are complete. Returns the response or the pending response."""
        cdef Acknowledgement acknowledgement
        if self.find(run):
            return self.acquire(run)
        results = {}
        for acknowledgement in run.acknowledged:
            results[acknowledgement.key] = acknowledgement.error
        return self._api.fetch_after(run.context, run.request, run.session, results, run.pending)

    cdef bint find(self, FetchRun run) except -1:
        """Finds the share partitions of the session.

        Returns:
            True if all of them deliver records, and the fetch need not wait.
        """
        cdef object request = run.request
        cdef list keys = list(run.session.partitions)
        cdef Py_ssize_t count = PyList_GET_SIZE(keys), at, i
        cdef PyObject* found = PyDict_GetItemWithError(self._groups, run.group_id)
        cdef dict group
        cdef SharePartitionCore share_partition
        cdef bint has_records = False
        if found is NULL or not count:
            return False
        group = <dict?><object>found
        found = PyDict_GetItemWithError(self._settings, run.group_id)
        if found is NULL:
            return False
        run.settings = <object>found
        # Each request begins with another partition, so that each is served in turn.
        at = read(request, self._request, EPOCH) % count
        run.keys = keys[at:] + keys[:at] if at else keys
        run.share_partitions = []
        for i in range(count):
            share_partition = self.ready(run.context, group, <tuple>run.keys[i])
            if share_partition is None:
                return False
            run.share_partitions.append(share_partition)
            has_records = has_records or share_partition.has(run.settings)
        if read(request, self._request, MAX_WAIT_MS) <= 0:
            return True
        return has_records and min(
            <int64_t>read(request, self._request, MIN_BYTES), <int64_t>read(request, self._request, MAX_BYTES)
        ) <= 1

    cdef object acquire(self, FetchRun run):
        """Acquires records of each partition in turn, and makes the response."""
        cdef object request = run.request
        cdef dict members = run.session.partitions
        cdef dict topics = {}, acknowledged = None
        cdef SharePartitionCore share_partition
        cdef Acknowledgement acknowledgement
        cdef Delivery delivery
        cdef tuple key
        cdef int error
        cdef Py_ssize_t i
        cdef PyObject* values[2]
        cdef list ranges
        cdef int64_t size = 0, examined_bytes = 0, records_left = read(request, self._request, MAX_RECORDS)
        cdef int64_t bytes_left = min(
            <int64_t>read(request, self._request, MAX_BYTES), <int64_t>self._room.most_shared_bytes
        )
        cdef int64_t batch_size = read(request, self._request, BATCH_SIZE)
        cdef bint record_limit = read(request, self._request, ACQUIRE_MODE) == RECORD_LIMIT
        if run.acknowledged is not None:
            acknowledged = {}
            for acknowledgement in run.acknowledged:
                acknowledged[acknowledgement.key] = acknowledgement
        for i in range(PyList_GET_SIZE(run.keys)):
            key = <tuple>run.keys[i]
            share_partition = <SharePartitionCore>run.share_partitions[i]
            error = 0
            records, ranges = b"", None
            if records_left > 0 and (not size or size < bytes_left) and examined_bytes - size < MAX_DISCARDED:
                try:
                    delivery = share_partition.deliver(
                        run.member_id, batch_size, record_limit, records_left, max(bytes_left - size, <int64_t>1),
                        run.settings,
                    )
                    records_left -= delivery.acquired
                    examined_bytes += share_partition.examined_bytes
                    size += PyBytes_GET_SIZE(delivery.records)
                    records, ranges = delivery.records, delivery.ranges
                except LogError as failure:
                    self._api.unreadable(share_partition, failure)
                    error = KAFKA_STORAGE_ERROR
            acknowledgement = None
            if acknowledged is not None:
                acknowledgement = acknowledged.get(key)
            news = members.get(key)
            if (ranges is None or not PyList_GET_SIZE(ranges)) and not error and not news:
                continue    # the partition is omitted, or is added later with the result of its acknowledgements
            if news is not None and news is not (error != 0):
                members[key] = error != 0
            if acknowledgement is not None:
                del acknowledged[key]
            self.add(topics, key, error, acknowledgement, records, ranges)
        if acknowledged is not None:
            for acknowledgement in acknowledged.values():
                self.add(topics, acknowledgement.key, 0, acknowledgement, b"", None)
        if size > RESERVE_THRESHOLD_BYTES:
            self._room.reserve(size)
        responses = []
        for topic_id, partitions in topics.items():
            values[TOPIC_ID] = <PyObject*>topic_id
            values[PARTITIONS] = <PyObject*>partitions
            responses.append(self._topic_response.make(values))
        lock_ms = run.settings.lock_ms
        values[LOCK_TIMEOUT_MS] = <PyObject*>lock_ms
        values[RESPONSES] = <PyObject*>responses
        return self._response.make(values)

    cdef int add(
        self, dict topics, tuple key, int error, Acknowledgement acknowledgement, object records, list ranges
    ) except -1:
        """Adds a partition to the response."""
        cdef PyObject* values[6]
        cdef list acquired = []
        cdef tuple one
        cdef object acknowledge_error = 0, message = None, code = error
        if ranges is not None:
            for one in ranges:
                values[RANGE_FIRST] = <PyObject*>one[0]
                values[RANGE_LAST] = <PyObject*>one[1]
                values[RANGE_COUNT] = <PyObject*>one[2]
                acquired.append(self._range.make(values))
        if acknowledgement is not None and acknowledgement.error:
            acknowledge_error = acknowledgement.error
            message = acknowledge_error.message
        index = key[1]
        values[DATA_INDEX] = <PyObject*>index
        values[DATA_ERROR] = <PyObject*>code
        values[DATA_ACKNOWLEDGE_ERROR] = <PyObject*>acknowledge_error
        values[DATA_ACKNOWLEDGE_MESSAGE] = <PyObject*>message
        values[DATA_RECORDS] = <PyObject*>records
        values[DATA_ACQUIRED] = <PyObject*>acquired
        data = self._data.make(values)
        partitions = topics.get(key[0])
        if partitions is None:
            topics[key[0]] = [data]
        else:
            partitions.append(data)
        return 0
