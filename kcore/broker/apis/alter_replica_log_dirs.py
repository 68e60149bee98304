"""AlterReplicaLogDirs (key 34, versions 1-2): accepts only the current folder of each replica (KIP-113).

A node has only one folder, so a replica cannot move to another folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.broker.data.log_dirs import LogDirs
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard


MAX_NAME_LENGTH = 214
"""Maximum length of a topic's name and partition number together. Kafka adds 41 characters to them for the name of a
folder, which may have 255 characters (KAFKA-4893).
"""


class AlterReplicaLogDirsApi(ControlApi[AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse]):
    """Handler of AlterReplicaLogDirs requests. It accepts this node's folder and refuses any other.

    Args:
        shard: the metadata shard.
        log_dirs: the node's data folder.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_log_dirs",)

    key: ClassVar[ApiKey] = ApiKey.ALTER_REPLICA_LOG_DIRS
    request_type: ClassVar[type] = AlterReplicaLogDirsRequest
    response_type: ClassVar[type] = AlterReplicaLogDirsResponse
    versions: ClassVar[tuple[int, int]] = (1, 2)

    def __init__(self, shard: Shard[MetadataMachine], log_dirs: LogDirs, authorizer: Authorizer | None = None) -> None:
        super().__init__(shard, authorizer)
        self._log_dirs = log_dirs

    def decide(self, machine: MetadataMachine, context: RequestContext, request: AlterReplicaLogDirsRequest) -> Any:
        """Checks the folder of each partition."""
        if not self.allowed(context, Operation.ALTER, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        def code(path: str, topic: str, index: int) -> ErrorCode:
            if len(topic) + len(str(index)) > MAX_NAME_LENGTH:
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            if path != self._log_dirs.path:
                return ErrorCode.LOG_DIR_NOT_FOUND
            info = machine.image.by_name(topic)
            known = info is not None and 0 <= index < info.partitions
            return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        return _response(request, code)

    def error(
        self, context: RequestContext, request: AlterReplicaLogDirsRequest, code: ErrorCode, message: str | None = None
    ) -> AlterReplicaLogDirsResponse:
        """Makes a response with the same error code for each partition. As in Kafka, each folder has its own topics."""
        code = client_code(code)
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name=topic.name,
                    partitions=[
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                        for index in topic.partitions
                    ],
                )
                for folder in request.dirs
                for topic in folder.topics
            ]
        )


def _response(
    request: AlterReplicaLogDirsRequest, code: Callable[[str, str, int], ErrorCode]
) -> AlterReplicaLogDirsResponse:
    """Makes the response, with one entry for each topic that has partitions.

    If the request lists a partition under several folders, the result refers to the last of these folders.
    """
    topics: dict[str, dict[int, ErrorCode]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            codes = topics.setdefault(topic.name, {})
            for index in topic.partitions:
                codes[index] = code(folder.path, topic.name, index)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    for index, error in codes.items()
                ],
            )
            for name, codes in topics.items()
            if codes
        ]
    )
