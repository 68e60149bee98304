"""Invalid bytes of a batch always raise CorruptBatchError, without a crash, a hang, a read outside of the buffer, or a
large allocation.
"""

import ctypes
import mmap
import tracemalloc
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.protocol.compression import compress, decompress
from kcore_ext.batch import (
    BatchBuilder,
    CorruptBatchError,
    iter_entries,
    iter_records,
    parse_control,
    parse_header,
    split_batches,
    stamp_append_time,
    validate,
    validate_crc,
)


def make(codec: int = 0) -> bytes:
    builder = BatchBuilder(10_000, base_timestamp_ms=1000, compression=codec, compress=compress)
    for index in range(5):
        builder.append(1000 + index, b"key-%d" % index, bytes(50), [("h", b"1"), ("n", None)])
    return builder.build()


def with_records(records: bytes, *, count: int = 1, last_offset_delta: int | None = None) -> bytes:
    """Returns a batch with a valid CRC. The given bytes, which may be invalid, take the place of its records."""
    batch = bytearray(make()[:61] + records)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[23:27] = (count - 1 if last_offset_delta is None else last_offset_delta).to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    return sealed(batch)


def sealed(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


def fault_of(function: Callable[[], object]) -> tuple[int, str, str]:
    with pytest.raises(CorruptBatchError) as caught:
        function()
    assert str(caught.value) == f"corrupt record batch at byte {caught.value.position}: {caught.value.reason}"
    return caught.value.position, caught.value.fault, caught.value.reason


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_truncated_anywhere_is_refused(codec: int) -> None:
    batch = make(codec)
    for size in range(len(batch)):
        for function in (validate, validate_crc, lambda cut: list(iter_records(cut, decompress=decompress))):
            assert fault_of(lambda function=function, size=size: function(batch[:size]))[1] == "size"  # type: ignore[misc]


@pytest.mark.parametrize("codec", range(5))
def test_the_crc_detects_every_flipped_bit(codec: int) -> None:
    batch = bytearray(make(codec))
    for bit in range(8 * 17, 8 * len(batch)):
        batch[bit // 8] ^= 1 << bit % 8
        assert fault_of(lambda: validate_crc(batch))[1] == "crc"
        assert fault_of(lambda: validate(batch, decompress=decompress))[1] == "crc"
        batch[bit // 8] ^= 1 << bit % 8
    assert validate_crc(batch)


def test_the_length_and_the_magic_outside_the_crc_are_checked() -> None:
    good = make()
    for length in (48, 0, -1, -(2**31), len(good) - 11, 2**31 - 1):
        batch = bytearray(good)
        batch[8:12] = length.to_bytes(4, "big", signed=True)
        assert fault_of(lambda batch=batch: validate(batch))[:2] == (8, "size")  # type: ignore[misc]
        assert fault_of(lambda batch=batch: stamp_append_time(batch, 1))[:2] == (8, "size")  # type: ignore[misc]
    for magic in (0, 1, 3, 255):
        batch = bytearray(good)
        batch[16] = magic
        assert fault_of(lambda batch=batch: parse_header(batch))[:2] == (16, "magic")  # type: ignore[misc]
    shorter = bytearray(good)
    shorter[8:12] = (len(good) - 13).to_bytes(4, "big")
    assert fault_of(lambda: validate(shorter))[1] == "crc"


@pytest.mark.parametrize("position", [-1, 10**6, -(2**40)])
def test_a_position_outside_the_buffer_raises(position: int) -> None:
    for function in (parse_header, validate, validate_crc, iter_records, parse_control):
        with pytest.raises(ValueError, match="position") as caught:
            function(make(), position)
        assert not isinstance(caught.value, CorruptBatchError)


GOOD_RECORD = bytes.fromhex("0e 00 00 00 02 6b 01 00")


def test_the_smallest_record_is_read() -> None:
    assert list(iter_entries(with_records(GOOD_RECORD))) == [(0, 1000, b"k", None)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("", "1 records do not fit in 0 bytes"),
        ("10 00 00 00 02 6b 01 00", "longer than what is left"),
        ("0c 00 00 00 02 6b 01 00", "header count"),
        ("01 00 00 00 02 6b 01 00", "longer than what is left"),
        ("00 00 00 00 02 6b 01 00", "without attributes"),
        ("ff ff ff ff ff 0f 00 00 00", "length of a record"),
        ("ff ff ff ff ff ff ff", "length of a record"),
        ("0e 00 ff ff ff ff ff ff", "timestamp delta"),
        ("0e 00 00 ff ff ff ff ff", "offset delta"),
        ("0e 00 00 00 08 6b 01 00", "a key does not fit"),
        ("0e 00 00 00 03 6b 01 00", "a key does not fit"),
        ("0e 00 00 00 fe ff ff ff 0f", "a key does not fit"),
        ("0e 00 00 00 02 6b 04 00", "a value does not fit"),
        ("0e 00 00 00 02 6b 05 00", "a value does not fit"),
        ("0e 00 00 00 02 6b 01 01", "header count"),
        ("0e 00 00 00 02 6b 01 02", "header count"),
        ("12 00 00 00 02 6b 01 02 01 01", "the key of a header"),
        ("12 00 00 00 02 6b 01 02 08 01", "the key of a header"),
        ("12 00 00 00 02 6b 01 02 00 04", "the value of a header"),
        ("12 00 00 00 02 6b 01 02 00 03", "the value of a header"),
        ("10 00 00 00 02 6b 01 00 00", "bytes after its headers"),
        ("12 00 00 00 02 6b 01 04 00 01", "the key of a header"),
    ],
)
def test_a_malformed_record_is_refused_with_its_reason(record: str, reason: str) -> None:
    batch = with_records(bytes.fromhex(record))
    assert validate_crc(batch)
    assert reason in fault_of(lambda: list(iter_records(batch)))[2]
    assert reason in fault_of(lambda: validate(batch))[2]


def test_records_before_a_malformed_one_are_returned() -> None:
    batch = with_records(GOOD_RECORD + bytes.fromhex("0e 00 00 02 02 6b 01 02"), count=2)
    records = iter_entries(batch)
    assert next(records) == (0, 1000, b"k", None)
    assert fault_of(lambda: next(records))[:2] == (61 + 8, "record")
    assert list(records) == [], "after an error the iterator is at its end"


@pytest.mark.parametrize("count", [2, 3, 8, 2**31 - 1, -1, -(2**31)])
def test_a_wrong_record_count_is_refused(count: int) -> None:
    batch = with_records(GOOD_RECORD, count=count, last_offset_delta=2**31 - 1)
    assert fault_of(lambda: list(iter_records(batch)))[1] in ("count", "record")
    assert fault_of(lambda: validate(batch))[1] in ("count", "record")


def test_records_beyond_the_count_are_refused() -> None:
    batch = with_records(GOOD_RECORD + GOOD_RECORD)
    assert fault_of(lambda: list(iter_records(batch))) == (61 + 8, "count", "bytes after the last record")


@pytest.mark.parametrize(("deltas", "last"), [((0, 0), 1), ((1, 0), 1), ((0, 2), 1), ((-1, 0), 1), ((0, 1), 0)])
def test_offsets_must_ascend_up_to_the_last_one(deltas: tuple[int, int], last: int) -> None:
    records = b"".join(GOOD_RECORD[:3] + bytes([delta << 1 ^ (0xFF if delta < 0 else 0) & 0x7F]) + GOOD_RECORD[4:]
                       if delta >= 0 else GOOD_RECORD[:3] + b"\x01" + GOOD_RECORD[4:] for delta in deltas)  # fmt: skip
    assert fault_of(lambda: validate(with_records(records, count=2, last_offset_delta=last)))[1] in ("record", "count")


def test_an_unknown_codec_is_refused() -> None:
    for codec in (5, 6, 7):
        batch = bytearray(make())
        batch[22] |= codec
        corrupt = sealed(batch)
        assert fault_of(lambda corrupt=corrupt: validate(corrupt))[:2] == (21, "compression")  # type: ignore[misc]
        assert fault_of(lambda corrupt=corrupt: iter_records(corrupt))[:2] == (21, "compression")  # type: ignore[misc]


@pytest.mark.parametrize("codec", range(1, 5))
def test_records_that_do_not_decompress_are_refused(codec: int) -> None:
    batch = bytearray(make(codec))
    corrupt = sealed(bytearray(batch[:61] + b"\xee" * (len(batch) - 61)))
    position, fault, reason = fault_of(lambda: iter_records(corrupt, decompress=decompress))
    assert (position, fault) == (61, "compression")
    assert reason.startswith(f"codec {codec}: ")


def test_a_small_batch_cannot_claim_large_memory() -> None:
    lie = with_records(bytes.fromhex("feffffff0f") + bytes(20), count=2**31 - 1, last_offset_delta=2**31 - 1)
    key = with_records(bytes.fromhex("28 00 00 00 feffffff0f") + bytes(30))
    bomb_builder = BatchBuilder(2**28, base_timestamp_ms=0, compression=4, compress=compress)
    bomb_builder.append(0, b"", bytes(2**27))
    bomb = bomb_builder.build()
    assert len(bomb) < 20_000
    tracemalloc.start()
    try:
        for batch in (lie, key, bomb):
            with pytest.raises(CorruptBatchError):
                list(iter_records(batch, decompress=decompress, max_decompressed_bytes=1_000_000))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


DOCUMENTED = {"size", "magic", "crc", "count", "compression", "record"}
"""Values of `CorruptBatchError.fault` that a reader may report."""


def all_faults(data: bytes | bytearray | memoryview) -> set[str]:
    """Runs every reader on the same bytes. Returns the faults that the readers found.

    Adds "split" if the batch sizes and the end position that `split_batches` returns contradict each other.
    """
    faults = set()
    readers: list[Callable[[], object]] = [
        lambda: parse_header(data),
        lambda: validate_crc(data),
        lambda: validate(data),
        lambda: validate(data, decompress=decompress, max_decompressed_bytes=100_000),
        lambda: list(iter_records(data, decompress=decompress, max_decompressed_bytes=100_000)),
        lambda: list(iter_entries(data, decompress=decompress, max_decompressed_bytes=100_000)),
    ]
    for reader in readers:
        try:
            reader()
        except CorruptBatchError as error:
            faults.add(error.fault)
    found = split_batches(data)
    if not 0 <= found.end <= len(data) or sum(size for _, size in found.batches) != found.end:
        faults.add("split")
    return faults


@given(data=st.binary(max_size=300))
@settings(max_examples=100)
def test_any_bytes_are_refused_or_read_without_a_crash(data: bytes) -> None:
    assert all_faults(data) <= DOCUMENTED
    assert all_faults(make()[:61] + data) <= DOCUMENTED
    assert all_faults(with_records(data, count=len(data) % 5)) <= DOCUMENTED


@given(data=st.data(), codec=st.integers(0, 4), seal=st.booleans())
@settings(max_examples=100)
def test_any_damage_is_refused_or_read_without_a_crash(data: st.DataObject, codec: int, seal: bool) -> None:
    batch = bytearray(make(codec))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(batch) - 1))
        batch[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, batch[at] ^ 1, batch[at] ^ 0x80]))
    if data.draw(st.booleans()):
        del batch[data.draw(st.integers(0, len(batch))) :]
    assert all_faults(sealed(batch) if seal and len(batch) > 21 else batch) <= DOCUMENTED


