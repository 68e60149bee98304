"""The most expensive requests of at most 1 MB to a node with 100,000 partitions, groups and transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kcore.broker.compaction.cleaner import CompactionPass, CompactionRules
from kcore.protocol.api_keys import ApiKey, request_class
from kcore.share.batches import MAX_BATCHES
from tools.request_costs.cases import MAX_ELEMENTS, Case, struct_of
from tools.request_costs.large_state import (
    ACLS,
    BOMBS,
    GROUPS,
    LARGE_BATCH,
    LARGE_STATES,
    PARTITIONS,
    PRODUCERS,
    TOPICS,
    TRANSACTIONS,
    WIDE_TOPICS,
    LargeState,
)

TOPIC, BROKER = 2, 4
MATCH_ALL = 1
DESCRIBED_TOPICS = 8_000
SESSION_TOPICS = 12_400
"""Number of topics in one Fetch, each with one partition. Two of these requests fill a fetch session."""


class LargeCases:
    """The measured requests to a node that has 100,000 partitions, groups and transactional ids.

    Args:
        state: the node that serves them.
    """

    def __init__(self, state: LargeState) -> None:
        self.state = state

    def __iter__(self) -> Iterator[Case]:
        for build in (self.partitions, self.fetch, self.work, self.topics, self.settings, self.lists):
            yield from build()

    def partitions(self) -> Iterator[Case]:
        """Yields requests about the partitions of all topics, or about logs that are slow to read."""
        listed = request_class(ApiKey.LIST_OFFSETS)
        topic, part = struct_of(listed, "topics"), struct_of(listed, "topics.partitions")
        parts = [part(partition_index=index, timestamp=1) for index in range(BOMBS)]
        yield Case(
            ApiKey.LIST_OFFSETS, f"{BOMBS} batches that decompress to 16 MB", 11,
            [listed(topics=[topic(name="bombs", partitions=parts)])],
        )  # fmt: skip
        yield Case(
            ApiKey.DESCRIBE_LOG_DIRS, f"{PARTITIONS:,} partitions", 5,
            [request_class(ApiKey.DESCRIBE_LOG_DIRS)(topics=None)],
        )  # fmt: skip
        describe = request_class(ApiKey.DESCRIBE_PRODUCERS)
        requested = struct_of(describe, "topics")
        yield Case(
            ApiKey.DESCRIBE_PRODUCERS, f"{PRODUCERS:,} producers", 0,
            [describe(topics=[requested(name="data", partition_indexes=[0])])],
        )  # fmt: skip
        metadata = request_class(ApiKey.METADATA)
        yield Case(ApiKey.METADATA, f"{PARTITIONS:,} partitions", 13, [metadata(topics=None)])
        described = request_class(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
        yield Case(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, f"{TOPICS:,} topics", 0,
            [described(topics=[], response_partition_limit=2_000)],
        )  # fmt: skip

    def fetch(self) -> Iterator[Case]:
        """Yields fetches in sessions with all partitions: one without errors, and one with an error for each
        partition.
        """
        fetch = request_class(ApiKey.FETCH)
        readable, refused = self._session_requests(0), self._session_requests(1)
        count = len(readable)

        def last(state: LargeState) -> Any:
            return fetch(session_id=_session(state).session_id, session_epoch=count, topics=[])

        def changed(state: LargeState) -> Any:
            for member in _session(state).partitions.values():
                member.high_watermark = -1  # as if records had been appended since the last response
            return last(state)

        size = f"a session of {len(readable) * SESSION_TOPICS:,} partitions"
        yield Case(ApiKey.FETCH, f"a session gets {SESSION_TOPICS:,} more topics", 18, readable)
        yield Case(ApiKey.FETCH, size, 18, [*readable, last])
        yield Case(ApiKey.FETCH, f"{size}, all changed", 18, [*readable, changed])
        yield Case(ApiKey.FETCH, f"{size}, all with errors", 18, [*refused, last])
        yield Case(ApiKey.FETCH, f"{size}, of a user with an ACL for each", 18, [*readable, _of_a_user(last)])
        for what, fields in (
            ("offsets out of range", {"fetch_offset": 1}),
            ("fenced epochs", {"current_leader_epoch": 0}),
            ("unknown epochs", {"current_leader_epoch": 99}),
            ("diverging epochs", {"last_fetched_epoch": 0, "fetch_offset": 7}),
        ):
            topics = self._requested(self.state.wide, range(MAX_ELEMENTS // WIDE_TOPICS - 1), **fields)
            yield Case(ApiKey.FETCH, f"{what} of most partitions", 18, [fetch(session_epoch=-1, topics=topics)])

    def _requested(self, names: list[str], indexes: range, **fields: Any) -> list[Any]:
        """Returns the topic rows of a Fetch request: the partitions `indexes` of each named topic."""
        fetch = request_class(ApiKey.FETCH)
        topic, part = struct_of(fetch, "topics"), struct_of(fetch, "topics.partitions")
        parts = [part(partition=index, partition_max_bytes=1, **fields) for index in indexes]
        return [topic(topic_id=self.state.topic_id(name), partitions=parts) for name in names]

    def _session_requests(self, fetch_offset: int) -> list[Any]:
        """Returns the requests that open a session with as many topics as possible."""
        fetch = request_class(ApiKey.FETCH)

        def opening(epoch: int) -> Any:
            names = self.state.names[epoch * SESSION_TOPICS : (epoch + 1) * SESSION_TOPICS]
            topics = self._requested(names, range(1), fetch_offset=fetch_offset)

            def request(state: LargeState) -> Any:
                session_id = _session(state).session_id if epoch else 0
                return fetch(session_id=session_id, session_epoch=epoch, topics=topics)

            return request

        return [opening(0), opening(1)]

    def work(self) -> Iterator[Case]:
        """Yields a ShareFetch that loads large states, and a compaction of a large batch."""
        fetch = request_class(ApiKey.SHARE_FETCH)
        topic, part = struct_of(fetch, "topics"), struct_of(fetch, "topics.partitions")
        parts = [part(partition_index=index) for index in range(LARGE_STATES)]
        loading = fetch(
            group_id=self.state.share_group, member_id="m" * 22, share_session_epoch=0, max_bytes=1, batch_size=1,
            topics=[topic(topic_id=self.state.topic_id("bombs"), partitions=parts)],
        )  # fmt: skip
        yield Case(
            ApiKey.SHARE_FETCH, f"{LARGE_STATES} share partitions of {MAX_BATCHES:,} state batches to load", 2,
            [loading],
        )  # fmt: skip

        def compacting(state: LargeState) -> Any:
            partition = state.engine.partitions.get("compacted", 0)
            assert partition is not None
            state.engine.slices.add(CompactionPass(partition, CompactionRules(state.engine.now.wall_ms)).run())
            return request_class(ApiKey.API_VERSIONS)()

        yield Case(ApiKey.API_VERSIONS, f"during a compaction of {LARGE_BATCH:,} keys", 0, [compacting])

    def topics(self) -> Iterator[Case]:
        """Yields requests that create, extend and delete topics with many partitions."""
        create, delete, extend = (
            request_class(key) for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
        )
        made, gone, longer = struct_of(create, "topics"), struct_of(delete, "topics"), struct_of(extend, "topics")
        yield Case(
            ApiKey.CREATE_TOPICS, "10,000 partitions", 7,
            [create(topics=[made(name="new", num_partitions=10_000, replication_factor=1)])],
        )  # fmt: skip
        yield Case(ApiKey.DELETE_TOPICS, "10,000 partitions", 6, [delete(topics=[gone(name=self.state.wide[0])])])
        yield Case(
            ApiKey.CREATE_PARTITIONS,
            "9,999 partitions",
            3,
            [extend(topics=[longer(name="narrow", count=10_000, assignments=None)])],
        )

    def settings(self) -> Iterator[Case]:
        """Yields requests about settings."""
        alter = request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        changed, value = struct_of(alter, "resources"), struct_of(alter, "resources.configs")
        for name, new in (("log.retention.ms", "70000"), ("log.cleaner.threads", "2")):
            change = changed(resource_type=BROKER, resource_name="", configs=[value(name=name, value=new)])
            yield Case(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, f"{name} for {TOPICS:,} topics", 1, [alter(resources=[change])]
            )
        names = self.state.names[: MAX_ELEMENTS // 3]
        changes = [
            changed(resource_type=TOPIC, resource_name=name, configs=[value(name="retention.ms", value="7")])
            for name in names
        ]
        yield Case(ApiKey.INCREMENTAL_ALTER_CONFIGS, f"{len(names):,} topics", 1, [alter(resources=changes)])
        describe = request_class(ApiKey.DESCRIBE_CONFIGS)
        shown = struct_of(describe, "resources")
        some = self.state.names[:DESCRIBED_TOPICS]
        yield Case(
            ApiKey.DESCRIBE_CONFIGS, f"a setting of {len(some):,} topics", 4,
            [describe(resources=[shown(resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"])
                                 for name in some])],
        )  # fmt: skip
        yield Case(
            ApiKey.LIST_CONFIG_RESOURCES, f"{TOPICS:,} topics", 1,
            [request_class(ApiKey.LIST_CONFIG_RESOURCES)(resource_types=[])],
        )  # fmt: skip

    def lists(self) -> Iterator[Case]:
        """Yields requests whose response lists all objects of one kind."""
        yield Case(ApiKey.LIST_GROUPS, f"{GROUPS:,} groups", 5, [request_class(ApiKey.LIST_GROUPS)()])
        listed = request_class(ApiKey.LIST_TRANSACTIONS)
        yield Case(ApiKey.LIST_TRANSACTIONS, f"{TRANSACTIONS:,} ids", 1, [listed()])
        describe = request_class(ApiKey.DESCRIBE_ACLS)
        yield Case(
            ApiKey.DESCRIBE_ACLS, f"{ACLS:,} entries", 3,
            [describe(
                resource_type_filter=MATCH_ALL, resource_name_filter=None, pattern_type_filter=MATCH_ALL,
                principal_filter=None, host_filter=None, operation=MATCH_ALL, permission_type=MATCH_ALL,
            )],
        )  # fmt: skip


def _session(state: LargeState) -> Any:
    """Returns the only fetch session."""
    return next(iter(state.engine.apis[ApiKey.FETCH].sessions._sessions.values()))


def _of_a_user(request: Callable[[LargeState], Any]) -> Callable[[LargeState], Any]:
    """Makes the node's clients ordinary users before a request. For all other requests, the clients are super users."""

    def made(state: LargeState) -> Any:
        authorizer: Any = state.engine.authorizer
        authorizer.super_users = frozenset()
        return request(state)

    return made
