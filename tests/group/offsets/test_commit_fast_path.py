"""The fast path of OffsetCommit and the generic path give the same responses, log and state."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.sync_group import SyncGroupRequest
from kcore.runtime import Pending, RequestContext
from tests.group.offsets.test_offset_commit import Denies
from tests.group.offsets.world import OffsetsContext
from tests.kit import serve

TOPICS = {"t": 3, "u": 1, "long": 400}
MAX_METADATA = 8


class GenericCommitApi(OffsetCommitApi):
    """OffsetCommitApi without its fast path."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fast = None


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"-")[-16:]


class World(OffsetsContext):
    """A shard with one API object for all requests, as in a node. Changes are committed only when the script demands
    it.
    """

    def __init__(self, kind: type[OffsetCommitApi], authorizer: Any = None) -> None:
        settings = {"offset.metadata.max.bytes": MAX_METADATA, "group.initial.rebalance.delay.ms": 0}
        super().__init__(settings, TOPICS)
        self.commits = kind(self.shards, self.topics, authorizer)
        self.auto_commit = False
        self.member_id = ""
        self.responses: list[Any] = []

    def join(self) -> None:
        """Joins the only member of the classic group "members", at generation 1."""
        self.auto_commit = True
        request = JoinGroupRequest(
            group_id="members",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
        )
        joined = self.send(JoinGroupApi(self.shards, self.config, None), request, version=3)
        self.advance(0)
        self.member_id = joined.response.member_id
        request = SyncGroupRequest(group_id="members", generation_id=1, member_id=self.member_id)
        self.call(SyncGroupApi(self.shards, None), request, version=2)
        self.auto_commit = False

    def send_commit(self, version: int, request: OffsetCommitRequest) -> None:
        """Sends a commit. A response that is completed later is recorded, too."""
        self.now.update()
        response_index = len(self.responses)
        self.responses.append(None)
        result = serve(self.commits, RequestContext(version, "client"), request)
        if isinstance(result, Pending):
            result.on_complete(lambda response: self.responses.__setitem__(response_index, response))
        else:
            self.responses[response_index] = result

    def observations(self) -> dict[str, Any]:
        """Returns all that the fast path must not change: offsets, responses, log, number of commits and sessions."""
        self.commit()
        members = self.machine.groups.get("members")
        return self.state() | {
            "responses": self.responses,
            "log": self.written(),
            "commits": self.machine.offsets.commits,
            "sessions": [m.timer.deadline_ms for m in members.members.values()] if members else [],
        }

    def written(self) -> bytes:
        """Returns the stored bytes of the shard's log."""
        return b"".join(bytes(batch) for _, batch in self.log().batches(start=0))


names = st.sampled_from(["t", "u", "long", "gone", "", "überall"])
metadata = st.sampled_from(["", "", "", None, "m" * MAX_METADATA, "ü"])
offsets = st.integers(0, 5) | st.integers(-(1 << 63), (1 << 63) - 1)
good = st.builds(
    OffsetCommitRequestPartition,
    partition_index=st.integers(0, 2),
    committed_offset=offsets,
    committed_leader_epoch=st.integers(-1, 3),
    committed_metadata=metadata,
)
bad = st.builds(
    OffsetCommitRequestPartition,
    partition_index=st.integers(-1, 3),
    committed_metadata=metadata | st.just("m" * (MAX_METADATA + 1)),
)
many = st.integers(0, 300).map(lambda n: [OffsetCommitRequestPartition(partition_index=p) for p in range(n)])
good_topics = st.builds(
    lambda name, entries: OffsetCommitRequestTopic(name=name, topic_id=topic_id(name), partitions=entries),
    st.sampled_from(["t", "t", "long"]),
    st.lists(good, min_size=1, max_size=3),
)
bad_topics = st.builds(
    OffsetCommitRequestTopic,
    name=names,
    topic_id=st.just(bytes(16)) | names.map(topic_id),
    partitions=st.lists(good | bad, max_size=3) | many,
)
free = st.builds(OffsetCommitRequest, group_id=st.sampled_from(["g", "other"]))
member = st.builds(
    OffsetCommitRequest,
    group_id=st.just("members"),
    generation_id_or_member_epoch=st.sampled_from([1, 1, 1, 2]),
    member_id=st.just("the member"),
)
anybody = st.builds(
    OffsetCommitRequest,
    group_id=st.sampled_from(["g", "members", ""]),
    generation_id_or_member_epoch=st.sampled_from([-1, -1, 1, 2]),
    member_id=st.sampled_from(["", "the member", "nobody"]),
    group_instance_id=st.none() | st.just("static"),
    retention_time_ms=st.sampled_from([-1, -1, 60_000]),
)
good_lists = st.lists(good_topics, min_size=1, max_size=2)
commits = st.tuples(free | member | anybody, good_lists | good_lists | st.lists(good_topics | bad_topics, max_size=3))
commit_steps = st.tuples(st.just("commit"), st.sampled_from([2, 8, 9, 10]), commits)
steps = st.one_of(
    commit_steps,
    commit_steps,
    st.tuples(st.sampled_from(["drop", "grow", "fail", "write", "unload"]), st.just(0), st.just(None)),
    st.tuples(st.just("wait"), st.integers(1, 3_000), st.none()),
)


def play(world: World, script: list[tuple[str, int, Any]]) -> dict[str, Any]:
    """Runs a script. Sends every commit twice, so that the second request is in the cache of the fast path."""
    world.join()
    for what, number, request in script:
        match what:
            case "commit":
                for _ in range(2):
                    world.send_commit(number, copy_of(*request, world.member_id))
            case "drop" if world.topics.by_name("t"):
                world.topics.remove("t")
            case "grow":
                world.topics.add("t", 4)
            case "fail":
                world.fail_next_commit()
                world.commit()
                world.engine.failures_left = 0  # the commit may have been empty
            case "write":
                world.commit()
            case "unload" if world.shards.get(0):
                world.shards.unload(0)
                world.send_commit(9, OffsetCommitRequest(group_id="g", topics=[one("t", 0)]))
                world.shards.load(0, world.engine.node_epoch)
                world.slices.finish()
            case "wait":
                world.advance(number)
    return world.observations()


