"""The fast path of OffsetFetch. It serves valid requests for some or all topics of one group.

`kcore.group.apis.offset_fetch` serves every request; the fast path declines (returns None) every request that is not
the common case. A test compares both paths.

A response is cached together with the offset objects from which it was built. These objects are immutable, and each
commit stores new objects. The response is therefore valid as long as the shard stores the same objects. The fast path
checks this on every request. The check takes a fifth of the time for building and encoding a response. Writers need no
invalidation call.
"""

cimport cython
from cpython.bool cimport PyBool_Check
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_SIZE, PyList_New
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_GET_LENGTH
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memcmp, memset

from kcore_ext.codec.fields cimport FieldLayout, get, item_of, length_of
from kcore_ext.group.offsets cimport OffsetAndMetadata
from kcore_ext.runtime.clock cimport Now
from kcore_ext.runtime.shard cimport ShardCore, ready_shard
from kcore_ext.runtime.topics cimport topic_by_id, topic_by_name

cdef extern from "Python.h":
    PyObject* borrow_from_list "PyList_GET_ITEM"(object, Py_ssize_t)
    void give_to_list "PyList_SET_ITEM"(object, Py_ssize_t, object)  # takes over a reference

cdef enum:
    SEVERAL_GROUPS_SINCE = 8
    TOPIC_IDS_SINCE = 10
    UNSTABLE_OFFSET_COMMIT = 88
    MAX_GROUPS = 1024           # with a cached response ...
    MAX_PARTITIONS = 64         # ... of at most this many topics and partitions ...
    MAX_CHARACTERS = 1024       # ... and this many characters in names and metadata
    SEEN = 4096                 # size of the table of fingerprints
    MIX = 1_000_003             # factor of the fingerprint

cdef enum:                      # fields of a request, and of a group in requests and responses
    GROUP_ID = 0
    TOPICS = 1
    GROUPS = 2                  # of a request
    REQUIRE_STABLE = 3
    MEMBER_ID = 2               # of a group of a request
    MEMBER_EPOCH = 3

cdef enum:                      # fields of a topic, in requests and responses
    NAME = 0
    PARTITIONS = 1
    TOPIC_ID = 2

cdef enum:                      # fields of a partition of a response
    INDEX = 0
    OFFSET = 1
    LEADER_EPOCH = 2
    METADATA = 3
    ERROR_CODE = 4

cdef enum:                      # fields of a response
    RESPONSE_TOPICS = 0
    RESPONSE_GROUPS = 1

cdef dict GROUP_FIELDS = {GROUP_ID: "group_id", TOPICS: "topics"}
cdef dict PARTITION_FIELDS = {
    INDEX: "partition_index",
    OFFSET: "committed_offset",
    LEADER_EPOCH: "committed_leader_epoch",
    METADATA: "metadata",
    ERROR_CODE: "error_code",
}

cdef bytes ZERO_UUID = bytes(16)
cdef object ZERO = 0
cdef object NO_OFFSET = -1
cdef str NO_METADATA = ""
cdef object UNSTABLE = UNSTABLE_OFFSET_COMMIT


# ---- tables of the shard

cdef class OffsetCounters:
    """Documented in offset_fetch.pyi."""


@cython.final
cdef class OffsetTables:
    """Documented in offset_fetch.pyi."""

    def __cinit__(
        self, groups, dict offsets not None, dict pending not None, OffsetCounters counters not None, Now now not None,
        Py_ssize_t metadata_max_bytes,
    ):
        if not isinstance(groups, dict):
            raise TypeError(f"groups are in a dictionary, not in {type(groups)}")
        self.counters = counters
        self.now = now
        self.metadata_max_bytes = metadata_max_bytes
        self.groups = groups
        self.offsets = offsets
        self.pending = pending


@cython.final
cdef class CachedResponse:
    pass


