"""Record batches, offsets, records of consumer groups and compaction while allocations fail."""

from __future__ import annotations

from typing import Any

from kcore.protocol.compression import decompress
from kcore.protocol.messages.offset_commit import OffsetCommitRequestPartition
from kcore.runtime.machine import Record as RuntimeRecord
from kcore_ext.batch import BatchBuilder, Record, build_control_batch, iter_records, parse_control, stamp
from kcore_ext.batch.run import count_sound, gather
from kcore_ext.batch.survey import survey
from kcore_ext.broker.compaction import Sweep
from kcore_ext.broker.compaction_map import OffsetMap
from kcore_ext.group.consumer_records import ConsumerRecords, target_assignment
from kcore_ext.group.offset_block import OffsetBlock
from kcore_ext.group.offsets import OffsetAndMetadata, OffsetDecoder
from kcore_ext.log.tail_cache import PartitionTail, TailCache
from tests.kcore_ext.allocation.sweep import Attempt

HEADERS = (("name", b"value"), ("null", None))


def _batch(base_offset: int, count: int, key: str = "k") -> bytes:
    builder = BatchBuilder(1 << 20, base_timestamp_ms=5)
    for number in range(count):
        assert builder.append(5 + number, f"{key}{number}".encode(), b"v" * 40)
    data = bytearray(builder.build())
    stamp(data, base_offset, 3)
    return bytes(data)


def build_batch() -> Attempt:
    """Builds a batch whose buffer is enlarged several times. The batch must contain exactly the records that `append`
    accepted.
    """
    builder = BatchBuilder(1 << 20, base_timestamp_ms=5)
    taken: list[int] = []
    built: list[bytes] = []
    values = [b"v" * 700] * 12

    def action() -> None:
        for number, value in enumerate(values):
            builder.append(5, b"key", value, HEADERS)
            taken.append(number)
        built.append(builder.build())

    def check(succeeded: bool) -> None:
        whole = [Record(n, 5, b"key", b"v" * 700, HEADERS) for n in range(builder.count)]
        assert len(taken) <= builder.count <= len(taken) + 1, (
            "a record may be in the batch before the test stores its number"
        )
        if builder.count:
            assert list(iter_records(builder.build())) == whole
        assert len(built) == succeeded

    return Attempt(action, check)


def read_batch() -> Attempt:
    """Reads every record of a batch, with headers, and iterates over the batch as a produce request does."""
    builder = BatchBuilder(1 << 16, base_timestamp_ms=5)
    for _ in range(3):
        assert builder.append(5, b"key", b"value", HEADERS)
    data = builder.build()
    found: list[list[Record]] = []

    def action() -> None:
        survey(data)
        found.append(list(iter_records(data)))

    def check(succeeded: bool) -> None:
        assert found == [[Record(n, 5, b"key", b"value", HEADERS) for n in range(3)]] * succeeded

    return Attempt(action, check)


def read_compressed_batch() -> Attempt:
    """Reads a batch that is compressed as two gzip members."""
    from kcore.protocol.compression import compress

    def pack(codec: int, data: bytes) -> bytes:
        half = len(data) // 2
        return compress(codec, data[:half]) + compress(codec, data[half:])

    builder = BatchBuilder(1 << 16, base_timestamp_ms=5, compression=1, compress=pack)
    for _ in range(50):
        assert builder.append(5, b"key", b"value" * 20)
    data = builder.build()
    found: list[int] = []

    def action() -> None:
        found.append(len(list(iter_records(data, decompress=decompress))))

    def check(succeeded: bool) -> None:
        assert found == [50] * succeeded

    return Attempt(action, check)


def control_batch() -> Attempt:
    """Builds and reads the marker at the end of a transaction."""
    read: list[tuple[bool, int]] = []

    def action() -> None:
        data = build_control_batch(1, 7, producer_id=3, producer_epoch=2, timestamp_ms=9)
        marker = parse_control(data)
        read.append((marker.is_commit, marker.coordinator_epoch))

    def check(succeeded: bool) -> None:
        assert read == [(True, 7)] * succeeded

    return Attempt(action, check)


def _requested(count: int) -> list[OffsetCommitRequestPartition]:
    return [
        OffsetCommitRequestPartition(partition_index=1000 + n, committed_offset=5000 + n, committed_metadata="meta")
        for n in range(count)
    ]


def offset_block() -> Attempt:
    """Adds the offsets of nine partitions to a block, writes the block to a batch, and stores the offsets in dicts.

    The block must allocate memory for the offsets, because its object has space for fewer than nine.
    """
    requested = _requested(9)
    done: list[Any] = []

    def action() -> None:
        block = OffsetBlock("group", 7, -1, 100, RuntimeRecord)
        block.add("topic", bytes(16), requested[:1], None, tuple, {1000: "known"})
        block.add("topic", bytes(16), requested[1:], None, dict, {})
        batch = BatchBuilder(1 << 16, base_timestamp_ms=5)
        assert block.append_to(batch, 9)
        groups: dict[str, dict[str, dict[int, OffsetAndMetadata]]] = {}
        block.put_into(groups, "group", 40)
        done.append((batch, groups))

    def check(succeeded: bool) -> None:
        assert len(done) == succeeded
        for batch, groups in done:
            assert len(list(iter_records(batch.build()))) == 9
            assert {n: entry.committed_offset for n, entry in groups["group"]["topic"].items()} == {
                1000 + n: 5000 + n for n in range(9)
            }

    return Attempt(action, check)


