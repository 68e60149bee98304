"""TxnOffsetCommit: the order of its checks, the transactional batch, and the end of the transaction."""

from __future__ import annotations

import pytest

from kcore.group.apis.offset_commit import OffsetCommitApi
from kcore.group.apis.txn_offset_commit import TxnOffsetCommitApi
from kcore.log import PartitionKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kcore.protocol.records.offset_commit import OffsetCommitValue
from kcore.runtime import Pending, RequestContext
from kcore_ext.batch import parse_header
from tests.group.context import CONSUMER_OFFSETS_ID
from tests.group.offsets.test_offset_commit import Denies, key
from tests.group.offsets.world import OffsetsContext, codes, txn_request
from tests.harness import WALL_MS

READ_TOPIC = (Operation.READ, ResourceType.TOPIC)


@pytest.fixture
def context() -> OffsetsContext:
    return OffsetsContext(topics={"topic": 3, "other": 1})


def value(offset: int, **more: object) -> OffsetCommitValue:
    """Returns a value as TxnOffsetCommit writes it: without the topic's id."""
    return OffsetCommitValue(**{"offset": offset, "commit_timestamp": WALL_MS, **more})


# ---- the first checks


def test_authorization_comes_first_the_transactions_before_the_groups(context):
    offsets = {"topic": {0: 1}, "missing": {0: 1}}
    write = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transaction")
    read = (Operation.READ, ResourceType.GROUP, "g")
    context.authorizer = Denies(write, read)
    assert context.commit_in_transaction("g", offsets) == [53, 53]
    context.authorizer = Denies(read, (*READ_TOPIC, "topic"))
    assert context.commit_in_transaction("g", offsets) == [30, 30]
    context.authorizer = Denies((*READ_TOPIC, "topic"), (*READ_TOPIC, "missing"))
    assert context.commit_in_transaction("g", {**offsets, "other": {0: 1}}) == [29, 29, 0]
    assert [name for *_, name in context.authorizer.calls] == ["transaction", "g", "topic", "missing", "other"]


def test_unknown_topics_are_refused_before_verification(context):
    assert context.commit_in_transaction("", {"missing": {0: 1}, "topic": {3: 1}}) == [3, 3]
    assert context.commit_in_transaction("", {}) == []
    assert context.transactions.calls == []


def test_the_empty_group_id_precedes_the_transaction_and_the_group(context):
    context.transactions.verdict = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert context.commit_in_transaction("", {"topic": {0: 1, 9: 1}}) == [24, 3]
    assert context.transactions.calls == []
    assert context.commit_in_transaction("g", {"topic": {0: 1, 9: 1}}, generation=5) == [49, 3]
    assert context.machine.groups == {}
    context.transactions.verdict = ErrorCode.NONE
    assert context.commit_in_transaction("g", {"topic": {0: 1, 9: 1}}, generation=5) == [22, 3]
    assert context.machine.groups == {}


@pytest.mark.parametrize("version", range(6))
def test_v5_adds_the_partition_to_the_transaction_and_earlier_ones_verify_it(context, version):
    assert context.commit_in_transaction("g", {"topic": {0: (1, 6, "m")}}, version=version) == [0]
    assert context.transactions.calls == [("transaction", 7, 0, "__consumer_offsets", 0, version >= 5)]
    epoch = 6 if version >= 2 else -1
    assert context.records() == [(key(0), value(1, leader_epoch=epoch, metadata="m"))]


