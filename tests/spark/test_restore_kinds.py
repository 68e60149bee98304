"""Restore plans for share groups, and for streams groups with members, on a simulated broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import kcore
from kcore.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kcore.protocol.messages.share_group_describe import DescribedGroup as SharedGroup
from kcore.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kcore.protocol.messages.streams_group_describe import (
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from kcore.protocol.records import CONSUMER_OFFSETS
from kcore.protocol.records.share_group_metadata import ShareGroupMetadataKey, ShareGroupMetadataValue
from kcore.protocol.records.streams_group_member_metadata import (
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)
from kcore.protocol.records.streams_group_metadata import StreamsGroupMetadataKey, StreamsGroupMetadataValue
from kcore.spark.events.event import EventRow
from kcore.spark.events.sources import Part, Source, Span
from kcore.spark.export.exporter import export
from kcore.spark.jobs.restore_plan import committed_as_of, plan_restore
from kcore.spark.restore.apply import apply
from kcore.spark.restore.planning import CommittedAsOf
from kcore_ext.group.offsets import CommitKey, OffsetAndMetadata
from tests import kit
from tests.nodes import node_of

pytestmark = pytest.mark.spark

WALL_MS = 1_700_000_000_000


def log() -> list[EventRow]:
    """Returns a log of a share group, and of a streams group with a member and committed offsets."""
    pairs: list[tuple[bytes, bytes]] = [
        (ShareGroupMetadataKey(group_id="queue").encode_key(), ShareGroupMetadataValue(epoch=3).encode_value(0)),
        (StreamsGroupMetadataKey(group_id="app").encode_key(), StreamsGroupMetadataValue(epoch=2).encode_value(0)),
        (
            StreamsGroupMemberMetadataKey(group_id="app", member_id="m").encode_key(),
            StreamsGroupMemberMetadataValue(client_id="c").encode_value(0),
        ),
    ]
    for partition in (0, 1):
        offset = OffsetAndMetadata(-1, 10 + partition, 0, "", WALL_MS, -1, bytes(16))
        pairs.append((CommitKey("app", "t", partition).encode_key(), offset.encode_value(4)))
    return [EventRow(key, value, CONSUMER_OFFSETS, 0, at, WALL_MS) for at, (key, value) in enumerate(pairs)]


class Written(Source):
    """A source with the records of `log`."""

    def parts(self) -> list[Part]:
        return [Part(CONSUMER_OFFSETS, 0, 0, len(log()))]

    def read_rows(self, span: Span) -> Iterator[EventRow]:
        return filter(lambda row: span.has(row.offset), log())


class OfAllKinds:
    """An engine that also reports a share group and a streams group, as a broker of Apache Kafka would."""

    def __init__(self, engine: kit.Target, members: Sequence[str]) -> None:
        self._engine = engine
        self.members = members

    def send(self, request: Any, version: int | None = None) -> Any:
        """Describes the streams group and lists both groups. Passes other requests to the engine."""
        if isinstance(request, StreamsGroupDescribeRequest):
            assert request.group_ids == ["app"]
            members = [Member(member_id=name) for name in self.members]
            state = "Stable" if members else "Empty"
            described = DescribedGroup(group_id="app", group_state=state, members=members)
            return StreamsGroupDescribeResponse(groups=[described])
        if isinstance(request, ShareGroupDescribeRequest):
            assert request.group_ids == ["queue"]
            return ShareGroupDescribeResponse(groups=[SharedGroup(group_id="queue", group_state="Empty")])
        response = self._engine.send(request, version)
        if isinstance(request, ListGroupsRequest):
            kinds = {"queue": "Share", "app": "Streams"}
            kept = [group for group in response.groups if group.group_id not in kinds]
            more = [ListedGroup(group_id=name, group_type=kind) for name, kind in kinds.items()]
            return ListGroupsResponse(groups=[*kept, *more])
        return response


@pytest.fixture
def target(tmp_path: Path) -> Iterator[tuple[kcore.Node, OfAllKinds]]:
    with kcore.open(tmp_path / "data", config=kit.QUICK) as engine:
        kit.make_topic(engine, "t", 2)
        for partition in (0, 1):
            engine.send(kit.produce("t", kit.batch([b"x"] * 50), partition), 9)
        kinds = OfAllKinds(engine, ["m"])
        yield node_of(kinds), kinds


def test_share_groups_and_streams_groups_with_members_are_refused(
    spark: Any, tmp_path: Path, target: tuple[kcore.Node, OfAllKinds]
) -> None:
    """A plan refuses a share group, which has no committed offsets, and a streams group that has members.

    The offsets of the streams group are set once it has no members.
    """
    node, kinds = target
    export(Written(), tmp_path / "events")
    then, compacted = committed_as_of(spark, tmp_path / "events")
    assert compacted == {}
    assert then == [CommittedAsOf("app", "t", partition, 10 + partition) for partition in (0, 1)]
    plan = plan_restore([*then, CommittedAsOf("queue", "t", 0, 4)], node, "here")
    assert [(row.group, row.partition, row.to_offset, row.action, row.why) for row in plan.rows] == [
        ("app", 0, None, "refuse", "the group has 1 member (Stable)"),
        ("app", 1, None, "refuse", "the group has 1 member (Stable)"),
        ("queue", 0, None, "refuse", "a share group has no committed offsets"),
    ]
    assert [one.result for one in apply(plan, node)] == ["refused"] * 3

    kinds.members = []
    plan = plan_restore(then, node, "here")
    assert [(row.to_offset, row.action) for row in plan.rows] == [(10, "set"), (11, "set")]
    kinds.members = ["late"]
    assert [one.result for one in apply(plan, node)] == ["refused"] * 2
    kinds.members = []
    assert [one.result for one in apply(plan, node)] == ["set"] * 2
    assert kit.committed(kinds, "app") == {("t", 0): 10, ("t", 1): 11}
