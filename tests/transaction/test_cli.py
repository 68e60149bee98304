"""`kcore transactions` and `kcore producers` on a running server: text and JSON output."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kcore.cli import main
from kcore.client import Connection
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kcore.protocol.messages.end_txn import EndTxnRequest
from kcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kcore.testing import ServerProcess
from tests.transaction.world import Identity, produce_request


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    settings = {"transaction.state.log.num.partitions": "1", "transaction.partition.verification.enable": "false"}
    with ServerProcess(settings=settings) as process:
        yield process


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[Connection]:
    with Connection.to(server.bootstrap) as opened:
        yield opened


def now_ms() -> int:
    return int(time.time() * 1000)


def run(capsys: pytest.CaptureFixture[str], server: ServerProcess, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Runs a command. Returns its exit status, and the rows of its JSON output."""
    status = main([*words, "--bootstrap", server.bootstrap, "--format", "json"])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def open_transaction(connection: Connection, tid: str, topic: str) -> Identity:
    """Writes two records of a transaction at offset 1 of partition 0, between two other records."""
    made = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    connection.send(CreateTopicsRequest(topics=[made], timeout_ms=1000))
    connection.send(FindCoordinatorRequest(key_type=1, coordinator_keys=[tid]))
    while (
        response := connection.send(InitProducerIdRequest(transactional_id=tid, transaction_timeout_ms=60_000), 5)
    ).error_code:
        pass
    who = Identity(response.producer_id, response.producer_epoch)
    nobody = Identity(-1, -1)
    for requested, sender, values in ((None, nobody, [b"x"]), (tid, who, [b"a", b"b"]), (None, nobody, [b"y"])):
        sequence = 0 if requested else -1
        request = produce_request(requested, sender, sequence, *values, topic=topic, wall_ms=now_ms())
        assert not connection.send(request, 12).responses[0].partition_responses[0].error_code
    return who


