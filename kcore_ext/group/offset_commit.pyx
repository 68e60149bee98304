"""Fast paths of OffsetCommit and TxnOffsetCommit: commits without a refused partition.

`kcore.group.apis.offset_commit` and `txn_offset_commit` serve every request. The fast paths decline (return None) every
request that is not the common case, before any durable change. A test compares both paths.

A client commits the same partitions again and again with other offsets. The topic infos of a combination of partitions,
and the response that accepts them all, are therefore cached. Validating a request is then one look-up, and equal
commits of all groups share one response object.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Contains
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy

from kcore_ext.batch.crc32c cimport crc32c_of
from kcore_ext.codec.fields cimport FieldLayout, get, read, type_of
from kcore_ext.codec.read cimport text_of
from kcore_ext.group.encoded_commit cimport (
    COMPACT_SINCE, MAX_KEY_BYTES, TOPIC_BYTES, TOPIC_IDS_SINCE, EncodedCommit, put_topic, read_commit,
)
from kcore_ext.group.offset_block cimport CommitTemplate, OffsetBlock, block_of, plan_of
from kcore_ext.group.offset_fetch cimport OffsetTables
from kcore_ext.runtime.encoded cimport UNREADABLE, EncodedRequest, encoded_request
from kcore_ext.runtime.shard cimport MachineCore, ShardCore, ready_shard
from kcore_ext.runtime.timer_wheel cimport Timer, timer_extend
from kcore_ext.runtime.topics cimport topic_by_id, topic_by_name
from kcore_ext.util.slots cimport SlotLayout, item, number, slot

from kcore_ext.group.offset_block import unknown_partitions

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(object table, object key) except? NULL  # also for subclasses of dict
    bint PyLong_CheckExact(object)
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_IS_ASCII(object)
    const char* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1

cdef enum:
    NO_EXPIRY = -1
    MAX_TEMPLATES = 1024    # cached combinations of partitions
    MAX_RECENT = 256        # templates that are found by a hash, a power of two

cdef bytes ZERO_UUID = bytes(16)

cdef enum:                  # fields of both requests
    TOPICS = 0
    GROUP_ID = 1
    GENERATION_ID = 2
    MEMBER_ID = 3
    INSTANCE_ID = 4

cdef enum:                  # fields of a topic, in both requests
    NAME = 0
    PARTITIONS = 1
    TOPIC_ID = 2            # OffsetCommit only

cdef enum:                  # field of a partition
    PARTITION_INDEX = 0


cdef class GroupCore(MachineCore):
    """Documented in offset_commit.pyi."""

    def replay_block(self, int64_t first_offset, int64_t producer_id, block not None):
        self.replay_records(first_offset, producer_id, block)

    cdef int replay_records(self, int64_t first_offset, int64_t producer_id, object block) except -1:
        cdef OffsetBlock offsets
        cdef OffsetTables tables = tables_of(self)
        cdef PyObject* topics
        cdef Py_ssize_t added
        if type(block) is not OffsetBlock:
            block.replay(self)
            return 0
        offsets = <OffsetBlock>block
        if producer_id >= 0:
            self.replay_pending_block(first_offset, producer_id, offsets)
            return 0
        topics = PyDict_GetItemWithError(tables.offsets, offsets.group_id)
        if topics is not NULL and PyDict_Contains(tables.groups, offsets.group_id):
            added = offsets.put(<dict?>topics, first_offset)
        else:
            # Use the string object of the group as the key, so that the offsets of all requests and records share it.
            added = offsets.put_into(
                tables.offsets, self.get_or_create_group(offsets.group_id).group_id, first_offset
            )
        tables.counters.offset_count += added
        return 0


cdef inline OffsetTables tables_of(GroupCore machine):
    """Returns the tables of a group shard, which does not have them until its constructor sets them."""
    if machine.offset_tables is None:
        raise TypeError("the group shard has no tables of offsets")
    return machine.offset_tables


cdef inline OffsetBlock empty_block(OffsetTables tables, object group_id, type record_type):
    """Returns a block for the offsets of one commit, which do not expire by themselves."""
    return block_of(group_id, tables.now.wall_ms, NO_EXPIRY, tables.metadata_max_bytes, record_type)


cdef inline int version_of(object context) except? -1:
    """Returns the API version of a request, which is the first element of the request's context."""
    return (<tuple>context)[0] if isinstance(context, tuple) else context.api_version


