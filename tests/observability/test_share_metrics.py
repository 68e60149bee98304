"""Metrics of share groups: groups, share partitions, sessions and deliveries (KIP-932)."""

from __future__ import annotations

from typing import Any

from kcore.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kcore.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kcore.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kcore.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from kcore.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.kit import batch, make_topic, produce
from tests.observability.watched import watched

SETTINGS = {"group.share.assignment.interval.ms": "0"}
ACCEPT, RELEASE = 1, 2


def fetch(client: Any, topic_id: bytes, epoch: int) -> Any:
    topics = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)])] if epoch == 0 else []
    response = client.send(
        ShareFetchRequest(
            group_id="s",
            member_id="m",
            share_session_epoch=epoch,
            max_wait_ms=5_000,
            min_bytes=1,
            max_records=100,
            batch_size=100,
            topics=topics,
        )
    )
    assert response.error_code == 0, response
    return response


def test_deliveries_and_share_partitions_are_counted() -> None:
    """A fetch delivers ten records. Four are accepted and six are released, and the next fetch delivers these six
    again.

    Both responses contain the whole batch, so its bytes count twice as traffic of the topic.
    """
    with watched(SETTINGS) as node, node.live.connect() as client:
        make_topic(client, "t")
        (topic,) = client.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")])).topics
        records = batch([b"job"] * 10)
        client.send(produce("t", records), 9)
        offsets = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
        altered = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=offsets)
        assert client.send(AlterShareGroupOffsetsRequest(group_id="s", topics=[altered])).error_code == 0
        joined = ShareGroupHeartbeatRequest(group_id="s", member_id="m", subscribed_topic_names=["t"])
        assert client.send(joined).member_epoch == 2
        fetch(client, topic.topic_id, 0)
        batches = [
            AcknowledgementBatch(first_offset=0, last_offset=3, acknowledge_types=[ACCEPT]),
            AcknowledgementBatch(first_offset=4, last_offset=9, acknowledge_types=[RELEASE]),
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        acknowledged = AcknowledgeTopic(topic_id=topic.topic_id, partitions=[partition])
        request = ShareAcknowledgeRequest(group_id="s", member_id="m", share_session_epoch=1, topics=[acknowledged])
        assert client.send(request).responses[0].partitions[0].error_code == 0
        fetch(client, topic.topic_id, 2)
        found = node.samples()
    share = {series: value for series, value in found.items() if "_share_" in series[0] and value}
    assert share == {
        ("kcore_share_groups", ("Stable",)): 1,
        ("kcore_share_group_rebalances_total", ()): 1,
        ("kcore_share_partitions", ()): 1,
        ("kcore_share_partitions_loaded", ()): 1,
        ("kcore_share_records_in_flight", ()): 6,
        ("kcore_share_sessions", ()): 1,
        ("kcore_share_session_partitions", ()): 1,
        ("kcore_share_records_delivered_total", ()): 16,
        ("kcore_share_records_redelivered_total", ()): 6,
        ("kcore_share_acknowledgements_total", ("accept",)): 4,
        ("kcore_share_acknowledgements_total", ("release",)): 6,
    }
    assert found["kcore_groups", ("share",)] == 1
    assert found["kcore_partitions", ("__share_group_state", "active")] == 50
    assert found["kcore_topic_sent_records_total", ("t",)] == 20
    assert found["kcore_topic_sent_bytes_total", ("t",)] == 2 * len(records)
    assert found["kcore_sent_record_bytes_total", ()] == 2 * len(records)
