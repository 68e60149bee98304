from abc import abstractmethod

from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.producer_state import ProducerStates
from kcore.log.interface import PartitionLog
from kcore.runtime.commit import CommitPipeline
from kcore_ext.batch import BatchBuilder
from kcore_ext.broker.topic_traffic import TopicTraffic
from kcore_ext.runtime.shard import ShardLogCore

class PartitionCore(ShardLogCore):
    """Compiled base of `Partition`: the code of every append and every commit.

    It calls the abstract methods of `Partition` for uncommon operations and for appends of producers.
    """

    log: PartitionLog
    pipeline: CommitPipeline
    producers: ProducerStates
    traffic: TopicTraffic
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int
    watched: int
    recovering: bool
    closed: bool
    allows_background_commit: bool
    """True, because readers see only the durable part of a partition; see `Participant`."""
    config: LogConfig

    @property
    def end_offset(self) -> int:
        """The offset of the next record, staged appends included."""
    def append_data(
        self,
        batch: bytes | bytearray,
        producer_id: int,
        epoch: int,
        sequence: int,
        last_delta: int,
        timestamp_ms: int,
        transactional: bool,
    ) -> int:
        """Stages a batch of records that has passed all checks. Returns its base offset.

        Args:
            batch: the whole batch. The other arguments repeat fields of its header.
            producer_id: the producer's id; -1 for no producer.
            epoch: the producer's epoch.
            sequence: the base sequence.
            last_delta: the last offset delta.
            timestamp_ms: the largest timestamp.
            transactional: True if the batch belongs to a transaction.

        Raises:
            LogError: nothing was appended.
        """

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        """Stages the batch that a coordinator has built. Unlike `append`, this method does not parse the batch."""

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        timestamp_ms: int,
        transaction_version: int = 0,
    ) -> int:
        """Stages an end marker and ends the producer's transaction in this partition. Returns the marker's offset.

        Args:
            producer_id: the producer of the transaction.
            producer_epoch: the epoch of the marker, and of the producer from now on.
            coordinator_epoch: the epoch of the transaction coordinator.
            commit: True to commit, False to abort.
            timestamp_ms: the marker's timestamp.
            transaction_version: the transaction.version. From 2 on, `producer_epoch` must be above the epoch of the
                transaction (KIP-1228).

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
            LogError: nothing was appended.
        """

    def seal(self) -> None:
        """Does nothing, because each append is staged in the log immediately (see `Participant`)."""

    def committed(self) -> None:
        """Advances the high watermark after a durable commit, and notifies parked requests (see `Participant`)."""

    @abstractmethod
    def finish_recovery(self) -> None:
        """Completes the recovery of the producers' state in one step, instead of in slices."""

    @abstractmethod
    def _settle_producers(self) -> None:
        """Updates transactions and the last stable offset after a durable commit."""

    @abstractmethod
    def _progress(self) -> None:
        """Notifies parked requests that the high watermark or the last stable offset has moved."""
