"""Another program has changed rows of the database: nodes raise clear errors, and `kcore log verify` reports each
change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kcore.cli import main
from kcore.cluster.postgresql import PostgresClusterStore
from kcore.cluster.store import METADATA
from kcore.log.errors import CorruptLogError, FailureReason, LogError
from kcore.log.interface import PartitionKey
from kcore.log.shared_engine import SharedLogEngine
from kcore.log.storage import Leadership
from kcore_ext.batch import BatchBuilder
from tests.cluster.conftest import TTL_MS, description
from tests.log.batches import key
from tests.postgresql.shared import PostgresShared

NUMBER = "(SELECT max(number) FROM partitions)"
"""SQL for the number of the partition whose rows the tests change. Number 0 is the metadata log."""
FIRST, LAST = f"number = {NUMBER} AND base_offset = 0", f"number = {NUMBER} AND base_offset = 2"
MIDDLE = f"number = {NUMBER} AND base_offset = 1"


def set_batch(column: str, where: str = MIDDLE) -> str:
    return f"UPDATE batches SET {column} WHERE {where}"


def without_not_null(table: str, column: str, statement: str) -> str:
    return f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL; {statement}"


def null(table: str, column: str, where: str) -> str:
    return without_not_null(table, column, f"UPDATE {table} SET {column} = NULL WHERE {where}")


PARTITION = f"number = {NUMBER}"
CHANGES = {
    # name: (statement, the offset of the finding, a part of its text)
    "crc": (set_batch("batch = set_byte(batch, 65, 255 - get_byte(batch, 65))"), 1, "CRC 0x"),
    "length field": (set_batch("batch = set_byte(batch, 10, 9)"), 1, "length field"),
    "magic": (set_batch("batch = set_byte(batch, 16, 1)"), 1, "magic 1"),
    "base in the header": (set_batch("batch = set_byte(batch, 7, 9)"), 1, "base offset 9"),
    "negative delta": (set_batch("batch = set_byte(batch, 23, 255)"), 1, "last offset delta -"),
    "truncated": (set_batch("batch = substring(batch FROM 1 FOR 70)"), 1, "length field"),
    "less than a header": (set_batch("batch = substring(batch FROM 1 FOR 20)"), 1, "20 bytes"),
    "empty": (set_batch("batch = ''"), 1, "0 bytes"),
    "too long": (set_batch("batch = batch || '\\x00'::bytea"), 1, "length field"),
    "NULL batch": (null("batches", "batch", MIDDLE), 1, "column batch is NULL"),
    "NULL first batch": (null("batches", "batch", FIRST), 0, "column batch is NULL"),
    "NULL last batch": (null("batches", "batch", LAST), 2, "column batch is NULL"),
    "NULL timestamp": (null("batches", "max_timestamp", MIDDLE), 1, "column max_timestamp is NULL"),
    "timestamp": (set_batch("max_timestamp = 7"), 1, "max_timestamp_ms=7"),
    "last offset": (set_batch("last_offset = 2"), 1, "last_offset=2"),
    "last offset of the end": (set_batch("last_offset = 9", LAST), 2, "column last_offset is 9"),
    "last offset of the end, too low": (set_batch("last_offset = 1", LAST), 2, "column last_offset is 1"),
    "deleted": (f"DELETE FROM batches WHERE {MIDDLE}", 1, "no batch contains the offsets 1 to 1"),
    "deleted first": (f"DELETE FROM batches WHERE {FIRST}", 0, "no batch contains the offsets 0 to 0"),
    "moved": (set_batch("base_offset = 7, last_offset = 7"), 7, "column last_offset is 7, and the batch ends at 1"),
    "NULL meta": (null("partitions", "meta", PARTITION), None, "column meta is NULL"),
    "empty meta": (f"UPDATE partitions SET meta = '' WHERE {PARTITION}", None, "column meta: unpack"),
    "long meta": (f"UPDATE partitions SET meta = meta || meta WHERE {PARTITION}", None, "column meta: "),
    "meta of another": (
        f"UPDATE partitions SET meta = (SELECT meta FROM partitions WHERE number = 0) WHERE {PARTITION}",
        None,
        "column meta has the number 0",
    ),
    "chunk deleted": (f"DELETE FROM snapshot_chunks WHERE {PARTITION}", 2, "snapshot chunk 0 of 1 is missing"),
    "chunk changed": (f"UPDATE snapshot_chunks SET data = 'other' WHERE {PARTITION}", 2, "snapshot CRC"),
    "NULL chunk": (null("snapshot_chunks", "data", PARTITION), 2, "snapshot chunk 0 of 1 is missing"),
}
"""Name of a case -> a statement that changes rows of the partition, and the expected error, which names the partition.
"""
OTHERS = {
    "NULL topic id": (
        null("partitions", "topic_id", PARTITION),
        "table kcore.partitions, number 1: column topic_id is",
    ),
    "short topic id": (f"UPDATE partitions SET topic_id = 'x' WHERE {PARTITION}", "column topic_id has 1 bytes"),
    "NULL partition": (null("partitions", "partition", PARTITION), "column partition is NULL"),
    "negative partition": (f"UPDATE partitions SET partition = -1 WHERE {PARTITION}", "column partition is -1"),
    "NULL leader": (null("partitions", "leader", PARTITION), "column leader is NULL"),
    "description": (
        "UPDATE nodes SET description = 'x'",
        "table kcore.nodes, node_id 1: column description: 1 bytes are not",
    ),
    "deep description": (
        "UPDATE nodes SET description = convert_to(repeat('[', 100000), 'UTF8')",
        "table kcore.nodes, node_id 1: column description: 100000 bytes are not",
    ),
    "NULL description": (null("nodes", "description", "true"), "column description is NULL"),
    "NULL session": (null("nodes", "session", "true"), "column session is NULL"),
    "NULL lease": (null("leases", "holder", "name = 'node/1'"), "table kcore.leases, name 'node/1': column holder is"),
    "NULL expiry": (null("leases", "expires_at", "name = 'node/1'"), "table kcore.leases: 1 rows have no expires_at"),
    "NULL value": (null("named_values", "value", "true"), "table kcore.named_values: 1 rows have no name or no value"),
    "other name": (
        r"UPDATE named_values SET name = '\xff'::bytea WHERE name = 'name'",
        r"table kcore.named_values, name b'\xff': column name is not UTF-8",
    ),
    "no cluster": ("DELETE FROM cluster", "table kcore.cluster, its only row: the row is missing"),
    "low next number": ("UPDATE cluster SET next_number = 1", "next_number is 1, and number 1 exists"),
    "stray": (f"DELETE FROM partitions WHERE {PARTITION}", "entries of unknown partition number 1"),
    "dropped column": ("ALTER TABLE batches DROP COLUMN batch", "SQLSTATE 42703"),
    "other type": (
        "ALTER TABLE batches ALTER COLUMN last_offset TYPE text",
        "column last_offset is str and not an integer",
    ),
    "dropped table": ("DROP TABLE snapshot_chunks", "SQLSTATE 42P01"),
}
"""Name of a case -> a statement that changes other rows or a table, and a part of the expected error text."""


class Changed:
    """A partition with three batches and a snapshot. A test changes its rows."""

    def __init__(self, url: str) -> None:
        self.shared = PostgresShared(url)
        store, _, engine = self.shared.node(1)
        controller = store.take_controller(store.nodes()[0].lease, TTL_MS)
        assert controller is not None
        engine.adopt([Leadership(METADATA, controller.epoch)])
        engine.create(key(0), 1, 0)
        engine.put_meta("name", b"value")
        engine.commit()
        [log] = engine.adopt([Leadership(key(0), 0)])
        for number in range(3):
            builder = BatchBuilder(4_096, base_timestamp_ms=1_000)
            builder.append(1_000, b"key", b"value %d" % number)
            log.append(builder.build_bytearray(), 0)
            engine.commit()
        log.put_snapshot_chunk(2, 0, b"state")
        log.commit_snapshot(2)
        engine.commit()
        store.close()
        self._stores: list[PostgresClusterStore] = []

    def open(self) -> PostgresClusterStore:
        store = self.shared.open()
        self._stores.append(store)
        return store

    def verify(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]], str]:
        """Returns the exit status, the findings and the errors of `kcore log verify`."""
        status = main(["log", "verify", self.shared.url, "--format", "json"])
        out, err = capsys.readouterr()
        return status, [json.loads(line) for line in out.splitlines()], err

    def close(self) -> None:
        self.shared.close()


@pytest.fixture
def changed(url: str) -> Iterator[Changed]:
    made = Changed(url)
    yield made
    made.close()


def reads(engine: SharedLogEngine, store: PostgresClusterStore) -> list[Callable[[], object]]:
    """Returns one function for each kind of read that nodes and commands perform."""
    name = PartitionKey(key(0).topic_id, key(0).partition)

    def log() -> Any:
        found = engine.follow(name)
        assert found is not None
        return found

    return [
        lambda: list(log().batches()),
        lambda: [log().read(offset, 1 << 20) for offset in range(3)],
        lambda: log().find_by_timestamp(0),
        lambda: log().max_timestamp_batch(),
        lambda: log().size_bytes(),
        lambda: log().summaries(0, 10),
        lambda: list(log().read_snapshot()),
        lambda: engine.get_meta("name"),
        engine.meta_names,
        engine.shared.removed_numbers,
        lambda: engine.shared.stray_entries({}),
        store.nodes,
        store.controller,
        store.leaders,
        store.cluster_id,
        lambda: store.register(2, description(2), TTL_MS),
    ]


def failures(changed: Changed) -> list[Exception]:
    """Returns the errors of all reads. Any exception except a LogError fails the test."""
    found: list[Exception] = []
    store = changed.open()
    engine = SharedLogEngine(store.reader())
    for read in reads(engine, store):
        try:
            read()
        except LogError as error:
            found.append(error)
        except AssertionError:
            pass  # the partition is gone
    return found


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_row_of_a_partition_is_found(changed: Changed, capsys: pytest.CaptureFixture[str], name: str) -> None:
    statement, offset, text = CHANGES[name]
    assert changed.verify(capsys) == (0, [], "")
    changed.shared.execute(statement)
    status, findings, err = changed.verify(capsys)
    assert (status, err) == (1, "")
    named = [row for row in findings if row["offset"] == offset and text in row["detail"]]
    assert named, findings
    partition = f"{key(0).topic_id.hex()}-0"
    assert {row["partition"] for row in findings} == {partition}
    errors = failures(changed)
    if name not in ("timestamp", "last offset"):  # columns that no read of batches uses
        assert errors
    for error in errors:
        assert isinstance(error, CorruptLogError), repr(error)
        assert (repr(error.partition), error.reason) == (partition, FailureReason.CORRUPT)


@pytest.mark.parametrize("name", OTHERS)
def test_a_changed_row_of_another_table_is_found(
    changed: Changed, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    statement, text = OTHERS[name]
    changed.shared.execute(statement)
    status, findings, err = changed.verify(capsys)
    assert status == 1
    assert text in "".join(row["detail"] for row in findings) + err
    assert "Traceback" not in err
    for error in failures(changed):
        assert "PostgreSQL" in str(error) or isinstance(error, CorruptLogError), repr(error)
