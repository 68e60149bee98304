"""The fast paths of a transaction's requests equal the generic path: same responses and same logs."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kcore.transaction.node
from kcore.group.apis.txn_offset_commit import TxnOffsetCommitApi
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore.runtime import Pending
from kcore.transaction.apis.end_txn import EndTxnApi
from kcore.transaction.coordinator import TransactionCoordinator
from kcore.transaction.transaction import LAST_EPOCH, Transaction
from tests.transaction.world import Identity, World, end_request, produce_request

TIDS = ("a", "b")
MAX_METADATA = 4


class GenericCoordinator(TransactionCoordinator):
    """A coordinator that serves every request on the generic path."""

    __slots__ = ()
    add = TransactionCoordinator.add_generic
    run = TransactionCoordinator.run_generic


class GenericCommits(TxnOffsetCommitApi):
    """TxnOffsetCommitApi without its fast path."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fast = None


class GenericEnds(EndTxnApi):
    """EndTxnApi without its fast path."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fast = None


class Compared(World):
    """A node that records all responses and commits only when the script says so."""

    def __init__(self, plain: bool) -> None:
        kind = GenericCoordinator if plain else TransactionCoordinator
        with mock.patch.object(kcore.transaction.node, "TransactionCoordinator", kind):
            super().__init__({"offset.metadata.max.bytes": MAX_METADATA}, {"t": 2, "u": 1})
        join = JoinGroupRequest(
            group_id="members",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="p")],
        )
        self.start(join, 3)  # this member joins and never syncs, so no record has it
        self.advance(1)
        self.settle()
        if plain:
            apis = self.engine.apis
            commits: Any = apis[ApiKey.TXN_OFFSET_COMMIT]
            ends: Any = apis[ApiKey.END_TXN]
            apis.made[ApiKey.TXN_OFFSET_COMMIT] = GenericCommits(
                commits._shards, commits._topics, commits._verifier, commits._authorizer
            )
            apis.made[ApiKey.END_TXN] = GenericEnds(ends._coordinator, ends._authorizer)
        self.responses: list[Any] = []
        self.who = {tid: self.begin(tid) for tid in TIDS}

    def submit(self, request: Any, version: int) -> None:
        number = len(self.responses)
        self.responses.append(None)
        result = self.start(request, version)
        if isinstance(result, Pending):
            result.on_complete(lambda response: self.responses.__setitem__(number, response))
        else:
            self.responses[number] = result

    def observable_state(self) -> dict[str, Any]:
        """Returns all observable state."""
        self.settle()
        names = [("t", 0), ("t", 1), ("u", 0)]
        names += [(name, index) for name in ("__consumer_offsets", "__transaction_state") for index in range(2)]
        found = [(name, self.engine.partitions.get(*name)) for name in names]
        return {
            "responses": self.responses,
            "logs": {name: b"".join(batch for _, batch in log.log.batches()) for name, log in found if log is not None},
            "ends": {name: (log.last_stable_offset, log.high_watermark) for name, log in found if log is not None},
            "ids": [repr(self.engine.transactions.get(tid)) for tid in TIDS],
            "offsets": [
                (shard.machine.offsets.commits, shard.machine.offsets.offset_count, sorted(shard.machine.groups))
                for shard in self.engine.groups
            ],
        }


def play(world: Compared, script: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Runs a script. Producer ids and epochs in the script are added to those that the coordinator currently has."""
    for what, tid, *more in script:
        known = world.engine.transactions.get(tid)
        who = Identity(known.producer_id, known.producer_epoch) if known is not None else world.who["a"]
        match what:
            case "commit":
                version, off, request = more
                request = copy_of(request, tid, who, off)
                world.submit(request, version)
            case "end":
                version, off, commit = more
                world.submit(end_request(tid, beside(who, off), commit), version)
            case "produce":
                world.submit(produce_request(tid, who, 0, topic="t", index=more[0]), 12)
            case "init":
                world.begin(tid)
            case "settle":
                world.settle()
            case "fail":
                world.log.failures_left = 1
                world.settle()
                world.log.failures_left = 0
            case "wait":
                world.advance(more[0])
            case "drop" if world.engine.topics.by_name("u"):
                world.delete_topic("u")
    return world.observable_state()


def beside(who: Identity, off: tuple[int, int]) -> Identity:
    return Identity(who.producer_id + off[0], who.producer_epoch + off[1])


def copy_of(request: TxnOffsetCommitRequest, tid: str, who: Identity, off: tuple[int, int]) -> TxnOffsetCommitRequest:
    """Returns a copy of a request with another producer. `off` is added to the producer's id and epoch."""
    producer = beside(who, off)
    return TxnOffsetCommitRequest(
        transactional_id=tid,
        group_id=request.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        topics=request.topics,
    )


