"""The fast path of OffsetFetch, with its cached responses, always gives the same result as the generic path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kcore.group.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatApi
from kcore.group.apis.delete_groups import DeleteGroupsApi
from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.offset_fetch import OffsetFetchApi
from kcore.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from kcore.runtime import Pending, RequestContext
from tests.group.offsets.test_offset_commit import Denies
from tests.group.offsets.test_offset_fetch import DESCRIBE_GROUP, DESCRIBE_TOPIC
from tests.group.offsets.world import OffsetsContext
from tests.kit import serve

GROUPS = st.sampled_from(["a", "b"])
MEMBERS = st.sampled_from(["m", "n"])
TOPICS = st.sampled_from(["t", "u"])
PARTITIONS = st.integers(0, 2)
OFFSETS = st.dictionaries(
    TOPICS,
    st.dictionaries(
        PARTITIONS, st.tuples(st.integers(0, 3), st.integers(-1, 1), st.sampled_from(["", "m"])), min_size=1
    ),
    min_size=1,
)

Question = tuple[int, OffsetFetchRequest]


def group_request(group: str, topics: dict[str, list[int]] | None, **more: Any) -> OffsetFetchRequestGroup:
    named = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(name=name, partition_indexes=p) for name, p in topics.items()]
    )
    return OffsetFetchRequestGroup(group_id=group, topics=named, **more)


def by_id(group: str, topics: dict[bytes, list[int]] | None) -> OffsetFetchRequestGroup:
    named = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=p) for topic_id, p in topics.items()]
    )
    return OffsetFetchRequestGroup(group_id=group, topics=named)


def old(group: str, topics: dict[str, list[int]] | None, stable: bool = False) -> OffsetFetchRequest:
    named = (
        None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=p) for name, p in topics.items()]
    )
    return OffsetFetchRequest(group_id=group, topics=named, require_stable=stable)


def requests_of(group: str, ids: dict[str, bytes]) -> list[Question]:
    """Returns requests of every kind for a group: in several versions, valid and invalid, for some or all topics, and
    with and without `require_stable`.
    """
    some = {"t": [2, 0, 1000], "u": [0, 1, 1]}
    found: list[Question] = []
    for stable in (False, True):
        for topics in (some, None):
            found.append((9, OffsetFetchRequest(groups=[group_request(group, topics)], require_stable=stable)))
            found.append((7, old(group, topics, stable)))
        # The same topics by name and then by id: similar requests that must be distinguished.
        for chosen in (None, {"t": [0, 1], "u": [2]}):
            with_ids = None if chosen is None else {ids[name]: partitions for name, partitions in chosen.items()}
            by_name = OffsetFetchRequest(groups=[group_request(group, chosen)], require_stable=stable)
            found.append((9, by_name))
            found.append((10, OffsetFetchRequest(groups=[by_id(group, with_ids)], require_stable=stable)))
            found.append((9, by_name))
            found.append((7, old(group, chosen, stable)))
    found.append((1, old(group, some)))
    found.append((2, old(group, None)))
    found.append((8, OffsetFetchRequest(groups=[group_request(group, {"t": [1]}), group_request(group, None)])))
    found.append((10, OffsetFetchRequest(groups=[by_id(group, {b"?" * 16: [0], ids["t"]: [1]})])))
    for member, epoch in (("m", 1), ("m", 2), ("n", 1), ("n", 2), (None, 3)):
        who = group_request(group, {"t": [0, 1]}, member_id=member, member_epoch=epoch)
        found.append((9, OffsetFetchRequest(groups=[who])))
    return found


class FetchMachine(RuleBasedStateMachine):
    """Makes changes that may affect a response, in any order. After each change, each request is sent three times.

    The cache has one response per group: that of the group's last request. The requests in `last` are sent last after a
    change and first after the next one. So their responses are in the cache during the next change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.context = OffsetsContext(
            {"offsets.retention.minutes": 60, "group.consumer.assignment.interval.ms": 0}, {"t": 3, "u": 3}
        )
        self.api = self.context.api(OffsetFetchApi)
        self.epochs: dict[str, int] = {}
        ids = {info.name: info.topic_id for info in self.context.topics.all()}
        self.requests = [request for group in ("a", "b", "k") for request in requests_of(group, ids)]
        self.changing = [5, 6]
        self.requests.append((9, OffsetFetchRequest(groups=[group_request("a", {"t": self.changing})])))
        self.last = [0, 1, 2]

    # ---- offsets

    @rule(group=GROUPS, offsets=OFFSETS, retention_ms=st.sampled_from([-1, 20 * 60_000]))
    def commit(self, group: str, offsets: Any, retention_ms: int) -> None:
        self.context.commit_offsets(group, offsets, version=4, retention_ms=retention_ms)

    @rule(group=GROUPS, offsets=OFFSETS)
    def commit_that_fails(self, group: str, offsets: Any) -> None:
        self.context.fail_next_commit()
        self.context.commit_offsets(group, offsets)
        self.context.engine.failures_left = 0  # a refused request wrote nothing

    @rule(group=GROUPS, offsets=OFFSETS, producer_id=st.sampled_from([7, 8]))
    def commit_in_transaction(self, group: str, offsets: Any, producer_id: int) -> None:
        self.context.commit_in_transaction(group, offsets, producer_id=producer_id)

    @rule(producer_id=st.sampled_from([7, 8]), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.context.end_transaction(producer_id, committed)

    @rule(group=GROUPS, topic=TOPICS, partitions=st.lists(PARTITIONS, min_size=1))
    def delete_offsets(self, group: str, topic: str, partitions: list[int]) -> None:
        self.context.delete_offsets(group, {topic: partitions})

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.context.call(DeleteGroupsApi(self.context.shards), DeleteGroupsRequest(groups_names=[group]))

    @rule(minutes=st.integers(10, 80))
    def time_passes(self, minutes: int) -> None:
        self.context.advance(minutes * 60_000)

    # ---- topics

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        if self.context.topics.by_name(topic) is not None:
            self.context.delete_topic(topic)

    @rule(topic=TOPICS, forgotten=st.booleans())
    def make_topic(self, topic: str, forgotten: bool) -> None:
        """Creates a topic again. With `forgotten`, the topic gets a new id, so that the committed offsets belong to the
        old topic.
        """
        info = self.context.topics.add(topic, 3)
        if forgotten:
            self.context.topics._topics[topic] = type(info)(topic, topic.encode() * 16, 3)

    # ---- members of a group with epochs

    @rule(member=MEMBERS)
    def beat(self, member: str) -> None:
        epoch = self.epochs.get(member, 0)
        first = {"subscribed_topic_names": ["t"], "topic_partitions": [], "rebalance_timeout_ms": 300_000}
        request = ConsumerGroupHeartbeatRequest(
            group_id="k", member_id=member, member_epoch=epoch, **({} if epoch else first)
        )
        self._heartbeat(member, request)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self._heartbeat(member, ConsumerGroupHeartbeatRequest(group_id="k", member_id=member, member_epoch=-1))

    def _heartbeat(self, member: str, request: ConsumerGroupHeartbeatRequest) -> None:
        api = ConsumerGroupHeartbeatApi(self.context.shards, self.context.consumer)
        response = self.context.call(api, request)
        self.epochs[member] = 0 if response.error_code else max(0, response.member_epoch)

    @rule(member=MEMBERS, offsets=OFFSETS)
    def commit_as_member(self, member: str, offsets: Any) -> None:
        self.context.commit_offsets("k", offsets, member=member, generation=self.epochs.get(member, 0))

    # ---- the shard

    @rule()
    def restart(self) -> None:
        self.context.restart()
        self.api = self.context.api(OffsetFetchApi)

    @rule()
    def move_away_and_back(self) -> None:
        epoch = self.context.shard.leader_epoch
        self.context.unload()
        self.both_paths_agree()
        self.context.shards.load(0, epoch)
        self.both_paths_agree()
        self.context.finish()

    @rule(group=GROUPS, offset=st.integers(0, 3), fails=st.booleans())
    def fetch_before_it_is_durable(self, group: str, offset: int, fails: bool) -> None:
        """Both paths wait for the commit, and return an error if it fails."""
        self.context.auto_commit = False
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        self.context.send(OffsetCommitApi(self.context.shards, self.context.topics), _commit(group, topics), version=9)
        pairs = []
        for version, request in self.requests:
            context = RequestContext(version)
            pairs.append((serve(self.api, context, request), self.api.handle(context, request)))
        if fails:
            self.context.fail_next_commit()
        self.context.commit()
        self.context.engine.failures_left = 0
        for fast, generic in pairs:
            assert isinstance(fast, Pending) == isinstance(generic, Pending)
            assert _settled(fast) == _settled(generic)
        self.context.auto_commit = True
        self.context.finish()

    # ---- requests

    @rule(partitions=st.lists(st.integers(0, 3)))
    def change_a_request(self, partitions: list[int]) -> None:
        """An embedder may reuse its request object for another request."""
        self.changing[:] = partitions

    @rule(numbers=st.lists(st.integers(0, 1_000), min_size=1, max_size=3))
    def choose_the_last_requests(self, numbers: list[int]) -> None:
        """Chooses the requests whose responses stay cached during the next steps."""
        self.last = [index % len(self.requests) for index in numbers]
        for index in self.last:
            self._compare_paths(index, 3)

    @invariant()
    def both_paths_agree(self) -> None:
        for index in self.last:
            self._compare_paths(index, 1)
        for index in range(len(self.requests)):
            self._compare_paths(index, 3)
        for index in self.last:
            self._compare_paths(index, 3)

    def _compare_paths(self, index: int, times: int) -> None:
        version, request = self.requests[index]
        context = RequestContext(version)
        for _ in range(times):
            response = serve(self.api, context, request)
            generic = self.api.handle(context, request)
            assert response == generic
            assert response.encode(version) == generic.encode(version)

    def teardown(self) -> None:
        self.both_paths_agree()
        assert self.api.fast_path.served > 0
        assert self.api.fast_path.reused > 0


TestFetches = FetchMachine.TestCase
TestFetches.settings = settings(max_examples=12, stateful_step_count=25, deadline=None, print_blob=True)


def _commit(group: str, topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id=group, topics=topics)


def _settled(response: Any) -> Any:
    if isinstance(response, Pending):
        assert response.done
        return response.response
    return response


# ---- cached responses


@pytest.fixture
def context() -> OffsetsContext:
    context = OffsetsContext(topics={"t": 100})
    context.commit_offsets("g", {"t": {0: (5, 2, "note"), 1: 6}})
    return context


def fetch_request(group: str = "g", partitions: list[int] | None = None) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[group_request(group, {"t": partitions or [0, 1, 2]})])


