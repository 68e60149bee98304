"""Checks that checkpoints and tables belong to the same stream.

A stream without its checkpoints starts at the beginning of the logs, with micro-batch 0. Growing tables would then have
rows of the earlier stream twice. A stream whose checkpoints belong to other tables would leave out all earlier rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kcore.errors import KcoreError
from kcore.json_text import parse_json
from kcore.spark.decode.record_types import TOPICS
from kcore.spark.events.sources import open_source
from kcore.spark.frames.hadoop import HadoopFiles
from kcore.spark.frames.logs import KafkaCluster, LogSource
from kcore.spark.watch.continued import STATE
from kcore.spark.watch.tables import EVENTS, WatchTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

STREAM: Final = "stream.json"
"""Name of a file in the folder of the checkpoints. It contains topic ids, and the format and place of the tables."""
METADATA: Final = "metadata"
"""Name of the file that Spark writes to a query's checkpoints when the query starts for the first time."""
ALERTING: Final = "alerting.json"
"""Name of a file in the folder of the checkpoints. It contains the alerts whose conditions held at the last report."""
TABLE_OF: Final = {"watch": f"{STATE}/partitions", EVENTS: EVENTS}
"""Name of a query -> a table that has rows once the query has processed an event."""


def topic_ids(source: LogSource) -> dict[str, str]:
    """Returns the ids of the internal topics in a folder, by name.

    Leaves out unknown ids, such as those of a live cluster.
    """
    if isinstance(source, KafkaCluster):
        return {}
    with open_source(source) as logs:
        return {part.topic: part.topic_id for part in logs.parts() if part.topic in TOPICS and part.topic_id}


def check_stream(checkpoints: HadoopFiles, form: str, out: str | None, ids: Mapping[str, str]) -> None:
    """Checks that checkpoints belong to logs with these topic ids, and to tables of this format and place.

    It records the ids, the format and the place in the folder of the checkpoints, for the checks of later runs.

    Args:
        checkpoints: the folder of the checkpoints.
        form: the format of the tables.
        out: the place of the tables; None if the folder of the checkpoints is below this place.
        ids: the ids of topics, by name, as far as they are known.

    Raises:
        KcoreError: the checkpoints belong to other tables or logs.
    """
    try:
        stored = parse_json(checkpoints.read(STREAM))
    except FileNotFoundError:
        stored = {"format": form, "out": out, "topics": {}}
    above = checkpoints.uri.rpartition("/")[0]  # a folder may be moved together with its checkpoints
    place = stored["out"] or above
    if (stored["format"], place) != (form, out or above):
        raise KcoreError(
            f"the checkpoints in {checkpoints.uri} belong to a stream with tables of {stored['format']} in {place}: "
            "name another folder for the checkpoints, where the stream starts from the beginning"
        )
    known = stored.get("topics", {})
    other = sorted(topic for topic, topic_id in ids.items() if known.get(topic, topic_id) != topic_id)
    if other:
        raise KcoreError(
            f"{other[0]} has the id {ids[other[0]]}, and {known[other[0]]} in the checkpoints in {checkpoints.uri}: "
            "it is a different log; name a new output folder"
        )
    stored["topics"] = {**known, **ids}
    checkpoints.write(STREAM, json.dumps(stored).encode())


def check_tables(checkpoints: HadoopFiles, query: str, tables: WatchTables) -> None:
    """Checks that the tables of a new query are empty.

    Args:
        checkpoints: the folder of the checkpoints.
        query: the name of the query, a key of `TABLE_OF`.
        tables: the output of the stream, which contains the tables in `TABLE_OF`.

    Raises:
        KcoreError: the tables have rows, and the checkpoints of the query are missing.
    """
    if not checkpoints.exists(f"{query}/{METADATA}") and tables.has_rows(TABLE_OF[query]):
        raise KcoreError(
            f"{tables.place} has tables of an earlier stream, whose checkpoints are not in {checkpoints.uri}/{query}: "
            "name a new output folder"
        )


def key_of(alert: Row) -> tuple[str, str]:
    """Returns the kind and the subject of an alert. Alerts with equal kinds and subjects are the same alert."""
    return alert["kind"], alert["subject"]


class ReportedAlerts:
    """The alerts whose conditions held at the last report of a stream. After a restart, the stream reads them again.

    Args:
        checkpoints: the folder of the checkpoints.

    Attributes:
        as_of_ms: the time up to which the tables had the events of the source, at the last report that changed the
            alerts.
    """

    def __init__(self, checkpoints: HadoopFiles) -> None:
        self._checkpoints = checkpoints
        try:
            stored = parse_json(checkpoints.read(ALERTING))
        except FileNotFoundError:
            stored = {"at_ms": -1, "as_of_ms": 0, "alerts": []}
        self.as_of_ms = int(stored["as_of_ms"])
        self._at_ms = int(stored["at_ms"])
        self._active = {(kind, subject) for kind, subject in stored["alerts"]}

    def new(self, active: Iterable[Row]) -> list[Row]:
        """Returns the alerts whose conditions did not hold at the last report.

        Args:
            active: the alerts whose conditions hold now.
        """
        return [row for row in active if key_of(row) not in self._active]

    def interrupted(self, alerts: DataFrame) -> set[tuple[str, str]]:
        """Returns the alerts, as (kind, subject), that a crash left in the table without a stored report.

        The caller does not append these alerts again. It publishes them, because the crash may have come before their
        publication.

        Args:
            alerts: the table `alerts`.
        """
        return set(map(key_of, alerts.where(f"at_ms > {self._at_ms}").collect()))

    def store(self, active: Iterable[Row], now_ms: int, as_of_ms: int) -> None:
        """Stores a report, after its new alerts were written and published.

        Args:
            active: the alerts whose conditions hold.
            now_ms: the time of the report.
            as_of_ms: the time up to which the tables have the events of the source.
        """
        keys = set(map(key_of, active))
        if keys != self._active:
            stored = {"at_ms": now_ms, "as_of_ms": as_of_ms, "alerts": sorted(keys)}
            self._checkpoints.write(ALERTING, json.dumps(stored).encode())
            self._at_ms, self.as_of_ms, self._active = now_ms, as_of_ms, keys
