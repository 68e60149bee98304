"""Offsets of groups with members: the permitted commits, reads and deletions in each state."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.group.apis.join_group import JoinGroupApi
from kcore.group.apis.leave_group import LeaveGroupApi
from kcore.group.apis.sync_group import SyncGroupApi
from kcore.group.classic.states import GroupState
from kcore.protocol.consumer_protocol import ConsumerProtocolSubscription
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.sync_group import SyncGroupRequest
from tests.group.offsets.world import OffsetsContext

STATES = ("absent", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
SESSION_MS = 30_000


class Members:
    """A group "g" with a dynamic and a static member. The test can put the group into any state."""

    def __init__(self, context: OffsetsContext, protocol_type: str = "consumer", topics: tuple[str, ...] = ("topic",)):
        self.context = context
        self.protocol_type = protocol_type
        metadata = b"?" if not topics else _subscription(topics)
        self.protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
        self.ids = ["", ""]
        self.instances = [None, "one"]
        self.generation = -1

    def join(self, who: int, **changes: Any) -> Any:
        fields = {
            "group_id": "g",
            "member_id": self.ids[who],
            "group_instance_id": self.instances[who],
            "protocol_type": self.protocol_type,
            "protocols": self.protocols,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 60_000,
            **changes,
        }
        api = JoinGroupApi(self.context.shards, self.context.config)
        return self.context.send(api, JoinGroupRequest(**fields), version=9)

    def enter(self) -> None:
        """Makes both members join in one generation. No member has sent SyncGroup yet."""
        self.ids[0] = self.join(0).response.member_id
        first = self.join(0)
        self.context.advance(0)
        second = self.join(1)
        again = self.join(0) if first.done else first
        self.context.advance(0)
        self.ids[1] = second.response.member_id
        self.generation = again.response.generation_id
        assert second.response.generation_id == self.generation

    def sync(self) -> None:
        api = SyncGroupApi(self.context.shards)
        for who in (1, 0):  # the leader is the first
            request = SyncGroupRequest(
                group_id="g",
                member_id=self.ids[who],
                group_instance_id=self.instances[who],
                generation_id=self.generation,
                protocol_type=self.protocol_type,
                protocol_name="range",
            )
            self.context.send(api, request, version=5)

    def leave(self) -> None:
        members = [
            MemberIdentity(member_id=m, group_instance_id=i) for m, i in zip(self.ids, self.instances, strict=True)
        ]
        request = LeaveGroupRequest(group_id="g", members=members)
        response = self.context.call(LeaveGroupApi(self.context.shards), request, version=5)
        assert [m.error_code for m in response.members] == [0, 0]

    def bring(self, state: str) -> None:
        if state == "absent":
            self.ids = ["nobody", "nobody"]
            self.generation = 1
            return
        self.enter()
        if state != "CompletingRebalance":
            self.sync()
        if state == "PreparingRebalance":
            self.join(0)  # the leader rejoins: the group waits for all members
        elif state == "Empty":
            self.leave()
        group = self.context.machine.groups["g"]
        if state == "Dead":
            group.transition(GroupState.DEAD, "the test wants to see it")
        assert group.state_name() == state


def _subscription(topics: tuple[str, ...]) -> bytes:
    return ConsumerProtocolSubscription(topics=list(topics)).encode_versioned(1)


@pytest.fixture
def context() -> OffsetsContext:
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1}
    return OffsetsContext(settings, {"topic": 3, "other": 1})


# caller -> the response in each of STATES
COMMIT_MATRIX: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "anonymous": ({}, (0, 0, 25, 25, 25, 15)),
    "member": ({"generation": 0, "member": 0}, (69, 25, 0, 27, 0, 15)),
    "static member": ({"generation": 0, "member": 1, "instance": "one"}, (69, 25, 0, 27, 0, 15)),
    "static member without its instance": ({"generation": 0, "member": 1}, (69, 25, 0, 27, 0, 15)),
    "member, older generation": ({"generation": -1, "member": 0}, (69, 25, 22, 22, 22, 15)),
    "member, later generation": ({"generation": 1, "member": 0}, (69, 25, 22, 22, 22, 15)),
    "member, no generation": ({"member": 0}, (0, 0, 22, 22, 22, 15)),
    "unknown member": ({"generation": 0, "member": "nobody"}, (69, 25, 25, 25, 25, 15)),
    "unknown member, older generation": ({"generation": -1, "member": "nobody"}, (69, 25, 25, 25, 25, 15)),
    "unknown member, no generation": ({"member": "nobody"}, (0, 0, 25, 25, 25, 15)),
    "no member, right generation": ({"generation": 0}, (69, 25, 25, 25, 25, 15)),
    "another's instance": ({"generation": 0, "member": 0, "instance": "one"}, (69, 25, 82, 82, 82, 15)),
    "another's instance, older": ({"generation": -1, "member": 0, "instance": "one"}, (69, 25, 82, 82, 82, 15)),
    "another's instance, no generation": ({"member": 0, "instance": "one"}, (0, 0, 82, 82, 82, 15)),
    "instance alone": ({"instance": "one"}, (0, 0, 82, 82, 82, 15)),
    "unknown instance": ({"generation": 0, "member": 1, "instance": "two"}, (69, 25, 25, 25, 25, 15)),
    "unknown instance, no generation": ({"member": 1, "instance": "two"}, (0, 0, 25, 25, 25, 15)),
}
# TxnOffsetCommit differs: 22 for an absent group, CompletingRebalance accepts it, and anonymous clients always may
# commit.
TXN_DIFFERENCES: dict[str, tuple[int, ...]] = {
    "anonymous": (0, 0, 0, 0, 0, 15),
    "member": (22, 25, 0, 0, 0, 15),
    "static member": (22, 25, 0, 0, 0, 15),
    "static member without its instance": (22, 25, 0, 0, 0, 15),
}


def who_commits(members: Members, who: dict[str, Any]) -> dict[str, Any]:
    arguments = dict(who)
    if "generation" in arguments:
        arguments["generation"] += members.generation  # in the table it is relative to the group's
    if isinstance(arguments.get("member"), int):
        arguments["member"] = members.ids[arguments["member"]]
    return arguments


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("row", COMMIT_MATRIX)
def test_a_commit_depends_on_caller_and_state(context, row, state):
    members = Members(context)
    members.bring(state)
    context.records()
    who, expected = COMMIT_MATRIX[row]
    code = expected[STATES.index(state)]
    assert context.commit_offsets("g", {"topic": {0: 5}}, **who_commits(members, who)) == [code]
    assert len(context.records()) == (code == 0)
    if state == "absent" and code == 69:
        assert context.commit_offsets("g", {"topic": {0: 5}}, version=8, **who_commits(members, who)) == [22]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("row", COMMIT_MATRIX)
def test_a_commit_in_a_transaction_depends_on_caller_and_state(context, row, state):
    members = Members(context)
    members.bring(state)
    context.records()
    who, expected = COMMIT_MATRIX[row]
    code = TXN_DIFFERENCES.get(row, expected)[STATES.index(state)]
    if code == 69:
        code = 22
    assert context.commit_in_transaction("g", {"topic": {0: 5}}, **who_commits(members, who)) == [code]
    assert len(context.records()) == (code == 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_anonymous_producers_may_commit_in_any_state(context, version):
    Members(context).bring("CompletingRebalance")
    assert context.commit_in_transaction("g", {"topic": {0: 5}}, version=version) == [0]


@pytest.mark.parametrize("state", STATES)
def test_a_fetch_succeeds_in_every_state(context, state):
    Members(context).bring(state)
    assert context.fetch("g", {"topic": [0]}) == {"topic": {0: (-1, -1, "", 0)}}
    assert context.fetch("g", {"topic": [0]}, member="nobody", epoch=77) == {"topic": {0: (-1, -1, "", 0)}}
    assert context.fetch("g", None) == {}


@pytest.mark.parametrize(
    ("protocol_type", "topics", "expected"),
    [
        ("consumer", ("topic",), (69, 0, 86, 86, 86, 69)),
        ("consumer", ("other",), (69, 0, 0, 0, 0, 69)),
        ("consumer", (), (69, 0, 86, 86, 86, 69)),  # undecodable subscriptions: all topics
        ("connect", ("topic",), (69, 0, 68, 68, 68, 69)),
    ],
)
@pytest.mark.parametrize("state", STATES)
def test_a_deletion_of_offsets_depends_on_protocol_and_state(context, protocol_type, topics, expected, state):
    Members(context, protocol_type, topics).bring(state)
    code = expected[STATES.index(state)]
    at_the_top = code in (68, 69)
    assert context.delete_offsets("g", {"topic": [0]}) == (code if at_the_top else {"topic": [(0, code)]})


# ---- sessions


def commits_for(context: OffsetsContext, members: Members, total_ms: int, txn: bool = False) -> None:
    """Sends a commit every 20 s, which is two thirds of a session, for `total_ms`."""
    for _ in range(total_ms // 20_000):
        context.advance(20_000)
        arguments = {"generation": members.generation, "member": members.ids[0]}
        if txn:
            context.commit_in_transaction("g", {"topic": {0: 1}}, **arguments)
        else:
            context.commit_offsets("g", {"topic": {0: 1}}, **arguments)


def test_a_commit_re_arms_only_the_session_of_its_member(context):
    members = Members(context)
    members.bring("Stable")
    commits_for(context, members, 60_000)
    group = context.machine.groups["g"]
    assert set(group.members) == {members.ids[0]}
    assert group.state_name() == "PreparingRebalance"


def test_a_commit_in_a_transaction_re_arms_no_session(context):
    members = Members(context)
    members.bring("Stable")
    commits_for(context, members, 60_000, txn=True)
    assert context.machine.groups["g"].state_name() == "Empty"


def test_a_refused_commit_re_arms_no_session(context):
    members = Members(context)
    members.bring("CompletingRebalance")
    commits_for(context, members, 60_000)
    assert members.ids[0] not in context.machine.groups["g"].members


def test_a_group_keeps_its_offsets_when_members_join_and_leave(context):
    context.commit_offsets("g", {"topic": {0: 1, 1: 2}})
    members = Members(context)
    members.bring("Stable")
    assert context.commit_offsets("g", {"topic": {0: 3}}) == [25]
    assert context.commit_offsets("g", {"topic": {0: 4}}, generation=members.generation, member=members.ids[1]) == [0]
    members.leave()
    assert context.commit_offsets("g", {"topic": {1: 5}}) == [0]
    assert context.fetch("g", None) == {"topic": {0: (4, -1, "", 0), 1: (5, -1, "", 0)}}
    context.assert_restart_changes_nothing()
    assert context.machine.groups["g"].protocol_type == "consumer"