@pytest.mark.parametrize(
    ("verdict", "version", "code"),
    [
        (ErrorCode.PRODUCER_FENCED, 2, 47),
        (ErrorCode.PRODUCER_FENCED, 5, 47),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 3, 47),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 3, 49),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, 51),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, 48),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, 120),
        (ErrorCode.INVALID_TXN_STATE, 4, 48),
        (ErrorCode.NETWORK_EXCEPTION, 3, 14),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, 14),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, 15),  # older producers crash on 14
        (ErrorCode.NETWORK_EXCEPTION, 0, 15),
        (ErrorCode.NOT_COORDINATOR, 0, 16),
    ],
)
def test_errors_of_the_transaction_coordinator_are_translated_and_change_nothing(context, verdict, version, code):
    context.transactions.verdict = verdict
    assert context.commit_in_transaction("g", {"topic": {0: 1, 1: 1}}, version=version) == [code, code]
    assert context.machine.groups == {}
    assert context.records() == []


@pytest.mark.parametrize(("later", "code"), [(ErrorCode.NONE, 0), (ErrorCode.PRODUCER_FENCED, 47)])
def test_the_transaction_coordinator_may_respond_later(context, later, code):
    api = context.api(TxnOffsetCommitApi)
    verdict = context.transactions.verdict = Pending(api, RequestContext(3), None, parked=True)
    call = context.send(api, txn_request("g", {"topic": {0: 1}}, 7), version=3)
    assert not call.done
    assert context.machine.groups == {}
    context.auto_commit = False
    verdict.complete(later)
    if code == 0:
        assert not call.done  # the offset is decided, but not durable yet
        assert context.machine.offsets.has_pending("g", "topic", 0)
        context.commit()
    assert codes(call.response) == [code]


def test_a_moved_or_loading_shard_is_an_error_of_each_partition(context):
    context.unload()
    assert context.commit_in_transaction("g", {"topic": {0: 1, 9: 1}}) == [16, 3]
    context.shards.load(0, 1)
    for version, code in ((1, 15), (2, 14)):
        request = txn_request("g", {"topic": {0: 1}}, 7)
        response = context.api(TxnOffsetCommitApi).handle(RequestContext(version), request)
        assert codes(response) == [code]


def test_an_error_without_a_plan_applies_to_every_partition(context):
    request = txn_request("g", {"topic": {0: 1}, "missing": {4: 1}}, 7)
    api = context.api(TxnOffsetCommitApi)
    assert codes(api.error(RequestContext(3), request, ErrorCode.UNKNOWN_SERVER_ERROR)) == [-1, -1]
    assert codes(api.error(RequestContext(1), request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) == [15, 15]


# ---- the group


@pytest.mark.parametrize("generation", [-1, -7])
def test_a_commit_without_a_generation_creates_a_simple_group(context, generation):
    assert context.commit_in_transaction("g", {"topic": {0: 1}}, generation=generation, member="m") == [0]
    group = context.machine.groups["g"]
    assert (group.state_name(), group.protocol_type) == ("Empty", "")
    context.assert_restart_changes_nothing()


def test_a_commit_with_a_generation_to_an_absent_group_returns_22(context):
    assert context.commit_in_transaction("g", {"topic": {0: 1}}, generation=0) == [22]


def test_only_refused_metadata_creates_a_group_and_no_batch(context):
    assert context.commit_in_transaction("g", {"topic": {0: (1, -1, "x" * 4097)}}) == [12]
    assert list(context.machine.groups) == ["g"]
    assert context.records() == []


# ---- written records


def batches(context):
    log = context.engine.open(PartitionKey(CONSUMER_OFFSETS_ID, 0))
    return [parse_header(batch) for _, batch in log.batches()]


def test_the_offsets_are_a_transactional_batch_of_their_own(context):
    """An OffsetCommit, a TxnOffsetCommit and another OffsetCommit are committed together. The log has a separate batch
    for each request, and only the second batch is transactional.
    """
    context.auto_commit = False
    api = context.api(TxnOffsetCommitApi)

    def plain(partition: int) -> OffsetCommitRequest:
        entry = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
        return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="topic", partitions=[entry])])

    calls = [
        context.send(context.api(OffsetCommitApi), plain(0), version=9),
        context.send(api, txn_request("g", {"topic": {0: 2, 1: (3, 4, "note")}}, 7), version=3),
        context.send(context.api(OffsetCommitApi), plain(2), version=9),
    ]
    context.commit()
    assert all(call.done for call in calls)
    headers = batches(context)
    assert [h.record_count for h in headers] == [1, 2, 1]
    assert [h.is_transactional for h in headers] == [False, True, False]
    assert (headers[1].producer_id, headers[1].producer_epoch, headers[1].base_sequence) == (7, 0, -1)
    assert context.records()[1:3] == [(key(0), value(2)), (key(1), value(3, leader_epoch=4, metadata="note"))]
    context.auto_commit = True
    context.assert_restart_changes_nothing()


