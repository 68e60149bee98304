"""Reports the uncertainties of a rebuilt state whose tables are DataFrames, in bounded memory.

`kcore.spark.state.rebuild_report` gives the same reports for tables in local files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kcore.spark.frames.transforms import table_of
from kcore.spark.state.absent import Absent, PlacedId
from kcore.spark.state.rebuild_report import (
    ID_COLUMNS,
    IDS,
    NAMED,
    SHOWN,
    DoubtCounts,
    Uncertainties,
    absent_rows,
    uncertainties,
    without_records,
)
from kcore.spark.state.table_schemas import table_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def placed_ids_of(state: DataFrame, counts: Mapping[str, int]) -> Iterator[PlacedId]:
    """Yields ids and the partitions that contain them: two ids of each partition, and a sample of all ids.

    Args:
        state: the rows of all tables, with the columns of `transforms.STATE_DDL`.
        counts: table -> number of its rows.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    for name, (topic, column) in ID_COLUMNS.items():
        if not counts[name]:
            continue
        ids = table_of(state, name).select("coordinator_partition", column)
        bounds = ids.groupBy("coordinator_partition").agg(f.min(column), f.max(column)).collect()
        for partition, least, most in bounds:
            yield PlacedId(topic, partition, least)
            yield PlacedId(topic, partition, most)
        for partition, one in ids.limit(IDS).collect():
            yield PlacedId(topic, partition, one)


def with_absent(spark: SparkSession, table: DataFrame, name: str, absent: Iterable[Absent]) -> DataFrame:
    """Adds the rows for missing partitions to a table, and returns the result."""
    rows = [row for of, batch in absent_rows(absent) if of == name for row in batch.to_pylist()]
    if not rows:
        return table
    return table.unionByName(spark.createDataFrame([tuple(row.values()) for row in rows], table_ddl(name)))


def uncertainties_of_frames(
    partitions: DataFrame, faults: DataFrame | None, offsets: Mapping[tuple[str, int], int]
) -> tuple[int, Uncertainties]:
    """Returns the number of partitions, and the uncertainties that the tables `partitions` and `faults` show.

    Args:
        partitions: the table `partitions`.
        faults: the table `faults`; None if it has no rows.
        offsets: (topic, partition) -> the offset before which to stop, for partitions whose log end is unknown.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    count, lost, compacted, holes = partitions.selectExpr(
        "count(*) as partitions",
        "count_if(lost) as lost",
        "count_if(not complete and not lost) as compacted",
        "count_if(holes_to is not null and not lost) as holes",
    ).collect()[0]
    ends = []
    if offsets:
        places = partitions.select("topic", "coordinator_partition", "next_offset").collect()
        ends = without_records([tuple(row) for row in places], offsets)
    if faults is None:
        return count, uncertainties(DoubtCounts(lost, compacted, holes, 0, 0), [], ends)
    of_files = faults.where(f.col("kind").isin(*NAMED))
    columns = ("topic", "coordinator_partition", "offset", "detail")
    named = [tuple(row) for row in of_files.select(*columns).orderBy(*columns).limit(SHOWN).collect()]
    counts = DoubtCounts(lost, compacted, holes, faults.count(), of_files.count())
    return count, uncertainties(counts, named, ends)
