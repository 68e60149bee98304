"""The tables that the job `watch` keeps up to date, in one of the formats of `storage`.

- *Tables of the state* have the rows of the newest micro-batch of each partition, which a later micro-batch replaces.
- *Growing tables* keep the rows of all micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kcore.protocol.records.base import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcore.spark.audit.finding import findings_ddl
from kcore.spark.frames.output import PARQUET
from kcore.spark.state.table_schemas import TABLES, table_ddl
from kcore.spark.timeline.event_kinds import EVENT_KINDS, kind_ddl
from kcore.spark.watch.continued import FINDINGS, STATE, TIMELINE
from kcore.spark.watch.storage import BATCH, SHARED, TablePart, partition_columns, table_storage
from kcore.spark.watch.streams import DECODED, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

EVENTS: Final = "events"
LAG: Final = "lag"
ALERTS: Final = "alerts"
KINDS: Final = tuple(kind for kind in EVENT_KINDS if kind != "logs")
"""Kinds of timeline events that a stream writes: all except `logs`, whose events describe whole logs."""

LAG_DDL: Final = "at_ms bigint, group_id string, topic string, partitions int, lag bigint, max_lag bigint"
"""Schema of the lag of a group in a topic at a time: the sum over the partitions, and the maximum of a partition."""
ALERTS_DDL: Final = "at_ms bigint, kind string, subject string, since_ms bigint, detail string"
"""Schema of alerts: `subject` is the group or transactional id, and `since_ms` the time since which the condition
holds.
"""

DDLS: Final[dict[str, str]] = {
    **{f"{STATE}/{name}": table_ddl(name) for name in TABLES},
    **{f"{TIMELINE}/{kind}": kind_ddl(kind) for kind in KINDS},
    FINDINGS: findings_ddl(),
    EVENTS: ", ".join(f"{name} {kind}" for name, kind, _ in DECODED),
    LAG: LAG_DDL,
    ALERTS: ALERTS_DDL,
}
"""Table -> its schema."""

GROWING: Final = (*(f"{TIMELINE}/{kind}" for kind in KINDS), FINDINGS)
"""Tables that only grow: micro-batches of `watched` add rows."""

TOPIC_OF: Final[dict[str, str]] = {
    **{name: CONSUMER_OFFSETS for name in TABLES if name not in SHARED},
    "transactions": TRANSACTION_STATE,
    "share_states": SHARE_GROUP_STATE,
}
"""Table of the state -> the internal topic whose records fill it. The tables in `SHARED` have rows of all internal
topics.
"""


class WatchTables:
    """The tables of a stream.

    Args:
        spark: a session.
        place: a path or a URI; CATALOG.NAMESPACE for Iceberg.
        publish: receives the rows that a micro-batch has added to one of the tables `GROWING`, and the table's name.
            None: the rows are only written.
        form: the format of the tables, one of `output.FORMATS`.

    Attributes:
        place: the folder or namespace of the tables.

    Raises:
        KcoreError: the format is unknown, or the folder cannot be reached.
    """

    def __init__(
        self,
        spark: SparkSession,
        place: str | Path,
        publish: Callable[[str, DataFrame], None] | None = None,
        form: str = PARQUET,
    ) -> None:
        self.place = str(place)
        self._publish = publish
        self._storage = table_storage(spark, place, form)
        created = {table for table, ddl in DDLS.items() if self._storage.create(table, ddl, _partitioned(table))}
        self._unknown = DDLS.keys() - created  # tables that may have rows of an earlier run
        self._filled: set[TablePart] = set()
        self._empty: set[TablePart] = set()

    def table(self, name: str) -> DataFrame:
        """Returns the rows of a table as of now."""
        return self._storage.read(name, DDLS[name])

    def has_rows(self, name: str) -> bool:
        """Returns True if a table has a row of an earlier run."""
        return name in self._unknown and not self.table(name).isEmpty()

    def apply(self, watched_rows: DataFrame, batch_id: int) -> None:
        """Writes the rows that `watched` returned for one micro-batch to the tables.

        Args:
            watched_rows: these rows.
            batch_id: the number of the micro-batch.
        """
        from pyspark import StorageLevel  # noqa: PLC0415

        watched_rows = watched_rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            parts = {TablePart(*row) for row in watched_rows.select("table", "topic", "partition").distinct().collect()}
            for table in sorted({part.table for part in parts if part.table in GROWING}):
                self.add(table, rows_of(watched_rows, table, DDLS[table]), batch_id)
            self._replace(watched_rows, parts)
        finally:
            watched_rows.unpersist()

    def add(self, table: str, rows: DataFrame, batch_id: int) -> None:
        """Writes the rows that a micro-batch adds to a table that keeps the rows of all micro-batches.

        Replaces the rows of an earlier attempt at this micro-batch.
        """
        self._storage.add(table, rows, batch_id)
        self.publish(table, self._storage.read(table, DDLS[table], batch_id))

    def append(self, table: str, rows: DataFrame) -> None:
        """Appends rows of a report (lag or alerts) to a table, and publishes them."""
        self._storage.append(table, rows)
        self.publish(table, rows)

    def publish(self, table: str, rows: DataFrame) -> None:
        """Passes rows that were already written to a table to `publish`, if the constructor received this function."""
        if self._publish is not None:
            self._publish(table, rows)

    def _replace(self, watched_rows: DataFrame, parts: Iterable[TablePart]) -> None:
        """Replaces the rows of partitions in the tables of the state. Partitions without new rows are emptied."""
        filled = {part for part in parts if part.table not in GROWING}
        empty = possible_parts({(part.topic, part.partition) for part in parts}) - filled
        emptied = {part for part in empty if self._may_have_rows(part)}
        for table in sorted({part.table for part in filled | emptied}):
            self._storage.replace(
                table,
                rows_of(watched_rows, table, DDLS[table]),
                sorted(part for part in filled if part.table == table),
                sorted(part for part in emptied if part.table == table),
            )
        self._filled = (self._filled | filled) - empty
        self._empty = (self._empty | empty) - filled

    def _may_have_rows(self, part: TablePart) -> bool:
        return part in self._filled or (part.table in self._unknown and part not in self._empty)


def possible_parts(places: Iterable[tuple[str, int]]) -> set[TablePart]:
    """Returns the parts of state tables that may have rows of these partitions.

    Args:
        places: pairs of the name of an internal topic and the number of one of its partitions.
    """
    return {
        TablePart(f"{STATE}/{name}", topic, partition)
        for name in TABLES
        for topic, partition in places
        if TOPIC_OF.get(name, topic) == topic
    }


def _partitioned(table: str) -> tuple[str, ...]:
    """Returns the columns by which a table is partitioned."""
    if table.startswith(f"{STATE}/"):
        return partition_columns(table)
    return (BATCH,) if table in (*GROWING, EVENTS) else ()
