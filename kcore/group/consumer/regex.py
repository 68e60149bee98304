"""Patterns that members subscribe to: compiled by RE2, resolved beside other work, for all of a group at once.

RE2 matches in time linear in the text, so that no pattern of a client can keep a node busy. What a pattern matched is a
record; members read what the record says, not what would match now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kcore.errors import KafkaError
from kcore.group.consumer import records as group_records
from kcore.patterns import PatternError, compile_pattern
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record

logger = logging.getLogger(__name__)

MAX_SHOWN: Final = 100  # characters of a pattern in an error
MIN_INTERVAL_MS: Final = 10_000
"""The least time between two resolutions of a group's patterns."""

SLICE_NAMES: Final = 1_000
"""How many names are matched between two rounds of requests, if they are short and the pattern is small."""

SLICE_STEPS: Final = 2_000_000
"""The same in steps of the slowest way to match: characters times instructions of the program."""


def _compiled(regex: str) -> Any:
    """Compiles a pattern.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        return compile_pattern(regex)
    except PatternError as error:
        message = f"{regex[:MAX_SHOWN]!r} is not a regular expression that kcore accepts: {error}"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from error


def check_regex(regex: str) -> None:
    """Refuses a pattern that does not compile.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    _compiled(regex)


def schedule_resolution(
    group: ConsumerGroup, new_regex: str, dropped_regex: str, visible: Callable[[str], bool] | None
) -> None:
    """Has the group's patterns looked up, if that is due.

    Args:
        group: the group, as it is before the decision.
        new_regex: a pattern that the present decision brings; "" for none.
        dropped_regex: one that nobody has any more after it; "" for none.
        visible: which topics whoever asks may see; None: all.
    """
    subscriptions = group.subscriptions
    required = bool(new_regex) and new_regex not in subscriptions.regexes
    if not required and not subscriptions.regexes:
        return
    shard = group.shard
    if not resolution_is_due(group, new_regex, dropped_regex, required):
        return
    shard.regex_jobs.add(group.group_id)
    shard.context.in_slices(_resolution(shard, group.group_id, visible))


def resolution_is_due(
    group: ConsumerGroup, new_regex: str = "", dropped_regex: str = "", required: bool = False
) -> bool:
    """Whether a heartbeat has the group's patterns looked up; see `schedule_resolution`."""
    if group.group_id in group.shard.regex_jobs:
        return False
    subscriptions = group.subscriptions
    now_ms = group.shard.now.wall_ms
    resolved = subscriptions.resolved
    some = next(iter(resolved.values()), None)  # all are looked up together
    if some is not None and now_ms <= some.timestamp_ms + MIN_INTERVAL_MS:
        return False
    wanted = len(subscriptions.regexes) + (new_regex not in subscriptions.regexes and bool(new_regex))
    wanted -= bool(dropped_regex)
    if not wanted:
        return False
    if required or wanted != len(resolved):  # a pattern that goes is still resolved: the others are looked up anew
        return True
    assert some is not None, "as many resolved patterns as are wanted, and some are"
    services = group.shard.consumer
    if some.version < services.metadata.created_version:
        return True
    return now_ms > some.timestamp_ms + services.config.group_consumer_regex_refresh_interval_ms


def _resolution(shard: GroupShard, group_id: str, visible: Callable[[str], bool] | None) -> Iterator[Outcome | None]:
    """Looks up all patterns of a group, some names a slice; then decides what follows."""
    try:
        group = _consumer_group(shard, group_id)
        if group is None:
            return
        metadata = shard.consumer.metadata
        version, started_ms = metadata.version(), shard.now.wall_ms
        names = [topic.name for topic in metadata.topics.all()]
        matches: dict[str, list[str]] = {regex: [] for regex in group.subscriptions.regexes}
        for regex in matches:
            for some in _matching(regex, names):
                matches[regex] += some if visible is None else filter(visible, some)
                yield None
        yield _resolved(shard, group_id, matches, version, started_ms)
    finally:
        shard.regex_jobs.discard(group_id)


def _matching(regex: str, names: list[str]) -> Iterator[list[str]]:
    """The names that a pattern matches, a bounded piece of work at a time.

    A pattern that cannot be served matches nothing. None comes here from clients; a log of another coordinator may
    have one.
    """
    try:
        pattern = _compiled(regex)
    except KafkaError as error:
        logger.error("%s", error.message)
        return
    size = max(pattern.programsize, 1)
    found: list[str] = []
    looked_at = steps = 0
    for name in names:
        if pattern.fullmatch(name) is not None:
            found.append(name)
        looked_at += 1
        steps += len(name) * size
        if steps >= SLICE_STEPS or looked_at >= SLICE_NAMES:
            yield found
            found = []
            looked_at = steps = 0
    yield found


def _consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    from kcore.group.consumer.group import ConsumerGroup  # noqa: PLC0415  (a group's steps come here)

    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _resolved(
    shard: GroupShard, group_id: str, matches: dict[str, list[str]], version: int, started_ms: int
) -> Outcome | None:
    """A record for each pattern that somebody still has; a new group epoch if any matches something else."""
    group = _consumer_group(shard, group_id)
    if group is None:
        return None
    subscriptions = group.subscriptions
    records: list[Record] = []
    topics = set(subscriptions.names)
    bump = False
    for regex in subscriptions.regexes:
        known = subscriptions.resolved.get(regex)
        if regex in matches:
            found = frozenset(matches[regex])
            records.append(group_records.regular_expression(group_id, regex, found, version, started_ms))
            bump = bump or found != (frozenset() if known is None else known.topics)
            topics |= found
        elif known is not None:
            topics |= known.topics
    if not records:
        return None
    metadata_hash = shard.consumer.metadata.hash_of(topics)
    if bump or metadata_hash != group.metadata_hash:
        records.append(group_records.group_epoch(group_id, group.group_epoch + 1, metadata_hash))
        group.topics_seen(group.group_epoch + 1)
    return Outcome(records)