metadata = st.sampled_from(["", "", "", None, "m" * MAX_METADATA, "m" * (MAX_METADATA + 1)])
entries = st.builds(
    TxnOffsetCommitRequestPartition,
    partition_index=st.sampled_from([0, 0, 1, 1, 0, 2, -1]),
    committed_offset=st.integers(0, 9),
    committed_metadata=metadata,
)
usual_entries = st.builds(
    TxnOffsetCommitRequestPartition, partition_index=st.integers(0, 1), committed_offset=st.integers(0, 9)
)
usual = st.builds(
    TxnOffsetCommitRequest,
    group_id=st.sampled_from(["g", "other", "members"]),
    topics=st.lists(
        st.builds(
            TxnOffsetCommitRequestTopic, name=st.just("t"), partitions=st.lists(usual_entries, min_size=1, max_size=3)
        ),
        min_size=1,
        max_size=2,
    ),
)
unusual = st.builds(
    TxnOffsetCommitRequest,
    group_id=st.sampled_from(["g", "members", ""]),
    generation_id=st.sampled_from([-1, -1, 0, 1]),
    member_id=st.sampled_from(["", "", "nobody"]),
    topics=st.lists(
        st.builds(
            TxnOffsetCommitRequestTopic,
            name=st.sampled_from(["t", "u", "gone"]),
            partitions=st.lists(entries, max_size=3),
        ),
        max_size=2,
    ),
)
tids = st.sampled_from([*TIDS, *TIDS, *TIDS, "stranger", ""])
known_tids = st.sampled_from(TIDS)
here = st.just((0, 0))
offs = here | here | st.sampled_from([(0, -1), (0, 1), (1, 0)])
commits = st.tuples(st.just("commit"), tids, st.sampled_from([5, 5, 5, 4, 3]), offs, usual | usual | unusual)
ends = st.tuples(st.just("end"), tids, st.sampled_from([5, 5, 5, 4, 0]), offs, st.booleans())
others = st.one_of(
    st.tuples(st.just("produce"), known_tids, st.integers(0, 1)),
    st.tuples(st.sampled_from(["init", "settle", "fail", "drop"]), known_tids),
    st.tuples(st.just("wait"), known_tids, st.sampled_from([1, 20_000, 70_000])),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(commits | commits | ends | ends | others, max_size=14))
def test_both_paths_give_equal_responses_and_records(script: list[tuple[Any, ...]]) -> None:
    assert play(Compared(plain=False), script) == play(Compared(plain=True), script)


def exhausted(world: Compared, tid: str, **more: Any) -> Transaction:
    """Sets the producer epoch of a transactional id to the highest valid epoch. Returns the changed transaction."""
    machine = world.engine.transactions.of(tid).machine
    known = machine.transactions[tid]
    names = (
        "producer_id", "previous_producer_id", "next_producer_id", "last_producer_epoch", "timeout_ms", "state",
        "partitions", "start_ms", "last_update_ms", "client_version",
    )  # fmt: skip
    fields = {name: getattr(known, name) for name in names}
    machine.transactions[tid] = Transaction(**fields, producer_epoch=LAST_EPOCH)
    return machine.transactions[tid]


def commit_of(world: Compared, tid: str, group: str = "g") -> Any:
    known = world.engine.transactions.get(tid)
    assert known is not None
    entry = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = TxnOffsetCommitRequest(
        transactional_id=tid,
        group_id=group,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[entry])],
    )
    world.submit(request, 5)
    world.settle()
    return world.responses[-1]


@pytest.mark.parametrize("commit", [True, False])
def test_after_the_last_epoch_another_producer_id_follows(commit):
    """Compares both paths. At the last epoch, only the generic path ends a transaction."""
    seen = []
    for world in (Compared(plain=False), Compared(plain=True)):
        commit_of(world, "a")
        known = exhausted(world, "a")
        world.submit(end_request("a", Identity(known.producer_id, LAST_EPOCH), commit), 5)
        response = world.observable_state()["responses"][-1]
        assert (response.error_code, response.producer_epoch) == (0, 0)
        assert response.producer_id > known.producer_id
        seen.append((response, world.observable_state()))
    assert seen[0] == seen[1]


def test_equal_commits_of_all_producers_get_the_same_response():
    world = Compared(plain=False)
    first = commit_of(world, "a")
    assert [part.error_code for topic in first.topics for part in topic.partitions] == [ErrorCode.NONE]
    assert commit_of(world, "b", "other") is first
    assert world.engine.apis[ApiKey.TXN_OFFSET_COMMIT].fast_path.cache_size == 1


def test_a_bug_during_the_addition_of_partitions_gets_an_error():
    """The outcome is unknown, so the producer gets UNKNOWN_SERVER_ERROR on either path."""
    for world in (Compared(plain=False), Compared(plain=True)):
        known = world.engine.transactions.get("a")
        assert known is not None
        code = world.engine.transactions.add("a", known.producer_id, known.producer_epoch, [("t",)], 2)
        assert code is ErrorCode.UNKNOWN_SERVER_ERROR
