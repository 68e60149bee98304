"""The compression codecs read batches of Kafka's clients, write batches that these clients can read, and bound the
decompressed size.
"""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Generator
from typing import Any

import aiokafka.codec
import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcore.protocol import compression
from kcore.protocol.compression import (
    PIECE_COST_BYTES,
    STEP_BYTES,
    CompressionError,
    CompressionType,
    compress,
    decompress,
    decompress_in_steps,
)

LIMIT = 1 << 20
CODECS = list(CompressionType)
REAL_CODECS = CODECS[1:]
NOISE = random.Random(1).randbytes(9000)

payloads = st.one_of(
    st.binary(max_size=500),
    st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=20), st.integers(1, 8000)),
)

ORACLES = {
    CompressionType.GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    CompressionType.SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    CompressionType.LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    CompressionType.ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}


@pytest.mark.parametrize("codec", CODECS)
@given(data=payloads)
@settings(max_examples=30)
def test_compressed_bytes_round_trip(codec: CompressionType, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, LIMIT) == data
    assert decompress(codec, memoryview(bytearray(packed)), LIMIT) == data
    assert decompress(codec, packed, len(data)) == data, "the limit itself is allowed"


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(data=payloads)
@settings(max_examples=40)
def test_another_client_reads_and_writes_the_same(codec: CompressionType, data: bytes) -> None:
    encode, decode = ORACLES[codec]
    assert bytes(decode(compress(codec, data))) == data
    assert decompress(codec, bytes(encode(data)), LIMIT) == data


@pytest.mark.parametrize("level", [1, 3, 9])
@pytest.mark.parametrize("codec", REAL_CODECS)
def test_levels_are_accepted(codec: CompressionType, level: int) -> None:
    data = random.Random(1).randbytes(50) * 100
    assert decompress(codec, compress(codec, data, level), LIMIT) == data


def test_snappy_is_written_in_the_frame_of_the_java_client_and_read_raw_too() -> None:
    data = bytes(range(256)) * 300
    packed = compress(CompressionType.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    blocks, at = [], 16
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[at + 4 : at + 4 + size])))
        at += 4 + size
    assert [len(block) for block in blocks] == [32768, 32768, 11264]
    assert b"".join(blocks) == data
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), LIMIT) == data


def test_lz4_blocks_are_independent_as_the_java_reader_requires() -> None:
    packed = compress(CompressionType.LZ4, b"ab" * 100_000)
    assert packed[:4] == struct.pack("<I", 0x184D2204)
    assert packed[4] >> 6 == 1, "version 1"
    assert packed[4] & 0x20, "independent blocks"
    assert not packed[4] & 0x04, "no content checksum"
    assert packed[5] >> 4 in (4, 5, 6, 7)


def test_gzip_of_several_members_is_read_as_one() -> None:
    packed = gzip.compress(b"first ") + gzip.compress(b"second")
    assert decompress(CompressionType.GZIP, packed, LIMIT) == b"first second"
    with pytest.raises(CompressionError, match="more than the 11 bytes allowed"):
        decompress(CompressionType.GZIP, packed, 11)


@given(st.lists(st.binary(max_size=700) | st.integers(0, 5000).map(bytes), min_size=1, max_size=12))
@settings(max_examples=30)
def test_gzip_of_members_of_all_sizes_is_read_as_one(parts: list[bytes]) -> None:
    packed = b"".join(gzip.compress(part) for part in parts)
    assert decompress(CompressionType.GZIP, packed, LIMIT) == b"".join(parts)
    for cut in (1, 9, 17):
        with pytest.raises(CompressionError):
            decompress(CompressionType.GZIP, packed[:-cut] + b"\x00" * (cut == 9), LIMIT)


class CountingZlib:
    """A replacement of the module `zlib` that counts the decompressors and their input bytes."""

    error = zlib.error

    def __init__(self) -> None:
        self.members = 0
        self.fed_bytes = 0

    def decompressobj(self, wbits: int) -> CountingMember:
        self.members += 1
        return CountingMember(self, zlib.decompressobj(wbits))


class CountingMember:
    """One decompressor of a `CountingZlib`."""

    def __init__(self, counts: CountingZlib, member: Any) -> None:
        self._counts = counts
        self._member = member

    def decompress(self, data: memoryview, max_length: int) -> bytes:
        self._counts.fed_bytes += len(data)
        return bytes(self._member.decompress(data, max_length))

    @property
    def eof(self) -> bool:
        return bool(self._member.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._member.unused_data)

    @property
    def unconsumed_tail(self) -> bytes:
        return bytes(self._member.unconsumed_tail)


