"""`kcore produce`: each input line becomes a record."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from kafka.partitioner.default import murmur2 as oracle

import kcore as kcore_package
from kcore.client.partitioner import murmur2, partition_of
from kcore.log import MemoryLogEngine
from kcore.log.faults import FaultInjectingEngine
from tests.cli.terminal import Terminal
from tests.kit import make_topic, read_all
from tests.server.live import LiveServer


@pytest.fixture
def kcore() -> Iterator[Terminal]:
    with LiveServer({"num.partitions": "3"}) as live:
        yield Terminal(live)


def values(kcore: Terminal, topic: str, partition: int = 0) -> list[bytes | None]:
    with kcore.live.connect() as client:
        return [value for _, value in read_all(client, topic, partition)]


def test_lines_become_records_in_their_order(kcore: Terminal) -> None:
    """A line may contain any text. The last line needs no line end, and CRLF counts as a line end."""
    ran = kcore("produce", "--topic", "t", "--partition", "1", stdin=b"one\ntwo words\r\n\n\xff\xfe\nlast")
    assert ran == (0, "", "kcore: 5 records\n")
    assert values(kcore, "t", 1) == [b"one", b"two words", b"", b"\xff\xfe", b"last"]
    assert values(kcore, "t", 0) == []


def test_large_input_arrives_completely(kcore: Terminal) -> None:
    lines = [b"%d " % number + b"x" * (number % 700) for number in range(3_000)]
    ran = kcore("produce", "--topic", "t", "--partition", "0", stdin=b"\n".join(lines))
    assert (ran.status, ran.err) == (0, "kcore: 3000 records\n")
    assert values(kcore, "t") == lines


def test_keys_select_the_same_partitions_as_javas_producer(kcore: Terminal) -> None:
    ran = kcore("produce", "--topic", "t", "--key-separator", "=>", stdin=b"a=>1\nb=>2\na=>3\nc=>x=>y\n")
    assert ran.status == 0
    found = {partition: values(kcore, "t", partition) for partition in range(3)}
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"x=>y")):
        expected[(oracle(key) & 0x7FFFFFFF) % 3].append(value)
    assert found == expected


def test_the_hash_equals_javas() -> None:
    rng = random.Random(1)
    for _ in range(500):
        key = rng.randbytes(rng.randrange(40))
        assert murmur2(key) == oracle(key) & 0xFFFFFFFF
        assert partition_of(key, 7) == (oracle(key) & 0x7FFFFFFF) % 7


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_may_be_compressed(kcore: Terminal, codec: str) -> None:
    kcore("produce", "--topic", "t", "--partition", "0", "--compression", codec, stdin=b"same\n" * 50)
    ran = kcore("consume", "--topic", "t")
    assert ran.lines == ["same"] * 50


def test_refusals_state_the_cause_and_the_last_written_line(kcore: Terminal) -> None:
    with kcore.live.connect() as client:
        make_topic(client, "t")
    ran = kcore("produce", "--topic", "t", "--partition", "9", stdin=b"x\n")
    assert ran == (1, "", "kcore: topic 't' has 1 partition, no partition 9\n")
    ran = kcore("produce", "--topic", "bad/name", stdin=b"x\n")
    assert ran.status == 1
    assert "INVALID_TOPIC_EXCEPTION" in ran.err


def test_produce_waits_for_a_full_disk() -> None:
    """The broker did not store the refused records, and the command sends them again: no line is lost or duplicated."""
    log = FaultInjectingEngine(MemoryLogEngine())
    with LiveServer(log=log) as live:
        kcore = Terminal(live)
        with live.connect() as client:
            make_topic(client, "t")
        log.fail_commit(1)
        log.fail_commit(2)
        assert kcore("produce", "--topic", "t", stdin=b"one\ntwo\n") == (0, "", "kcore: 2 records\n")
        assert values(kcore, "t") == [b"one", b"two"]


def test_an_empty_key_separator_is_wrong_usage(kcore: Terminal) -> None:
    ran = kcore("produce", "--topic", "t", "--key-separator", "", stdin=b"x\n")
    assert ran.status == 2
    assert "argument --key-separator: the text is empty; leave out the option for records without keys" in ran.err


def test_records_that_expire_report_the_error_of_the_last_attempt() -> None:
    """The disk stays full: the error of the producer has the broker's error as the cause."""
    log = FaultInjectingEngine(MemoryLogEngine())
    with LiveServer(log=log) as live:
        with live.connect() as client:
            make_topic(client, "t")
        with kcore_package.connect(f"127.0.0.1:{live.port}") as node:
            producer = node.producer(timeout=1.0)
            producer.append("t", b"stored", partition=0).result()
            for number in range(1, 100):
                log.fail_commit(number)
            delivery = producer.append("t", b"x", partition=0)
            with pytest.raises(TimeoutError) as expired:
                delivery.result()
            producer.close()
    cause = "KAFKA_STORAGE_ERROR: The server's disk failed."
    assert str(expired.value) == f"t-0: the batch was not stored within 1 s; the last attempt failed: {cause}"
    assert str(expired.value.__cause__) == cause
