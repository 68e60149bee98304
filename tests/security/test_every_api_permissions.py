"""The permissions that each API needs, and Kafka's error code if a permission is missing.

Each row of the table has a request and the permissions that it needs. For each permission, the row lists the access
control entries that grant it, of which one is enough, and the error code without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kcore.broker.acl.entries import Acl
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation as Op
from kcore.protocol.authorizer import ResourceType as Kind
from kcore.protocol.messages import (
    add_offsets_to_txn as aot,
)
from kcore.protocol.messages import (
    add_partitions_to_txn as apt,
)
from kcore.protocol.messages import add_raft_voter as arv
from kcore.protocol.messages import alter_client_quotas as acq
from kcore.protocol.messages import (
    alter_configs as ac,
)
from kcore.protocol.messages import alter_partition_reassignments as apr
from kcore.protocol.messages import alter_replica_log_dirs as arld
from kcore.protocol.messages import (
    alter_user_scram_credentials as ausc,
)
from kcore.protocol.messages import (
    consumer_group_describe as cgd,
)
from kcore.protocol.messages import (
    consumer_group_heartbeat as cgh,
)
from kcore.protocol.messages import (
    create_acls as ca,
)
from kcore.protocol.messages import (
    create_partitions as cp,
)
from kcore.protocol.messages import (
    delete_acls as da,
)
from kcore.protocol.messages import (
    delete_groups as dg,
)
from kcore.protocol.messages import (
    delete_records as dr,
)
from kcore.protocol.messages import (
    delete_topics as dt,
)
from kcore.protocol.messages import (
    describe_acls as dea,
)
from kcore.protocol.messages import (
    describe_client_quotas as dcq,
)
from kcore.protocol.messages import (
    describe_configs as dc,
)
from kcore.protocol.messages import (
    describe_groups as deg,
)
from kcore.protocol.messages import (
    describe_log_dirs as dld,
)
from kcore.protocol.messages import (
    describe_producers as dp,
)
from kcore.protocol.messages import describe_quorum as dq
from kcore.protocol.messages import (
    describe_topic_partitions as dtp,
)
from kcore.protocol.messages import (
    describe_transactions as dtx,
)
from kcore.protocol.messages import (
    describe_user_scram_credentials as dusc,
)
from kcore.protocol.messages import (
    elect_leaders as el,
)
from kcore.protocol.messages import (
    end_txn as et,
)
from kcore.protocol.messages import (
    find_coordinator as fc,
)
from kcore.protocol.messages import (
    incremental_alter_configs as iac,
)
from kcore.protocol.messages import (
    init_producer_id as ipi,
)
from kcore.protocol.messages import (
    leave_group as lg,
)
from kcore.protocol.messages import (
    list_config_resources as lcr,
)
from kcore.protocol.messages import (
    list_groups as lgs,
)
from kcore.protocol.messages import (
    list_offsets as lo,
)
from kcore.protocol.messages import (
    list_partition_reassignments as lpr,
)
from kcore.protocol.messages import (
    metadata as md,
)
from kcore.protocol.messages import (
    offset_delete as od,
)
from kcore.protocol.messages import (
    offset_fetch as of,
)
from kcore.protocol.messages import (
    offset_for_leader_epoch as ofl,
)
from kcore.protocol.messages import remove_raft_voter as rrv
from kcore.protocol.messages import (
    txn_offset_commit as toc,
)
from kcore.protocol.messages import unregister_broker as ub
from kcore.protocol.messages import (
    update_features as uf,
)
from kcore.protocol.messages import (
    write_txn_markers as wtm,
)
from tests.kit import batch, commit, create, fetch, heartbeat, join, produce, producer_id, sync
from tests.security.guarded import ADMIN, ALICE, Guarded, acl, error_codes

TOPIC, GROUP, CLUSTER, TRANSACTION = 29, 30, 31, 53  # ..._AUTHORIZATION_FAILED
DENIED = {TOPIC, GROUP, CLUSTER, TRANSACTION}

Need = tuple[int, tuple[Acl, ...]]


def topic(*operations: Op) -> Need:
    return TOPIC, tuple(acl(operation, Kind.TOPIC, "t") for operation in operations)


def group(*operations: Op) -> Need:
    return GROUP, tuple(acl(operation, Kind.GROUP, "g") for operation in operations)


def cluster(*operations: Op, code: int = CLUSTER) -> Need:
    return code, tuple(acl(operation, Kind.CLUSTER) for operation in operations)


def transaction(*operations: Op) -> Need:
    return TRANSACTION, tuple(acl(operation, Kind.TRANSACTIONAL_ID, "x") for operation in operations)


SEES_TOPIC = topic(Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.ALL)
SEES_GROUP = group(Op.DESCRIBE, Op.READ, Op.DELETE, Op.ALL)
ANY = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
       "host_filter": None, "operation": 1, "permission_type": 1}  # fmt: skip
ENTRY = ca.AclCreation(
    resource_type=2, resource_name="t", principal="User:bob", host="*", operation=3, permission_type=3
)


def alterations(kind: int, name: str) -> tuple[Any, Any]:
    """Returns an IncrementalAlterConfigs and an AlterConfigs request for a resource. Neither changes a setting."""
    return (
        iac.IncrementalAlterConfigsRequest(
            resources=[iac.AlterConfigsResource(resource_type=kind, resource_name=name)]
        ),
        ac.AlterConfigsRequest(resources=[ac.AlterConfigsResource(resource_type=kind, resource_name=name)]),
    )


def described(kind: int, name: str) -> Any:
    return dc.DescribeConfigsRequest(resources=[dc.DescribeConfigsResource(resource_type=kind, resource_name=name)])


def found(key: str, kind: int) -> Any:
    return fc.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])


CREATES = (TOPIC, (acl(Op.CREATE, Kind.CLUSTER), acl(Op.CREATE, Kind.TOPIC, "new"), acl(Op.ALL, Kind.TOPIC, "new")))
ROWS: list[tuple[Any, int | None, list[Need]]] = [
    # ---- data
    (produce("t", batch([b"v"])), 9, [topic(Op.WRITE, Op.ALL)]),
    (fetch("t"), 12, [topic(Op.READ, Op.ALL)]),
    (lo.ListOffsetsRequest(topics=[lo.ListOffsetsTopic(name="t", partitions=[
        lo.ListOffsetsPartition(partition_index=0, timestamp=-1)])]), None, [SEES_TOPIC]),
    (ofl.OffsetForLeaderEpochRequest(topics=[ofl.OffsetForLeaderTopic(topic="t", partitions=[
        ofl.OffsetForLeaderPartition(partition=0, leader_epoch=0)])]), None, [SEES_TOPIC]),
    (dr.DeleteRecordsRequest(topics=[dr.DeleteRecordsTopic(name="t", partitions=[
        dr.DeleteRecordsPartition(partition_index=0, offset=0)])], timeout_ms=1000), None, [topic(Op.DELETE)]),
    (dp.DescribeProducersRequest(topics=[dp.TopicRequest(name="t", partition_indexes=[0])]), None, [topic(Op.READ)]),
    # ---- groups
    (join("g"), None, [group(Op.READ, Op.ALL)]),
    (sync("g", "m", 1), None, [group(Op.READ)]),
    (heartbeat("g", "m", 1), None, [group(Op.READ)]),
    (lg.LeaveGroupRequest(group_id="g", members=[lg.MemberIdentity(member_id="m")]), None, [group(Op.READ)]),
    (cgh.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1, subscribed_topic_names=["t"]), None,
        [group(Op.READ, Op.ALL), SEES_TOPIC]),
    (cgd.ConsumerGroupDescribeRequest(group_ids=["g"]), None, [SEES_GROUP]),
    (deg.DescribeGroupsRequest(groups=["g"]), 5, [SEES_GROUP]),
    (dg.DeleteGroupsRequest(groups_names=["g"]), None, [group(Op.DELETE)]),
    (commit("g", {("t", 0): 1}), 9, [group(Op.READ), topic(Op.READ)]),
    (od.OffsetDeleteRequest(group_id="g", topics=[od.OffsetDeleteRequestTopic(name="t", partitions=[
        od.OffsetDeleteRequestPartition(partition_index=0)])]), None, [group(Op.DELETE), topic(Op.READ)]),
    (found("g", 0), None, [SEES_GROUP]),
    (found("x", 1), None, [transaction(Op.DESCRIBE, Op.WRITE)]),
    # ---- transactions
    (producer_id(), None, [(CLUSTER, (acl(Op.IDEMPOTENT_WRITE, Kind.CLUSTER), acl(Op.WRITE, Kind.TOPIC, "other")))]),
    (ipi.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), None, [transaction(Op.WRITE)]),
    (apt.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=[
        apt.AddPartitionsToTxnTopic(name="t", partitions=[0])]), 3, [transaction(Op.WRITE), topic(Op.WRITE)]),
    (aot.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), None, [transaction(Op.WRITE), group(Op.READ)]),
    (et.EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0), None, [transaction(Op.WRITE)]),
    (toc.TxnOffsetCommitRequest(transactional_id="x", group_id="g", topics=[toc.TxnOffsetCommitRequestTopic(
        name="t", partitions=[toc.TxnOffsetCommitRequestPartition(partition_index=0)])]), 3,
        [transaction(Op.WRITE), group(Op.READ), topic(Op.READ)]),
    (wtm.WriteTxnMarkersRequest(markers=[]), None, []),
    (dtx.DescribeTransactionsRequest(transactional_ids=["x"]), None, [transaction(Op.DESCRIBE, Op.WRITE)]),
    # ---- topics
    (md.MetadataRequest(topics=[md.MetadataRequestTopic(name="t")]), 9, [SEES_TOPIC]),
    (dtp.DescribeTopicPartitionsRequest(topics=[dtp.TopicRequest(name="t")]), None, [SEES_TOPIC]),
    (create("new"), None, [CREATES]),
    (dt.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5, [topic(Op.DELETE)]),
    (cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name="t", count=2)], timeout_ms=1000), None,
        [topic(Op.ALTER)]),
    # ---- settings
    (described(2, "t"), None, [topic(Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.ALL)]),
    (described(4, "1"), None, [cluster(Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)]),
    (described(32, "g"), None, [group(Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS)]),
    *((request, None, [topic(Op.ALTER_CONFIGS)]) for request in alterations(2, "t")),
    *((request, None, [cluster(Op.ALTER_CONFIGS)]) for request in alterations(4, "1")),
    *((request, None, [group(Op.ALTER_CONFIGS)]) for request in alterations(32, "g")),
    (lcr.ListConfigResourcesRequest(), None, [cluster(Op.DESCRIBE_CONFIGS)]),
    (dcq.DescribeClientQuotasRequest(), None, [cluster(Op.DESCRIBE_CONFIGS)]),
    (acq.AlterClientQuotasRequest(entries=[acq.EntryData(entity=[
        acq.EntityData(entity_type="user", entity_name="u")])]), None, [cluster(Op.ALTER_CONFIGS)]),
    # ---- the cluster
    (dld.DescribeLogDirsRequest(topics=None), None, [cluster(Op.DESCRIBE, Op.ALTER)]),
    (el.ElectLeadersRequest(topic_partitions=[], timeout_ms=1000), None, [cluster(Op.ALTER)]),
    (uf.UpdateFeaturesRequest(timeout_ms=1000), None, [cluster(Op.ALTER)]),
    (lpr.ListPartitionReassignmentsRequest(topics=None), None, [cluster(Op.DESCRIBE)]),
    (apr.AlterPartitionReassignmentsRequest(), None, [cluster(Op.ALTER)]),
    (arld.AlterReplicaLogDirsRequest(dirs=[arld.AlterReplicaLogDir(path="/x", topics=[
        arld.AlterReplicaLogDirTopic(name="t", partitions=[0])])]), None, [cluster(Op.ALTER)]),
    (dq.DescribeQuorumRequest(), None, [cluster(Op.DESCRIBE)]),
    (ub.UnregisterBrokerRequest(broker_id=9), None, [cluster(Op.ALTER)]),
    (arv.AddRaftVoterRequest(cluster_id=None, voter_id=9), None, [cluster(Op.ALTER)]),
    (rrv.RemoveRaftVoterRequest(cluster_id=None, voter_id=9), None, [cluster(Op.ALTER)]),
    (dea.DescribeAclsRequest(**ANY), None, [cluster(Op.DESCRIBE, Op.ALTER)]),
    (ca.CreateAclsRequest(creations=[ENTRY]), None, [cluster(Op.ALTER)]),
    (da.DeleteAclsRequest(filters=[da.DeleteAclsFilter(**ANY | {"principal_filter": "User:nobody"})]), None,
        [cluster(Op.ALTER)]),
    (dusc.DescribeUserScramCredentialsRequest(users=[dusc.UserName(name="u")]), None, [cluster(Op.DESCRIBE)]),
    (ausc.AlterUserScramCredentialsRequest(deletions=[ausc.ScramCredentialDeletion(name="u", mechanism=1)]), None,
        [cluster(Op.ALTER)]),
]  # fmt: skip
OPEN = {
    "API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE",  # need no permission
    "DESCRIBE_CLUSTER", "LIST_GROUPS", "LIST_TRANSACTIONS",  # omit what the principal may not see
    "CREATE_DELEGATION_TOKEN", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN", "DESCRIBE_DELEGATION_TOKEN",  # none
    "OFFSET_FETCH", "WRITE_TXN_MARKERS",  # tests of their own below
}  # fmt: skip
LATER = {
    "SHARE_GROUP_HEARTBEAT", "SHARE_GROUP_DESCRIBE", "STREAMS_GROUP_HEARTBEAT", "STREAMS_GROUP_DESCRIBE",
    "DESCRIBE_SHARE_GROUP_OFFSETS", "ALTER_SHARE_GROUP_OFFSETS", "DELETE_SHARE_GROUP_OFFSETS",
    "SHARE_FETCH", "SHARE_ACKNOWLEDGE", "INITIALIZE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE",
    "WRITE_SHARE_GROUP_STATE", "DELETE_SHARE_GROUP_STATE", "READ_SHARE_GROUP_STATE_SUMMARY",
}  # fmt: skip
"""APIs of share groups and streams groups, whose permissions `test_share_rights` and `test_streams_groups` check."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Guarded]:
    one = Guarded()
    assert one.codes(create("t"), who=ADMIN) == set()
    yield one
    one.engine.close()