def test_open_transactions_and_their_offsets_are_shown(
    server: ServerProcess, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    who = open_transaction(connection, "open", "held")
    status, rows = run(capsys, server, "transactions", "list", "--state", "Ongoing", "--pattern", "op.n")
    assert (status, rows) == (0, [{"transactional_id": "open", "producer_id": who.producer_id, "state": "Ongoing"}])
    status, rows = run(capsys, server, "transactions", "describe", "--id", "open")
    open_s = rows[0].pop("open_s")
    assert 0 <= open_s < 60
    assert (status, rows) == (
        0,
        [
            {
                "transactional_id": "open",
                "state": "Ongoing",
                "producer_id": who.producer_id,
                "producer_epoch": 0,
                "timeout_ms": 60_000,
                "topic": "held",
                "partition": 0,
                "last_stable_offset": 1,
                "held_back": 3,
            }
        ],
    )
    status, rows = run(capsys, server, "producers", "describe", "--topic", "held")
    assert rows[0].pop("last_timestamp") > 0
    assert (status, rows) == (
        0,
        [
            {
                "topic": "held",
                "partition": 0,
                "producer_id": who.producer_id,
                "producer_epoch": 0,
                "coordinator_epoch": -1,
                "last_sequence": 1,
                "txn_start_offset": 1,
                "last_stable_offset": 1,
                "high_watermark": 4,
            }
        ],
    )
    assert run(capsys, server, "transactions", "find-hanging", "--topic", "held", "--idle-minutes", "0") == (0, [])
    end = EndTxnRequest(transactional_id="open", producer_id=who.producer_id, producer_epoch=0, committed=True)
    assert not connection.send(end, 5).error_code
    status, rows = run(capsys, server, "transactions", "describe", "--id", "open")
    assert (status, rows[0]["state"], rows[0]["held_back"], rows[0]["open_s"]) == (0, "CompleteCommit", None, None)


def test_a_hanging_transaction_is_found_and_aborted(
    server: ServerProcess, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unverified batch has opened a transaction that the coordinator does not have. Before KIP-890, this was
    possible.
    """
    made = CreatableTopic(name="stuck", num_partitions=1, replication_factor=1)
    connection.send(CreateTopicsRequest(topics=[made], timeout_ms=1000))
    request = produce_request("whoever", Identity(9_999, 3), 0, b"a", b"b", topic="stuck", wall_ms=now_ms())
    assert not connection.send(request, 11).responses[0].partition_responses[0].error_code
    assert run(capsys, server, "transactions", "find-hanging", "--topic", "stuck") == (0, [])  # not idle for long
    status, rows = run(capsys, server, "transactions", "find-hanging", "--idle-minutes", "0")
    assert rows[0].pop("idle_s") < 60
    assert (status, rows) == (
        1,
        [
            {
                "topic": "stuck",
                "partition": 0,
                "producer_id": 9_999,
                "producer_epoch": 3,
                "coordinator_epoch": -1,
                "start_offset": 0,
                "last_stable_offset": 0,
                "held_back": 2,
            }
        ],
    )
    partition = ("--topic", "stuck", "--partition", "0")
    assert main(["transactions", "abort", *partition, "--start-offset", "77", "--bootstrap", server.bootstrap]) == 1
    assert "no open transaction begins at offset 77 of stuck-0" in capsys.readouterr().err
    assert run(capsys, server, "transactions", "abort", *partition, "--start-offset", "0")[0] == 0
    assert run(capsys, server, "transactions", "find-hanging", "--idle-minutes", "0") == (0, [])
    status, rows = run(capsys, server, "producers", "describe", *partition)
    found = (rows[0]["txn_start_offset"], rows[0]["last_stable_offset"], rows[0]["high_watermark"])
    assert found == (None, 3, 3)


def test_a_transaction_of_the_coordinator_is_terminated_and_not_aborted(
    server: ServerProcess, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single marker would leave the transaction half aborted. As in Kafka, the termination fences the producer."""
    who = open_transaction(connection, "alive", "lively")
    abort = ("transactions", "abort", "--topic", "lively", "--partition", "0", "--start-offset", "1")
    before = run(capsys, server, "producers", "describe", "--topic", "lively")
    assert main([*abort, "--bootstrap", server.bootstrap]) == 1
    error = capsys.readouterr().err
    assert "with transactional id 'alive'" in error
    assert "forceTerminateTransaction" in error
    assert run(capsys, server, "producers", "describe", "--topic", "lively") == before

    terminate = ("transactions", "terminate", "--transactional-id")
    status, rows = run(capsys, server, *terminate, "alive")
    assert (status, [(row["state"], row["last_stable_offset"]) for row in rows]) == (0, [("Ongoing", 1)])
    status, rows = run(capsys, server, "transactions", "describe", "--id", "alive")
    assert (status, rows[0]["producer_epoch"] > who.producer_epoch, rows[0]["open_s"]) == (0, True, None)
    status, rows = run(capsys, server, "producers", "describe", "--topic", "lively")
    assert (rows[0]["txn_start_offset"], rows[0]["last_stable_offset"], rows[0]["high_watermark"]) == (None, 5, 5)
    end = EndTxnRequest(transactional_id="alive", producer_id=who.producer_id, producer_epoch=0, committed=True)
    assert connection.send(end, 4).error_code == ErrorCode.PRODUCER_FENCED
    assert run(capsys, server, *terminate, "nobody")[0] == 1


def test_a_marker_can_be_forced(
    server: ServerProcess, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    open_transaction(connection, "forced", "force")
    abort = ("transactions", "abort", "--topic", "force", "--partition", "0", "--start-offset", "1", "--force")
    assert run(capsys, server, *abort)[0] == 0
    status, rows = run(capsys, server, "producers", "describe", "--topic", "force")
    assert (status, rows[0]["txn_start_offset"]) == (0, None)


def test_an_unknown_id_is_reported(
    server: ServerProcess, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    open_transaction(connection, "known", "any")
    status, rows = run(capsys, server, "transactions", "describe", "--id", "nobody")
    assert (status, rows[0]["transactional_id"], rows[0]["state"]) == (1, "nobody", "TRANSACTIONAL_ID_NOT_FOUND")


def test_invalid_arguments_are_refused(
    server: ServerProcess, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    open_transaction(connection, "some", "other")
    assert main(["transactions", "list", "--state", "Nonsense", "--bootstrap", server.bootstrap]) == 1
    assert "'Nonsense' does not exist; valid: 'Empty', 'Ongoing', " in capsys.readouterr().err
    assert main(["transactions", "list", "--pattern", "(", "--bootstrap", server.bootstrap]) == 1
    assert "INVALID_REGULAR_EXPRESSION" in capsys.readouterr().err
    capsys.readouterr()
    for verb in (("producers", "describe"), ("transactions", "find-hanging")):
        assert main([*verb, "--topic", "absent", "--bootstrap", server.bootstrap]) == 1
        assert "topic 'absent' does not exist, or has no leader" in capsys.readouterr().err
        assert main([*verb, "--topic", "other", "--partition", "9", "--bootstrap", server.bootstrap]) == 1
        assert "partition 9 of topic 'other' does not exist, or has no leader" in capsys.readouterr().err
    assert main(["transactions", "find-hanging", "--partition", "1", "--bootstrap", server.bootstrap]) == 1
