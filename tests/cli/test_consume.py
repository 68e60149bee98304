"""`kcore consume`: records of topics, standalone or as a member of a group."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kcore_ext.batch import BatchBuilder
from tests.cli.terminal import Terminal
from tests.kit import batch, committed, create, make_topic, produce, wait_until
from tests.server.live import LiveServer


@pytest.fixture
def kcore() -> Iterator[Terminal]:
    with LiveServer() as live:
        with live.connect() as client:
            client.send(create("t", partitions=2))
            for partition, texts in ((0, [b"a", b"b", b"c"]), (1, [b"d"])):
                for text in texts:
                    client.send(produce("t", batch([text]), partition), 9)
        yield Terminal(live)


def test_consume_prints_all_records_from_the_beginning(kcore: Terminal) -> None:
    ran = kcore("consume", "--topic", "t")
    assert (ran.status, sorted(ran.lines)) == (0, ["a", "b", "c", "d"])
    assert [line for line in ran.lines if line != "d"] == ["a", "b", "c"], "the records of a partition keep their order"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", ["a", "b", "c"]),
        ("latest", []),
        ("1", ["b", "c"]),
        ("2001-01-01", ["a", "b", "c"]),
        ("2023-11-14T22:13:20+00:00", ["a", "b", "c"]),  # the timestamp of the records, without fractions of a second
        ("2023-11-14T22:13:21", []),
    ],
)
def test_the_start_offset_can_be_chosen(kcore: Terminal, start: str, expected: list[str]) -> None:
    assert kcore("consume", "--topic", "t", "--partition", "0", "--from", start).lines == expected


def test_json_contains_all_fields_of_a_record(kcore: Terminal) -> None:
    builder = BatchBuilder(1_000, base_timestamp_ms=1_700_000_000_000)
    builder.append(1_700_000_000_000, b"k\xc3\xa9", b"\xff\x00", [("h", b"v"), ("n", None)])
    builder.append(1_700_000_000_001, None, None)
    with kcore.live.connect() as client:
        make_topic(client, "u")
        client.send(produce("u", bytes(builder.build())), 9)
    common = {"topic": "u", "partition": 0}
    assert kcore("consume", "--topic", "u", "--format", "json").objects == [
        {
            **common, "offset": 0, "timestamp_ms": 1_700_000_000_000, "key": "ké", "value_base64": "/wA=",
            "headers": [{"name": "h", "value": "v"}, {"name": "n", "value": None}],
        },
        {**common, "offset": 1, "timestamp_ms": 1_700_000_000_001, "key": None, "value": None},
    ]  # fmt: skip


def test_a_group_resumes_at_its_committed_offsets(kcore: Terminal) -> None:
    """The command commits each printed record. The member leaves the group, so that the next member need not wait for
    the end of its session.
    """
    first = kcore("consume", "--topic", "t", "--group", "g", "--max", "2").lines
    second = kcore("consume", "--topic", "t", "--group", "g").lines
    assert sorted(first + second) == ["a", "b", "c", "d"]
    assert len(first) == 2
    assert kcore("consume", "--topic", "t", "--group", "g").lines == []
    with kcore.live.connect() as client:
        assert committed(client, "g") == {("t", 0): 3, ("t", 1): 1}
    (group,) = kcore("groups", "list", "--format", "json").objects
    assert (group["group"], group["state"]) == ("g", "Empty")


def test_records_that_were_not_printed_are_not_committed(kcore: Terminal) -> None:
    with kcore.live.connect() as client:
        make_topic(client, "u")
        client.send(produce("u", batch([b"1", b"2", b"3"])), 9)
    assert kcore("consume", "--topic", "u", "--group", "g", "--max", "1").lines == ["1"]
    with kcore.live.connect() as client:
        assert committed(client, "g") == {("u", 0): 1}
    assert kcore("consume", "--topic", "u", "--group", "g").lines == ["2", "3"]


def test_two_processes_share_the_partitions(kcore: Terminal) -> None:
    """Each of two members owns one partition. When one member leaves, the other one owns both partitions."""
    import kcore as library

    with library.connect(f"127.0.0.1:{kcore.live.port}") as node:
        group = node.group("g")

        def owned() -> list[int]:
            if not node.groups.list():
                return []  # the processes have not joined yet
            return sorted(len(member.assignment) for member in group.describe().members)

        first, second = (following(kcore, "--group", "g") for _ in range(2))
        try:
            wait_until(lambda: owned() == [1, 1], "the sharing")
            second.send_signal(signal.SIGINT)
            assert second.wait(30) == 130
            wait_until(lambda: owned() == [2], "the take-over")
            first.send_signal(signal.SIGINT)
            assert first.wait(30) == 130
        finally:
            for process in (first, second):
                process.kill()
                process.communicate()


def following(kcore: Terminal, *arguments: str) -> subprocess.Popen[str]:
    """Starts a process that prints the records of a topic and then waits for more."""
    command = [sys.executable, "-m", "kcore", "consume", "--bootstrap", f"127.0.0.1:{kcore.live.port}"]
    return subprocess.Popen(
        [*command, "--topic", "t", *arguments, "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # background jobs ignore it
    )


def test_following_prints_new_records(kcore: Terminal) -> None:
    """The process prints new records at once, until the test stops the process."""
    with following(kcore, "--partition", "1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "d\n"
        with kcore.live.connect() as client:
            client.send(produce("t", batch([b"later"]), 1), 9)
        assert process.stdout.readline() == "later\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_member_that_is_stopped_commits_and_leaves(kcore: Terminal, number: signal.Signals, status: int) -> None:
    """A signal stops the process during a fetch. The group is empty afterwards, so the member has left.

    The request to leave uses the connection on which the fetch was waiting.
    """
    with following(kcore, "--group", "g") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert sorted(process.stdout.readline() for _ in range(4)) == ["a\n", "b\n", "c\n", "d\n"]
        with kcore.live.connect() as client:
            wait_until(lambda: committed(client, "g") == {("t", 0): 3, ("t", 1): 1}, "what was printed is committed")
        process.send_signal(number)
        assert (process.wait(30), process.stdout.read(), process.stderr.read()) == (status, "", "")
    (group,) = kcore("groups", "list", "--format", "json").objects
    assert (group["group"], group["state"]) == ("g", "Empty")


def test_refusals_state_the_cause(kcore: Terminal) -> None:
    assert kcore("consume", "--topic", "nowhere") == (1, "", "kcore: topic 'nowhere' does not exist\n")
    assert kcore("consume", "--topic", "t", "--partition", "7") == (1, "", "kcore: topic 't' has no partition 7\n")
    assert "valid: earliest" in kcore("consume", "--topic", "t", "--from", "soon").err
    assert kcore("consume", "--topic", "t", "--partition", "0", "--group", "g").status == 1
    ran = kcore("consume", "--topic", "t", "--partition", "0", "--from", "99")
    assert ran == (0, "", ""), "there is no record after the end"


def test_aborted_records_are_not_printed(kcore: Terminal) -> None:
    """The command prints only committed records. It ends although the last entry of the log is an abort marker."""
    import kcore as library

    with library.connect(f"127.0.0.1:{kcore.live.port}") as node:
        topic = node.topics.create("u", 1)
        topic.append("before")
        for value in ("committed", "aborted"):
            with node.transaction("id") as txn:
                txn.append("u", value)
                txn.flush()
                if value == "aborted":
                    txn.abort()
    assert kcore("consume", "--topic", "u") == (0, "before\ncommitted\n", "")


def test_reading_ends_before_an_open_transaction(kcore: Terminal) -> None:
    import kcore as library

    with library.connect(f"127.0.0.1:{kcore.live.port}") as node:
        node.topics.create("u", 1).append("before")
        with node.transaction("id") as txn:
            txn.append("u", "open")
            txn.flush()
            assert kcore("consume", "--topic", "u") == (0, "before\n", "")
        assert kcore("consume", "--topic", "u").lines == ["before", "open"]


def test_aborted_records_of_a_response_are_left_out() -> None:
    """`read_batches` returns committed records, and records outside of transactions."""
    from kcore.node.requests import read_batches
    from kcore.node.types import TopicPartition
    from kcore.protocol.messages.fetch import AbortedTransaction, PartitionData
    from kcore_ext.batch import build_control_batch, stamp

    def of(offset: int, text: bytes, producer_id: int) -> bytes:
        builder = BatchBuilder(
            1_000, base_timestamp_ms=0, producer_id=producer_id, producer_epoch=0, base_sequence=0,
            transactional=producer_id >= 0,
        )  # fmt: skip
        builder.append(0, None, text)
        return bytes(builder.build(base_offset=offset))

    def marker(offset: int, producer_id: int, commit: bool) -> bytes:
        data = bytearray(build_control_batch(int(commit), 0, producer_id=producer_id, producer_epoch=0, timestamp_ms=0))
        stamp(data, offset, 0)
        return bytes(data)

    log = [of(0, b"plain", -1), of(1, b"bad", 5), of(2, b"good", 6), marker(3, 5, False), marker(4, 6, True)]
    log += [of(5, b"again", 5), marker(6, 5, True)]
    response = PartitionData(
        records=b"".join(log), aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=1)]
    )
    records, following, _ = read_batches(TopicPartition("t", 0), response, 0, True)
    assert ([record.value for record in records], following) == ([b"plain", b"good", b"again"], 7)


def test_a_negative_number_of_records_is_refused(kcore: Terminal) -> None:
    ran = kcore("consume", "--topic", "t", "--max", "-1")
    assert (ran.status, ran.lines, ran.err) == (1, [], "kcore: --max -1: must be 0 or more\n")