V9 = RequestContext(9, "client")


def test_the_third_response_of_an_unchanged_group_is_the_second_object(context):
    api = context.api(OffsetFetchApi)
    responses = [serve(api, V9, fetch_request()) for _ in range(4)]
    assert responses[0] is not responses[1]  # most requests occur once: the first response is not cached
    assert responses[1] is responses[2] is responses[3]
    assert (api.fast_path.served, api.fast_path.reused, api.fast_path.cache_size) == (4, 2, 1)
    context.commit_offsets("g", {"t": {99: 1}})
    assert serve(api, V9, fetch_request()) is responses[1]  # another partition's offset
    context.commit_offsets("g", {"t": {1: 6}})
    assert serve(api, V9, fetch_request()) == responses[1]
    assert serve(api, V9, fetch_request()) is not responses[1]  # committed again, though the offset is the same


def test_similar_requests_are_distinguished(context):
    """After a topic is created again, its old offsets are returned by name and in requests for all topics, but not by
    the new id.
    """
    info = context.topics.by_name("t")
    context.topics._topics["t"] = type(info)("t", b"2" * 16, 100)
    api = context.api(OffsetFetchApi)
    alike = [
        (9, fetch_request(partitions=[0, 1])),
        (10, OffsetFetchRequest(groups=[by_id("g", {b"2" * 16: [0, 1]})])),
        (10, OffsetFetchRequest(groups=[by_id("g", None)])),
        (9, OffsetFetchRequest(groups=[group_request("g", None)])),
        (7, old("g", None)),
        (7, old("g", {"t": [0, 1]})),
        (9, OffsetFetchRequest(groups=[group_request("g", {"x": [0, 1]})])),
        (9, OffsetFetchRequest(groups=[group_request("g", {"y": [0, 1]})])),
    ]
    for first in alike:
        for second in alike:
            for version, request in (first, first, first, second):
                context_ = RequestContext(version)
                assert serve(api, context_, request) == api.handle(context_, request)
    assert api.fast_path.reused > 0
    for topic_id in (b"2" * 16, b"3" * 16):
        context.topics._topics["t"] = type(info)("t", topic_id, 100)
        request = OffsetFetchRequest(groups=[by_id("g", {topic_id: [0, 1]})])
        for _ in range(3):
            assert serve(api, RequestContext(10), request) == api.handle(RequestContext(10), request)


