"""Exactly-once ETL: copies the squares of a topic's numbers to a second topic, and from there to SQLite.

    python examples/etl_to_sqlite.py              on an embedded node
    python examples/etl_to_sqlite.py HOST:PORT    the same against kcore serve, or against Apache Kafka

The first step commits its records and the consumer's offsets in one transaction. The second step stores the offsets in
the database, in the same transaction as the rows. The second step does not commit offsets to the group: when it gets a
partition, it seeks to the offset in the database. The example makes both steps fail in the middle of their work. No
number is lost or stored twice.
"""

from __future__ import annotations

import sqlite3
import sys
import time
import uuid

import kcore

COUNT, PARTITIONS = 200, 3
LIMIT_S = 60.0


class StepError(Exception):
    """A failure that the example causes."""


def square(node: kcore.Node, source: str, target: str, fail_after: int | None = None) -> None:
    """Copies squares until the source is read.

    Args:
        node: an embedded node, or a connection to a cluster.
        source: the topic to read.
        target: the topic to write.
        fail_after: the number of records after which a transaction fails; None if none fails.
    """
    copied = 0
    group = node.group(f"{source}-squares")
    with node.transaction(f"{source}-squares"):
        pass  # aborts the open transaction of a killed predecessor, which delays reads of the committed offsets
    with group.consume([source], auto_commit=None, max_records=25) as consumer:
        until_s = time.monotonic() + LIMIT_S
        while sum(each.offset for each in group.committed().values()) < COUNT and time.monotonic() < until_s:
            records = consumer.poll(1.0)  # empty while the group assigns partitions
            with node.transaction(f"{source}-squares") as txn:
                for record in records:
                    txn.append(target, str(int(record.value or b"0") ** 2), key=record.key)
                txn.commit_offsets(consumer, consumer.positions())
                copied += len(records)
                if fail_after is not None and copied >= fail_after:
                    raise StepError("before the commit: the transaction aborts")


def load(node: kcore.Node, topic: str, database: sqlite3.Connection, fail_at: int | None = None) -> None:
    """Stores the records of a topic in the database until the table has all numbers."""
    consumer: kcore.Consumer

    def seek(event: kcore.Assigned) -> None:
        for partition in event:
            query = "SELECT next FROM positions WHERE partition = ?"
            stored = database.execute(query, (partition.partition,)).fetchone()
            consumer.seek(partition, stored[0] if stored else 0)

    until_s = time.monotonic() + LIMIT_S
    consumer = node.group(f"{topic}-loader").consume([topic], auto_commit=None, on_assigned=seek)
    with consumer:
        while (rows := count(database)) < COUNT and time.monotonic() < until_s:
            with database:  # a transaction of SQLite
                for record in consumer.poll(1.0):
                    database.execute("INSERT INTO squares VALUES (?)", (int(record.value or b"0"),))
                    position = (record.partition, record.offset + 1)
                    database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", position)
                    rows += 1
                    if fail_at is not None and rows >= fail_at:
                        raise StepError("before the commit: SQLite rolls back")


def count(database: sqlite3.Connection) -> int:
    """Returns the number of stored squares."""
    return int(database.execute("SELECT count(*) FROM squares").fetchone()[0])


def main(node: kcore.Node) -> None:
    """Runs both steps. Each step fails once and is started again."""
    name = uuid.uuid4().hex[:8]
    source, target = f"numbers-{name}", f"squares-{name}"
    node.topics.create(target, PARTITIONS)
    node.topics.create(source, PARTITIONS).append_many([(str(number), str(number)) for number in range(COUNT)])
    try:
        square(node, source, target, fail_after=COUNT // 2)
    except StepError as error:
        print(f"the first step failed {error}")
    square(node, source, target)
    database = sqlite3.connect(":memory:", check_same_thread=False)  # listeners run in another thread
    database.execute("CREATE TABLE squares (value INTEGER)")
    database.execute("CREATE TABLE positions (partition INTEGER PRIMARY KEY, next INTEGER)")
    try:
        load(node, target, database, fail_at=COUNT // 2)
    except StepError as error:
        print(f"the second step failed {error}")
    load(node, target, database)
    stored = sorted(value for (value,) in database.execute("SELECT value FROM squares"))
    print(f"{len(stored)} squares are stored, each once: {stored == [number**2 for number in range(COUNT)]}")


if __name__ == "__main__":
    with kcore.connect(sys.argv[1]) if len(sys.argv) > 1 else kcore.open() as node:
        main(node)
