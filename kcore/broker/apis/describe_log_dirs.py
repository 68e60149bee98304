"""DescribeLogDirs (key 35, versions 1-5): sizes of partitions (KIP-113) and of the volume (KIP-827)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.control import SlicedReadApi, client_code
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcore.broker.data.log_dirs import LogDirs
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard
    from kcore.runtime.sliced import Work

STEP_PARTITIONS = 50
PARTITION_COST_US = 50
"""The cost of describing one partition, in microseconds."""


class DescribeLogDirsApi(SlicedReadApi[DescribeLogDirsRequest, DescribeLogDirsResponse]):
    """Handler of DescribeLogDirs requests. It returns the sizes of partitions. No replica lags or moves, so offset lags
    are 0.

    Args:
        shard: the metadata shard.
        log_dirs: the node's data folder.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_log_dirs",)

    key: ClassVar[ApiKey] = ApiKey.DESCRIBE_LOG_DIRS
    request_type: ClassVar[type] = DescribeLogDirsRequest
    response_type: ClassVar[type] = DescribeLogDirsResponse
    versions: ClassVar[tuple[int, int]] = (1, 5)

    def __init__(self, shard: Shard[MetadataMachine], log_dirs: LogDirs, authorizer: Authorizer | None = None) -> None:
        super().__init__(shard, authorizer)
        self._log_dirs = log_dirs

    def steps(self, machine: MetadataMachine, context: RequestContext, request: DescribeLogDirsRequest) -> Work:
        """Describes the data folder and the requested partitions that exist. Null topics request all partitions."""
        if not self.allowed(context, Operation.DESCRIBE, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        requested: dict[str, Iterable[int] | None]
        if request.topics is None:
            requested = dict.fromkeys(machine.image.names)
        else:
            requested = {}
            for entry in request.topics:
                requested[entry.topic] = dict.fromkeys([*(requested.get(entry.topic) or ()), *entry.partitions])
        topics = []
        for name, some in requested.items():
            topic = machine.image.by_name(name)
            if topic is None:
                continue
            indexes = range(topic.partitions) if some is None else some
            partitions = []
            for number, index in enumerate(indexes, 1):
                if number % STEP_PARTITIONS == 0:
                    yield PARTITION_COST_US * STEP_PARTITIONS
                yield from self._log_dirs.index_steps(topic.topic_id, index)
                size_bytes = self._log_dirs.size_bytes(topic.topic_id, index)
                if size_bytes is not None:
                    partitions.append(DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes))
            yield PARTITION_COST_US * (1 + len(partitions) % STEP_PARTITIONS)
            if partitions:
                topics.append(DescribeLogDirsTopic(name=name, partitions=partitions))
        total_bytes, usable_bytes = self._log_dirs.volume_bytes()
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir=self._log_dirs.path, topics=topics, total_bytes=total_bytes, usable_bytes=usable_bytes
                )
            ]
        )

    def error(
        self, context: RequestContext, request: DescribeLogDirsRequest, code: ErrorCode, message: str | None = None
    ) -> DescribeLogDirsResponse:
        """Makes a response without folders. The response has the error code only in versions with a field for it."""
        return DescribeLogDirsResponse(error_code=client_code(code))
