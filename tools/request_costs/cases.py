"""The most expensive known request of at most 1 MB for each served API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from kcore.config.node import Config
from kcore.protocol.api_keys import ApiKey, request_class
from kcore.protocol.compression import CompressionType, compress
from tests.kit import batch
from tools.request_costs.state import WIDE_PARTITIONS, State

LIMIT_BYTES = 1_000_000
MAX_ELEMENTS = Config().kcore_max_request_elements - 10
"""Maximum number of entries in a case's large array. The other arrays may have ten elements in total."""
MANY_ACLS = 80_000
MANY_QUOTAS = 29_000


class Case(NamedTuple):
    """One request.

    Attributes:
        key: the key of the request's API.
        what: a description of the request.
        version: the API version.
        requests: the measured request, which is the last one, and the earlier requests of its connection. An element
            may be a function that builds its request from the state shortly before sending.
        earlier_version: the version of those earlier requests that belong to other APIs; -1: the newest version.
    """

    key: ApiKey
    what: str
    version: int
    requests: list[Any]
    earlier_version: int = -1


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Yields the items in lists of at most `size`."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def struct_of(request: type, path: str) -> Any:
    """Returns the class of a nested struct, given by its path, such as "topics.partitions"."""
    cls: Any = request
    for name in path.split("."):
        cls = next(spec.struct for spec in cls.FIELDS if spec.name == name)
    return cls


def largest(build: Callable[[int], Any], version: int, most: int = 1_000_000) -> Any:
    """Builds the request with the most entries that has at most 1 MB."""
    low, high = 1, most
    if len(build(most).encode(version)) <= LIMIT_BYTES:
        return build(most)
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if len(build(middle).encode(version)) <= LIMIT_BYTES:
            low = middle
        else:
            high = middle
    return build(low)


