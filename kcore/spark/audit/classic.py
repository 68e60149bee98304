"""Checks of classic groups: their generations, and the assignments that group leaders compute (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.protocol import DecodeError
from kcore.protocol.consumer_protocol import PROTOCOL_TYPE, Assignment
from kcore.protocol.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from kcore.spark.audit.check import Check, Handler, Last, Log
from kcore.spark.events.event import EventRow


class Generations(Check):
    """The check that a generation only grows while its group exists.

    Skipped generations are legal, because a failed rebalance writes no record of its generation.
    """

    __slots__ = ("_last",)

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._last: dict[str, Last] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {GroupMetadataKey: self._see}

    def forget(self) -> None:
        """Implements `Check.forget`."""
        self._last.clear()

    def _see(self, row: EventRow, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is None:
            self._last.pop(key.group, None)
            return
        current = self.log.evidence_of(row)
        before = self._last.get(key.group)
        if before is not None and value.generation < before.value:
            self.log.report(
                "generation-decreased",
                [before.evidence, current],
                f"The generation of group {key.group} fell from {before.value} to {value.generation}.",
                group_id=key.group,
            )
        self._last[key.group] = Last(value.generation, current)


class ClassicOwners(Check):
    """The check that a partition has one owner within a generation.

    It covers only groups with the protocol type `consumer`. The format of the assignments of other protocol types is
    not known.
    """

    __slots__ = ()

    def handlers(self) -> Mapping[type, Handler]:
        """Implements `Check.handlers`."""
        return {GroupMetadataKey: self._see}

    def _see(self, row: EventRow, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        if value is None or value.protocol_type != PROTOCOL_TYPE:
            return
        owners: dict[tuple[str, int], str] = {}
        shared: dict[tuple[str, str, str], list[int]] = {}
        for member in value.members:
            for topic, partition in _assigned(member.assignment):
                other = owners.setdefault((topic, partition), member.member_id)
                if other != member.member_id:
                    shared.setdefault((other, member.member_id, topic), []).append(partition)
        for (other, member_id, topic), partitions in shared.items():
            self.log.report(
                "two-owners",
                [self.log.evidence_of(row)],
                f"In generation {value.generation} of group {key.group} {other} and {member_id} both own "
                f"{named(topic, partitions)}.",
                group_id=key.group,
                member_id=member_id,
                about=(topic, min(partitions)),
            )


def named(topic: str, partitions: list[int]) -> str:
    """Names partitions of a topic in a text: `t-3` for one partition, `t-3 and 4 more` for several partitions."""
    first = f"{topic}-{min(partitions)}"
    return first if len(partitions) == 1 else f"{first} and {len(partitions) - 1} more"


def _assigned(assignment: Any) -> set[tuple[str, int]]:
    """Returns the partitions of an assignment.

    The result is empty if the bytes cannot be decoded. Brokers accept any bytes as an assignment.
    """
    if not assignment:
        return set()
    try:
        decoded = Assignment.decode_versioned(assignment)[0]
    except DecodeError:
        return set()
    return {(entry.topic, partition) for entry in decoded.assigned_partitions for partition in entry.partitions}
