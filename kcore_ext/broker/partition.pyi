from kcore.broker.configs.log_config import LogConfig
from kcore.broker.data.producer_state import ProducerStates
from kcore.log.interface import PartitionLog
from kcore.runtime.commit import CommitPipeline
from kcore_ext.batch import BatchBuilder

class PartitionCore:
    """What a partition does for every append and every commit; `Partition` is the rest of it.

    Subclasses say what happens seldom, or with producers: `append`, `finish_recovery`,
    `_settle_producers`, `_progress`.
    """

    log: PartitionLog
    pipeline: CommitPipeline
    producers: ProducerStates
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int
    watched: int
    recovering: bool
    closed: bool
    @property
    def allows_background_commit(self) -> bool:
        """Always: what readers see of a partition ends at what is durable (`Participant`)."""

    config: LogConfig

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
        """Stages a batch of records whose every check has passed. Returns its base offset.

        Args:
            batch: the whole batch.
            producer_id: the rest is what its header says: -1 for no producer.
            epoch: the producer's epoch.
            sequence: its base sequence.
            last_delta: its last offset delta.
            timestamp_ms: its largest timestamp.
            transactional: whether it belongs to a transaction.

        Raises:
            LogError: nothing was appended.
        """

    def append_built(self, batch: BatchBuilder, leader_epoch: int) -> int:
        """Stages what a coordinator's builder holds; see `append`. Only what a producer wrote has to be looked at."""

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        timestamp_ms: int,
        transaction_version: int = 0,
    ) -> int:
        """Stages an end marker and closes the producer's transaction here. Returns its offset.

        Args:
            producer_id: whose transaction ends.
            producer_epoch: the epoch that the marker carries; the producer's from here on.
            coordinator_epoch: the epoch of the transaction coordinator.
            commit: how it ends.
            timestamp_ms: the marker's timestamp.
            transaction_version: 2 asks for an epoch above the transaction's own (KIP-1228).

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
            LogError: nothing was appended.
        """

    def seal(self) -> None:
        """Nothing is collected here: appends go to the log's staging at once (`Participant`)."""

    def committed(self) -> None:
        """What was staged is durable: readers may see it (`Participant`)."""

    def append(self, batch: bytearray, leader_epoch: int) -> int: ...
    def finish_recovery(self) -> None: ...
    def _settle_producers(self) -> None: ...
    def _progress(self) -> None: ...
