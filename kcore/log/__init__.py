"""The partition log: stores the record batches of many partitions durably and in order."""

from kcore.log.errors import (
    CorruptLogError,
    DataFolderError,
    FailureReason,
    FencedLeaderEpochError,
    InvalidBatchError,
    LogClosedError,
    LogError,
    OffsetOutOfRangeError,
    PartitionDroppedError,
)
from kcore.log.interface import (
    BatchSummary,
    EngineStats,
    EpochEntry,
    Finding,
    LogEngine,
    PartitionKey,
    PartitionLog,
    SnapshotInfo,
    TimestampedBatch,
)
from kcore.log.lmdb_engine import LmdbLogEngine, check_folder, compact, open_engine, verify_folder
from kcore.log.memory_engine import MemoryLogEngine, MemoryStorage

__all__ = [
    "BatchSummary",
    "CorruptLogError",
    "DataFolderError",
    "EngineStats",
    "EpochEntry",
    "FailureReason",
    "FencedLeaderEpochError",
    "Finding",
    "InvalidBatchError",
    "LmdbLogEngine",
    "LogClosedError",
    "LogEngine",
    "LogError",
    "MemoryLogEngine",
    "MemoryStorage",
    "OffsetOutOfRangeError",
    "PartitionDroppedError",
    "PartitionKey",
    "PartitionLog",
    "SnapshotInfo",
    "TimestampedBatch",
    "check_folder",
    "compact",
    "open_engine",
    "verify_folder",
]