def offset_records() -> Attempt:
    """Reads offset records of a log, as a load does."""
    block = OffsetBlock("group", 7, -1, 100, RuntimeRecord)
    block.add("topic", bytes(16), _requested(5), None, dict, {})
    batch = BatchBuilder(1 << 16, base_timestamp_ms=5)
    assert block.append_to(batch, 9)
    run = [(0, batch.build()), (5, _batch(5, 2))]
    decoder = OffsetDecoder()
    store: dict[tuple[str, str], dict[int, OffsetAndMetadata]] = {}
    others: list[int] = []

    def action() -> None:
        decoder.replay(
            run, 0, 2, 0, lambda group, topic: store.setdefault((group, topic), {}), lambda at, k, v: others.append(at)
        )

    def check(succeeded: bool) -> None:
        found = {n: entry.committed_offset for n, entry in store.get(("group", "topic"), {}).items()}
        whole = {1000 + n: 5000 + n for n in range(5)}
        assert found.items() <= whole.items()
        assert not succeeded or (found == whole and others == [5, 6])

    return Attempt(action, check)


def consumer_records() -> Attempt:
    """Encodes records of a consumer group that outgrow the buffer."""
    made = [target_assignment("group", f"member-{n}", {bytes(16): tuple(range(60))}) for n in range(8)]
    found: list[bytes] = []

    def action() -> None:
        block = ConsumerRecords(made)
        batch = BatchBuilder(1 << 16, base_timestamp_ms=5)
        assert block.append_to(batch, 9)
        found.append(batch.build())

    def check(succeeded: bool) -> None:
        assert [len(list(iter_records(data))) for data in found] == [8] * succeeded

    return Attempt(action, check)


def compaction_map() -> Attempt:
    """Enters the keys of many batches into a compaction map, so that the map must enlarge its tables."""
    run = [(10 * n, _batch(10 * n, 10, f"key-{n % 7}-" + "x" * 900 * (n % 3))) for n in range(80)]
    latest = {f"key-{n % 7}-{'x' * 900 * (n % 3)}{at}".encode(): 10 * n + at for n in range(80) for at in range(10)}
    found = OffsetMap(1 << 30)
    done: list[int] = []

    def action() -> None:
        done.append(found.survey(run, 0, 0, 100, 1 << 30, None)[0])

    def check(succeeded: bool) -> None:
        assert done == [80] * succeeded
        for key, offset in latest.items():
            at = found.offset_of(key)
            assert at == offset if succeeded else at <= offset

    return Attempt(action, check)


def compaction_sweep() -> Attempt:
    """Compacts batches: drops old records and merges neighbouring batches. The result must keep the last record of each
    key, even after a failed call.
    """
    run = [(10 * n, _batch(10 * n, 10, f"key-{n % 4}-")) for n in range(9)]
    known = OffsetMap(1 << 30)
    known.survey(run, 0, 0, 100, 1 << 30, None)
    changes: dict[int, bytes | None] = {}

    def action() -> None:
        sweep = Sweep(known, changes, 1000, 1000, 100_000)
        sweep.sweep(run, 0, 0, 1 << 30, None)
        sweep.flush()

    def check(succeeded: bool) -> None:
        batches = dict(run) | changes
        left = [r for data in batches.values() if data is not None for r in iter_records(data)]
        latest = {record.key: record.offset for record in sorted(left, key=lambda record: record.offset)}
        assert latest == {f"key-{n % 4}-{at}".encode(): 10 * n + at for n in range(9) for at in range(10)}
        assert not succeeded or len(left) == 40

    return Attempt(action, check)


def stored_run() -> Attempt:
    """Collects successive batches from storage entries and checks them."""
    entries = [(b"\0\0\0\1" + (10 * n).to_bytes(8, "big"), _batch(10 * n, 10)) for n in range(4)]
    found: list[int] = []

    def action() -> None:
        run = gather(iter(entries), 1, 0, 1000, 1 << 20, 100)
        found.append(count_sound(run, 0, 0, True))

    def check(succeeded: bool) -> None:
        assert found == [4] * succeeded

    return Attempt(action, check)


def log_tail() -> Attempt:
    """Stores the newest batches in memory. If a batch cannot be stored, the tail drops all earlier batches, so that it
    has no gap.
    """
    tail = PartitionTail()
    cache = TailCache(1 << 20)
    batches = [_batch(n, 1) for n in range(100)]

    def action() -> None:
        for batch in batches:
            cache.add(tail, [batch])

    def check(succeeded: bool) -> None:
        first_kept = next((n for n in range(100) if tail.read(n, 1000, 1 << 20, True)), 100)
        found = tail.read(first_kept, 1000, 1 << 20, True) or []
        assert found == batches[first_kept : first_kept + len(found)]

    return Attempt(action, check)
