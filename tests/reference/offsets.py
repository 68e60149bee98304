"""The reference implementation of `kcore_ext.group.offsets`, which encodes records with the codec's message classes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from kcore.group.offsets.store import OffsetStore
from kcore.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from kcore_ext.group.offset_block import OffsetBlock
from kcore_ext.group.offsets import OffsetAndMetadata


def is_too_long(metadata: str, limit: int) -> bool:
    """Returns True if the text has more than `limit` UTF-16 code units."""
    return len(metadata.encode("utf-16-be")) // 2 > limit


def new_offsets(
    group_id: str,
    topic: str,
    topic_id: bytes,
    partitions: Iterable[Any],
    codes: list[int] | None,
    now_ms: int,
    expire_ms: int,
    limit: int,
) -> tuple[list[tuple[bytes, bytes]], list[tuple[int, int]]]:
    """Returns the encoded (key, value) of each record to write, and (partition, error code) of each requested
    partition.
    """
    records, responses = [], []
    for index, requested in enumerate(partitions):
        code = 0 if codes is None else codes[index]
        if code == 0 and is_too_long(requested.committed_metadata or "", limit):
            code = 12
        responses.append((requested.partition_index, code))
        if code:
            continue
        key = OffsetCommitKey(group=group_id, topic=topic, partition=requested.partition_index)
        value = OffsetCommitValue(
            offset=requested.committed_offset,
            leader_epoch=requested.committed_leader_epoch,
            metadata=requested.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
            topic_id=topic_id,
        )
        records.append((key.encode_key(), value.encode_value(4 if expire_ms == -1 else 1)))
    return records, responses


def fetch_responses(
    indexes: Iterable[int],
    offsets: Mapping[int, OffsetAndMetadata],
    unstable: Container[int],
    topic_id: bytes | None,
) -> list[tuple[int, int, int, str, int]]:
    """Returns the responses as (partition, offset, leader epoch, metadata, code)."""
    responses = []
    for index in indexes:
        offset = offsets.get(index)
        if index in unstable:
            responses.append((index, -1, -1, "", 88))
        elif offset is None or (topic_id is not None and not offset.belongs_to(topic_id)):
            responses.append((index, -1, -1, "", 0))
        else:
            responses.append((index, offset.committed_offset, offset.leader_epoch, offset.metadata, 0))
    return responses


def complete(store: OffsetStore, producer_id: int, commit: bool) -> None:
    """Ends the transaction of a producer, one offset at a time."""
    for group_id, topics in store._pending.pop(producer_id, {}).items():
        for topic, partitions in topics.items():
            for partition, offset in partitions.items():
                producers = store._open[group_id][topic][partition]
                producers.remove(producer_id)
                if not producers:
                    del store._open[group_id][topic][partition]
                present = store.get(group_id, topic, partition)
                if commit and (present is None or present.record_offset < offset.record_offset):
                    store.put(-1, group_id, topic, partition, offset)
            if not store._open[group_id][topic]:
                del store._open[group_id][topic]
        if not store._open[group_id]:
            del store._open[group_id]


def put_block(store: OffsetStore, group_id: str, first_offset: int, block: OffsetBlock[Any]) -> None:
    """Stores the offsets of a non-transactional commit. Unlike `replay_block`, this function needs no shard."""
    store.offset_count += block.put_into(store._groups, group_id, first_offset)
