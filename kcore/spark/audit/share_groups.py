"""Share groups across logs (KIP-932): compares the share partitions that groups list with the existing states.

A group lists a share partition before the share coordinator creates the partition's state. The partition stays listed
until the state is deleted. If no group lists a state, the state will therefore never be deleted. The group does not
assign a partition to members while the partition is on the initializing list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from kcore.protocol.records.share_group_state_partition_metadata import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from kcore.spark.audit.check import Check, Handler, Log
from kcore.spark.audit.finding import AuditObservation, Evidence, Finding, finding
from kcore_ext.util.java_hash import partition_for

if TYPE_CHECKING:
    from kcore.spark.audit.logs import Logs
    from kcore.spark.events.event import EventRow

INITIALIZATION_MS: Final = 60_000
"""Time in ms after which an unfinished initialization is a finding: twice the interval at which heartbeats repeat it.
"""
SAMPLE: Final = 20
"""Maximum number of group ids in the `AuditObservation` that describes a log.

The audit hashes the ids to verify the partition count of the topic.
"""
LISTS: Final = ("initializing", "initialized", "deleting")


def group_number(group_id: str) -> int:
    """Returns the number by which observations of a share group are sorted. It is below -1, unlike any producer id."""
    return -2 - crc32(group_id.encode("utf-8", "surrogatepass"))


class ShareLists(Check):
    """The collector of the lists of share partitions in the metadata records of share groups."""

    __slots__ = ("_lists",)

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._lists: dict[str, tuple[ShareGroupStatePartitionMetadataValue, Evidence]] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {ShareGroupStatePartitionMetadataKey: self._listed}

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._lists.clear()

    @property
    def sample(self) -> Iterable[str]:
        """Implements `Check.sample`."""
        return list(self._lists)[:SAMPLE]

    def _listed(self, row: EventRow, key: Any, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        if value is None:
            self._lists.pop(key.group_id, None)
        else:
            self._lists[key.group_id] = (value, self.log.evidence_of(row))

    def end(self) -> None:
        """Emits an `AuditObservation` for every listed topic, to compare with the states of share partitions."""
        for group_id, (value, evidence) in self._lists.items():
            for name in LISTS:
                for topic in getattr(value, f"{name}_topics"):
                    self.log.emit(
                        AuditObservation(
                            "share-topic",
                            group_number(group_id),
                            topic.topic_id.hex(),
                            min(getattr(topic, "partitions", ()), default=-1),
                            evidence.timestamp_ms,
                            -1,
                            evidence.topic,
                            evidence.partition,
                            evidence.offset,
                            group_id=group_id,
                            state=name,
                        )
                    )


def compare_share(observations: Iterable[AuditObservation], logs: Logs) -> Iterator[Finding]:
    """Yields the findings about share groups with one number (see `group_number`)."""
    states: list[AuditObservation] = []
    listed: set[tuple[str | None, str | None]] = set()
    for observation in observations:
        if observation.kind == "share-state":
            states.append(observation)
            continue
        listed.add((observation.group_id, observation.target_topic))
        age_ms = logs.now_ms - observation.timestamp_ms
        if observation.state == "initializing" and age_ms > INITIALIZATION_MS + logs.grace_ms:
            yield finding(
                "share-initialization-not-completed",
                [observation.evidence],
                f"Share partitions of {observation.target_topic} in group {observation.group_id} are initializing "
                f"for {age_ms} ms.",
                group_id=observation.group_id,
                about=(observation.target_topic or "", observation.target_partition),
            )
    for state in states:
        if (state.group_id, state.target_topic) not in listed and _would_be_listed(state, logs):
            yield finding(
                "share-state-without-group",
                [state.evidence],
                f"{state.target_topic}-{state.target_partition} has a state in share group {state.group_id}, which "
                "does not list it.",
                group_id=state.group_id,
                about=(state.target_topic or "", state.target_partition),
            )


def _would_be_listed(state: AuditObservation, logs: Logs) -> bool:
    """Returns True if a correct log would show that the group of a state lists this state.

    Returns False if the log of the group's partition is incomplete, or may end before the group lists the state.
    """
    if not logs.group_partitions:
        return False
    span = logs.spans.get(("__consumer_offsets", partition_for(state.group_id or "", logs.group_partitions)))
    is_late = logs.now_ms - state.timestamp_ms > logs.grace_ms
    return is_late or (span is not None and span.newest_ms > state.timestamp_ms)