def test_unstable_responses_are_not_cached(context):
    api = context.api(OffsetFetchApi)
    context.commit_in_transaction("g", {"t": {0: 50}})
    request = OffsetFetchRequest(groups=fetch_request().groups, require_stable=True)
    for _ in range(4):
        assert serve(api, V9, request).groups[0].topics[0].partitions[0].error_code == 88
    assert (api.fast_path.served, api.fast_path.reused, api.fast_path.cache_size) == (4, 0, 0)


@pytest.mark.parametrize("stable", [0, 1, None, "", "yes"])
def test_a_flag_that_is_not_a_bool_is_handled_as_by_the_generic_path(context, stable):
    api = context.api(OffsetFetchApi)
    context.commit_in_transaction("g", {"t": {0: 50}})
    request = OffsetFetchRequest(groups=fetch_request().groups, require_stable=stable)
    for _ in range(3):
        response = serve(api, V9, request)
        assert response == api.handle(V9, request)
        assert response.groups[0].topics[0].partitions[0].error_code == (88 if stable else 0)


@pytest.mark.parametrize(
    ("partitions", "metadata", "cached"),
    [(range(60), "", 1), (range(70), "", 0), (range(3), "m" * 900, 1), (range(3), "m" * 1024, 0)],
)
def test_large_responses_are_not_cached(context, partitions, metadata, cached):
    api = context.api(OffsetFetchApi)
    context.commit_offsets("g", {"t": {0: (5, -1, metadata)}})
    for _ in range(3):
        assert serve(api, V9, fetch_request(partitions=list(partitions))) is not None
    assert api.fast_path.cache_size == cached