def one(name: str, partition: int, **more: Any) -> OffsetCommitRequestTopic:
    entry = OffsetCommitRequestPartition(partition_index=partition, **more)
    return OffsetCommitRequestTopic(name=name, partitions=[entry])


def copy_of(
    request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic], the_member: str
) -> OffsetCommitRequest:
    """Returns a copy of a request, as if another connection had decoded it. The placeholder "the member" becomes the
    member id.
    """
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=the_member if request.member_id == "the member" else request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=topics,
    )


DENIES = Denies((Operation.READ, ResourceType.TOPIC, "u"), (Operation.READ, ResourceType.GROUP, "other"))


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=12), st.sampled_from([None, DENIES]))
def test_fast_path_equals_generic_path(script: list[tuple[str, int, Any]], authorizer: Any) -> None:
    assert play(World(OffsetCommitApi, authorizer), script) == play(World(GenericCommitApi, authorizer), script)


# ---- cached combinations


@pytest.fixture(params=[None, Denies()])
def world(request: Any) -> World:
    return World(OffsetCommitApi, request.param)


def commit(world: World, version: int = 9, *topics: OffsetCommitRequestTopic, group: str = "g") -> Any:
    """Sends a commit, and waits for the response."""
    world.send_commit(version, OffsetCommitRequest(group_id=group, topics=list(topics) or [one("t", 0)]))
    world.pipeline.commit()
    return world.responses[-1]


def codes(response: Any) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def test_equal_commits_of_all_groups_get_the_same_response(world):
    first = commit(world)
    assert commit(world, 9, one("t", 0, committed_offset=7), group="other") is first
    assert commit(world, 9, one("t", 1)) is not first
    assert commit(world, 9, one("t", 0), one("t", 0)) is not first
    assert world.commits.fast_path.cache_size == 3


def test_names_and_ids_are_distinguished(world):
    """A topic's id matters from version 10 on. The response repeats the request's name and id."""
    both = OffsetCommitRequestTopic(name="t", topic_id=topic_id("u"), partitions=one("t", 0).partitions)
    named, by_id = commit(world, 9, both), commit(world, 10, both)
    assert named == by_id
    assert named is not by_id
    assert (world.machine.offsets.count("g"), sorted(world.machine.offsets.topics("g"))) == (2, ["t", "u"])


def test_a_deleted_or_recreated_topic_is_looked_up_again(world):
    accepted = commit(world, 9, one("t", 2))
    world.topics.remove("t")
    assert codes(commit(world, 9, one("t", 2))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    world.topics.add("t", 2)
    assert codes(commit(world, 9, one("t", 2))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    world.topics.add("t", 3)
    again = commit(world, 9, one("t", 2))
    assert again == accepted
    assert again is not accepted


def test_refusals_are_not_cached(world):
    for index in (3, -1, 1 << 40, -(1 << 40)):
        assert codes(commit(world, 9, one("t", index))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes(commit(world, 9, one("t", 0), one("gone", 0))) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert commit(world, 9, OffsetCommitRequestTopic(name="t")).topics == []
    assert world.commits.fast_path.cache_size == 0
    long = one("t", 0, committed_metadata="m" * (MAX_METADATA + 1))
    assert codes(commit(world, 9, long)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert codes(commit(world)) == [0]


def test_cached_combinations_are_bounded(world):
    for first in range(400):
        for second in range(3):
            commit(world, 9, one("long", first), one("t", second))
    assert 0 < world.commits.fast_path.cache_size <= 1_024
    many = OffsetCommitRequestTopic(
        name="long", partitions=[OffsetCommitRequestPartition(partition_index=p) for p in range(400)]
    )
    before = world.commits.fast_path.cache_size
    assert codes(commit(world, 9, many)) == [0] * 400
    assert world.commits.fast_path.cache_size == before, "a key of 1600 bytes is not cached"


def test_fast_path_declines_a_request_of_a_subclass(world):
    class Request(OffsetCommitRequest):
        """A subclass of the request class with the same fields, which the fast path must decline."""

    world.send_commit(9, Request(group_id="g", topics=(one("t", 0),)))
    world.pipeline.commit()
    assert codes(world.responses[-1]) == [0]
    assert world.commits.fast_path.cache_size == 0


def test_fast_path_declines_a_request_that_grows_while_its_group_validates_it():
    world = World(OffsetCommitApi)
    world.join()
    more = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])
    request = OffsetCommitRequest(group_id="members", group_instance_id="i", topics=[more])
    group = world.machine.groups["members"]

    def grows(*_: Any) -> int:
        request.topics.extend([more] * 1_000)  # type: ignore[attr-defined]
        return 0

    with mock.patch.object(type(group), "validate_offset_commit", grows):
        world.send_commit(9, request)
    world.pipeline.commit()
    assert world.commits.fast_path.served == 0
    assert codes(world.responses[-1]) == [0] * 1_001
    assert world.machine.offsets.count("members") == 1


@pytest.mark.parametrize("group_id", ["", None, b"g", 1])
def test_fast_path_declines_a_group_id_that_is_not_a_name(world, group_id):
    request = OffsetCommitRequest(group_id=group_id, topics=[one("t", 0)])
    assert world.commits.fast(RequestContext(9, "client"), request) is None
    assert (world.commits.fast_path.served, world.pipeline.dirty) == (0, False)