PAGE = mmap.PAGESIZE
PROT_NONE = 0


@pytest.fixture(scope="module")
def page_before_unreadable_memory() -> memoryview:
    """Returns a page of memory. Reading beyond its end kills the process."""
    pages = mmap.mmap(-1, 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + PAGE), PAGE, PROT_NONE) == 0
    return memoryview(pages)[:PAGE]


@given(data=st.data(), codec=st.integers(0, 4))
@settings(max_examples=100)
def test_bytes_after_the_buffer_are_never_read(
    data: st.DataObject, codec: int, page_before_unreadable_memory: memoryview
) -> None:
    batch = bytearray(make(codec))
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    if data.draw(st.booleans()):
        del batch[data.draw(st.integers(0, len(batch))) :]
    elif data.draw(st.booleans()):
        batch[:] = sealed(batch)
    at_the_edge = page_before_unreadable_memory[PAGE - len(batch) :]
    at_the_edge[:] = batch
    assert all_faults(at_the_edge) <= DOCUMENTED


def test_truncated_records_at_the_end_of_memory_are_refused(page_before_unreadable_memory: memoryview) -> None:
    """A batch is truncated at any position, and its header has the length of the remaining bytes. No reader reads
    beyond the end, after which memory is unreadable.
    """
    whole = make()
    for size in range(61, len(whole)):
        at_the_edge = page_before_unreadable_memory[PAGE - size :]
        at_the_edge[:] = with_records(whole[61:size], count=5)
        assert all_faults(at_the_edge) <= DOCUMENTED
        assert fault_of(lambda batch=at_the_edge: list(iter_records(batch)))[1] in ("record", "count")  # type: ignore[misc]