cdef class CommitFastPath(EncodedFastPath):
    """Documented in offset_commit.pyi."""

    def __init__(self, api, shards, topics, authorizer, FieldLayout request not None, FieldLayout topic not None, permissions,
                 type record_type not None):
        self._api = api
        self._shards = shards.by_partition
        self._authorizer = authorizer
        self._read, self._group_resource, self._topic_resource = permissions
        self._topics = topics
        self._templates = {}
        self._recent = [None] * MAX_RECENT
        self._record_type = record_type
        self._request = request
        self._topic = topic
        self._partition = topic.part("partitions", {PARTITION_INDEX: "partition_index"})
        self._has_ids = topic.named > TOPIC_ID

    @property
    def cache_size(self) -> int:
        return len(self._templates)

    cdef CommitTemplate _template(self, object context, object request, bint by_id):
        """Returns the template for the topics of a request, from the cache if possible.

        Returns None unless all partitions of the request exist.
        """
        cdef unsigned char[MAX_KEY_BYTES] key
        cdef CommitTemplate template
        topics = read(request, self._request, TOPICS)
        cdef Py_ssize_t size = self._encode(key, topics, by_id)
        if not size:
            return None
        template = self._valid(key, size)
        if template is not None:
            return template
        template = self._new_template(context, request, topics, by_id)
        self._keep(key, size, template)
        return template

    cdef CommitTemplate _valid(self, const unsigned char* key, Py_ssize_t size):
        """Returns the cached template of a key; None if there is none or a topic has changed since it was made."""
        cdef CommitTemplate template = self._known(key, size)
        cdef Py_ssize_t i
        if template is None:
            return None
        for i in range(len(template.topics)):
            if key[0]:
                known = topic_by_id(self._topics, template.ids[i])
            else:
                known = topic_by_name(self._topics, template.names[i])
            if known is not template.topics[i]:     # deleted, recreated, or grown
                return None
        return template

    cdef CommitTemplate _known(self, const unsigned char* key, Py_ssize_t size):
        """Returns the cached template of a key, which may be out of date; None if there is none."""
        cdef Py_ssize_t place = crc32c_of(key, size, 0) % MAX_RECENT
        cdef CommitTemplate template = self._recent[place]
        if template is not None and (
            PyBytes_GET_SIZE(template.key) == size and memcmp(PyBytes_AS_STRING(template.key), key, size) == 0
        ):
            return template
        template = self._templates.get(PyBytes_FromStringAndSize(<const char*>key, size))
        if template is not None:
            self._recent[place] = template
        return template

    cdef int _keep(self, const unsigned char* key, Py_ssize_t size, CommitTemplate template) except -1:
        """Caches the template of a key, or removes the key from the cache if the template is None."""
        cdef Py_ssize_t place = crc32c_of(key, size, 0) % MAX_RECENT
        cdef bytes name = PyBytes_FromStringAndSize(<const char*>key, size)
        self._recent[place] = None
        if template is None:
            self._templates.pop(name, None)
            return 0
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        template.key = name
        self._templates[name] = template
        self._recent[place] = template
        return 0

    cdef CommitTemplate _new_template(self, object context, object request, object topics, bint by_id):
        cdef CommitTemplate template
        cdef list found = []
        for topic in topics:
            known = topic_by_id(self._topics, topic.topic_id) if by_id else topic_by_name(self._topics, topic.name)
            partitions = topic.partitions
            # The response omits a topic without partitions; the generic path handles that.
            if known is None or not partitions or unknown_partitions(partitions, known.partitions, 1) is not None:
                return None
            found.append(known)
        if not found:
            return None
        template = CommitTemplate.__new__(CommitTemplate)
        template.topics = tuple(found)
        template.names = tuple([known.name for known in found])
        template.ids = tuple([known.topic_id for known in found])
        template.response = self._api.error(context, request, 0)
        return template

    cdef bint _permitted(self, object context, object group_id, CommitTemplate template) except -1:
        """Returns True if the client may READ the group and all topics.

        Otherwise the generic path authorizes the request again. Called only if there is an authorizer.
        """
        if not self._authorizer.allowed(context, self._read, self._group_resource, group_id):
            return False
        for name in template.names:
            if not self._authorizer.allowed(context, self._read, self._topic_resource, name):
                return False
        return True

    cdef OffsetBlock _block(self, OffsetTables tables, object group_id, object topics, CommitTemplate template,
                            bint with_ids):
        """Returns the offsets of an accepted commit; None if one of them needs the generic path."""
        cdef OffsetBlock block = empty_block(tables, group_id, self._record_type)
        cdef Py_ssize_t i = 0
        for topic in topics:
            # Validating the group ran Python code, which may have extended the request.
            if i >= len(template.names):
                return None
            topic_id = template.ids[i] if with_ids else ZERO_UUID
            if not block.take_all(template.names[i], topic_id, read(topic, self._topic, PARTITIONS)):
                return None
            i += 1
        return block

    cdef OffsetBlock _encoded_block(self, OffsetTables tables, object group_id, EncodedCommit* commit,
                                    CommitTemplate template):
        """Returns the offsets of an accepted encoded commit; None if one of them needs the generic path."""
        cdef OffsetBlock block = empty_block(tables, group_id, self._record_type)
        cdef const unsigned char** partitions = commit.partitions
        cdef int i
        for i in range(commit.topic_count):
            if not block.take_encoded(template.names[i], template.ids[i], partitions, commit.partition_counts[i]):
                return None
            partitions += commit.partition_counts[i]
        return block

    cdef Py_ssize_t _encode(self, unsigned char* key, object topics, bint by_id) except -1:
        """Encodes topics and partitions of a request as a key of at most MAX_KEY_BYTES.

        Returns:
            The size of the key; 0 if the topics are too long or have unexpected types.
        """
        cdef Py_ssize_t size, count, used = 1
        cdef int overflow = 0
        cdef long long number
        cdef int32_t index
        cdef PyObject* requested
        key[0] = by_id
        if type(topics) is not list and type(topics) is not tuple:
            return 0
        for topic in topics:
            if type_of(<PyObject*>topic) is not self._topic.type:
                return 0
            name = read(topic, self._topic, NAME)
            topic_id = read(topic, self._topic, TOPIC_ID) if self._has_ids else ZERO_UUID
            partitions = read(topic, self._topic, PARTITIONS)
            if not PyUnicode_CheckExact(name) or not PyUnicode_IS_ASCII(name):
                return 0
            if not PyBytes_CheckExact(topic_id) or PyBytes_GET_SIZE(topic_id) != 16:
                return 0
            if type(partitions) is not list and type(partitions) is not tuple:
                return 0
            size = PyUnicode_GET_LENGTH(name)
            count = len(partitions)
            if used + TOPIC_BYTES + size + 4 * count > MAX_KEY_BYTES:
                return 0
            put_topic(&key[used], PyUnicode_DATA(name), size, PyBytes_AS_STRING(topic_id), <int32_t>count)
            used += TOPIC_BYTES + size
            for partition in partitions:
                requested = get(<PyObject*>partition, self._partition, 0)
                if requested is NULL or not PyLong_CheckExact(<object>requested):
                    return 0
                number = PyLong_AsLongLongAndOverflow(<object>requested, &overflow)
                index = <int32_t>number
                if overflow or index != number:
                    return 0
                memcpy(&key[used], &index, 4)
                used += 4
        return used