def names(row: Any) -> str:
    return type(row).__name__ if not isinstance(row, int | list | None) else ""


@pytest.mark.parametrize(("request_", "version", "needs"), ROWS, ids=names)
def test_an_api_needs_each_of_its_permissions(
    engine: Guarded, request_: Any, version: int | None, needs: list[Need]
) -> None:
    """Without any permission, the response has the error code of the first permission in the row. If only one
    permission is missing, it has the code of this permission. With all permissions, it has no such error.
    """

    def codes(*granted: Acl) -> set[int]:
        engine.forget()
        engine.allow(*granted)
        return engine.codes(request_, version)

    for missing, (code, _) in enumerate(needs):
        others = [enough[0] for index, (_, enough) in enumerate(needs) if index != missing]
        assert codes(*others) & DENIED == {code}
    if needs:
        assert codes() & DENIED == {needs[0][0]}
    for index, (_, enough) in enumerate(needs):
        others = [other[0] for at, (_, other) in enumerate(needs) if at != index]
        for entry in enough:
            assert codes(*others, entry) & DENIED == set(), entry
            # Undo the request: create the deleted topic, and delete the created one.
            engine.send(create("t"), who=ADMIN)
            engine.send(dt.DeleteTopicsRequest(topic_names=["new"], timeout_ms=1000), 5, ADMIN)