def test_the_number_of_cached_responses_is_bounded(context):
    api = context.api(OffsetFetchApi)
    most = 0
    for number in range(3_000):
        for _ in range(2):
            serve(api, V9, fetch_request(f"group {number}"))
        most = max(most, api.fast_path.cache_size)
    assert most == 1_024


TOPIC_T_ID = b"t".rjust(16, b"-")


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        (2, old("g", None)),
        (7, old("g", {"t": [0]})),
        (9, fetch_request()),
        (9, OffsetFetchRequest(groups=[group_request("g", None)])),
        (10, OffsetFetchRequest(groups=[by_id("g", {TOPIC_T_ID: [0, 1]})])),
        (10, OffsetFetchRequest(groups=[by_id("g", None)])),
    ],
)
def test_every_request_is_authorized_and_denied_topics_are_not_returned(context, version, request_):
    context.authorizer = authorizer = Denies()
    api = context.api(OffsetFetchApi)
    who = RequestContext(version)
    responses = [serve(api, who, request_) for _ in range(4)]
    assert responses[3] is responses[1]
    assert authorizer.calls == [(*DESCRIBE_GROUP, "g"), (*DESCRIBE_TOPIC, "t")] * 4
    for denied in ((*DESCRIBE_TOPIC, "t"), (*DESCRIBE_GROUP, "g")):
        authorizer.denied = (denied,)
        authorizer.calls.clear()
        refused = serve(api, who, request_)
        by_both_paths = authorizer.calls[:]
        authorizer.calls.clear()
        assert refused == api.handle(who, request_)
        assert by_both_paths[-len(authorizer.calls) :] == authorizer.calls  # the generic path authorizes it again
        assert refused != responses[0]
    authorizer.denied = ()
    assert serve(api, who, request_) is responses[1]
    assert (api.fast_path.served, api.fast_path.reused) == (5, 3)


