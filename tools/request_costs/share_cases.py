"""The most expensive known requests of at most 1 MB for the APIs of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kcore.protocol.api_keys import ApiKey, request_class
from tools.request_costs.cases import MAX_ELEMENTS, Case, Cases, struct_of
from tools.request_costs.state import LOCKED_RECORDS, SHARE_MEMBERS, WIDE_PARTITIONS, State

MEMBER = "m" * 22
LOADED_TOGETHER = 500
"""Number of share partitions that one ShareFetch loads."""
ACCEPT = 1


class ShareCases:
    """The measured requests about share groups.

    Args:
        state: the node that serves them.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.cases = Cases(state)
        self.wide = state.topic_id("wide")
        self.names = [*state.names, "wide"]

    def __iter__(self) -> Iterator[Case]:
        for build in (self.members, self.descriptions, self.deliveries, self.offsets, self.states):
            yield from build()

    # ---- groups

    def members(self) -> Iterator[Case]:
        """Yields the measured requests of ShareGroupHeartbeat."""
        beat = request_class(ApiKey.SHARE_GROUP_HEARTBEAT)
        for what, names in (("most topics", self.cases.names), ("all topics", self.names)):
            yield self.cases.of(
                ApiKey.SHARE_GROUP_HEARTBEAT, what,
                lambda n, names=names: beat(
                    group_id="sh", member_id=MEMBER, member_epoch=0, subscribed_topic_names=names[-n:]
                ), 20_000,
            )  # fmt: skip
        for what, count in (
            ("one more member of a large group", 1),
            ("a large group gets 10,001 topics", WIDE_PARTITIONS),
        ):
            request = beat(
                group_id=self.state.share_group, member_id=MEMBER, member_epoch=0,
                subscribed_topic_names=self.names[-count:],
            )  # fmt: skip
            yield Case(ApiKey.SHARE_GROUP_HEARTBEAT, what, 1, [request])

    def descriptions(self) -> Iterator[Case]:
        """Yields the measured requests of ShareGroupDescribe."""
        describe = request_class(ApiKey.SHARE_GROUP_DESCRIBE)
        for what, groups in (
            ("absent groups", self.cases.names),
            (f"{SHARE_MEMBERS} members, again and again", [self.state.share_group] * 100_000),
        ):
            yield self.cases.of(
                ApiKey.SHARE_GROUP_DESCRIBE, what, lambda n, groups=groups: describe(group_ids=groups[:n]), len(groups)
            )
        yield Case(
            ApiKey.SHARE_GROUP_DESCRIBE, "members with 10,001 topics each", 1,
            [describe(group_ids=[self.state.share_group_of_all])],
        )  # fmt: skip

    # ---- delivery

    def deliveries(self) -> Iterator[Case]:
        """Yields the measured requests of ShareFetch and ShareAcknowledge."""
        opened = self._fetch(range(WIDE_PARTITIONS), epoch=0, max_records=0)
        yield Case(ApiKey.SHARE_FETCH, "10,000 partitions, new session", 2, [opened])
        later = [
            self._fetch((), epoch=epoch, max_records=0) for epoch in range(1, WIDE_PARTITIONS // LOADED_TOGETHER + 2)
        ]
        last = self._fetch((), epoch=len(later) + 1)
        yield Case(ApiKey.SHARE_FETCH, "10,000 loaded partitions", 2, [opened, *later, last])
        loaded = self._fetch((0,), epoch=0, max_records=0)
        yield Case(ApiKey.SHARE_FETCH, "60 MB of records", 2, [loaded, self._fetch((), epoch=1)])
        data = self.state.topic_id("data")
        small = self._fetch((0,), epoch=0, topic_id=data, max_records=0)
        taken = self._fetch((), epoch=1, max_records=LOCKED_RECORDS, batch_size=1)
        yield Case(ApiKey.SHARE_FETCH, f"{LOCKED_RECORDS} records of small batches", 2, [small, taken])
        acknowledge = request_class(ApiKey.SHARE_ACKNOWLEDGE)
        topic = struct_of(acknowledge, "topics")
        part = struct_of(acknowledge, "topics.partitions")
        ack = struct_of(acknowledge, "topics.partitions.acknowledgement_batches")

        def acknowledging(topic_id: bytes, epoch: int, partitions: list[Any]) -> Any:
            return acknowledge(
                group_id=self.state.share_group, member_id=MEMBER, share_session_epoch=epoch,
                topics=[topic(topic_id=topic_id, partitions=partitions)],
            )  # fmt: skip

        each = [ack(first_offset=at, last_offset=at, acknowledge_types=[ACCEPT]) for at in range(LOCKED_RECORDS)]
        for what, batches in (
            (f"{LOCKED_RECORDS} records, one by one", each),
            (f"{LOCKED_RECORDS} records, every other one", each[::2]),
        ):
            request = acknowledging(data, 2, [part(partition_index=0, acknowledgement_batches=batches)])
            yield Case(ApiKey.SHARE_ACKNOWLEDGE, what, 2, [small, taken, request])
        # An acknowledgement of each partition, of which none has acquired records.
        entries = [ack(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])]
        partitions = [
            part(partition_index=index, acknowledgement_batches=entries)
            for index in range(min(WIDE_PARTITIONS, MAX_ELEMENTS // 3))
        ]
        yield Case(
            ApiKey.SHARE_ACKNOWLEDGE, "most partitions", 2,
            [opened, *later, acknowledging(self.wide, len(later) + 1, partitions)],
        )  # fmt: skip

    def _fetch(self, partitions: Any, *, epoch: int, topic_id: bytes | None = None, **fields: Any) -> Any:
        fetch = request_class(ApiKey.SHARE_FETCH)
        topic, part = struct_of(fetch, "topics"), struct_of(fetch, "topics.partitions")
        entries = [part(partition_index=index) for index in partitions]
        limits = {"max_bytes": 1 << 30, "max_records": 1 << 30, "batch_size": 1 << 30} | fields
        return fetch(
            group_id=self.state.share_group, member_id=MEMBER, share_session_epoch=epoch,
            topics=[topic(topic_id=topic_id or self.wide, partitions=entries)] if entries else [], **limits,
        )  # fmt: skip

    # ---- offsets

    def offsets(self) -> Iterator[Case]:
        """Yields the measured requests that describe, change or delete offsets of share groups."""
        group_id = self.state.idle_share_group
        describe = request_class(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
        group, topic = struct_of(describe, "groups"), struct_of(describe, "groups.topics")
        whole = group(group_id=group_id, topics=None)
        key = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
        yield Case(key, "all of 20,000 partitions", 1, [describe(groups=[whole])])
        yield self.cases.of(key, "all, again and again", lambda n: describe(groups=[whole] * n), 400_000)

        def again(count: int) -> Any:
            repeated = topic(topic_name="wide", partitions=[0] * count)
            return describe(groups=[group(group_id=group_id, topics=[repeated])])

        yield self.cases.of(key, "one partition, again and again", again, 400_000)
        yield self.cases.of(
            key, "absent groups",
            lambda n: describe(groups=[group(group_id=name, topics=None) for name in self.cases.names[:n]]), 400_000,
        )  # fmt: skip
        alter = request_class(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
        altered, part = struct_of(alter, "topics"), struct_of(alter, "topics.partitions")
        zero = [part(partition_index=0, start_offset=0)]
        yield self.cases.of(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS, "all topics",
            lambda n: alter(group_id=group_id, topics=[
                altered(topic_name=name, partitions=zero) for name in self.names[:n]
            ]), len(self.names),
        )  # fmt: skip
        yield self.cases.of(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS, "10,000 partitions of a new group",
            lambda n: alter(group_id="new", topics=[
                altered(topic_name="wide", partitions=[part(partition_index=i, start_offset=i) for i in range(n)])
            ]), WIDE_PARTITIONS,
        )  # fmt: skip
        delete = request_class(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
        deleted = struct_of(delete, "topics")
        for what, names in (("all topics", self.names), ("absent topics", self.cases.names)):
            yield self.cases.of(
                ApiKey.DELETE_SHARE_GROUP_OFFSETS, what,
                lambda n, names=names: delete(
                    group_id=group_id, topics=[deleted(topic_name=name) for name in names[-n:]]
                ), 400_000,
            )  # fmt: skip

    # ---- the share coordinator

    def states(self) -> Iterator[Case]:
        """Yields the measured requests to the share coordinator."""
        group_id = self.state.idle_share_group
        for key, entry in (
            (ApiKey.INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": 5}),
            (ApiKey.READ_SHARE_GROUP_STATE, {}),
            (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, {}),
            (ApiKey.WRITE_SHARE_GROUP_STATE, {"start_offset": 1}),
            (ApiKey.DELETE_SHARE_GROUP_STATE, {}),
        ):
            yield self.cases.partitions(
                key, "most partitions", "topics.partitions", top={"group_id": group_id}, **entry
            )
        write = request_class(ApiKey.WRITE_SHARE_GROUP_STATE)
        topic, part = struct_of(write, "topics"), struct_of(write, "topics.partitions")
        struct = struct_of(write, "topics.partitions.state_batches")

        def writing(count: int) -> Any:
            batches = [struct(first_offset=2 * at, last_offset=2 * at, delivery_count=1) for at in range(count)]
            one = part(partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=batches)
            return write(group_id=group_id, topics=[topic(topic_id=self.wide, partitions=[one])])

        written = self.cases.of(ApiKey.WRITE_SHARE_GROUP_STATE, "most batches of one partition", writing, 400_000)
        yield written
        read = request_class(ApiKey.READ_SHARE_GROUP_STATE)
        topic_request, index = struct_of(read, "topics"), struct_of(read, "topics.partitions")
        again = self.cases.of(
            ApiKey.READ_SHARE_GROUP_STATE, "most batches, again and again",
            lambda n: read(group_id=group_id, topics=[
                topic_request(topic_id=self.wide, partitions=[index(partition=0, leader_epoch=0)] * n)
            ]), 400_000,
        )  # fmt: skip
        yield again._replace(requests=[*written.requests, *again.requests])
