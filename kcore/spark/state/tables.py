"""The state of a coordinator partition as rows of the documented tables (`table_schemas.TABLES`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kcore.group.classic.group import ClassicGroup
from kcore.group.consumer.group import ConsumerGroup
from kcore.group.consumer.target import preferred_assignor
from kcore.group.offsets.store import OffsetStore
from kcore.group.shard import GroupShard
from kcore.group.share.group import ShareGroup
from kcore.group.streams.group import StreamsGroup
from kcore.group.streams.records import group_records
from kcore.protocol.records.base import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcore.protocol.schema import ZERO_UUID, Struct
from kcore.share.batches import Batch, Batches
from kcore.share.shard import ShareShard
from kcore.share.state import key_of
from kcore.spark.state.keyed_groups import KeyedGroup, KeyedGroups
from kcore.spark.state.partition_state import PartitionState
from kcore.transaction.shard import TransactionShard
from kcore.transaction.states import NAMES

TableRow = tuple[str, dict[str, Any]]
"""The name of a table, and column -> value of one of its rows. Columns that are left out are null."""

STREAMS_ASSIGNOR = "sticky"
SHARE_ASSIGNOR = "simple"
SHARE_STABLE = 0
"""Kafka's number of the member state Stable. Records of share group members have no other state."""
BATCH_FIELDS = ("first_offset", "last_offset", "delivery_state", "delivery_count")
TASK_FIELDS = {"active": "active_tasks", "standby": "standby_tasks", "warmup": "warmup_tasks"}


def table_rows(state: PartitionState, cut: bool = False, *, offsets: bool = True) -> Iterator[TableRow]:
    """Yields every row of a partition's state.

    Args:
        state: the state of the partition.
        cut: True if the partition's log continues after the last applied row.
        offsets: True to include the table `offsets`.
    """
    partition = state.partition
    if state.topic == CONSUMER_OFFSETS:
        rows: Iterable[TableRow] = group_shard_rows(state.groups, offsets=offsets)
    elif state.topic == TRANSACTION_STATE:
        rows = transaction_rows(state.transactions)
    else:
        rows = share_state_rows(state.share)
    for table, row in rows:
        row["coordinator_partition"] = partition
        yield table, row
    yield from _producer_rows(state)
    yield from _log_rows(state, cut)


# ---- __consumer_offsets


def group_shard_rows(shard: GroupShard, *, offsets: bool = True) -> Iterator[TableRow]:
    """Yields the groups, members and offsets of a group shard, the engine's own or a rebuilt one.

    Args:
        shard: groups of all kinds, and all offsets.
        offsets: True to include the table `offsets`.
    """
    store = shard.offsets
    for group_id, group in shard.groups.items():
        if isinstance(group, ConsumerGroup):
            yield from _consumer_rows(group, store.count(group_id))
        elif isinstance(group, StreamsGroup):
            yield from _keyed_rows(group_id, _keyed(group), store.count(group_id))
        elif isinstance(group, ShareGroup):
            yield from _share_rows(group, store.count(group_id))
        elif isinstance(group, ClassicGroup):
            simple = not group.protocol_type and not group.generation_id
            if simple and not store.count(group_id) and not store.group_has_pending(group_id):
                continue  # empty: Kafka's next sweep deletes it
            yield from _classic_rows(group, store.count(group_id), simple)
    if offsets:
        yield from _offset_rows(store)


def _classic_rows(group: ClassicGroup, offset_count: int, simple: bool) -> Iterator[TableRow]:
    yield (
        "groups",
        {
            "group_id": group.group_id,
            "group_type": "classic",
            "state": group.state_name(),
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol_name,
            "generation_id": group.generation_id,
            "leader_id": group.leader_id,
            "state_timestamp_ms": None if simple else group.state_timestamp_ms,
            "member_count": len(group.members),
            "offset_count": offset_count,
        },
    )
    for member in group.members.values():
        yield (
            "members",
            {
                "group_id": group.group_id,
                "group_type": "classic",
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "session_timeout_ms": member.session_timeout_ms,
                "is_classic": True,
                "protocols": [
                    {"name": name, "metadata": metadata}
                    for name, metadata in member.protocols
                    if name == (group.protocol_name or "")  # the log holds only this protocol
                ],
                "assignment": member.assignment,
            },
        )