cdef class OffsetFetchFastPath:
    """Documented in offset_fetch.pyi."""

    def __init__(self, api, shards not None, topics not None, permissions, *, request, response):
        self._api = api
        self._shards = shards.by_partition
        self._topics = topics
        self._permissions = permissions
        self._cached = {}
        memset(self._seen, 0, sizeof(self._seen))
        self._request = FieldLayout(request, {
            GROUP_ID: "group_id", TOPICS: "topics", GROUPS: "groups", REQUIRE_STABLE: "require_stable",
        })
        self._request_group = self._request.part(
            "groups", GROUP_FIELDS | {MEMBER_ID: "member_id", MEMBER_EPOCH: "member_epoch"}
        )
        self._request_topic = self._request_group.part(
            "topics", {NAME: "name", PARTITIONS: "partition_indexes", TOPIC_ID: "topic_id"}
        )
        self._request_old_topic = self._request.part("topics", {NAME: "name", PARTITIONS: "partition_indexes"})
        self._response = FieldLayout(response, {RESPONSE_TOPICS: "topics", RESPONSE_GROUPS: "groups"})
        self._group = self._response.part("groups", GROUP_FIELDS)
        self._topic = self._group.part("topics", {NAME: "name", PARTITIONS: "partitions", TOPIC_ID: "topic_id"})
        self._old_topic = self._response.part("topics", {NAME: "name", PARTITIONS: "partitions"})
        self._partition = self._topic.part("partitions", PARTITION_FIELDS)
        self._old_partition = self._old_topic.part("partitions", PARTITION_FIELDS)

    @property
    def cache_size(self) -> int:
        return 0 if self._cached is None else len(self._cached)

    def serve(self, context, request):
        cdef GroupQuery query
        cdef PyObject* found
        cdef PyObject* member_id
        cdef PyObject* member_epoch
        cdef bint stable
        cdef ShardCore shard
        cdef OffsetTables tables
        cdef int version = context.api_version
        query.old = version < SEVERAL_GROUPS_SINCE
        query.by_id = version >= TOPIC_IDS_SINCE
        if not self._read(request, &query, &member_id, &member_epoch, &stable):
            return None
        shard = ready_shard(self._shards, <object>query.group_id)
        if shard is None:
            return None
        tables = <OffsetTables?>shard.machine.offset_tables
        query.offsets = query.pending = NULL
        found = PyDict_GetItemWithError(tables.groups, <object>query.group_id)
        if found is not NULL:
            # Validate the member on every request: the cached response does not depend on its epoch.
            if (<object>found).validate_offset_fetch(<object>member_id, <object>member_epoch):
                return None
            query.offsets = PyDict_GetItemWithError(tables.offsets, <object>query.group_id)
            if stable:
                query.pending = PyDict_GetItemWithError(tables.pending, <object>query.group_id)
        if self._permissions is not None and not self._permitted(context, &query):
            return None     # the generic path authorizes again, and refuses the topics
        found = NULL
        if query.pending is NULL:
            found = PyDict_GetItemWithError(self._cached, <object>query.group_id)
        if found is not NULL and self._is_same(<CachedResponse><object>found, &query):
            self.reused += 1
            response = (<CachedResponse><object>found).response
        else:
            response = self._build(&query)
        if response is None:
            return None
        self.served += 1
        return shard.when_durable(self._api, context, request, response)

    cdef bint _read(self, object request, GroupQuery* query, PyObject** member_id, PyObject** member_epoch,
                    bint* stable) except -1:
        """Reads the fields of a request for one group; returns False for any other request."""
        cdef PyObject* requested = <PyObject*>request
        cdef PyObject* required = get(requested, self._request, REQUIRE_STABLE)
        member_id[0] = <PyObject*>None
        member_epoch[0] = <PyObject*>NO_OFFSET
        if required is NULL or not PyBool_Check(<object>required):
            return False    # a caller in this process passed 0 or None
        stable[0] = <object>required is not False
        if query.old:
            query.group_id = get(requested, self._request, GROUP_ID)
            query.topics = get(requested, self._request, TOPICS)
        else:
            requested = get(requested, self._request, GROUPS)
            if length_of(requested) != 1:
                return False
            requested = item_of(requested, 0)
            query.group_id = get(requested, self._request_group, GROUP_ID)
            query.topics = get(requested, self._request_group, TOPICS)
            member_id[0] = get(requested, self._request_group, MEMBER_ID)
            member_epoch[0] = get(requested, self._request_group, MEMBER_EPOCH)
        query.all_topics = query.topics is <PyObject*>None
        return (
            query.group_id is not NULL
            and (query.all_topics or length_of(query.topics) >= 0)
            and member_id[0] is not NULL
            and member_epoch[0] is not NULL
        )

    cdef bint _permitted(self, object context, GroupQuery* query) except -1:
        """Returns True if the client may DESCRIBE the group and every topic of the response."""
        cdef FieldLayout layout = self._request_old_topic if query.old else self._request_topic
        cdef Py_ssize_t i
        cdef PyObject* found
        allowed, operation, group, topic = self._permissions
        if not allowed(context, operation, group, <object>query.group_id):
            return False
        if query.all_topics:
            for name in <dict>query.offsets if query.offsets is not NULL else {}:
                if not allowed(context, operation, topic, name):
                    return False
            return True
        for i in range(length_of(query.topics)):
            found = get(item_of(query.topics, i), layout, TOPIC_ID if query.by_id else NAME)
            if found is NULL:
                return False
            name = <object>found
            if query.by_id:
                info = topic_by_id(self._topics, name)
                if info is None:
                    return False
                name = info.name
            if not allowed(context, operation, topic, name):
                return False
        return True

    # ---- reuse of a cached response

    cdef bint _is_same(self, CachedResponse known, GroupQuery* query) except -1:
        """Returns True if the cached response is valid for this request.

        Other code has references to the response, too. The check therefore reads every field of the response again,
        although no caller should change it.
        """
        cdef Py_ssize_t count, i, position = 0
        cdef PyObject* requested
        cdef PyObject* name
        cdef PyObject* topic_id = NULL
        cdef PyObject* indexes
        cdef FieldLayout layout = self._request_old_topic if query.old else self._request_topic
        if known.old != query.old or known.by_id != query.by_id or known.all_topics != query.all_topics:
            return False
        if query.all_topics:
            return self._are_all_offsets_same(known, query)
        count = length_of(query.topics)
        if count != PyList_GET_SIZE(known.topics):
            return False
        for i in range(count):
            requested = item_of(query.topics, i)
            name = get(requested, layout, NAME)
            indexes = get(requested, layout, PARTITIONS)
            if length_of(indexes) < 0:
                return False
            if query.by_id:
                topic_id = get(requested, layout, TOPIC_ID)
                topic = None if topic_id is NULL else topic_by_id(self._topics, <object>topic_id)
                if topic is None:
                    return False
                topic_name = topic.name
                name = <PyObject*>topic_name
            if name is NULL or not self._is_same_topic(known, query, i, name, topic_id, indexes, &position):
                return False
        return True

    cdef bint _is_same_topic(self, CachedResponse known, GroupQuery* query, Py_ssize_t i, PyObject* name,
                             PyObject* topic_id, PyObject* indexes, Py_ssize_t* position) except -1:
        """Returns True if the i-th topic is unchanged.

        The topic's entries in the cached response begin at `position`. The method moves `position` to their end.
        """
        cdef FieldLayout layout = self._old_partition if query.old else self._partition
        cdef PyObject* responses = self._responses_of(known, query, i, name, topic_id)
        cdef Py_ssize_t size = length_of(indexes), first = position[0], at
        cdef PyObject* partitions = NULL
        cdef PyObject* index
        cdef PyObject* cached
        cdef PyObject* entry
        if size != length_of(responses) or first + size > PyList_GET_SIZE(known.entries):
            return False
        if query.offsets is not NULL:
            partitions = PyDict_GetItemWithError(<object>query.offsets, <object>name)
        for at in range(size):
            index = item_of(indexes, at)
            cached = get(item_of(responses, at), layout, INDEX)
            if index is not cached and not (PyLong_CheckExact(<object>index) and is_equal(index, cached)):
                return False
            entry = NULL
            if partitions is not NULL:
                entry = PyDict_GetItemWithError(<object>partitions, <object>index)
            if entry is NULL:
                entry = <PyObject*>None
            if entry is not borrow_from_list(known.entries, first + at):
                return False
        position[0] = first + size
        return True

    cdef bint _are_all_offsets_same(self, CachedResponse known, GroupQuery* query) except -1:
        """Returns True if the cached response has exactly the group's current offsets."""
        cdef FieldLayout layout = self._old_partition if query.old else self._partition
        cdef Py_ssize_t i = 0, position = 0, at
        cdef PyObject* responses
        cdef PyObject* identity = NULL
        cdef dict partitions
        if query.offsets is NULL:
            return PyList_GET_SIZE(known.topics) == 0
        for name, partitions in (<dict>query.offsets).items():
            if query.by_id:
                topic = topic_by_name(self._topics, name)
                if topic is None:
                    continue
                topic_id = topic.topic_id
                identity = <PyObject*>topic_id
            responses = self._responses_of(known, query, i, <PyObject*>name, identity)
            if len(partitions) != length_of(responses) or position + len(partitions) > PyList_GET_SIZE(known.entries):
                return False
            at = 0
            for index, entry in partitions.items():
                if <PyObject*>entry is not borrow_from_list(known.entries, position):
                    return False
                if not is_equal(<PyObject*>index, get(item_of(responses, at), layout, INDEX)):
                    return False
                at += 1
                position += 1
            i += 1
        return i == PyList_GET_SIZE(known.topics)

    cdef PyObject* _responses_of(self, CachedResponse known, GroupQuery* query, Py_ssize_t i, PyObject* name,
                               PyObject* topic_id) except? NULL:
        """Returns the partitions of the i-th topic of a response; NULL if this topic has another name or id."""
        cdef FieldLayout layout = self._old_topic if query.old else self._topic
        cdef PyObject* cached
        if i >= PyList_GET_SIZE(known.topics):
            return NULL
        cached = borrow_from_list(known.topics, i)
        if not is_equal(name, get(cached, layout, NAME)):
            return NULL
        if query.by_id and not is_equal(topic_id, get(cached, layout, TOPIC_ID)):
            return NULL
        return get(cached, layout, PARTITIONS)

    # ---- building a response

    cdef object _build(self, GroupQuery* query):
        """Returns a new response; None if the generic path must serve the request."""
        cdef Construction construction
        cdef list topics = []
        cdef list entries = []
        construction.entries = <PyObject*>entries
        construction.characters = len(<str>query.group_id)
        construction.print = <uint64_t>hash(<object>query.group_id) + query.by_id + 2 * query.old
        if query.all_topics:
            if query.offsets is not NULL:
                self._add_all_topics(query, topics, &construction)
        elif not self._add_requested(query, topics, &construction):
            return None
        response = self._response_of(query, topics)
        if query.pending is NULL and len(entries) + len(topics) <= MAX_PARTITIONS:
            if construction.characters <= MAX_CHARACTERS:
                self._cache(query, topics, entries, response, construction.print)
        return response

    cdef bint _add_requested(self, GroupQuery* query, list topics, Construction* construction) except -1:
        """Adds the requested topics; returns False if the generic path must serve one of them."""
        cdef Py_ssize_t i
        cdef PyObject* requested
        cdef PyObject* name
        cdef PyObject* topic_id
        cdef PyObject* indexes
        cdef list responses
        cdef FieldLayout layout = self._request_old_topic if query.old else self._request_topic
        for i in range(length_of(query.topics)):
            requested = item_of(query.topics, i)
            name = get(requested, layout, NAME)
            indexes = get(requested, layout, PARTITIONS)
            topic_id = <PyObject*>ZERO_UUID
            if name is NULL or type(<object>name) is not str or length_of(indexes) < 0:
                return False
            topic_name = <object>name
            if query.by_id:
                topic_id = get(requested, layout, TOPIC_ID)
                if topic_id is NULL or type(<object>topic_id) is not bytes or <bytes>topic_id == ZERO_UUID:
                    return False
                topic = topic_by_id(self._topics, <object>topic_id)
                if topic is None:
                    return False
                topic_name = topic.name
            responses = self._requested_partitions(query, indexes, <str?>topic_name, <bytes>topic_id, construction)
            if responses is None:
                return False
            topics.append(self._topic_of(query, topic_name, <object>topic_id, responses, construction))
        return True

    cdef list _requested_partitions(self, GroupQuery* query, PyObject* indexes, str name, bytes topic_id,
                                    Construction* construction):
        """Returns the responses for one topic's partitions; None if the generic path must serve one of them."""
        cdef FieldLayout layout = self._old_partition if query.old else self._partition
        cdef Py_ssize_t count = length_of(indexes), at
        cdef PyObject* partitions = NULL
        cdef PyObject* unstable = NULL
        cdef PyObject* index
        cdef PyObject* found
        cdef OffsetAndMetadata entry
        cdef list responses = PyList_New(count)
        if query.offsets is not NULL:
            partitions = PyDict_GetItemWithError(<object>query.offsets, name)
        if query.pending is not NULL:
            unstable = PyDict_GetItemWithError(<object>query.pending, name)
        for at in range(count):
            index = item_of(indexes, at)
            if not PyLong_CheckExact(<object>index):
                return None
            entry = None
            if partitions is not NULL:
                found = PyDict_GetItemWithError(<object>partitions, <object>index)
                if found is not NULL:
                    entry = <OffsetAndMetadata?><object>found
            add_entry(construction, <object>index, entry)
            if entry is not None and query.by_id and not belongs_to(entry, topic_id):
                entry = None
            put(responses, at, partition_response(layout, <object>index, entry, unstable))
        return responses

    cdef int _add_all_topics(self, GroupQuery* query, list topics, Construction* construction) except -1:
        """Adds every topic with a committed offset.

        If the response identifies topics by id, skips topics without an id.
        """
        cdef FieldLayout layout = self._old_partition if query.old else self._partition
        cdef PyObject* unstable = NULL
        cdef dict partitions
        cdef list responses
        cdef Py_ssize_t at
        topic_id = ZERO_UUID
        for name, partitions in (<dict>query.offsets).items():
            if query.by_id:
                topic = topic_by_name(self._topics, name)
                if topic is None:
                    continue
                topic_id = topic.topic_id
            if query.pending is not NULL:
                unstable = PyDict_GetItemWithError(<object>query.pending, name)
            responses = PyList_New(len(partitions))
            at = 0
            for index, entry in partitions.items():
                add_entry(construction, index, <OffsetAndMetadata?>entry)
                put(responses, at, partition_response(layout, index, <OffsetAndMetadata>entry, unstable))
                at += 1
            topics.append(self._topic_of(query, name, topic_id, responses, construction))
        return 0

    cdef object _topic_of(self, GroupQuery* query, object name, object topic_id, list responses,
                          Construction* construction):
        cdef FieldLayout layout = self._old_topic if query.old else self._topic
        cdef PyObject* values[3]
        construction.characters += len(<str>name)
        construction.print = construction.print * MIX + <uint64_t>hash(name)
        values[NAME] = <PyObject*>name
        values[PARTITIONS] = <PyObject*>responses
        values[TOPIC_ID] = <PyObject*>topic_id  # ignored by the layout of old topics
        return layout.make(values)

    cdef object _response_of(self, GroupQuery* query, list topics):
        cdef PyObject* values[2]
        cdef list groups = []
        if not query.old:
            values[GROUP_ID] = query.group_id
            values[TOPICS] = <PyObject*>topics
            groups.append(self._group.make(values))
            topics = []
        values[RESPONSE_TOPICS] = <PyObject*>topics
        values[RESPONSE_GROUPS] = <PyObject*>groups
        return self._response.make(values)

    cdef int _cache(self, GroupQuery* query, list topics, list entries, object response,
                       uint64_t print) except -1:
        """Caches a response if the same response was built before.

        Most responses are built only once, so caching every response would waste memory.
        """
        cdef uint64_t* seen = &self._seen[<uint64_t>hash(<object>query.group_id) % SEEN]
        cdef CachedResponse known
        if seen[0] != print:
            seen[0] = print
            return 0
        if len(self._cached) >= MAX_GROUPS:
            self._cached.clear()
        known = CachedResponse.__new__(CachedResponse)
        known.old = query.old
        known.by_id = query.by_id
        known.all_topics = query.all_topics
        known.topics = topics
        known.entries = entries
        known.response = response
        self._cached[<object>query.group_id] = known
        return 0


