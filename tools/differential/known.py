"""The documented differences between the servers (see `docs/differences.md`). The tool counts them separately."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from tools.differential.program import Step


class Known(NamedTuple):
    """A documented difference between kcore and Apache Kafka.

    Attributes:
        area: the name of the area whose test programs find the difference.
        call: the call of the test program's last step; None for any call, if the records in the logs differ.
        lines: the pattern that every reported line must match.
        described: a quotation from `docs/differences.md` that describes the difference.
        only_if: returns True if the difference can occur with these arguments of the last step; None for any arguments.
    """

    area: str
    call: str | None
    lines: re.Pattern[str]
    described: str
    only_if: Callable[[dict[str, Any]], bool] | None = None


PARENTS: Final = {"share_logs": "share"}
"""Mapping from an area to the area whose differences it has, too."""
MAX_TIMESTAMP: Final = -3
RELEASE: Final = 2
NOT_FOR_ACLS: Final = frozenset({1, 2})
"""Numbers of the pattern types ANY and MATCH, which only filters may have. In other enumerations, 1 also means ANY."""


def _requests_the_largest(arguments: dict[str, Any]) -> bool:
    return any(row[2] == MAX_TIMESTAMP for row in arguments["rows"])


def _releases(arguments: dict[str, Any]) -> bool:
    return any(RELEASE in types for _, _, types in arguments["ranges"])


def _has_a_filters_value(arguments: dict[str, Any]) -> bool:
    return any(
        row["pattern"] in NOT_FOR_ACLS or 1 in (row["resource"], row["operation"], row["permission"])
        for row in arguments["rows"]
    )


def _has_several_entries(arguments: dict[str, Any]) -> bool:
    return len(arguments["rows"]) > 1


KNOWN: Final = (
    Known(
        "acls",
        "create",
        re.compile(
            r"\.results\[\d+\]\.error_code: Kafka -1, kcore (42|0)|\.results\[\d+\]\.error_message: Kafka null, .*"
        ),
        "A CreateAcls entry with a value that only filters may have",
        _has_a_filters_value,
    ),
    Known(
        "cluster",
        "markers",
        re.compile(r"response: Kafka \"no response\", kcore .*|\.markers: Kafka .*"),
        "Each entry of a WriteTxnMarkers request",
        _has_several_entries,
    ),
    Known(
        "data",
        "fetch",
        # any partition except the first one of the response
        re.compile(
            r"\.responses\[([1-9]\d*\]\.partitions\[\d+|\d+\]\.partitions\[[1-9]\d*)\]\.records: Kafka \[\], kcore \[.*"
        ),
        "only whole batches count towards `max_bytes`",
    ),
    *(
        Known(
            "share",
            call,
            re.compile(
                r"\.error_code: Kafka -1, kcore 0|\.acquisition_lock_timeout_ms: .*"
                r"|\.responses: Kafka \[\], .*code\": 100,.*"
            ),
            "A ShareFetch or ShareAcknowledge that names an unknown topic id",
        )
        for call in ("fetch", "acknowledge")
    ),
    Known(
        "data",
        "list_offsets",
        re.compile(
            r"\.topics\[\d+\]\.partitions\[\d+\]\.(timestamp|offset|leader_epoch): "
            r"Kafka (\d+|\"<moment>\"), kcore (-1|\d+)"
        ),
        "ListOffsets for the largest timestamp returns no offset below the log's start",
        _requests_the_largest,
    ),
    Known(
        "transactions",
        "produce",
        re.compile(r"\..*\.(error_code: Kafka 45, kcore 0|base_offset: Kafka -1, kcore \d+|log_start_offset: .*)"),
        "A transactional batch that the transaction coordinator refuses changes no state",
    ),
    *(
        Known(
            "share",
            call,
            re.compile(
                r"\.error_code: Kafka -1, kcore 0|\.acquisition_lock_timeout_ms: .*|\.responses: Kafka \[\], .*: 121.*"
            ),
            "An acknowledgement of a range that begins before the start offset",
        )
        for call in ("acknowledge", "fetch")
    ),
    Known(
        "share",
        "fetch",
        re.compile(r"\.responses\[0\]\.partitions\[0\]\.(records|acquired_records)\b.*"),
        "A ShareFetch delivers the records that its own acknowledgements release",
        _releases,
    ),
    Known(
        "share_logs",
        "fetch",
        re.compile(
            r"\.responses\[0\]\.partitions\[0\]\.records: Kafka \[\{.*"
            r"|\.responses\[0\]\.partitions\[0\]\.acquired_records: Kafka \[\{[^{}]*\}\], kcore \[\{.*"
        ),
        "If the locks of several ranges of records end at the same time",
    ),
    Known(
        "share",
        None,
        re.compile(
            r"\.records\..*-g\[\d+\]\.value\.topic_partitions\[\d+\]: "
            r"only Kafka \{\"topic_id\": \"[^\"]*\", \"partitions\": \[\]\}"
        ),
        "The target of a share group's member names only topics of which it gets partitions",
    ),
    *(
        Known(
            area,
            "waiting_request",
            re.compile(
                r"\.error_code: Kafka -1, kcore 0|\.acquisition_lock_timeout_ms: .*"
                r"|\.responses: Kafka \[\], .*code\": 100,.*"
            ),
            "A ShareFetch or ShareAcknowledge that names an unknown topic id",
            lambda arguments: arguments["api"] == "SHARE_FETCH",
        )
        for area in ("shapes", "rights")
    ),
    *(
        Known(
            area,
            "request",
            re.compile(
                r"\.error_code: Kafka -1, kcore 0|\.acquisition_lock_timeout_ms: .*"
                r"|\.responses: Kafka \[\], .*code\": 100,.*"
            ),
            "A ShareFetch or ShareAcknowledge that names an unknown topic id",
            lambda arguments: arguments["api"] == "SHARE_ACKNOWLEDGE",
        )
        for area in ("shapes", "rights")
    ),
    *(
        Known(
            "settings",
            call,
            re.compile(
                r"\.(responses|topics)\[0\]\.(error_code: Kafka (0|40), kcore 4[02]|error_message: Kafka null, .*)"
                r"|\.topics\[0\]\.(topic_id|num_partitions|replication_factor|configs): .*"
            ),
            "The value NaN of a setting",
            lambda arguments: "'NaN'" in repr(arguments),
        )
        for call in ("change", "replace", "create_topic")
    ),
    Known(
        "rights",
        "request",
        re.compile(r"\.responses\[\d+\]\.topic_id: Kafka \".*\", kcore \"b'(\\\\x00){16}'\""),
        "If a client may not read a topic",
        lambda arguments: arguments["api"] == "ALTER_SHARE_GROUP_OFFSETS",
    ),
    Known(
        "group_admin",
        "share_alter",
        re.compile(r"\.responses\[\d+\]\.topic_id: Kafka \".*\", kcore \"b'(\\\\x00){16}'\""),
        "If a client may not read a topic",
    ),
    Known(
        "streams",
        "beat",
        re.compile(
            r"\.error_code: Kafka -1, kcore 0|\.status: Kafka \[\], kcore .*\"status_code\": 1,.*"
            r"|\.(member_id|member_epoch|heartbeat_interval_ms|endpoint_information_epoch): Kafka (\"\"|0), .*"
            r"|\.\w+_tasks: Kafka null, .*"
            r"|\.partitions_by_user_endpoint: Kafka null, kcore \[.*"
        ),
        "If a source topic does not exist, a member of a streams group with an endpoint",
    ),
    Known(
        "streams",
        "beat",
        re.compile(r"\.endpoint_information_epoch: Kafka 1, kcore 0"),
        "The first response of a streams group has endpoint epoch 0",
    ),
    Known(
        "streams",
        "describe",
        re.compile(r"\.groups\[0\]\..*\.state_changelog_topics\[0\]\.partitions: Kafka 0, kcore [1-9]\d*"),
        "StreamsGroupDescribe has the numbers of partitions",
    ),
    *(
        Known(
            area,
            call,
            re.compile(
                r"\..*\.error_code: Kafka (120, kcore 48|48, kcore 120)|"
                r"\..*\.error_message: Kafka (null, kcore \"<text>\"|\"<text>\", kcore null)"
            ),
            "A client whose request version lacks TRANSACTION_ABORTABLE",
        )
        for area, call in (("transactions", "produce"), ("transactions", "commit"), ("exactly_once", "txn_commit"))
    ),
    *(
        Known(
            area,
            None,
            re.compile(r"\.records\..*\[\d+\]: only Kafka \{\"type\": \"OffsetCommitKey\", .*\"value\": null\}"),
            "Kafka writes one for",
        )
        for area in ("exactly_once", "expiry")
    ),
    Known(
        "groups",
        "beat",
        re.compile(
            r"\.error_code: Kafka -1, kcore (0|69)|\.error_message: Kafka null, kcore .*"
            r"|\.(member_id|member_epoch|heartbeat_interval_ms|assignment): Kafka (null|0), kcore .*"
        ),
        "while its members join again with other protocols",
    ),
    Known(
        "groups",
        "delete_offsets",
        re.compile(r"\.error_code: Kafka 69, kcore 0|\.topics: Kafka \[\], kcore .*"),
        "After all consumers (KIP-848) of a group have left",
    ),
    *(
        Known(
            area,
            call,
            re.compile(r"\.member_epoch: Kafka 2, kcore ([3-9]|\d\d+)"),
            "After all consumers (KIP-848) of a group have left",
            lambda arguments: arguments.get("epoch", "join") == "join",
        )
        for area, call in (("groups", "beat"), ("members", "tick"), ("timeouts", "tick"))
    ),
    *(
        Known(
            area,
            "leave",
            re.compile(r"\.error_code: Kafka 69, kcore 25"),
            "After all consumers (KIP-848) of a group have left",
            lambda arguments: arguments["kind"] == "consumer",
        )
        for area in ("members", "timeouts")
    ),
    Known(
        "groups",
        "list",
        re.compile(r"\.groups\[\d+\]\.protocol_type: Kafka \"\", kcore \"consumer\""),
        "After all consumers (KIP-848) of a group have left",
    ),
    Known(
        "groups",
        None,
        re.compile(
            r"\.records\..*\[\d+\]: only kcore \{\"type\": "
            r"\"ConsumerGroup(TargetAssignmentMetadata|PartitionMetadata|Metadata)Key\", .*\"value\": null\}"
        ),
        "After all consumers (KIP-848) of a group have left",
    ),
    Known(
        "groups",
        None,
        re.compile(r"\.records\..*\.value\.leader: .*"),
        "the classic member that joined first",
    ),
    *(
        Known(
            area,
            None,
            re.compile(r"\.(leader|member_id|members): .*|\.records\..*\.value\.leader: .*"),
            "the classic member that joined first",
        )
        for area in ("members", "timeouts")
    ),
    Known(
        "groups",
        "beat",
        re.compile(r"Kafka responds to these clients: .*'error_code': 27.*|kcore responds to these clients: \{\}"),
        "the members of the classic group continue to wait",
    ),
    Known(
        "groups",
        "join",
        re.compile(r"\.generation_id: Kafka 0, kcore [1-9]\d*"),
        "gets the generation of the classic group",
    ),
    Known(
        "groups",
        "commit",
        re.compile(r"\.topics\[\d+\]\.partitions\[\d+\]\.error_code: Kafka 12, kcore (22|113)"),
        "is refused because of the epoch",
    ),
)


def described(area: str, last: Step, what: str) -> str | None:
    """Returns the description of a difference in `docs/differences.md`, or None if the difference is not documented.

    Args:
        area: the name of the area that drew the test program.
        last: the test program's last step.
        what: the lines that report the difference.
    """
    inner, _, call = last.call.rpartition(".")
    areas = (area, PARENTS.get(area), inner)
    for known in KNOWN:
        if known.area not in areas or known.call not in (None, call):
            continue
        if not _all_match(known.lines, what.splitlines()):
            continue
        if known.only_if is None or known.only_if(last.arguments):
            return known.described
    return None


def _all_match(pattern: re.Pattern[str], lines: Sequence[str]) -> bool:
    return bool(lines) and all(pattern.fullmatch(line.strip()) for line in lines)
