"""Recompression of a batch with its topic's codec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.protocol.compression import decompress
from kcore_ext.batch import BatchBuilder, iter_records

if TYPE_CHECKING:
    from kcore.broker.configs.log_config import LogConfig
    from kcore_ext.batch import BatchHeader

LARGEST_BATCH_BYTES = 2**31 - 1


def rebuild(batch: bytes | bytearray, header: BatchHeader, codec: int, config: LogConfig, wall_ms: int) -> bytearray:
    """Builds a batch with the same records and producer, in another codec and numbered from 0.

    Args:
        batch: the producer's batch, already checked.
        header: the batch's header.
        codec: the new codec; 0 for none.
        config: the topic's settings.
        wall_ms: the time of the append, for topics with append times.
    """
    builder = None
    for record in iter_records(batch, decompress=decompress):
        if builder is None:
            builder = BatchBuilder(
                LARGEST_BATCH_BYTES,
                base_timestamp_ms=wall_ms if config.log_append_time else record.timestamp_ms,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
                compression=codec,
                compress=config.compress,
                log_append_time=config.log_append_time,
            )
        taken = builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        assert taken, "the records of a batch fit into one batch"
    assert builder is not None, "a checked batch has records"
    return bytearray(builder.build())