# ---- OffsetCommit

cdef enum:
    MAX_ENCODED_BYTES = 16_384  # longest request that is served without decoding it
    RETENTION_TIME_MS = 5   # field of the request

cdef enum:                  # slots of a classic group
    GROUP_STATE = 0
    GROUP_GENERATION_ID = 1
    GROUP_MEMBERS = 2

cdef enum:                  # slots of a member of a classic group
    MEMBER_TIMER = 0
    MEMBER_SESSION_TIMEOUT_MS = 1


cdef class OffsetCommitFastPath(CommitFastPath):
    """Documented in offset_commit.pyi."""

    def __init__(self, api, shards, topics, authorizer, *, request, topic, record, permissions, classic):
        CommitFastPath.__init__(
            self, api, shards, topics, authorizer,
            FieldLayout(request, {
                TOPICS: "topics", GROUP_ID: "group_id", GENERATION_ID: "generation_id_or_member_epoch",
                MEMBER_ID: "member_id", INSTANCE_ID: "group_instance_id", RETENTION_TIME_MS: "retention_time_ms",
            }),
            FieldLayout(topic, {NAME: "name", PARTITIONS: "partitions", TOPIC_ID: "topic_id"}),
            permissions, record,
        )
        self.serves_encoded = True
        group, member, self._empty, self._stable = classic
        self._of_group = SlotLayout(group, {
            GROUP_STATE: "state", GROUP_GENERATION_ID: "generation_id", GROUP_MEMBERS: "members",
        })
        self._of_member = SlotLayout(member, {MEMBER_TIMER: "timer", MEMBER_SESSION_TIMEOUT_MS: "session_timeout_ms"})

    def serve(self, context, request):
        cdef CommitTemplate template
        cdef int64_t retention_ms, generation_id
        if type_of(<PyObject*>request) is not self._request.type:
            return None
        retention = read(request, self._request, RETENTION_TIME_MS)
        if not number(<PyObject*>retention, &retention_ms) or retention_ms != NO_EXPIRY:
            return None
        requested_id = read(request, self._request, GENERATION_ID)
        if not number(<PyObject*>requested_id, &generation_id):
            return None
        template = self._template(context, request, version_of(context) >= TOPIC_IDS_SINCE)
        if template is None:
            return None
        return self._commit(
            context, request, NULL, template, read(request, self._request, GROUP_ID), generation_id,
            read(request, self._request, MEMBER_ID), read(request, self._request, INSTANCE_ID),
        )

    cdef object serve_encoded(
        self, object context, int version, bytes source, const unsigned char* body, Py_ssize_t size,
        Py_ssize_t max_elements,
    ):
        cdef EncodedCommit commit
        cdef EncodedRequest request
        cdef CommitTemplate template
        if size > MAX_ENCODED_BYTES or version < COMPACT_SINCE:
            return UNREADABLE
        # The fields are read from the kept bytes: Python code that runs before the last one is read may change others.
        request = encoded_request(self._request.cls, version, source, body, size)
        if not read_commit(request.body, size, version, max_elements, &commit):
            return UNREADABLE
        template = self._valid(commit.key, commit.key_bytes)
        if template is None:
            return UNREADABLE
        return self._commit(
            context, request, &commit, template, text_of(commit.group_id.at, commit.group_id.size),
            commit.generation_id, text_of(commit.member_id.at, commit.member_id.size),
            None if commit.instance_id.at is NULL else text_of(commit.instance_id.at, commit.instance_id.size),
        )

    cdef object _commit(self, object context, object request, EncodedCommit* encoded, CommitTemplate template,
                        object group_id, int64_t generation_id, object member_id, object instance_id):
        """Writes the offsets of a request, an object or an `EncodedRequest`; returns the same as `serve`.

        Args:
            encoded: the content of an `EncodedRequest`; NULL for an object.
        """
        cdef OffsetTables tables
        cdef OffsetBlock block
        cdef ShardCore shard = ready_shard(self._shards, group_id)
        if shard is None:
            return None
        if self._authorizer is not None and not self._permitted(context, group_id, template):
            return None
        tables = tables_of(<GroupCore?>shard.machine)
        if not self._accepted(tables, context, request, template, group_id, generation_id, member_id, instance_id):
            return None
        if encoded is NULL:
            block = self._block(tables, group_id, read(request, self._request, TOPICS), template, True)
        else:
            block = self._encoded_block(tables, group_id, encoded, template)
        if block is None:
            return None
        tables.counters.commits += block.count
        self.served += 1
        self.served_encoded += encoded is not NULL
        return shard.write_and_respond(self._api, context, request, block, template.response, -1, -1)

    cdef bint _accepted(self, OffsetTables tables, object context, object request, CommitTemplate template,
                        object group_id, int64_t generation_id, object member_id, object instance_id) except -1:
        """Returns True if the group accepts the commit. Then also restarts the session timeout of a classic member."""
        cdef PyObject* found = PyDict_GetItemWithError(tables.groups, group_id)
        cdef PyObject* state
        if found is NULL:
            return generation_id < 0
        group = <object>found
        state = slot(found, self._of_group, GROUP_STATE)    # NULL: the group is not classic
        # A Stable group accepts a member of its generation, and an Empty one a client without a member.
        if state is <PyObject*>self._empty and generation_id < 0 and not member_id:
            return True
        if state is <PyObject*>self._stable and instance_id is None:
            if self._restart_timeout(found, generation_id, <PyObject*>member_id, tables.now.now_ms):
                return True
        code = group.validate_offset_commit(
            member_id, instance_id, generation_id, context.api_version, False, plan_of(request, template)
        )
        if code:
            return False
        group.offset_commit_accepted(member_id)
        return True

    cdef bint _restart_timeout(self, PyObject* group, int64_t generation_id, PyObject* member_id, int64_t now_ms) except -1:
        """Restarts a member's session timeout. Returns False if the group does not have the member or generation."""
        cdef PyObject* member = item(slot(group, self._of_group, GROUP_MEMBERS), member_id)
        cdef PyObject* timer
        cdef int64_t current, timeout_ms = 0
        if member is NULL:
            return False
        timer = slot(member, self._of_member, MEMBER_TIMER)
        if (
            timer is NULL
            or type(<object>timer) is not Timer
            or not number(slot(group, self._of_group, GROUP_GENERATION_ID), &current)
            or generation_id != current
            or not number(slot(member, self._of_member, MEMBER_SESSION_TIMEOUT_MS), &timeout_ms)
        ):
            return False
        timer_extend(<Timer>timer, now_ms + timeout_ms)
        return True