def _consumer_rows(group: ConsumerGroup, offset_count: int) -> Iterator[TableRow]:
    yield (
        "groups",
        {
            "group_id": group.group_id,
            "group_type": "consumer",
            "state": group.state_name(),
            "protocol_type": group.protocol_type,
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "assigned_timestamp_ms": group.assigned_at_ms,
            "assignor_name": preferred_assignor(group, None, None),
            "metadata_hash": group.metadata_hash,
            "member_count": len(group.members),
            "offset_count": offset_count,
        },
    )
    for member_id, member in group.members.items():
        metadata, current = member.metadata, member.current
        classic = metadata.classic
        protocols = () if classic is None else classic.protocols
        yield (
            "members",
            {
                "group_id": group.group_id,
                "group_type": "consumer",
                "member_id": member_id,
                "group_instance_id": metadata.instance_id,
                "rack_id": metadata.rack_id,
                "client_id": metadata.client_id,
                "client_host": metadata.client_host,
                "rebalance_timeout_ms": metadata.rebalance_timeout_ms,
                "session_timeout_ms": None if classic is None else classic.session_timeout_ms,
                "is_classic": classic is not None,
                "protocols": [{"name": name, "metadata": subscription} for name, subscription in protocols],
                "member_epoch": current.member_epoch,
                "previous_member_epoch": current.previous_epoch,
                "member_state": int(current.state),
                "subscribed_topic_names": sorted(metadata.names),
                "subscribed_topic_regex": metadata.regex,
                "server_assignor": metadata.server_assignor,
            },
        )
        for kind, owned in (("assigned", current.assigned), ("revoking", current.revoking)):
            for topic_id, epochs in owned.items():
                ascending = sorted(epochs)
                row = _assignment(group.group_id, member_id, kind, topic_id, ascending)
                row["assignment_epochs"] = [epochs[partition] for partition in ascending]
                yield "assignments", row
    for member_id, target in group.targets.items():
        for topic_id, partitions in target.items():
            yield "assignments", _assignment(group.group_id, member_id, "target", topic_id, sorted(partitions))
    for regex, resolved in group.subscriptions.resolved.items():
        row = {"group_id": group.group_id, "regex": regex, "topics": sorted(resolved.topics)}
        yield "regexes", {**row, "version": resolved.version, "timestamp_ms": resolved.timestamp_ms}


def _assignment(
    group_id: str, member_id: str, kind: str, topic_id: bytes | None, partitions: list[int]
) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "member_id": member_id,
        "kind": kind,
        "topic_id": None if topic_id is None else topic_id.hex(),
        "partitions": partitions,
    }


def _keyed(group: StreamsGroup) -> KeyedGroup:
    """Converts the engine's streams group to the `KeyedGroup` that a replay of the group's records would give."""
    keyed = KeyedGroups()
    for record in group_records(group):
        keyed.replay(record.key, record.value)
    return keyed.groups[group.group_id]


def _keyed_rows(group_id: str, group: KeyedGroup, offset_count: int) -> Iterator[TableRow]:
    metadata = group.values.get("Metadata")
    target = group.values.get("TargetAssignmentMetadata")
    members = group.of_members("MemberMetadata")
    row = {
        "group_id": group_id,
        "group_type": group.kind,
        "state": group.state_name(),
        "protocol_type": group.kind,
        "group_epoch": group.epoch(),
        "assignment_epoch": group.assignment_epoch(),
        "assigned_timestamp_ms": 0 if target is None else target.assignment_timestamp,
        "assignor_name": STREAMS_ASSIGNOR,
        "metadata_hash": 0 if metadata is None else metadata.metadata_hash,
        "member_count": len(members),
        "offset_count": offset_count,
    }
    if metadata is not None:
        row["validated_topology_epoch"] = metadata.validated_topology_epoch
        row["last_assignment_configs"] = {entry.key: entry.value for entry in metadata.last_assignment_configs or ()}
    yield "groups", row
    current = group.of_members("CurrentMemberAssignment")
    for member_id, value in members.items():
        yield "members", _keyed_member(group_id, group.kind, member_id, value, current.get(member_id))
    for member_id, value in current.items():
        yield from _tasks(group_id, member_id, "assigned", value, "")
        yield from _tasks(group_id, member_id, "revoking", value, "_pending_revocation")
    for member_id, value in group.of_members("TargetAssignmentMember").items():
        yield from _tasks(group_id, member_id, "target", value, "")
    topology = group.values.get("Topology")
    if topology is not None:
        text = json.dumps([_to_json(subtopology) for subtopology in topology.subtopologies])
        yield "topologies", {"group_id": group_id, "epoch": topology.epoch, "subtopologies": text}


