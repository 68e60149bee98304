"""The copy of a producer's batch that the log appends, with its own base offset and leader epoch. Bytes other than
exactly one batch are refused.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore_ext.batch import BatchBuilder, parse_header, stamp, stamped


def one_batch(records: int) -> bytes:
    builder = BatchBuilder(1_000, base_timestamp_ms=5)
    for number in range(records):
        assert builder.append(5 + number, b"key", b"value")
    return builder.build()


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, (1 << 63) - 1), st.integers(-1, (1 << 31) - 1))
def test_the_copy_equals_a_batch_stamped_in_place(records: int, base_offset: int, leader_epoch: int) -> None:
    batch = one_batch(records)
    expected = bytearray(batch)
    stamp(expected, base_offset, leader_epoch)
    in_place = bytearray(batch)
    for given_as in (batch, memoryview(batch), in_place):
        assert stamped(given_as, base_offset, leader_epoch) == (bytes(expected), records - 1)
    assert in_place == expected
    assert parse_header(batch).base_offset == 0, "the given bytes are unchanged"


@pytest.mark.parametrize("damage", [{11: 1}, {16: 1}, {23: 0x80}])
def test_bytes_other_than_one_batch_are_refused(damage: dict[int, int]) -> None:
    batch = bytearray(one_batch(1))
    for at, value in damage.items():
        batch[at] = value
    before = bytes(batch)
    assert stamped(batch, 7, 8) is None
    assert batch == before, "a refused batch is unchanged"


def test_batches_that_are_truncated_or_have_trailing_bytes_are_refused() -> None:
    batch = one_batch(2)
    for other in (b"", batch[:60], batch[:-1], batch + b"\0", batch + batch):
        assert stamped(other, 7, 8) is None
