"""Commits an offset and reads it back, in synchronous code.

python examples/embed_sync.py [DATA_FOLDER]      without a folder, all data stays in memory
"""

from __future__ import annotations

import sys

import kcore
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

BY_NAME = 9  # the newest version of both APIs that identifies topics by name


def main() -> None:
    with kcore.open(sys.argv[1] if len(sys.argv) > 1 else None) as engine:
        topic = CreatableTopic(name="lines", num_partitions=1, replication_factor=1)
        engine.send(CreateTopicsRequest(topics=[topic]))

        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=42)
        topics = [OffsetCommitRequestTopic(name="lines", partitions=[partition])]
        engine.send(OffsetCommitRequest(group_id="workers", topics=topics), BY_NAME)

        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="workers", topics=None)])
        for group in engine.send(asked, BY_NAME).groups:
            for found in group.topics:
                for part in found.partitions:
                    print(f"{group.group_id} is at {part.committed_offset} of {found.name}-{part.partition_index}")


if __name__ == "__main__":
    main()
