"""The settings of a share group that fetches and acknowledgements use, and the start offset of a new group."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kcore.broker.data.list_offsets import find_offset_in_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from kcore.broker.data.partition import Partition

_DURATION: Final = re.compile(
    r"\+?P(?:\+?(?P<days>\d+)D)?(?:T(?:\+?(?P<hours>\d+)H)?(?:\+?(?P<minutes>\d+)M)?"
    r"(?:\+?(?P<seconds>\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE,
)
_DAY_MS: Final = 86_400_000
BY_DURATION: Final = "by_duration"
"""The reset policy that begins with the first record that is not older than a duration (KIP-932)."""


class GroupSettings(Protocol):
    """The effective settings of groups: the group's own setting, else the broker's."""

    def get(self, group_id: str, key: str) -> Any:
        """Returns the value of a setting such as `share.record.lock.duration.ms`."""
        ...


class ShareSettings(NamedTuple):
    """The settings of one share group that fetches and acknowledgements use.

    Attributes:
        lock_ms: the time in ms after which an acquired record that was not acknowledged can be acquired again.
        max_deliveries: the number of deliveries after which a released record is not delivered again, but archived.
        max_locks: the maximum number of offsets whose delivery state a share partition tracks.
        allow_renew: True if members may renew the locks of their acquired records (KIP-1222).
        read_committed: True if records of open and aborted transactions are not delivered.
        reset: the policy by which a share partition without a start offset gets one: `latest`, `earliest`, or
            `by_duration:` with an ISO 8601 duration. For example, `by_duration:PT1H` delivers the records of the last
            hour.
    """

    lock_ms: int
    max_deliveries: int
    max_locks: int
    allow_renew: bool
    read_committed: bool
    reset: str


def read_settings(settings: GroupSettings, group_id: str) -> ShareSettings:
    """Reads the effective settings of a share group."""
    return ShareSettings(
        settings.get(group_id, "share.record.lock.duration.ms"),
        settings.get(group_id, "share.delivery.count.limit"),
        settings.get(group_id, "share.partition.max.record.locks"),
        settings.get(group_id, "share.renew.acknowledge.enable"),
        settings.get(group_id, "share.isolation.level") == "read_committed",
        settings.get(group_id, "share.auto.offset.reset"),
    )


def searches_by_time(reset: str) -> bool:
    """Returns True if a reset policy needs a search in the log. Such a search can take long."""
    return reset.startswith(BY_DURATION)


def initial_offset(partition: Partition, reset: str, wall_ms: int) -> Generator[int, None, int | None]:
    """Finds the first start offset of a share partition, by the reset policy.

    Args:
        partition: the partition that the share group reads.
        reset: the policy; see `ShareSettings.reset`.
        wall_ms: the current time.

    Yields:
        The cost of each step of a search by time, in microseconds.

    Returns:
        The offset; None if the policy allows no record, because all records are too old.
    """
    policy, _, duration = reset.partition(":")
    if policy == "earliest":
        return partition.log_start_offset
    if policy == BY_DURATION:
        yield from partition.log.index_steps()
        timestamp_ms = max(wall_ms - _duration_ms(duration), 0)
        found = yield from find_offset_in_steps(partition, timestamp_ms, partition.high_watermark)
        return None if found.offset < 0 else found.offset
    return partition.high_watermark


def _duration_ms(text: str) -> int:
    """Returns the length of an ISO 8601 duration of days, hours, minutes and seconds."""
    match = _DURATION.fullmatch(text)
    assert match is not None, "the setting was checked when it was set"
    days, hours, minutes, seconds = (int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    fraction_ms = int((match["fraction"] or "").ljust(3, "0")[:3] or 0)
    return days * _DAY_MS + hours * 3_600_000 + minutes * 60_000 + seconds * 1_000 + fraction_ms
