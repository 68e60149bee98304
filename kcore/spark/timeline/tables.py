"""The tables of a timeline: names, columns and their meanings, as data for tests and documentation.

`rebalances`, `moves`, `transactions`, `deliveries` and `logs` are events (see `EVENT_KINDS`); the other tables are
counts of events. Times are ms since the epoch. A window begins at a multiple of its width.
"""

from __future__ import annotations

from typing import Final

from kcore.spark.state.table_schemas import GROUP, NUMBER, PARTITION, TOPIC, Columns
from kcore.spark.timeline.event_kinds import EVENT_KINDS

WINDOW: Final = ("window_start_ms", "bigint", "the start of the window")
ALL_WHOLE: Final = ("whole", "boolean", "whether the log was complete for everything counted here")

TABLES: Final[dict[str, Columns]] = {
    "rebalances": EVENT_KINDS["rebalances"],
    "moves": EVENT_KINDS["moves"],
    "transactions": EVENT_KINDS["transactions"],
    "deliveries": EVENT_KINDS["deliveries"],
    "logs": EVENT_KINDS["logs"],
    "rebalance_windows": (
        WINDOW,
        GROUP,
        ("group_type", "string", "classic, consumer, share or streams"),
        ("cause", "string", "the main cause"),
        ("rebalances", "bigint", "number of rebalances that began in the window"),
        ("superseded", "bigint", "number of them that the next one superseded"),
        ("members_joined", "bigint", "members that joined, summed"),
        ("members_left", "bigint", "members that left, summed"),
        ("moved", "bigint", "partitions that changed owners, summed"),
        ("duration_ms", "bigint", "the sum of the known durations"),
        ALL_WHOLE,
    ),
    "commit_windows": (
        WINDOW,
        GROUP,
        TOPIC,
        ("commits", "bigint", "number of committed offsets, including those of committed transactions"),
        ("transactional", "bigint", "number of them that transactions committed"),
        ("aborted", "bigint", "number of offsets dropped with an aborted transaction"),
        ("pending", "bigint", "number of offsets in open transactions at the end of the log"),
        ("partitions", "bigint", "number of partitions"),
        ("commits_per_s", "double", "commits divided by the width of the window"),
        ALL_WHOLE,
    ),
    "commit_gaps": (
        PARTITION,
        GROUP,
        TOPIC,
        ("from_ms", "bigint", "the last commit before the gap"),
        ("to_ms", "bigint", "the first commit after it, or the end of the log"),
        ("gap_ms", "bigint", "the length of the gap"),
        ("open", "boolean", "whether the log ended without another commit"),
        ("rebalances", "bigint", "number of rebalances of the group that began in the gap"),
        ALL_WHOLE,
    ),
    "storms": (
        GROUP,
        ("from_ms", "bigint", "the start of its first rebalance"),
        ("to_ms", "bigint", "the start of its last rebalance"),
        ("rebalances", "bigint", "number of rebalances"),
        ("superseded", "bigint", "number of them that the next one superseded"),
        ("members_joined", "bigint", "members that joined, summed"),
        ("members_left", "bigint", "members that left, summed"),
        ("moved", "bigint", "partitions that changed owners, summed"),
        ("causes", "map<string,bigint>", "number of rebalances by main cause"),
        ALL_WHOLE,
    ),
    "transaction_windows": (
        WINDOW,
        ("outcome", "string", "committed, aborted, open or unknown"),
        ("cause", "string", "the cause of aborts, else null; as in `transactions`"),
        ("transactions", "bigint", "number of transactions that began in the window"),
        ("longest_ms", "bigint", "the longest duration"),
        ("mean_ms", "double", "the mean duration"),
    ),
    "share_windows": (
        WINDOW,
        GROUP,
        ("topic_id", "string", "the topic's id"),
        ("topic", "string", "its name; null if the log of the group is missing"),
        NUMBER,
        ("delivered", "bigint", "number of deliveries that ended"),
        ("redelivered", "bigint", "number of them that were not the first delivery of their record"),
        ("acknowledged", "bigint", "number of records that were acknowledged"),
        ("archived", "bigint", "number of records that were rejected, or released too often"),
        ("start_offset", "bigint", "the start offset at the last record of the window"),
        ("waiting", "bigint", "number of released records then"),
        ("end_offset", "bigint", "the end of the partition at the end of the window; null if its log is missing"),
        ("lag", "bigint", "number of records that are not complete then; null if unknown"),
        ALL_WHOLE,
    ),
    "groups": (
        PARTITION,
        GROUP,
        ("group_type", "string", "its last type; null if the log has only offsets of the group"),
        ("rebalances", "bigint", "number of rebalances"),
        ("superseded", "bigint", "number of them that the next one superseded"),
        ("storms", "bigint", "number of storms"),
        ("longest_rebalance_ms", "bigint", "the longest known duration; null for none"),
        ("moved", "bigint", "partitions that changed owners, summed"),
        ("commits", "bigint", "number of committed offsets"),
        ("aborted", "bigint", "number of offsets dropped with an aborted transaction"),
        ("longest_gap_ms", "bigint", "the longest gap between commits to one topic; null if there is no gap"),
        ("first_ms", "bigint", "the time of its first event"),
        ("last_ms", "bigint", "the time of its last event"),
    ),
}
"""Table -> its columns."""
