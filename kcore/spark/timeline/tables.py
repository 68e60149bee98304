"""The tables of a timeline: names, columns and what they mean. Plain data, so that documentation can be made of it.

`rebalances`, `moves`, `transactions` and `logs` are facts (see facts.py); the rest is counted over facts. Times are ms
since the epoch. A window begins at a multiple of its width.
"""

from __future__ import annotations

from typing import Final

from kcore.spark.state.table_schemas import GROUP, PARTITION, Columns
from kcore.spark.timeline.facts import FACTS

WINDOW: Final = ("window_start_ms", "bigint", "when the window begins")
TOPIC: Final = ("topic", "string", "the topic")
ALL_WHOLE: Final = ("whole", "boolean", "whether the log still held everything that this is counted from")

TABLES: Final[dict[str, Columns]] = {
    "rebalances": FACTS["rebalances"],
    "moves": FACTS["moves"],
    "transactions": FACTS["transactions"],
    "logs": FACTS["logs"],
    "rebalance_windows": (
        WINDOW,
        GROUP,
        ("group_type", "string", "classic, consumer, share or streams"),
        ("cause", "string", "the foremost cause"),
        ("rebalances", "bigint", "how many began in the window"),
        ("superseded", "bigint", "how many of them the next one overtook"),
        ("members_joined", "bigint", "members that came, summed"),
        ("members_left", "bigint", "members that went, summed"),
        ("moved", "bigint", "partitions that changed hands, summed"),
        ("duration_ms", "bigint", "their durations, summed, as far as the log says them"),
        ALL_WHOLE,
    ),
    "commit_windows": (
        WINDOW,
        GROUP,
        TOPIC,
        ("commits", "bigint", "how many offsets were committed: plain ones and those of committed transactions"),
        ("transactional", "bigint", "how many of them by transactions"),
        ("aborted", "bigint", "how many were dropped with their transaction"),
        ("pending", "bigint", "how many waited for the end of their transaction when the log ended"),
        ("partitions", "bigint", "of how many partitions"),
        ("commits_per_s", "double", "commits by the width of the window"),
        ALL_WHOLE,
    ),
    "commit_gaps": (
        PARTITION,
        GROUP,
        TOPIC,
        ("from_ms", "bigint", "the last commit before the gap"),
        ("to_ms", "bigint", "the first commit behind it, or the end of the log"),
        ("gap_ms", "bigint", "how long that is"),
        ("open", "boolean", "whether the log ended without another commit"),
        ("rebalances", "bigint", "how many rebalances of the group began in the gap"),
        ALL_WHOLE,
    ),
    "storms": (
        GROUP,
        ("from_ms", "bigint", "when its first rebalance began"),
        ("to_ms", "bigint", "when its last rebalance began"),
        ("rebalances", "bigint", "how many there were"),
        ("superseded", "bigint", "how many of them the next one overtook"),
        ("members_joined", "bigint", "members that came, summed"),
        ("members_left", "bigint", "members that went, summed"),
        ("moved", "bigint", "partitions that changed hands, summed"),
        ("causes", "map<string,bigint>", "how many rebalances had which foremost cause"),
        ALL_WHOLE,
    ),
    "transaction_windows": (
        WINDOW,
        ("outcome", "string", "committed, aborted, open or unknown"),
        ("cause", "string", "of aborts, else null; as in `transactions`"),
        ("transactions", "bigint", "how many began in the window"),
        ("longest_ms", "bigint", "the longest of them"),
        ("mean_ms", "double", "their mean duration"),
    ),
    "groups": (
        PARTITION,
        GROUP,
        ("group_type", "string", "the kind that it was last; null for groups of which there are only offsets"),
        ("rebalances", "bigint", "how many began"),
        ("superseded", "bigint", "how many of them the next one overtook"),
        ("storms", "bigint", "how many storms there were"),
        ("longest_rebalance_ms", "bigint", "the longest, as far as the log says durations; null for none"),
        ("moved", "bigint", "partitions that changed hands, summed"),
        ("commits", "bigint", "how many offsets were committed"),
        ("aborted", "bigint", "how many were dropped with their transaction"),
        ("longest_gap_ms", "bigint", "the longest gap between commits to one topic; null if none was long enough"),
        ("first_ms", "bigint", "the first that is known of it here"),
        ("last_ms", "bigint", "the last"),
    ),
}
"""Table -> its columns."""
