"""The checker of the soak test finds each kind of violation, and accepts correct behaviour."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.golden import kwire
from tools.soak import faults
from tools.soak.faults import Server
from tools.soak.ledger import SHOWN_OF_A_KIND, Ledger
from tools.soak.members import Group
from tools.soak.reader import Reader
from tools.soak.run import soak
from tools.soak.wire import Client, LostError, RetryError
from tools.soak.writers import PLAIN, TRANSACTIONAL, IdempotentWriter, OffsetWriter, Transaction, TransactionalWriter

PORT = 1  # no server listens there


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def set_responses(client: Client, *responses: Any) -> None:
    """Sets the responses to the client's next requests. An exception among them is raised."""
    following = list(responses)

    def call(api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        response = following.pop(0)
        if isinstance(response, Exception):
            raise response
        assert isinstance(response, dict)
        return response

    client.call = call  # type: ignore[method-assign]


# ---------------------------------------------------------------- committed offsets


def fetched(*offsets: int) -> dict[str, Any]:
    parts = [
        {"partition_index": index, "committed_offset": offset, "error_code": 0} for index, offset in enumerate(offsets)
    ]
    return {"groups": [{"error_code": 0, "topics": [{"partitions": parts}]}]}


@pytest.mark.parametrize(
    ("offset", "kinds"), [(4, {"lost offset": 1}), (5, {}), (6, {}), (7, {}), (8, {"lost offset": 1})]
)
def test_an_offset_is_the_acknowledged_one_or_one_that_was_sent_later(
    offset: int, kinds: dict[str, int], ledger: Ledger
) -> None:
    writer = OffsetWriter("w", PORT, ledger, random.Random(1))
    writer.acknowledged, writer.sent = dict.fromkeys(range(4), 5), dict.fromkeys(range(4), 7)
    set_responses(writer, fetched(5, offset, 5, 5))
    writer.check()
    assert dict(ledger.kinds) == kinds


# ---------------------------------------------------------------- idempotent batches


def produced(offset: int, code: int = 0) -> dict[str, Any]:
    return {"responses": [{"partition_responses": [{"error_code": code, "base_offset": offset}]}]}


def writer_of(ledger: Ledger, offsets: list[int]) -> IdempotentWriter:
    writer = IdempotentWriter("w", PORT, ledger, random.Random(1), 0)
    writer.producer_id, writer.offsets = 7, offsets
    return writer


def test_a_sequence_may_be_refused_only_after_another_request(ledger: Ledger) -> None:
    writer = writer_of(ledger, [0, 1])
    for position, kinds in ((1, {}), (0, {"error": 1})):
        responses = [produced(2 + number) for number in range(position)] + [produced(-1, 45)]
        writer.call_all = lambda api, version, bodies, responses=responses: responses  # type: ignore[method-assign]
        with pytest.raises(RetryError):
            writer.step()
        assert dict(ledger.kinds) == kinds
    assert writer.offsets == [0, 1, 2]


def test_offsets_of_batches_increase(ledger: Ledger) -> None:
    writer = writer_of(ledger, [0, 5])
    writer.acknowledge(2, 6)
    assert dict(ledger.kinds) == {}
    writer.acknowledge(3, 6)
    assert dict(ledger.kinds) == {"order": 1}


# ---------------------------------------------------------------- the reader


def reader_of(ledger: Ledger) -> Reader:
    transactional = TransactionalWriter("p", PORT, ledger, random.Random(1), 1)
    transactional.transactions = [Transaction([0, 1], outcome) for outcome in ("committed", "aborted", "committed")]
    return Reader("r", PORT, ledger, {0: writer_of(ledger, [0, 1, 2])}, {"p": transactional})


def stored(offset: int, value: bytes, producer_id: int = -1, transactional: bool = False) -> bytes:
    records = kwire.batch([(None, value)], producer_id=producer_id, producer_epoch=0, transactional=transactional)
    return offset.to_bytes(8, "big") + records[8:]


def read(reader: Reader, topic: str, *batches: bytes, stable: int, end: int, aborted: Any = ()) -> dict[str, int]:
    part = {
        "last_stable_offset": stable,
        "high_watermark": end,
        "records": b"".join(batches),
        "aborted_transactions": [{"producer_id": one, "first_offset": first} for one, first in aborted],
    }
    reader.read(topic, 0, part)
    return dict(reader.ledger.kinds)


def test_batches_present_once_and_in_order_are_accepted(ledger: Ledger) -> None:
    reader = reader_of(ledger)
    assert read(reader, PLAIN, stored(0, b"0"), stored(1, b"1"), stored(2, b"2"), stable=3, end=3) == {}
    assert (reader.positions[PLAIN, 0], reader.following[0]) == (3, 3)
    reader.seen = {("p", 0): {0, 1}, ("p", 2): {0, 1}}
    reader.check()
    assert dict(ledger.kinds) == {}


@pytest.mark.parametrize(
    ("batches", "kinds"),
    [
        ([stored(0, b"0"), stored(1, b"0")], {"exactly once": 1, "offset": 1}),
        ([stored(0, b"0"), stored(1, b"2")], {"exactly once": 1, "offset": 1}),
        ([stored(1, b"0")], {"offset": 1}),
        ([stored(3, b"0")], {"offset": 1, "dirty read": 1}),
        ([stored(0, b"0")[:-1] + b"\1"], {"damage": 1}),
    ],
)
def test_lost_repeated_moved_or_damaged_batches_are_found(
    batches: list[bytes], kinds: dict[str, int], ledger: Ledger
) -> None:
    assert read(reader_of(ledger), PLAIN, *batches, stable=3, end=3) == kinds


def test_a_batch_that_never_arrives_is_found(ledger: Ledger) -> None:
    reader = reader_of(ledger)
    read(reader, PLAIN, stored(0, b"0"), stored(1, b"1"), stable=2, end=2)
    reader.seen = {("p", 0): {0, 1}, ("p", 2): {0, 1}}
    reader.check()
    assert dict(ledger.kinds) == {"lost batch": 1}


def test_offsets_of_a_partition_never_decrease(ledger: Ledger) -> None:
    reader = reader_of(ledger)
    assert read(reader, TRANSACTIONAL, stable=5, end=9) == {}
    assert read(reader, TRANSACTIONAL, stable=4, end=9) == {"went back": 1}
    assert read(reader, TRANSACTIONAL, stable=4, end=8) == {"went back": 2}


def test_visible_records_of_aborted_transactions_are_found(ledger: Ledger) -> None:
    reader = reader_of(ledger)
    batches = [stored(0, b"p 0", 7, True), stored(1, b"p 1", 8, True), stored(2, b"p 2", 7, True)]
    assert read(reader, TRANSACTIONAL, *batches, stable=3, end=3, aborted=[(8, 1)]) == {}
    assert reader.seen == {("p", 0): {0}, ("p", 2): {0}}
    other = reader_of(ledger)
    assert read(other, TRANSACTIONAL, *batches, stable=3, end=3) == {"aborted": 1}


@pytest.mark.parametrize(
    ("seen", "kinds"),
    [
        ({("p", 0): {0, 1}, ("p", 2): {1}}, {"atomicity": 1}),
        ({("p", 0): {0, 1}}, {"atomicity": 1}),
        ({("p", 0): {0, 1}, ("p", 1): {0}, ("p", 2): {0, 1}}, {"atomicity": 1}),
    ],
)
def test_a_partial_transaction_is_found(seen: Any, kinds: dict[str, int], ledger: Ledger) -> None:
    reader = reader_of(ledger)
    reader.following = {0: 3}
    reader.seen = seen
    reader.check()
    assert dict(ledger.kinds) == kinds


# ---------------------------------------------------------------- transactions


def test_a_decreasing_epoch_is_found(ledger: Ledger) -> None:
    writer = TransactionalWriter("p", PORT, ledger, random.Random(1), 1)
    for identity in ((5, 3), (5, 3), (5, 4), (6, 0)):
        writer.become(identity)
    assert dict(ledger.kinds) == {}
    writer.become((6, -1))
    assert dict(ledger.kinds) == {"epoch": 1}


@pytest.mark.parametrize(("offset", "outcome"), [(4, "committed"), (3, "aborted")])
def test_the_committed_offset_shows_how_a_transaction_ended(offset: int, outcome: str, ledger: Ledger) -> None:
    writer = TransactionalWriter("p", PORT, ledger, random.Random(1), 1)
    transaction = Transaction([0], "unknown")
    set_responses(writer, fetched(offset))
    writer.resolve(4, transaction)
    assert transaction.outcome == outcome


@pytest.mark.parametrize(("began_s_ago", "kinds"), [(0, {"ended early": 1}), (61, {})])
def test_only_the_timeout_may_end_a_transaction(
    began_s_ago: int, kinds: dict[str, int], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TransactionalWriter("p", PORT, ledger, random.Random(1), 2)
    writer.identity = (7, 0)
    times = [100.0, 100.0 + began_s_ago]
    monkeypatch.setattr("tools.soak.writers.time.monotonic", lambda: times.pop(0) if len(times) > 1 else times[0])
    set_responses(writer, produced(-1, 47))
    writer.step()
    assert dict(ledger.kinds) == kinds
    assert (writer.transactions[0].outcome, writer.identity) == ("aborted", None)


# ---------------------------------------------------------------- groups


def test_two_owners_of_a_partition_are_found(ledger: Ledger) -> None:
    group = Group("g", ledger)
    group.claim("a", 3, {0, 1}, 2)
    group.claim("b", 3, {2}, 2)
    group.claim("b", 4, {0}, 3)
    assert dict(ledger.kinds) == {}
    group.claim("b", 3, {1}, 3)
    assert dict(ledger.kinds) == {"two owners": 1}
    group.claim("b", 2, set(), 3)
    assert dict(ledger.kinds) == {"two owners": 1, "epoch": 1}


def test_a_partition_taken_from_a_live_owner_is_found(ledger: Ledger) -> None:
    group, now = Group("g", ledger), time.monotonic()
    group.lease("a", {0, 1}, now + 600)
    group.lease("a", {0}, now + 600)
    group.lease("b", {1}, now - 1)
    group.lease("c", {1}, now + 600)
    assert dict(ledger.kinds) == {}
    group.lease("b", {0}, now + 600)
    assert dict(ledger.kinds) == {"two owners": 1}


def test_a_lost_committed_offset_is_found(ledger: Ledger) -> None:
    group = Group("g", ledger)
    group.sent[0] = 7
    for offset in (5, 7):
        group.check_offset(0, offset, 5)
    assert dict(ledger.kinds) == {}
    for offset in (4, 8):
        group.check_offset(0, offset, 5)
    assert dict(ledger.kinds) == {"lost offset": 2}


# ---------------------------------------------------------------- errors, clients, the server


def test_errors_are_repeated_expected_or_violations(ledger: Ledger) -> None:
    client = Client("c", PORT, ledger)
    assert client.checked("X", 0) == 0
    assert client.checked("X", 25, frozenset({25})) == 25
    with pytest.raises(RetryError):
        client.checked("X", 14)
    assert dict(ledger.kinds) == {}
    with pytest.raises(RetryError):
        client.checked("X", 25)
    assert dict(ledger.kinds) == {"error": 1}


def test_an_unreachable_server_is_no_violation_and_a_silent_one_is(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client("c", PORT, ledger)
    with pytest.raises(LostError):
        client.call("Metadata", 9, {})
    assert dict(ledger.kinds) == {}

    class Silent:
        def send(self, *_: object) -> Silent:
            return self

        def result(self, timeout_s: float) -> None:
            raise TimeoutError

        def close(self) -> None:
            pass

    client._connection = Silent()  # type: ignore[assignment]
    with pytest.raises(LostError):
        client.call("Metadata", 9, {})
    assert dict(ledger.kinds) == {"unanswered": 1}


def test_a_client_without_progress_is_named(ledger: Ledger) -> None:
    ledger.progress = {"one": 1.0, "two": 2.0}
    assert (ledger.waiting_since(0.5), ledger.waiting_since(1.5)) == ([], ["one"])


def test_at_most_some_violations_are_printed(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(SHOWN_OF_A_KIND + 3):
        ledger.violation("kind", str(number))
    assert len(capsys.readouterr().out.splitlines()) == len(ledger.violations) == SHOWN_OF_A_KIND
    assert ledger.kinds["kind"] == SHOWN_OF_A_KIND + 3


@pytest.mark.crash
def test_a_server_that_does_not_start_is_found(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(faults.SETTINGS, "no.such.setting", "1")
    assert not Server(tmp_path, ledger).start()
    assert dict(ledger.kinds) == {"start": 1}


@pytest.mark.crash
def test_a_damaged_folder_is_found(tmp_path: Path, ledger: Ledger) -> None:
    server = Server(tmp_path, ledger)
    assert server.start()
    server.end(signal.SIGTERM)
    server.verify()
    assert dict(ledger.kinds) == {}
    for file in server.data.glob("*.mdb"):
        file.write_bytes(b"\xff" * file.stat().st_size)
    server.verify()
    assert dict(ledger.kinds) == {"log verify": 1}


@pytest.mark.crash
def test_a_short_soak_finds_no_violation(tmp_path: Path) -> None:
    """A soak of three seconds that kills the server finds no violation. Each kind of client succeeds at least once."""
    ledger = soak(tmp_path, 3.0, 1, ["kill"])
    assert ledger.violations == []
    assert ledger.counts["rounds"] == ledger.counts["faults: kill"] > 0
    for name in ("offset commits", "idempotent batches", "records read", "classic joins"):
        assert ledger.counts[name] > 0, name