# ---- requests and responses changed by callers


def _shrink_topics(response: Any) -> None:
    response.groups[0].topics.clear()


def _grow_topics(response: Any) -> None:
    response.groups[0].topics.append(response.groups[0].topics[0])


def _foreign_topic(response: Any) -> None:
    response.groups[0].topics[0] = "not a topic"


def _rename(response: Any) -> None:
    response.groups[0].topics[0].name = None


def _no_partitions(response: Any) -> None:
    response.groups[0].topics[0].partitions = None


def _delete_field(response: Any) -> None:
    del response.groups[0].topics[0].partitions


def _shrink_partitions(response: Any) -> None:
    del response.groups[0].topics[0].partitions[1:]


def _foreign_partition(response: Any) -> None:
    response.groups[0].topics[0].partitions[2] = OffsetFetchRequestTopics()


def _grow_partitions(response: Any) -> None:
    response.groups[0].topics[0].partitions.append(OffsetFetchResponsePartitions(partition_index=3))


CHANGES = [
    _shrink_topics,
    _grow_topics,
    _foreign_topic,
    _rename,
    _no_partitions,
    _delete_field,
    _shrink_partitions,
    _foreign_partition,
    _grow_partitions,
]


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_response_changed_by_a_caller_is_not_reused(context, change, everything):
    """Callers should not change a response. If a caller does so, the engine must not crash."""
    context.commit_offsets("g", {"t": {2: 7}})
    api = context.api(OffsetFetchApi)
    request = OffsetFetchRequest(groups=[group_request("g", None)]) if everything else fetch_request()
    for _ in range(3):
        response = serve(api, V9, request)
    change(response)
    assert serve(api, V9, request) == api.handle(V9, request)
    more = fetch_request(partitions=[0, 1, 2, 3])
    assert serve(api, V9, more) == api.handle(V9, more)


@pytest.mark.parametrize(
    "request_",
    [
        OffsetFetchRequest(groups=()),
        OffsetFetchRequest(groups=[group_request("g", {"t": [True]})]),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics()])]),
        OffsetFetchRequest(groups=[group_request("g", {"t": [1 << 40]})]),
        OffsetFetchRequest(groups=[group_request("g", {"t": range(3)})]),
        OffsetFetchRequest(groups=(group_request("g", {"t": (0, 1)}),)),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=())]),
    ],
)
def test_unusual_requests_are_handled_as_by_the_generic_path(context, request_):
    api = context.api(OffsetFetchApi)
    for _ in range(3):
        assert serve(api, V9, request_) == api.handle(V9, request_)


@pytest.mark.parametrize("group_id", ["", None, b"g", 1])
def test_fast_path_declines_a_group_id_that_is_not_a_name(context, group_id):
    api = context.api(OffsetFetchApi)
    assert api.fast(V9, OffsetFetchRequest(groups=[group_request(group_id, None)])) is None