def _keyed_member(group_id: str, kind: str, member_id: str, value: Any, current: Any) -> dict[str, Any]:
    row = {
        "group_id": group_id,
        "group_type": kind,
        "member_id": member_id,
        "rack_id": value.rack_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "is_classic": False,
        "member_epoch": 0 if current is None else current.member_epoch,
        "previous_member_epoch": -1 if current is None else current.previous_member_epoch,
        "member_state": 0 if current is None else current.state,
    }
    endpoint = value.user_endpoint
    row["group_instance_id"] = value.instance_id
    row["rebalance_timeout_ms"] = value.rebalance_timeout_ms
    row["topology_epoch"] = value.topology_epoch
    row["process_id"] = value.process_id
    row["user_endpoint"] = None if endpoint is None else {"host": endpoint.host, "port": endpoint.port}
    row["client_tags"] = {tag.key: tag.value for tag in value.client_tags}
    return row


def _tasks(group_id: str, member_id: str, kind: str, value: Any, suffix: str) -> Iterator[TableRow]:
    for task_type, field in TASK_FIELDS.items():
        for task in getattr(value, field + suffix):
            row = _assignment(group_id, member_id, kind, None, sorted(task.partitions))
            yield "assignments", {**row, "task_type": task_type, "subtopology_id": task.subtopology_id}


def _share_rows(group: ShareGroup, offset_count: int) -> Iterator[TableRow]:
    group_id = group.group_id
    yield (
        "groups",
        {
            "group_id": group_id,
            "group_type": "share",
            "state": group.state_name(),
            "protocol_type": group.protocol_type,
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "assigned_timestamp_ms": group.assigned_at_ms,
            "assignor_name": SHARE_ASSIGNOR,
            "metadata_hash": group.metadata_hash,
            "member_count": len(group.members),
            "offset_count": offset_count,
        },
    )
    for member_id, member in group.members.items():
        metadata, current = member.metadata, member.current
        yield (
            "members",
            {
                "group_id": group_id,
                "group_type": "share",
                "member_id": member_id,
                "rack_id": metadata.rack_id,
                "client_id": metadata.client_id,
                "client_host": metadata.client_host,
                "is_classic": False,
                "member_epoch": current.member_epoch,
                "previous_member_epoch": current.previous_epoch,
                "member_state": SHARE_STABLE,
                "subscribed_topic_names": sorted(metadata.names),
            },
        )
        for topic_id, partitions in current.assigned.items():
            yield "assignments", _assignment(group_id, member_id, "assigned", topic_id, sorted(partitions))
    for member_id, target in group.targets.items():
        for topic_id, partitions in target.items():
            yield "assignments", _assignment(group_id, member_id, "target", topic_id, sorted(partitions))
    state = group.state_partitions
    for stage, topics in (("initializing", state.initializing), ("initialized", state.initialized)):
        for topic_id, topic in topics.items():
            yield "share_topics", _share_topic(group_id, topic_id, topic.name, stage, sorted(topic.partitions))
    for topic_id, name in state.deleting.items():
        yield "share_topics", _share_topic(group_id, topic_id, name, "deleting", [])


def _share_topic(group_id: str, topic_id: bytes, name: str, stage: str, partitions: list[int]) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "topic_id": topic_id.hex(),
        "topic": name,
        "stage": stage,
        "partitions": partitions,
    }


def _to_json(value: Any) -> Any:
    """Converts a struct of a record to JSON-compatible data."""
    if isinstance(value, Struct):
        return {spec.name: _to_json(getattr(value, spec.name)) for spec in type(value).FIELDS}
    return [_to_json(item) for item in value] if isinstance(value, list | tuple) else value