cdef inline int add_entry(Construction* construction, object index, OffsetAndMetadata entry) except -1:
    """Adds the offset of one partition to the fingerprint and to the entries of a response under construction.

    If the partition has no offset, the fingerprint covers the partition's index instead.
    """
    if entry is None:
        construction.print = construction.print * MIX + <uint64_t>hash(index)
    else:
        construction.print = construction.print * MIX + <uint64_t><uintptr_t><void*>entry
        construction.characters += PyUnicode_GET_LENGTH(entry.metadata)
    (<list>construction.entries).append(entry)
    return 0


cdef inline object partition_response(FieldLayout layout, object index, OffsetAndMetadata entry, PyObject* unstable):
    """Returns the response of a partition; `unstable` has the partitions of open transactions, NULL for none."""
    cdef PyObject* values[5]
    cdef object offset, leader_epoch
    values[INDEX] = <PyObject*>index
    values[OFFSET] = values[LEADER_EPOCH] = <PyObject*>NO_OFFSET
    values[METADATA] = <PyObject*>NO_METADATA
    values[ERROR_CODE] = <PyObject*>ZERO
    if unstable is not NULL and PyDict_GetItemWithError(<object>unstable, index) is not NULL:
        values[ERROR_CODE] = <PyObject*>UNSTABLE
    elif entry is not None:
        offset = entry.committed_offset
        values[OFFSET] = <PyObject*>offset
        if entry.leader_epoch != -1:
            leader_epoch = entry.leader_epoch
            values[LEADER_EPOCH] = <PyObject*>leader_epoch
        values[METADATA] = <PyObject*>entry.metadata
    return layout.make(values)


cdef inline int put(list responses, Py_ssize_t at, object made) except -1:
    """Sets an empty element of a new list."""
    Py_INCREF(made)
    give_to_list(responses, at, made)
    return 0


cdef inline bint is_equal(PyObject* one, PyObject* other) except -1:
    """Returns True if both values exist and are equal; NULL equals nothing."""
    if one is NULL or other is NULL:
        return False
    return one is other or PyObject_RichCompareBool(<object>one, <object>other, Py_EQ)


cdef inline bint belongs_to(OffsetAndMetadata entry, bytes topic_id) noexcept:
    """Computes `OffsetAndMetadata.belongs_to` faster, for a topic id that is not the zero UUID."""
    return (
        memcmp(entry.topic_uuid, <char*>topic_id, 16) == 0
        or memcmp(entry.topic_uuid, <char*>ZERO_UUID, 16) == 0
    )
