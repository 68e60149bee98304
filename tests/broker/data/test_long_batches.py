"""Compressed batches that have up to 16 MB of records are decompressed and checked in slices. In one slice, a gzip
batch of 26 KB with 16 MB of records would take 38 to 64 ms.
"""

from __future__ import annotations

import pytest

from kcore.broker.data.append import SURVEY_COST_US, append
from kcore.broker.data.decompression import BYTES_A_MICROSECOND, MAX_BATCH_BYTES
from kcore.errors import KafkaError
from kcore.protocol.compression import STEP_BYTES, CompressionType, compress, decompress
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.sliced import SLICE_COST_US
from kcore_ext.batch import CorruptBatchError, parse_header
from kcore_ext.batch.survey import BatchSurvey, survey
from tests.broker.data.context import DataPlane, batch_of
from tests.broker.data.test_produce import request
from tests.broker.data.test_recompress import drained

VALUE = bytes(4_000)
COUNT = MAX_BATCH_BYTES // len(VALUE) - 200
REAL_CODECS = list(CompressionType)[1:]


def long_batch(codec: CompressionType) -> bytes:
    return batch_of(*[VALUE] * COUNT, compression=codec, compress=compress)


@pytest.fixture
def plane() -> DataPlane:
    made = DataPlane()
    made.topic("t", partitions=2)
    return made


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_long_batch_is_checked_in_steps(plane: DataPlane, codec: CompressionType) -> None:
    records = long_batch(codec)
    steps = append(plane.partition("t"), records, parse_header(records), plane.now)
    assert not isinstance(steps, tuple)
    costs, appended = drained(steps)
    assert appended == (0, -1)
    assert costs.count(SURVEY_COST_US) >= 14
    assert costs.count(SLICE_COST_US) == 1, "the check of the records begins another slice"
    unpacked = costs[: costs.index(SLICE_COST_US)]
    if codec in {CompressionType.GZIP, CompressionType.SNAPPY}:
        assert len(unpacked) >= 14
        assert max(unpacked) <= 2 * STEP_BYTES // BYTES_A_MICROSECOND
    else:
        assert unpacked, "each try of a larger buffer is a step"


def test_a_short_batch_is_appended_at_once(plane: DataPlane) -> None:
    records = batch_of(*[VALUE] * 10, compression=CompressionType.GZIP, compress=compress)
    assert append(plane.partition("t"), records, parse_header(records), plane.now) == (0, -1)


def test_other_requests_are_served_between_the_slices_of_a_long_batch(plane: DataPlane) -> None:
    plane.slices.requests.enabled = True
    pending = plane.send(request(("t", 0, long_batch(CompressionType.GZIP))), 11)
    assert pending.parked, "further requests of the connection wait for this one"
    slices = 1
    while plane.slices:
        assert not pending.done
        other = plane.call(request(("t", 1, batch_of(b"x"))), 11)
        assert other.responses[0].partition_responses[0].base_offset == slices - 1
        plane.slices.step()
        slices += 1
    assert slices >= MAX_BATCH_BYTES // BYTES_A_MICROSECOND // SLICE_COST_US
    plane.commit()
    (result,) = pending.response.responses[0].partition_responses
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("steps_before", [1, 10, 20])
def test_a_check_that_ends_early_changes_nothing(plane: DataPlane, steps_before: int) -> None:
    partition = plane.partition("t")
    records = long_batch(CompressionType.GZIP)
    steps = append(partition, records, parse_header(records), plane.now)
    assert not isinstance(steps, tuple)
    for _ in range(steps_before):
        next(steps)
    steps.close()
    assert not partition.dirty
    assert partition.log.end_offset == 0


def test_a_partition_that_closes_meanwhile_refuses_the_batch(plane: DataPlane) -> None:
    records = long_batch(CompressionType.GZIP)
    steps = append(plane.partition("t"), records, parse_header(records), plane.now)
    assert not isinstance(steps, tuple)
    next(steps)
    plane.partition("t").closed = True
    with pytest.raises(KafkaError) as refused:
        drained(steps)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_a_survey_in_steps_has_the_same_result(codec: CompressionType) -> None:
    batch = batch_of(*[b"x" * size for size in range(50)], compression=codec, compress=compress)
    for records, size_bytes in ((1, 1 << 30), (7, 1 << 30), (1_000, 1), (1_000, 100), (1_000, 1 << 30)):
        found = BatchSurvey(batch)
        found.open(decompress)
        steps = 1
        while not found.advance(records, size_bytes):
            steps += 1
        assert steps >= 50 // records
        result = (found.earliest_ms, found.latest_ms, found.keyless, found.consecutive)
        assert result == survey(batch, decompress=decompress)
    with pytest.raises(CorruptBatchError):
        BatchSurvey(batch[:-1] + bytes([batch[-1] ^ 1]))
    with pytest.raises(ValueError, match="not open"):
        BatchSurvey(batch).advance()