# ---- TxnOffsetCommit

cdef enum:
    ADDS_PARTITION_SINCE = 5    # the version of the request

cdef enum:                      # fields of the request
    TRANSACTIONAL_ID = 5
    PRODUCER_ID = 6
    PRODUCER_EPOCH = 7


cdef class TxnOffsetCommitFastPath(CommitFastPath):
    """Documented in offset_commit.pyi."""

    def __init__(
        self, api, shards, topics, authorizer, *, verifier, verified, request, topic, record, permissions,
        write_permission, classic,
    ):
        CommitFastPath.__init__(
            self, api, shards, topics, authorizer,
            FieldLayout(request, {
                TOPICS: "topics", GROUP_ID: "group_id", GENERATION_ID: "generation_id", MEMBER_ID: "member_id",
                INSTANCE_ID: "group_instance_id", TRANSACTIONAL_ID: "transactional_id", PRODUCER_ID: "producer_id",
                PRODUCER_EPOCH: "producer_epoch",
            }),
            FieldLayout(topic, {NAME: "name", PARTITIONS: "partitions"}),
            permissions, record,
        )
        self._verifier = verifier
        self._verified = verified
        self._write, self._transaction_resource = write_permission
        self._classic_group, self._empty = classic

    def serve(self, context, request):
        cdef CommitTemplate template
        cdef ShardCore shard
        cdef OffsetTables tables
        cdef OffsetBlock block
        if type_of(<PyObject*>request) is not self._request.type:
            return None
        group_id = read(request, self._request, GROUP_ID)
        template = self._template(context, request, False)
        if template is None:
            return None
        shard = ready_shard(self._shards, group_id)
        if shard is None:
            return None
        transactional_id = read(request, self._request, TRANSACTIONAL_ID)
        producer_id = read(request, self._request, PRODUCER_ID)
        producer_epoch = read(request, self._request, PRODUCER_EPOCH)
        if self._authorizer is not None and not (
            self._authorizer.allowed(context, self._write, self._transaction_resource, transactional_id)
            and self._permitted(context, group_id, template)
        ):
            return None
        result = self._verifier.verify_group(
            transactional_id, producer_id, producer_epoch, shard.topic, shard.index,
            version_of(context) >= ADDS_PARTITION_SINCE,
        )
        if result is not self._verified:
            return self._api.after_verification(shard, context, plan_of(request, template), result)
        tables = tables_of(<GroupCore?>shard.machine)
        if not self._accepted(tables, context, request, group_id, template):
            return None
        # Kafka writes no topic ids here: these requests have topic names.
        block = self._block(tables, group_id, read(request, self._request, TOPICS), template, False)
        if block is None:
            return None
        tables.counters.commits += block.count
        self.served += 1
        return shard.write_and_respond(
            self._api, context, request, block, template.response, producer_id, producer_epoch
        )

    cdef bint _accepted(self, OffsetTables tables, object context, object request, object group_id,
                        CommitTemplate template) except -1:
        """Returns True if the group accepts the commit."""
        cdef PyObject* found = PyDict_GetItemWithError(tables.groups, group_id)
        generation_id = read(request, self._request, GENERATION_ID)
        if found is NULL:
            return generation_id < 0
        group = <object>found
        if generation_id < 0 and type(group) is self._classic_group and group.state is self._empty:
            return True
        return not group.validate_offset_commit(
            read(request, self._request, MEMBER_ID), read(request, self._request, INSTANCE_ID), generation_id,
            context.api_version, True, plan_of(request, template),
        )
