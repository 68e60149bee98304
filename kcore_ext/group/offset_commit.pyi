from abc import abstractmethod
from typing import Any

from kcore_ext.group.consumer_records import ConsumerRecords
from kcore_ext.group.offset_block import OffsetBlock
from kcore_ext.group.offset_fetch import OffsetTables
from kcore_ext.runtime.encoded import EncodedFastPath
from kcore_ext.runtime.shard import MachineCore

class GroupCore(MachineCore):
    """The compiled base of `GroupShard`: the replay of blocks of records.

    Attributes:
        offset_tables: the shard's tables of groups and offsets. The subclass sets it.
    """

    offset_tables: OffsetTables

    def replay_block(self, first_offset: int, producer_id: int, block: OffsetBlock[Any] | ConsumerRecords) -> None:
        """Applies a block of records: the offsets of a commit, or the records of a consumer group.

        Args:
            first_offset: the offset of the first record. The other records have the following offsets.
            producer_id: the producer whose transaction contains the records, which are then applied as pending offsets;
                -1: none.
            block: the block. Records of a consumer group are never part of a transaction.

        Raises:
            ValueError: the offsets have been applied already.
        """

    @abstractmethod
    def get_or_create_group(self, group_id: str) -> Any:
        """Returns a group. If it does not exist, creates a classic group without members."""

    @abstractmethod
    def replay_pending_block(self, offset: int, producer_id: int, block: OffsetBlock[Any]) -> None:
        """Applies the offsets of a transaction as pending offsets."""

class CommitFastPath(EncodedFastPath):
    """The common part of the fast paths of OffsetCommit and TxnOffsetCommit.

    It caches up to 1024 combinations of topics and partitions. Each cache entry has the topic infos and a response that
    accepts all partitions. An entry is valid as long as the cluster's topic objects are the same.
    """

    @property
    def served(self) -> int:
        """The number of requests that the fast path has served."""

    @property
    def served_encoded(self) -> int:
        """The number of requests that the fast path has served without decoding them."""

    @property
    def cache_size(self) -> int:
        """The number of cached combinations of topics and partitions."""

class OffsetCommitFastPath(CommitFastPath):
    """The fast path of OffsetCommit.

    It serves requests whose partitions all exist, whose metadata is short, and whose member the group accepts.

    Args:
        api: the API, for its errors and for responses that wait for a commit.
        shards: the group shards.
        topics: the cluster's topics.
        authorizer: checks the permission to READ groups and topics; None allows all.
        request: the class of the request.
        topic: the class of a topic of the request.
        record: the named tuple (key, value, version) of a record.
        permissions: `Operation.READ`, `ResourceType.GROUP`, `ResourceType.TOPIC`.
        classic: the classes of classic groups and of their members, and the states Empty and Stable.
    """

    def __init__(
        self,
        api: Any,
        shards: Any,
        topics: Any,
        authorizer: Any,
        *,
        request: type,
        topic: type,
        record: type,
        permissions: tuple[Any, Any, Any],
        classic: tuple[type, type, Any, Any],
    ) -> None: ...
    def serve(self, context: Any, request: Any) -> Any:
        """Writes the offsets.

        Returns:
            The response; a `Pending` that waits for the commit; or None, without any durable change, if the generic
            path must serve the request.
        """

class TxnOffsetCommitFastPath(CommitFastPath):
    """The fast path of TxnOffsetCommit.

    It serves requests whose partitions all exist, whose transaction is verified, and whose member the group accepts.

    Args:
        api: the API, for its errors, for responses that wait for a commit, and for transactions that are not verified
            at once (`after_verification`).
        shards: the group shards.
        topics: the cluster's topics.
        authorizer: checks the permission to WRITE transactions, and READ groups and topics; None allows all.
        verifier: verifies a transaction with its coordinator (`kcore.group.offsets.verifier.GroupVerifier`).
        verified: the object that the verifier returns for a valid transaction; compared by identity.
        request: the class of the request.
        topic: the class of a topic of the request.
        record: the named tuple (key, value, version) of a record.
        permissions: `Operation.READ`, `ResourceType.GROUP`, `ResourceType.TOPIC`.
        write_permission: `Operation.WRITE`, `ResourceType.TRANSACTIONAL_ID`.
        classic: the class of classic groups, and their state Empty.
    """

    def __init__(
        self,
        api: Any,
        shards: Any,
        topics: Any,
        authorizer: Any,
        *,
        verifier: Any,
        verified: Any,
        request: type,
        topic: type,
        record: type,
        permissions: tuple[Any, Any, Any],
        write_permission: tuple[Any, Any],
        classic: tuple[type, Any],
    ) -> None: ...
    def serve(self, context: Any, request: Any) -> Any:
        """Writes the offsets as pending offsets of the transaction.

        Returns:
            The response; a `Pending` that waits for the commit; or None, without any durable change, if the generic
            path must serve the request.
        """
