"""APIs about brokers, replicas and the quorum: one node is the only voter, and replicas stay where they are."""

from __future__ import annotations

from kcore.broker.metadata.names import CLUSTER_METADATA
from kcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from kcore.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from kcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kcore.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kcore.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.broker.context import HOST, NODE_ID, PORT, BrokerContext
from tests.broker.metadata.test_create_topics import Only


def quorum(*partitions: int, topic: str = CLUSTER_METADATA) -> DescribeQuorumRequest:
    entries = [PartitionData(partition_index=index) for index in partitions]
    return DescribeQuorumRequest(topics=[TopicData(topic_name=topic, partitions=entries)])


def test_this_node_leads_the_quorum_and_is_its_only_voter() -> None:
    node = BrokerContext()
    log, cluster = node.control.shard.log, node.cluster
    for version in range(3):
        now_ms = node.clock.wall_ms() if version else -1
        voter = ReplicaState(
            replica_id=NODE_ID,
            replica_directory_id=cluster.directory_id if version == 2 else bytes(16),
            log_end_offset=log.end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        described = DescribeQuorumResponsePartitionData(
            leader_id=NODE_ID, leader_epoch=1, high_watermark=log.high_watermark, current_voters=(voter,)
        )
        response = node.call(quorum(0), version)
        topic = DescribeQuorumResponseTopicData(topic_name=CLUSTER_METADATA, partitions=(described,))
        assert list(response.topics) == [topic]
        listeners = [Listener(name="PLAINTEXT", host=HOST, port=PORT)]
        nodes = [Node(node_id=NODE_ID, listeners=tuple(listeners))] if version == 2 else []
        assert list(response.nodes) == nodes
    assert log.high_watermark > 0
    assert cluster.directory_id != bytes(16)


def test_other_partitions_have_no_quorum() -> None:
    node = BrokerContext()
    for request, topic, index in ((quorum(1), CLUSTER_METADATA, 1), (quorum(0, topic="t"), "t", 0)):
        (described,) = node.call(request, 2).topics
        (partition,) = described.partitions
        assert (described.topic_name, partition.partition_index, partition.error_code) == (topic, index, 3)
        assert list(partition.current_voters) == []
    assert node.call(DescribeQuorumRequest(), 2) == DescribeQuorumResponse(topics=[], nodes=[])
    both = DescribeQuorumRequest(topics=[*quorum(0).topics, *quorum(0, topic="t").topics])
    response = node.call(both, 2)
    assert [partition.error_code for topic in response.topics for partition in topic.partitions] == [3, 3]
    assert response.nodes == (), "the request may name only the metadata log"
    node.apis[55].authorizer = Only()
    assert node.call(quorum(0), 2).error_code == 31


def test_partitions_can_be_reassigned_to_their_current_broker() -> None:
    """A reassignment to any other target gets Kafka's error code. A cancellation gets NO_REASSIGNMENT_IN_PROGRESS."""
    node = BrokerContext()
    node.create("t", 2)
    targets = {0: [NODE_ID], 1: None, 9: [NODE_ID]}
    entries = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in targets.items()]
    response = node.call(
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=entries)]), 1
    )
    (topic,) = response.responses
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(0, 0), (1, 85), (9, 3)]
    assert [p.error_message is None for p in topic.partitions] == [True, True, False]
    assert (response.error_code, response.error_message) == (0, None)
    for replicas in ([NODE_ID + 1], [NODE_ID, NODE_ID], [], [-1]):
        entry = ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[entry])])
        (refused,) = node.call(request, 0).responses[0].partitions
        assert refused.error_code == 39
    assert node.call(AlterPartitionReassignmentsRequest(), 1) == AlterPartitionReassignmentsResponse(responses=[])
    done = ReassignablePartitionResponse(partition_index=0, error_message=None)
    same = ReassignablePartition(partition_index=0, replicas=[NODE_ID])
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[same])])
    assert list(node.call(request, 1).responses) == [ReassignableTopicResponse(name="t", partitions=[done])]


def test_replicas_stay_in_the_only_folder() -> None:
    """For a folder other than the node's, every partition gets LOG_DIR_NOT_FOUND (57). For the node's folder, unknown
    partitions get UNKNOWN_TOPIC_OR_PARTITION. If a request names a partition twice, the last folder counts.
    """
    node = BrokerContext()
    node.create("t", 1)
    (described,) = node.call(DescribeLogDirsRequest(topics=[]), 4).results

    def move(*folders: str) -> AlterReplicaLogDirsResponse:
        topics = [AlterReplicaLogDirTopic(name="t", partitions=[0, 9])]
        return node.call(
            AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=p, topics=topics) for p in folders]), 2
        )

    def codes(*expected: int) -> AlterReplicaLogDirsResponse:
        partitions = [
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
            for index, code in zip((0, 9), expected, strict=True)
        ]
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(topic_name="t", partitions=partitions)]
        )

    assert move(described.log_dir) == codes(0, 3)
    assert move("/elsewhere") == move("") == move(described.log_dir, "/elsewhere") == codes(57, 57)
    assert move() == AlterReplicaLogDirsResponse(results=[])
    empty = AlterReplicaLogDir(path="/elsewhere", topics=[AlterReplicaLogDirTopic(name="t", partitions=[])])
    assert node.call(AlterReplicaLogDirsRequest(dirs=[empty]), 2) == AlterReplicaLogDirsResponse(results=[])
    for path, code in ((described.log_dir, 3), ("/elsewhere", 57)):
        rows = [AlterReplicaLogDirTopic(name="x" * size, partitions=[10]) for size in (212, 213)]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=rows)])
        results = node.call(request, 2).results
        assert [row.partitions[0].error_code for row in results] == [code, 17], "the second name is too long"


def test_brokers_and_voters_cannot_be_added_or_removed() -> None:
    node = BrokerContext()
    cluster = node.cluster.cluster_id
    assert node.call(UnregisterBrokerRequest(broker_id=9), 0) == UnregisterBrokerResponse(
        error_code=102, error_message="broker 9 is not registered"
    )
    assert node.call(UnregisterBrokerRequest(broker_id=NODE_ID), 0).error_code == 42
    for cluster_id, code in ((None, 126), (cluster, 126), ("another", 104)):
        response: AddRaftVoterResponse = node.call(AddRaftVoterRequest(cluster_id=cluster_id, voter_id=NODE_ID), 1)
        assert response.error_code == code
    assert node.call(AddRaftVoterRequest(cluster_id=cluster, voter_id=9), 0).error_code == 7
    for cluster_id, voter_id, code in ((None, 9, 127), (cluster, NODE_ID, 127), ("another", NODE_ID, 104)):
        removed: RemoveRaftVoterResponse = node.call(
            RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=b"x" * 16), 0
        )
        assert removed.error_code == code
    own = RemoveRaftVoterRequest(cluster_id=None, voter_id=NODE_ID, voter_directory_id=node.cluster.directory_id)
    assert node.call(own, 0).error_code == 42