def _offset_rows(offsets: OffsetStore) -> Iterator[TableRow]:
    for group_id in offsets.groups():
        for topic, partitions in offsets.topics(group_id).items():
            for partition, offset in partitions.items():
                yield "offsets", _offset(group_id, topic, partition, offset, None)
        for topic, partition, producer_id, offset in offsets.pending_offsets(group_id):
            yield "offsets", _offset(group_id, topic, partition, offset, producer_id)


def _offset(group_id: str, topic: str, partition: int, offset: Any, producer_id: int | None) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "topic": topic,
        "partition": partition,
        "pending": producer_id is not None,
        "producer_id": producer_id,
        "offset": offset.committed_offset,
        "leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "commit_timestamp_ms": offset.commit_timestamp_ms,
        "expire_timestamp_ms": offset.expire_timestamp_ms,
        "topic_id": None if offset.topic_id == ZERO_UUID else offset.topic_id.hex(),
        "record_offset": offset.record_offset,
    }


# ---- __transaction_state, __share_group_state, every partition


def transaction_rows(shard: TransactionShard) -> Iterator[TableRow]:
    """Yields the transactional ids of a transaction shard, the engine's own or a rebuilt one."""
    for transactional_id, transaction in shard.transactions.items():
        yield (
            "transactions",
            {
                "transactional_id": transactional_id,
                "state": NAMES[transaction.state],
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "previous_producer_id": transaction.previous_producer_id,
                "next_producer_id": transaction.next_producer_id,
                "timeout_ms": transaction.timeout_ms,
                "start_timestamp_ms": transaction.start_ms,
                "last_update_timestamp_ms": transaction.last_update_ms,
                "client_version": transaction.client_version,
                "partitions": [
                    {"topic": topic, "partition": index} for topic, index in sorted(transaction.topic_partitions())
                ],
            },
        )


def merged(batches: Batches) -> list[Batch]:
    """Returns state batches after merging adjacent batches with equal state.

    The share coordinator itself merges them only in later writes.
    """
    merged_batches: list[Batch] = []
    for batch in batches:
        if merged_batches and merged_batches[-1][1] + 1 == batch[0] and merged_batches[-1][2:] == batch[2:]:
            merged_batches[-1] = (merged_batches[-1][0], *batch[1:])
        else:
            merged_batches.append(batch)
    return merged_batches


def share_state_rows(shard: ShareShard) -> Iterator[TableRow]:
    """Yields the share partitions of a share shard, the engine's own or a rebuilt one."""
    for state in shard.states.values():
        key = key_of(state)
        yield (
            "share_states",
            {
                "group_id": key.group_id,
                "topic_id": key.topic_id.hex(),
                "partition": key.partition,
                "snapshot_epoch": state.snapshot_epoch,
                "state_epoch": state.state_epoch,
                "leader_epoch": state.leader_epoch,
                "start_offset": state.start_offset,
                "delivery_complete_count": state.delivery_complete_count,
                "create_timestamp_ms": state.create_timestamp,
                "write_timestamp_ms": state.write_timestamp,
                "state_batches": [dict(zip(BATCH_FIELDS, batch, strict=True)) for batch in merged(state.batches)],
            },
        )


def _producer_rows(state: PartitionState) -> Iterator[TableRow]:
    for entry in state.producers.entries():
        yield (
            "producers",
            {
                "coordinator_partition": state.partition,
                "topic": state.topic,
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp_ms": entry.last_timestamp_ms,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.txn_first_offset,
            },
        )


def _log_rows(state: PartitionState, cut: bool) -> Iterator[TableRow]:
    partition_columns = {"coordinator_partition": state.partition, "topic": state.topic}
    yield (
        "partitions",
        {
            **partition_columns,
            "first_offset": state.first_offset,
            "next_offset": state.next_offset,
            "last_stable_offset": state.last_stable_offset,
            "last_timestamp_ms": state.last_timestamp_ms,
            "cleaned_to": state.completeness.cleaned_to,
            "holes_to": state.completeness.holes_to,
            "complete": state.completeness.is_complete(state.last_stable_offset, cut),
            "lost": state.completeness.lost,
            "records": state.records,
            "unknown": state.unknown,
            "faults": state.fault_count,
        },
    )
    for fault in state.faults:
        yield "faults", {**partition_columns, "offset": fault.offset, "kind": fault.kind, "detail": fault.detail}