def test_every_api_is_in_the_table(engine: Guarded) -> None:
    """Each API that kcore serves has a row in the table of permissions, or is one of the listed exceptions."""
    tested = {ApiKey(type(request).API_KEY).name for request, _, _ in ROWS}
    served = {ApiKey(key).name for key in engine.engine.apis}
    assert served - LATER == tested | OPEN


def test_offset_fetch_needs_the_group_and_each_topic(engine: Guarded) -> None:
    """A denied group gets error 30; in v8 and later, the entry of the group has this error. A denied topic gets 29. A
    request for all topics omits denied ones.
    """
    one = of.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id="g", topics=[one])])
    everything = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id="g", topics=None)])
    engine.forget()
    assert engine.codes(request, 9) == {GROUP}
    engine.allow(acl(Op.DESCRIBE, Kind.GROUP, "g"))
    assert engine.codes(request, 9) == {TOPIC}
    engine.send(commit("g", {("t", 0): 1}), 9, ADMIN)
    assert list(engine.send(everything, 9).groups[0].topics) == []
    engine.allow(acl(Op.DESCRIBE))
    assert engine.codes(request, 9) == set()
    assert [topic.name for topic in engine.send(everything, 9).groups[0].topics] == ["t"]


def test_markers_need_alter_or_cluster_action(engine: Guarded) -> None:
    """Without either permission, each partition gets error 31."""
    topics = [wtm.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    marker = wtm.WritableTxnMarker(producer_id=5, producer_epoch=0, transaction_result=False, topics=topics)
    request = wtm.WriteTxnMarkersRequest(markers=[marker])
    engine.forget()
    assert engine.codes(request) == {CLUSTER}
    for operation in (Op.ALTER, Op.CLUSTER_ACTION):
        engine.forget()
        engine.allow(acl(operation, Kind.CLUSTER))
        assert CLUSTER not in engine.codes(request)


def test_lists_contain_only_what_may_be_described(engine: Guarded) -> None:
    """Lists of topics, groups and transactions omit denied ones, without an error."""
    engine.forget()
    engine.send(create("seen", "hidden"), who=ADMIN)
    for name in ("seen", "hidden"):
        engine.send(commit(name, {("t", 0): 1}), 9, ADMIN)
    everything = md.MetadataRequest(topics=None)
    assert list(engine.send(everything, 9).topics) == []
    assert list(engine.send(lgs.ListGroupsRequest()).groups) == []
    engine.allow(acl(Op.READ, Kind.TOPIC, "seen"), acl(Op.DESCRIBE, Kind.GROUP, "seen"))
    assert [topic.name for topic in engine.send(everything, 9).topics] == ["seen"]
    assert [group.group_id for group in engine.send(lgs.ListGroupsRequest()).groups] == ["seen"]
    engine.allow(acl(Op.DESCRIBE, Kind.CLUSTER))
    assert {group.group_id for group in engine.send(lgs.ListGroupsRequest()).groups} >= {"seen", "hidden"}


def test_an_absent_topic_is_denied_like_an_existing_one(engine: Guarded) -> None:
    """A principal without permission gets the same response for existing and absent topics."""
    engine.forget()
    there, missing = (md.MetadataRequest(topics=[md.MetadataRequestTopic(name=name)]) for name in ("t", "nowhere"))
    assert engine.codes(there, 9) == engine.codes(missing, 9) == {TOPIC}
    for name in ("t", "nowhere"):
        assert engine.codes(dt.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5) == {TOPIC}
        assert engine.codes(fetch(name), 12) == {TOPIC}
        assert engine.codes(produce(name, batch([b"v"])), 9) == {TOPIC}


def test_automatic_creation_of_a_topic_needs_create(engine: Guarded) -> None:
    """Metadata with allow_auto_topic_creation needs DESCRIBE, and CREATE on the cluster or the topic."""
    request = md.MetadataRequest(topics=[md.MetadataRequestTopic(name="made")], allow_auto_topic_creation=True)
    engine.forget()
    engine.allow(acl(Op.DESCRIBE, Kind.TOPIC, "made"))
    assert engine.codes(request, 9) == {TOPIC}
    assert engine.engine.topics.by_name("made") is None
    engine.allow(acl(Op.CREATE, Kind.TOPIC, "made"))
    assert engine.codes(request, 9) <= {3}
    assert engine.engine.topics.by_name("made") is not None


def test_a_denied_topic_does_not_affect_the_others(engine: Guarded) -> None:
    """Each topic of a request is authorized separately."""
    engine.forget()
    engine.send(create("mine"), who=ADMIN)
    engine.allow(acl(Op.CREATE, Kind.TOPIC, "one"))
    made = engine.send(create("one", "two"))
    assert {topic.name: topic.error_code for topic in made.topics} == {"one": 0, "two": TOPIC}
    assert sorted(error_codes(made)) == [0, TOPIC]


def test_the_name_of_a_topic_is_checked_before_permissions(engine: Guarded) -> None:
    """DescribeProducers checks the names of topics first, as in Kafka."""
    engine.forget()
    topics = [dp.TopicRequest(name=name, partition_indexes=[0]) for name in ("no/name", "t")]
    described = engine.send(dp.DescribeProducersRequest(topics=topics), 0, ALICE)
    assert [topic.partitions[0].error_code for topic in described.topics] == [17, TOPIC]


def test_a_refused_topic_without_partitions_is_in_the_response_of_list_offsets(engine: Guarded) -> None:
    """The response leaves out other topics without partitions, as in Kafka."""
    engine.forget()
    engine.allow(acl(Op.DESCRIBE, Kind.TOPIC, "t"))
    topics = [lo.ListOffsetsTopic(name=name, partitions=[]) for name in ("t", "hidden")]
    listed = engine.send(lo.ListOffsetsRequest(topics=topics), 7, ALICE)
    assert [topic.name for topic in listed.topics] == ["hidden"]


def test_a_refused_marker_has_no_topics_without_partitions(engine: Guarded) -> None:
    engine.forget()
    topics = [wtm.WritableTxnMarkerTopic(name="t", partition_indexes=indexes) for indexes in ([], [0])]
    marker = wtm.WritableTxnMarker(producer_id=1, topics=topics)
    (refused,) = engine.send(wtm.WriteTxnMarkersRequest(markers=[marker]), 1, ALICE).markers
    assert [[row.error_code for row in topic.partitions] for topic in refused.topics] == [[31]]


def test_authorized_operations_are_those_of_the_principal(engine: Guarded) -> None:
    """The fields `authorized_operations` of a topic and of the cluster contain the operations that the principal may
    perform (KIP-430).
    """
    engine.forget()
    engine.allow(acl(Op.READ), acl(Op.ALTER_CONFIGS), acl(Op.CREATE, Kind.CLUSTER))
    request = md.MetadataRequest(
        topics=[md.MetadataRequestTopic(name="t")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = engine.send(request, 10, ALICE)
    bits = sum(1 << operation for operation in (Op.READ, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS))
    assert response.topics[0].topic_authorized_operations == bits
    assert response.cluster_authorized_operations == 0, "as in Kafka, without DESCRIBE on the cluster"
    engine.allow(acl(Op.DESCRIBE, Kind.CLUSTER))
    response = engine.send(request, 10, ALICE)
    assert response.cluster_authorized_operations == 1 << Op.CREATE | 1 << Op.DESCRIBE