def short_names(count: int) -> list[str]:
    """Returns distinct names of at most three characters."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
    names: list[str] = []
    for size in (1, 2, 3, 4):
        for parts in product(letters, repeat=size):
            names.append("".join(parts))
            if len(names) == count:
                return names
    return names


class Cases:
    """The measured requests of all APIs that have no class of their own in another module.

    Args:
        state: the node that serves them.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.names = short_names(400_000)

    def __iter__(self) -> Iterator[Case]:
        for build in (
            self.read,
            self.data,
            self.groups,
            self.transactions,
            self.control,
            self.settings,
            self.acls,
            self.quotas,
            self.small,
        ):
            yield from build()

    def of(self, key: ApiKey, what: str, build: Callable[[int], Any], most: int = 1_000_000, version: int = -1) -> Case:
        """Returns the case with the maximum number of entries."""
        if version < 0:
            version = int(self.state.engine.apis[key].versions[1])
        return Case(key, what, version, [largest(build, version, min(most, MAX_ELEMENTS))])

    # ---- partitions

    def partitions(
        self, key: ApiKey, what: str, path: str, *, version: int = -1, top: Any = None, **entry: Any
    ) -> Case:
        """Yields a request about as many partitions of the topic "wide" as fit in 1 MB.

        The request also names partitions that the topic does not have.
        """
        request = request_class(key)
        topic_field, partition_field = path.split(".")
        topic_class = struct_of(request, topic_field)
        specs = {spec.name: spec for spec in topic_class.FIELDS}
        struct = specs[partition_field].struct
        name_field = next((name for name in ("topic", "name") if name in specs), None)
        info = self.state.engine.topics.by_name("wide")
        assert info is not None

        def build(count: int) -> Any:
            if struct is None:
                entries: Any = list(range(count))
            else:
                index_field = next(s.name for s in struct.FIELDS if s.name in {"partition", "partition_index", "index"})
                entries = [struct(**{index_field: index}, **entry) for index in range(count)]
            fields: dict[str, Any] = {partition_field: entries}
            if name_field is not None:
                fields[name_field] = "wide"
            if "topic_id" in specs:
                fields["topic_id"] = info.topic_id
            return request(**{topic_field: [topic_class(**fields)]}, **(top or {}))

        return self.of(key, what, build, 300_000, version)

    def read(self) -> Iterator[Case]:
        """Yields the measured requests of Fetch and of other APIs that read partitions."""
        fetch = request_class(ApiKey.FETCH)
        yield self.partitions(
            ApiKey.FETCH, "most partitions, no session", "topics.partitions", partition_max_bytes=1 << 20,
            top={"session_epoch": -1, "max_bytes": 1 << 30},
        )  # fmt: skip
        whole = self.partitions(ApiKey.FETCH, "", "topics.partitions", top={"session_epoch": 0, "session_id": 0})
        yield whole._replace(what="most partitions, new session")
        info = self.state.engine.topics.by_name("wide")
        assert info is not None
        topic_class, part = struct_of(fetch, "topics"), struct_of(fetch, "topics.partitions")
        one = topic_class(topic_id=info.topic_id, partitions=[part(partition=0, partition_max_bytes=1 << 30)])
        yield Case(ApiKey.FETCH, "60 MB of records", 18, [fetch(session_epoch=-1, max_bytes=1 << 30, topics=[one])])
        yield self.partitions(ApiKey.LIST_OFFSETS, "most partitions, by time", "topics.partitions", timestamp=1)
        yield self.partitions(ApiKey.OFFSET_FOR_LEADER_EPOCH, "most partitions", "topics.partitions", leader_epoch=1)
        describe = request_class(ApiKey.DESCRIBE_PRODUCERS)
        requested = struct_of(describe, "topics")
        yield self.of(
            ApiKey.DESCRIBE_PRODUCERS, "10,000 producers, again and again",
            lambda n: describe(topics=[requested(name="data", partition_indexes=[0] * n)]),
        )  # fmt: skip

    def data(self) -> Iterator[Case]:
        """Yields the measured requests of Produce and DeleteRecords."""
        one = batch([b""])
        yield self.partitions(
            ApiKey.PRODUCE, "a record for each partition", "topic_data.partition_data", records=one, top={"acks": -1}
        )
        many = batch([b""] * 120_000)[:]
        produce = request_class(ApiKey.PRODUCE)
        topic, part = struct_of(produce, "topic_data"), struct_of(produce, "topic_data.partition_data")
        yield Case(
            ApiKey.PRODUCE, "a batch of 120,000 records", 9,
            [produce(acks=-1, topic_data=[topic(name="wide", partition_data=[part(index=0, records=many)])])],
        )  # fmt: skip
        text = b"".join(b"%d, %d; " % (number * 7919, number) for number in range(120_000))
        for what, values in (
            ("800 KB of gzip to zstd", [text[at : at + 1_000] for at in range(0, len(text), 1_000)]),
            ("16 MB of gzip to zstd", [bytes(8_000)] * 2_000),
            ("700,000 records of gzip to zstd", [b""] * 700_000),
        ):
            records = batch(values, compression=CompressionType.GZIP, compress=compress)
            yield Case(
                ApiKey.PRODUCE, what, 9,
                [produce(acks=-1, topic_data=[topic(name="packed", partition_data=[part(index=0, records=records)])])],
            )  # fmt: skip
        yield self.partitions(ApiKey.DELETE_RECORDS, "most partitions", "topics.partitions", offset=0)

    # ---- groups

    def groups(self) -> Iterator[Case]:
        """Yields measured requests to the group coordinator."""
        groups, big = self.state.groups, self.state.big_group
        find = request_class(ApiKey.FIND_COORDINATOR)
        yield self.of(ApiKey.FIND_COORDINATOR, "most groups", lambda n: find(coordinator_keys=self.names[:n]), 400_000)
        describe = request_class(ApiKey.DESCRIBE_GROUPS)
        yield self.of(ApiKey.DESCRIBE_GROUPS, "20,000 groups", lambda n: describe(groups=groups[:n]), len(groups))
        yield self.of(ApiKey.DESCRIBE_GROUPS, "absent groups", lambda n: describe(groups=self.names[:n]), 400_000)
        yield self.of(
            ApiKey.DESCRIBE_GROUPS,
            "a group with a description of 900 KB, again and again",
            lambda n: describe(groups=[big] * n),
            version=5,
        )
        consumer = request_class(ApiKey.CONSUMER_GROUP_DESCRIBE)
        yield self.of(
            ApiKey.CONSUMER_GROUP_DESCRIBE, "absent groups", lambda n: consumer(group_ids=self.names[:n]), 400_000
        )
        listed = request_class(ApiKey.LIST_GROUPS)
        yield Case(ApiKey.LIST_GROUPS, "20,000 groups", 5, [listed()])
        yield self.of(ApiKey.LIST_GROUPS, "most filters", lambda n: listed(states_filter=self.names[:n]), 400_000)
        deleted = request_class(ApiKey.DELETE_GROUPS)
        yield self.of(ApiKey.DELETE_GROUPS, "20,000 groups", lambda n: deleted(groups_names=groups[:n]), len(groups))
        yield from self.members()
        yield from self.offsets()

    def members(self) -> Iterator[Case]:
        """Yields the measured joins, leaves and heartbeats."""
        join = request_class(ApiKey.JOIN_GROUP)
        protocol = struct_of(join, "protocols")
        yield self.of(
            ApiKey.JOIN_GROUP, "most protocols",
            lambda n: join(
                group_id="j", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="p",
                protocols=[protocol(name=name) for name in self.names[:n]],
            ), 400_000,
        )  # fmt: skip
        leave = request_class(ApiKey.LEAVE_GROUP)
        gone = struct_of(leave, "members")
        yield self.of(
            ApiKey.LEAVE_GROUP, "most members",
            lambda n: leave(group_id=self.state.big_group, members=[gone(member_id=name) for name in self.names[:n]]),
            400_000,
        )  # fmt: skip
        sync = request_class(ApiKey.SYNC_GROUP)
        given = struct_of(sync, "assignments")
        yield self.of(
            ApiKey.SYNC_GROUP, "most assignments",
            lambda n: sync(group_id="j", assignments=[given(member_id=name) for name in self.names[:n]]), 400_000,
        )  # fmt: skip
        beat = request_class(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        yield self.of(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, "most topics",
            lambda n: beat(
                group_id="c", member_id="m" * 22, member_epoch=0, rebalance_timeout_ms=10_000, topic_partitions=[],
                subscribed_topic_names=self.names[:n],
            ), 20_000,
        )  # fmt: skip
        yield self.of(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, "all topics",
            lambda n: beat(
                group_id="c", member_id="m" * 22, member_epoch=0, rebalance_timeout_ms=10_000, topic_partitions=[],
                subscribed_topic_names=[*self.state.names, "wide"][-n:],
            ), 400_000,
        )  # fmt: skip

    def offsets(self) -> Iterator[Case]:
        """Yields the measured requests about committed offsets."""
        top = {"group_id": "o", "generation_id_or_member_epoch": -1, "member_id": ""}
        yield self.partitions(
            ApiKey.OFFSET_COMMIT, "most partitions", "topics.partitions", version=8, top=top, committed_offset=1
        )
        fetch = request_class(ApiKey.OFFSET_FETCH)
        group, topic = struct_of(fetch, "groups"), struct_of(fetch, "groups.topics")
        yield Case(
            ApiKey.OFFSET_FETCH, "all of 10,000 offsets", 8, [fetch(groups=[group(group_id="offsets", topics=None)])]
        )
        yield self.of(
            ApiKey.OFFSET_FETCH, "4 KB of metadata, again and again",
            lambda n: fetch(groups=[group(group_id="offsets", topics=[topic(name="data", partition_indexes=[0] * n)])]),
            version=8,
        )  # fmt: skip
        yield self.of(
            ApiKey.OFFSET_FETCH, "10,000 offsets, again and again",
            lambda n: fetch(groups=[group(group_id="offsets", topics=None)] * n), version=8,
        )  # fmt: skip
        yield self.of(
            ApiKey.OFFSET_FETCH, "most groups",
            lambda n: fetch(groups=[group(group_id=name, topics=None) for name in self.names[:n]]), 300_000, 8,
        )  # fmt: skip
        yield self.partitions(ApiKey.OFFSET_DELETE, "most partitions", "topics.partitions", top={"group_id": "offsets"})

    # ---- transactions

    def transactions(self) -> Iterator[Case]:
        """Yields the measured requests about transactions."""
        state = self.state
        owner = state.producer
        transactional_id = state.transactions[-1]
        add = request_class(ApiKey.ADD_PARTITIONS_TO_TXN)
        topic = struct_of(add, "v3_and_below_topics")

        def adding(count: int) -> Any:
            return add(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=owner.producer_id,
                v3_and_below_producer_epoch=owner.producer_epoch,
                v3_and_below_topics=[topic(name="wide", partitions=list(range(count)))],
            )

        key = ApiKey.ADD_PARTITIONS_TO_TXN
        yield self.of(key, "10,000 partitions", adding, WIDE_PARTITIONS, 3)
        yield self.of(key, "most partitions", adding, 300_000, 3)
        end = request_class(ApiKey.END_TXN)(
            transactional_id=transactional_id, producer_id=owner.producer_id, producer_epoch=owner.producer_epoch,
            committed=True,
        )  # fmt: skip
        yield Case(ApiKey.END_TXN, "a transaction of 10,000 partitions", 3, [adding(WIDE_PARTITIONS), end], 3)
        markers = request_class(ApiKey.WRITE_TXN_MARKERS)
        marker, named = struct_of(markers, "markers"), struct_of(markers, "markers.topics")
        yield self.of(
            ApiKey.WRITE_TXN_MARKERS, "most partitions",
            lambda n: markers(markers=[marker(
                producer_id=1, producer_epoch=0, coordinator_epoch=0,
                topics=[named(name="wide", partition_indexes=list(range(n)))],
            )]), 250_000,
        )  # fmt: skip
        top = {
            "transactional_id": transactional_id, "group_id": "o", "producer_id": owner.producer_id,
            "producer_epoch": owner.producer_epoch,
        }  # fmt: skip
        yield self.partitions(
            ApiKey.TXN_OFFSET_COMMIT, "most partitions", "topics.partitions", top=top, committed_offset=1
        )
        describe = request_class(ApiKey.DESCRIBE_TRANSACTIONS)
        ids = state.transactions
        yield self.of(
            ApiKey.DESCRIBE_TRANSACTIONS, "10,000 ids", lambda n: describe(transactional_ids=ids[:n]), len(ids)
        )
        yield self.of(
            ApiKey.DESCRIBE_TRANSACTIONS, "absent ids", lambda n: describe(transactional_ids=self.names[:n]), 400_000
        )
        yield Case(ApiKey.LIST_TRANSACTIONS, "10,000 ids", 1, [request_class(ApiKey.LIST_TRANSACTIONS)()])

    # ---- topics

    def control(self) -> Iterator[Case]:
        """Yields the measured requests about topics and metadata."""
        state = self.state
        metadata = request_class(ApiKey.METADATA)
        topic = struct_of(metadata, "topics")
        yield Case(ApiKey.METADATA, "all topics", 13, [metadata(topics=None)])
        yield self.of(
            ApiKey.METADATA, "absent topics",
            lambda n: metadata(topics=[topic(name=name) for name in self.names[:n]], allow_auto_topic_creation=False),
            400_000,
        )  # fmt: skip
        yield self.of(
            ApiKey.METADATA, "missing topics, which are created",
            lambda n: metadata(topics=[topic(name=name) for name in self.names[:n]], allow_auto_topic_creation=True),
            400_000, 8,
        )  # fmt: skip
        create = request_class(ApiKey.CREATE_TOPICS)
        made = struct_of(create, "topics")
        for what, names in (("10,000 topics", self.names[100_000:110_000]), ("topics that exist", state.names)):
            yield self.of(
                ApiKey.CREATE_TOPICS, what,
                lambda n, names=names: create(
                    topics=[made(name=name, num_partitions=1, replication_factor=1) for name in names[:n]],
                    timeout_ms=60_000,
                ), 10_000,
            )  # fmt: skip
        yield Case(
            ApiKey.CREATE_TOPICS, "10,000 partitions", 7,
            [create(topics=[made(name="w2", num_partitions=10_000, replication_factor=1)], timeout_ms=60_000)],
        )  # fmt: skip
        yield from self.changed_topics()

    def changed_topics(self) -> Iterator[Case]:
        """Yields the measured requests that change existing topics."""
        state = self.state
        delete = request_class(ApiKey.DELETE_TOPICS)
        gone = struct_of(delete, "topics")
        yield self.of(
            ApiKey.DELETE_TOPICS, "10,000 topics",
            lambda n: delete(topics=[gone(name=name) for name in [*state.names, "wide"][-n:]], timeout_ms=60_000),
            10_001,
        )  # fmt: skip
        grow = request_class(ApiKey.CREATE_PARTITIONS)
        grown = struct_of(grow, "topics")
        yield self.of(
            ApiKey.CREATE_PARTITIONS, "10,000 topics",
            lambda n: grow(topics=[grown(name=name, count=2, assignments=None) for name in state.names[:n]],
                           timeout_ms=60_000), 10_000,
        )  # fmt: skip
        yield Case(
            ApiKey.CREATE_PARTITIONS, "9,999 partitions", 3,
            [grow(topics=[grown(name=state.names[0], count=10_000, assignments=None)], timeout_ms=60_000)],
        )  # fmt: skip
        yield Case(
            ApiKey.DESCRIBE_LOG_DIRS, "all partitions", 4, [request_class(ApiKey.DESCRIBE_LOG_DIRS)(topics=None)]
        )
        elect = request_class(ApiKey.ELECT_LEADERS)
        chosen = struct_of(elect, "topic_partitions")
        yield Case(ApiKey.ELECT_LEADERS, "all partitions", 2, [elect(topic_partitions=None)])
        yield self.of(
            ApiKey.ELECT_LEADERS, "most partitions",
            lambda n: elect(topic_partitions=[chosen(topic="wide", partitions=list(range(n)))]), 250_000,
        )  # fmt: skip
        pages = request_class(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
        page = struct_of(pages, "topics")
        yield Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "all topics", 0, [pages()])
        yield self.of(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, "absent topics",
            lambda n: pages(topics=[page(name=name) for name in self.names[:n]]), 400_000,
        )  # fmt: skip
        moves = request_class(ApiKey.LIST_PARTITION_REASSIGNMENTS)
        moving = struct_of(moves, "topics")
        yield self.of(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, "most topics",
            lambda n: moves(topics=[moving(name=name) for name in self.names[:n]]), 300_000,
        )  # fmt: skip

    # ---- settings

    def settings(self) -> Iterator[Case]:
        """Yields the measured requests about settings, users and features."""
        names = self.state.names
        describe = request_class(ApiKey.DESCRIBE_CONFIGS)
        resource = struct_of(describe, "resources")
        for what, requested in (("10,000 topics", names), ("one topic, again and again", ["wide"] * 100_000)):
            yield self.of(
                ApiKey.DESCRIBE_CONFIGS, what,
                lambda n, requested=requested: describe(
                    resources=[
                        resource(resource_type=2, resource_name=name, configuration_keys=None) for name in requested[:n]
                    ],
                    include_synonyms=True, include_documentation=True,
                ), len(requested),
            )  # fmt: skip
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
            alter = request_class(key)
            changed, value = struct_of(alter, "resources"), struct_of(alter, "resources.configs")
            yield self.of(
                key, "10,000 topics",
                lambda n, alter=alter, changed=changed, value=value: alter(
                    resources=[
                        changed(resource_type=2, resource_name=name, configs=[value(name="retention.ms", value="7")])
                        for name in names[:n]
                    ]
                ), 10_000,
            )  # fmt: skip
        listed = request_class(ApiKey.LIST_CONFIG_RESOURCES)
        yield Case(ApiKey.LIST_CONFIG_RESOURCES, "all resources", 1, [listed(resource_types=[])])
        yield self.of(ApiKey.LIST_CONFIG_RESOURCES, "most types", lambda n: listed(resource_types=[2] * n))
        users = request_class(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
        user = struct_of(users, "upsertions")
        yield self.of(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "most users",
            lambda n: users(upsertions=[
                user(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
                for name in self.names[:n]
            ]), 200_000,
        )  # fmt: skip
        shown = request_class(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
        shown_user = struct_of(shown, "users")
        yield self.of(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "absent users",
            lambda n: shown(users=[shown_user(name=name) for name in self.names[:n]]), 300_000,
        )  # fmt: skip
        features = request_class(ApiKey.UPDATE_FEATURES)
        feature = struct_of(features, "feature_updates")
        yield self.of(
            ApiKey.UPDATE_FEATURES, "unknown features",
            lambda n: features(feature_updates=[feature(feature=name, max_version_level=1) for name in self.names[:n]]),
            300_000,
        )  # fmt: skip

    def acls(self) -> Iterator[Case]:
        """Yields the measured requests about access control lists."""
        describe, create, delete = (
            request_class(key) for key in (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
        )
        all_of = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        yield Case(
            ApiKey.DESCRIBE_ACLS, "10,000 entries", 3,
            [describe(resource_name_filter=None, principal_filter=None, host_filter=None, **all_of)],
        )  # fmt: skip
        entry, chosen = struct_of(create, "creations"), struct_of(delete, "filters")
        yield self.of(
            ApiKey.CREATE_ACLS, "most entries",
            lambda n: create(creations=[
                entry(resource_type=2, resource_name=name, resource_pattern_type=3, principal="User:v", host="*",
                      operation=3, permission_type=3) for name in self.names[:n]
            ]), 200_000,
        )  # fmt: skip
        for what, name in (("filters that match all", None), ("filters that match nothing", "n")):
            yield self.of(
                ApiKey.DELETE_ACLS, what,
                lambda n, name=name: delete(filters=[
                    chosen(resource_name_filter=name, principal_filter=None, host_filter=None, **all_of)
                ] * n), 200_000,
            )  # fmt: skip
        yield self.of(
            ApiKey.DELETE_ACLS, "different filters",
            lambda n: delete(filters=[
                chosen(resource_name_filter=name, principal_filter=None, host_filter=None, **all_of)
                for name in self.names[:n]
            ]), 200_000,
        )  # fmt: skip

        yield from self._of_many_acls(create, describe, delete, all_of)

    def _of_many_acls(self, create: type, describe: type, delete: type, all_of: dict[str, int]) -> Iterator[Case]:
        """Yields requests about the maximum number of ACLs, which clients with the permission can create."""
        entry, chosen = struct_of(create, "creations"), struct_of(delete, "filters")
        creations = [
            entry(resource_type=2, resource_name=name, resource_pattern_type=3, principal="User:v", host="*",
                  operation=3, permission_type=3) for name in self.names[:MANY_ACLS]
        ]  # fmt: skip
        filled = [create(creations=part) for part in _parts(creations, MAX_ELEMENTS - 100)]
        every = {"resource_name_filter": None, "principal_filter": None, "host_filter": None, **all_of}
        yield Case(ApiKey.DESCRIBE_ACLS, f"{MANY_ACLS:,} entries", 3, [*filled, describe(**every)])
        yield Case(
            ApiKey.DELETE_ACLS, f"a filter that matches {MANY_ACLS:,}", 3, [*filled, delete(filters=[chosen(**every)])]
        )
        most = [
            chosen(resource_name_filter=creation.resource_name, principal_filter="User:v", host_filter="*",
                   resource_type_filter=2, pattern_type_filter=3, operation=3, permission_type=3)
            for creation in creations[: MAX_ELEMENTS - 100]
        ]  # fmt: skip
        yield Case(
            ApiKey.DELETE_ACLS, f"{len(most):,} of {MANY_ACLS:,}, one by one", 3, [*filled, delete(filters=most)]
        )

    def quotas(self) -> Iterator[Case]:
        """Yields requests about many quotas."""
        describe, alter = request_class(ApiKey.DESCRIBE_CLIENT_QUOTAS), request_class(ApiKey.ALTER_CLIENT_QUOTAS)
        entry = struct_of(alter, "entries")
        entity, op = struct_of(entry, "entity"), struct_of(entry, "ops")

        def change(names: list[str], remove: bool) -> Any:
            return alter(entries=[
                entry(entity=[entity(entity_type="user", entity_name=name)],
                      ops=[op(key="producer_byte_rate", value=1000.0, remove=remove)]) for name in names
            ])  # fmt: skip

        names = self.names[:MANY_QUOTAS]
        filled = [change(part, False) for part in _parts(names, MAX_ELEMENTS // 3 - 10)]
        yield Case(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, f"all of {MANY_QUOTAS:,} entities", 1, [*filled, describe(components=[])]
        )
        yield Case(
            ApiKey.ALTER_CLIENT_QUOTAS, f"most entities, removed from {MANY_QUOTAS:,}", 1,
            [*filled, change(names[: MAX_ELEMENTS // 3 - 10], True)],
        )  # fmt: skip

    def small(self) -> Iterator[Case]:
        """Yields the measured requests of APIs whose requests have no lists."""
        for key in (ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_CLUSTER):
            yield Case(key, "an empty request", 0, [request_class(key)()])
        quotas = request_class(ApiKey.DESCRIBE_CLIENT_QUOTAS)
        part = struct_of(quotas, "components")
        yield self.of(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, "most entities",
            lambda n: quotas(
                components=[part(entity_type="user", match_type=0, match=name) for name in self.names[:n]]
            ),
            100_000,
        )  # fmt: skip
        alter = request_class(ApiKey.ALTER_CLIENT_QUOTAS)
        entry = struct_of(alter, "entries")
        entity, op = struct_of(entry, "entity"), struct_of(entry, "ops")
        yield self.of(
            ApiKey.ALTER_CLIENT_QUOTAS, "most entities",
            lambda n: alter(entries=[
                entry(entity=[entity(entity_type="user", entity_name=name)],
                      ops=[op(key="producer_byte_rate", value=1000.0)])
                for name in self.names[:n]
            ]),
            8_000,
        )  # fmt: skip