def test_metadata_that_is_too_long_refuses_its_partition_alone(context):
    assert context.commit_in_transaction("g", {"topic": {0: (1, -1, "x" * 4097), 1: 2}, "missing": {0: 1}}) == [
        12,
        0,
        3,
    ]
    assert context.records() == [(key(1), value(2))]


def test_a_failed_commit_leaves_nothing_pending(context):
    context.fail_next_commit()
    assert context.commit_in_transaction("g", {"topic": {0: 1, 9: 1}}) == [16, 3]
    assert context.state() == {"groups": [], "count": 0, "offsets": {}, "pending": {}}


def test_a_duplicate_partition_keeps_the_last_offset(context):
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=o) for o in (1, 2)]
    request = TxnOffsetCommitRequest(
        transactional_id="transaction",
        group_id="g",
        producer_id=7,
        topics=[TxnOffsetCommitRequestTopic(name="topic", partitions=partitions)],
    )
    assert codes(context.call(context.api(TxnOffsetCommitApi), request, version=3)) == [0, 0]
    context.end_transaction(7, True)
    assert context.offset("g", "topic", 0) == 2


# ---- the end of the transaction


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_marker_completes_all_groups_of_its_producer_and_no_other(context, committed, restart):
    context.commit_offsets("g", {"topic": {0: 1}})
    context.commit_in_transaction("g", {"topic": {0: 10, 1: 11}}, producer_id=7)
    context.commit_in_transaction("h", {"other": {0: 12}}, producer_id=7)
    context.commit_in_transaction("g", {"topic": {1: 20}}, producer_id=8)
    if restart:
        context.restart()
    context.end_transaction(7, committed)
    expected = {0: (10, -1, "", 0), 1: (11, -1, "", 0)} if committed else {0: (1, -1, "", 0)}
    assert context.fetch("g", None) == {"topic": expected}
    assert context.fetch("h", None) == ({"other": {0: (12, -1, "", 0)}} if committed else {})
    assert context.fetch("g", {"topic": [0, 1]}, stable=True)["topic"][1] == (-1, -1, "", 88)
    context.assert_restart_changes_nothing()
    context.end_transaction(8, True)
    assert context.offset("g", "topic", 1) == 20
    context.assert_restart_changes_nothing()


def test_the_later_record_wins_whenever_the_marker_comes(context):
    context.commit_in_transaction("g", {"topic": {0: 10}})
    context.commit_offsets("g", {"topic": {0: 2, 1: 2}})
    context.commit_in_transaction("g", {"topic": {1: 11}})
    context.end_transaction(7, True)
    assert context.offset("g", "topic", 0) == 2
    assert context.offset("g", "topic", 1) == 11
    context.assert_restart_changes_nothing()


def test_a_group_that_only_had_aborted_offsets_stays(context):
    context.commit_in_transaction("g", {"topic": {0: 10}})
    context.end_transaction(7, False)
    assert list(context.machine.groups) == ["g"]
    assert context.machine.offsets.offset_count == 0
    context.assert_restart_changes_nothing()


def test_a_marker_of_an_unknown_producer_changes_nothing(context):
    context.commit_in_transaction("g", {"topic": {0: 10}})
    before = context.state()
    context.end_transaction(99, True)
    assert context.state() == before
