from abc import abstractmethod
from typing import final

from kcore.broker.data.partition import Partition
from kcore.broker.share.settings import ShareSettings
from kcore.broker.share.share_partition import AcquireParams, ShareServices
from kcore.broker.share.states import SharePartitionState
from kcore.protocol.error_codes import ErrorCode
from kcore_ext.broker.share.changes import ShareRuns
from kcore_ext.share.state_update import StateWriter

@final
class Delivery:
    """The records that were acquired for a member."""

    @property
    def records(self) -> bytes:
        """The log batches that contain the acquired records."""

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """The acquired ranges: first offset, last offset, delivery count."""

    @property
    def acquired(self) -> int:
        """The number of acquired offsets."""

class SharePartitionCore(ShareRuns):
    """The compiled base of a share partition; `SharePartition` documents arguments and attributes.

    It calls the abstract methods of `SharePartition` for the uncommon cases of a fetch.
    """

    group_id: str
    partition: Partition
    state: SharePartitionState
    error: ErrorCode
    writer: StateWriter | None
    """The writer that passes state updates directly to the share coordinator, without WriteShareGroupState requests.
    None if the coordinator is on another node.
    """
    _services: ShareServices
    _state_epoch: int

    @property
    def examined_bytes(self) -> int:
        """The cost of the last `acquire_records` call, in bytes: the total size of the log batches that it read, plus a
        constant for each batch.

        Log batches from which the call acquired no record also count.
        """

    def __init__(
        self,
        group_id: str,
        partition: Partition,
        services: ShareServices,
        state: SharePartitionState,
        error: ErrorCode,
    ) -> None: ...
    def readable_end(self, settings: ShareSettings) -> int:
        """Returns the end of the records that the group may read: the high watermark or the last stable offset."""

    def has_records(self) -> bool:
        """Returns True if a fetch would probably acquire records."""

    def acquire_records(self, params: AcquireParams, max_records: int, max_bytes: int) -> Delivery:
        """Acquires records of an ACTIVE share partition for a member, and reads them.

        Args:
            params: the member's id, and the limits for the acquired ranges.
            max_records: the maximum number of records; see `AcquiringRuns.acquire`.
            max_bytes: the maximum size of the records; the first log batch is read even if it is larger.

        Raises:
            LogError: the log cannot be read; nothing was acquired.
        """

    @abstractmethod
    def _aborted(self, batches: list[bytes], offset: int) -> list[tuple[int, int]]:
        """Returns the (first offset, last offset) of each batch in `batches` that belongs to an aborted transaction."""

    @abstractmethod
    def _read_more(
        self, batches: list[bytes], size: int, offset: int, end: int, max_records: int, max_bytes: int
    ) -> None:
        """Appends further log batches to `batches`, until `batches` has enough records to acquire."""

    @abstractmethod
    def _drop_after(self, error: Exception) -> None:
        """Drops the share partition after an internal error. An implementation must not raise."""