@pytest.mark.parametrize(
    ("member", "times"),
    [(b"", 800), (b"x", 900), (bytes(100), 5000), (NOISE[:70], 10_000), (NOISE, 100)],
    ids=["empty", "one byte", "zeros", "noise", "long noise"],
)
def test_gzip_members_are_read_once(member: bytes, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decompressor of a gzip member receives only a few bytes beyond its member. zlib copies the unused bytes, so
    passing all later members each time would take quadratic time.
    """
    counts = CountingZlib()
    monkeypatch.setattr(compression, "zlib", counts)
    packed = gzip.compress(member) * times
    assert decompress(CompressionType.GZIP, packed, LIMIT) == member * times
    assert counts.members == times
    assert counts.fed_bytes < 9 * len(packed)


def test_a_megabyte_of_empty_gzip_members_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = CountingZlib()
    monkeypatch.setattr(compression, "zlib", counts)
    packed = gzip.compress(b"") * (LIMIT // 20)
    with pytest.raises(CompressionError, match="gzip: 1001 compressed pieces for only 0 bytes of data are too many"):
        decompress(CompressionType.GZIP, packed, LIMIT)
    assert counts.members == 1001
    assert counts.fed_bytes < 2 * len(packed)


def drained(steps: Generator[int, None, bytes]) -> tuple[list[int], bytes]:
    """Runs all steps of a generator. Returns the cost of each step, and the generator's result."""
    costs = []
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as end:
            return costs, end.value


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("content", [bytes(5 << 20), NOISE * 40, b"abc"], ids=["zeros", "noise", "short"])
def test_decompression_in_steps_has_the_same_result(codec: CompressionType, content: bytes) -> None:
    packed = compress(codec, content)
    costs, unpacked = drained(decompress_in_steps(codec, packed, 8 << 20))
    assert unpacked == content == decompress(codec, packed, 8 << 20)
    assert costs or len(content) <= STEP_BYTES


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY])
def test_a_step_decompresses_about_a_megabyte(codec: CompressionType) -> None:
    packed = compress(codec, bytes(16 << 20))
    costs = [*decompress_in_steps(codec, packed, 16 << 20)]
    assert len(costs) >= 15
    assert max(costs) < STEP_BYTES + 65_536


def test_members_without_output_count_in_a_step() -> None:
    """Each gzip member adds to the cost of a step even if it decompresses to few bytes, because it takes some
    microseconds.
    """
    packed = gzip.compress(bytes(64)) * 10_000
    costs = [*decompress_in_steps(CompressionType.GZIP, packed, LIMIT)]
    assert sum(costs) > 10_000 * PIECE_COST_BYTES * 9 // 10
    assert max(costs) < 2 * STEP_BYTES


@pytest.mark.parametrize("size", [STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES])
def test_output_that_ends_with_a_step_is_complete(size: int) -> None:
    packed = gzip.compress(bytes(size))
    assert decompress(CompressionType.GZIP, packed, size) == bytes(size)
    with pytest.raises(CompressionError, match="cut short"):
        decompress(CompressionType.GZIP, packed[:-1], size)
    with pytest.raises(CompressionError, match="bytes allowed"):
        decompress(CompressionType.GZIP, packed, size - 1)


def test_a_megabyte_of_empty_snappy_blocks_is_refused_early() -> None:
    frame = compress(CompressionType.SNAPPY, b"x" * 100)
    block = struct.pack(">i", 1) + b"\x00"
    assert decompress(CompressionType.SNAPPY, frame + block * 1000, LIMIT) == b"x" * 100
    with pytest.raises(
        CompressionError, match="snappy: 1002 compressed pieces for only 100 bytes of data are too many"
    ):
        decompress(CompressionType.SNAPPY, frame + block * 200_000, LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_too_many_is_refused(codec: CompressionType) -> None:
    data = random.Random(1).randbytes(1000) * 10
    with pytest.raises(CompressionError, match=f"{codec.name.lower()}: more than the 9999 bytes allowed"):
        decompress(codec, compress(codec, data), len(data) - 1)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_decompression_bomb_takes_at_most_a_few_times_its_limit(codec: CompressionType) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError, match="more than the 1048576 bytes allowed"):
            decompress(codec, bomb, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * LIMIT + 2 * len(bomb)


def test_raw_snappy_that_claims_an_impossible_size_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(CompressionError, match="more than the 1048576 bytes allowed"):
        decompress(CompressionType.SNAPPY, b"\xff\xff\xff\xff\x0f", LIMIT)
    with pytest.raises(CompressionError, match="a block of 4 bytes cannot have 1000000 bytes of data"):
        decompress(CompressionType.SNAPPY, b"\xc0\x84\x3d\x00", LIMIT)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_truncated_data_are_refused(codec: CompressionType) -> None:
    packed = compress(codec, random.Random(1).randbytes(300))
    for size in range(len(packed)):
        if codec is CompressionType.SNAPPY and size == 16:
            assert decompress(codec, packed[:size], LIMIT) == b"", "a frame without blocks"
            continue
        with pytest.raises(CompressionError):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", REAL_CODECS)
@given(data=st.data())
@settings(max_examples=40)
def test_damage_is_refused_or_gives_other_bytes(codec: CompressionType, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, bytes(range(200)) * 3))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refused = None
    out = b""
    try:
        out = decompress(codec, packed, LIMIT)
    except CompressionError as error:
        refused = error
    assert len(out) <= LIMIT
    assert refused is None or (refused.codec == codec.name.lower() and refused.reason)


def test_codecs_are_found_by_name_and_number() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [CompressionType.from_name(name) for name in names] == [0, 1, 2, 3, 4]
    assert CompressionType.from_name("uncompressed") is CompressionType.NONE
    with pytest.raises(CompressionError, match="brotli: no such codec"):
        CompressionType.from_name("brotli")
    for codec in (-1, 5, 7):
        with pytest.raises(CompressionError, match=f"{codec}: no such codec"):
            compress(codec, b"")
        with pytest.raises(CompressionError, match=f"{codec}: no such codec"):
            decompress(codec, b"", LIMIT)
