"""Patterns to which members subscribe: RE2 compiles them, and a job resolves all patterns of a group in slices.

RE2 matches in time linear in the text, so that a client's pattern cannot block a node. The matches of a pattern are
stored in a record. Members get the topics in the record, even if the pattern would now match other topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.errors import KafkaError
from kcore.group.consumer import records as group_records
from kcore.group.consumer.subscriptions import NO_NAMES
from kcore.patterns import MAX_MATCH_STEPS, PatternError, compile_pattern
from kcore.process_logging import limited_logger
from kcore.protocol.error_codes import ErrorCode
from kcore.runtime.machine import Outcome

if TYPE_CHECKING:
    from kcore.group.consumer.group import ConsumerGroup
    from kcore.group.shard import GroupShard
    from kcore.runtime.machine import Record

logger = limited_logger(__name__)

MAX_SHOWN: Final = 100  # characters of a pattern in an error message
MIN_INTERVAL_MS: Final = 10_000
"""Minimum time between two resolutions of a group's patterns."""

SLICE_NAMES: Final = 1_000
"""Maximum number of names that one slice matches. With long names or a large pattern, a slice matches fewer names."""


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
    """Schedules the resolution of the group's patterns, if it is due.

    Args:
        group: the group before the decision.
        new_regex: a pattern that the decision adds; "" for none.
        dropped_regex: a pattern that has no subscriber after the decision; "" for none.
        visible: returns True for a topic that the client may see; patterns match only these topics. None: all topics.
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
    """Returns True if a heartbeat must schedule a resolution of the group's patterns."""
    if group.group_id in group.shard.regex_jobs:
        return False
    subscriptions = group.subscriptions
    now_ms = group.shard.now.wall_ms
    resolved = subscriptions.resolved
    sample = next(iter(resolved.values()), None)  # all patterns are resolved together
    if sample is not None and now_ms <= sample.timestamp_ms + MIN_INTERVAL_MS:
        return False
    subscribed = len(subscriptions.regexes) + (new_regex not in subscriptions.regexes and bool(new_regex))
    subscribed -= bool(dropped_regex)
    if not subscribed:
        return False
    if required or subscribed != len(resolved):  # a dropped pattern is still in `resolved`
        return True
    assert sample is not None, "there are as many resolved patterns as subscribed ones, at least one"
    services = group.shard.consumer
    # As in Kafka: a coordinator does not know which topics were created before it loaded the group.
    if sample.version < max(services.metadata.created_version, group.shard.loaded_version):
        return True
    return now_ms > sample.timestamp_ms + services.config.group_consumer_regex_refresh_interval_ms


def _resolution(shard: GroupShard, group_id: str, visible: Callable[[str], bool] | None) -> Iterator[Outcome | None]:
    """Resolves all patterns of a group in slices. The last slice returns the records of the matches."""
    try:
        group = _consumer_group(shard, group_id)
        if group is None:
            return
        metadata = shard.consumer.metadata
        version, started_ms = metadata.version(), shard.now.wall_ms
        names = [topic.name for topic in metadata.topics.all()]
        matches: dict[str, list[str]] = {regex: [] for regex in group.subscriptions.regexes}
        for regex in matches:
            for batch in _matching(regex, names, group_id):
                allowed = batch if visible is None else [*filter(visible, batch)]
                metadata.hash_of(allowed)  # the decision then finds the hash of each topic in the cache
                matches[regex] += allowed
                yield None
        for matched in matches.values():
            shard.consumer.matches(frozenset(matched))  # sorts the names, if they are many
            yield None
        hashed = _hashed(shard, group_id, matches)
        yield None
        yield _resolved(shard, group_id, matches, version, started_ms, hashed)
    finally:
        shard.regex_jobs.discard(group_id)


def _matching(regex: str, names: list[str], group_id: str = "") -> Iterator[list[str]]:
    """Yields the names that a pattern matches, in bounded slices.

    A pattern that does not compile matches nothing. Requests with such a pattern are refused, but a log of another
    coordinator may contain one.
    """
    try:
        pattern = _compiled(regex)
    except KafkaError as error:
        logger.error(
            "group %s: the stored subscription pattern %r is not valid: %s; its subscribers get no topics; correct the "
            "pattern in the clients' subscriptions",
            group_id,
            regex,
            error.message,
        )
        return
    size = max(pattern.programsize, 1)
    matched: list[str] = []
    tested = steps = 0
    for name in names:
        if pattern.fullmatch(name) is not None:
            matched.append(name)
        tested += 1
        steps += len(name) * size
        if steps >= MAX_MATCH_STEPS or tested >= SLICE_NAMES:
            yield matched
            matched = []
            tested = steps = 0
    yield matched


def _consumer_group(shard: GroupShard, group_id: str) -> ConsumerGroup | None:
    from kcore.group.consumer.group import ConsumerGroup  # noqa: PLC0415  (circular: the group imports this module)

    group = shard.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


class _Hashed(NamedTuple):
    """The hash of a group's topics, which a slice computes before the decision that needs the hash.

    Attributes:
        topics: the names of the group's topics.
        changes: the value of `TopicMetadata.changes` when the hash was computed. The hash is valid until
            `TopicMetadata.changes` grows.
        metadata_hash: the hash of `topics`.
    """

    topics: frozenset[str]
    changes: int
    metadata_hash: int


def _hashed(shard: GroupShard, group_id: str, matches: dict[str, list[str]]) -> _Hashed | None:
    """Returns the hash of the group's topics, computed from the new matches and the current subscriptions."""
    group = _consumer_group(shard, group_id)
    if group is None:
        return None
    topics = _topics_with(group, {regex: _matched(shard, names) for regex, names in matches.items()})
    metadata = shard.consumer.metadata
    return _Hashed(topics, metadata.changes, metadata.hash_of(topics))


def _matched(shard: GroupShard, names: list[str]) -> frozenset[str]:
    return shard.consumer.matches(frozenset(names))


def _topics_with(group: ConsumerGroup, matches: dict[str, frozenset[str]]) -> frozenset[str]:
    """Returns the topics of a group with the new matches of its patterns."""
    subscriptions = group.subscriptions
    topics = frozenset(subscriptions.names)
    for regex in subscriptions.regexes:
        previous = subscriptions.resolved.get(regex)
        matched = matches.get(regex, NO_NAMES if previous is None else previous.topics)
        topics = topics | matched if topics else matched
    return topics


def _resolved(
    shard: GroupShard,
    group_id: str,
    matches: dict[str, list[str]],
    version: int,
    started_ms: int,
    hashed: _Hashed | None,
) -> Outcome | None:
    """Returns a record for each pattern that still has subscribers, and a new group epoch if any match changed."""
    group = _consumer_group(shard, group_id)
    if group is None:
        return None
    subscriptions = group.subscriptions
    records: list[Record] = []
    consumer = shard.consumer
    topics_by_regex = {
        regex: _matched(shard, names) for regex, names in matches.items() if regex in subscriptions.regexes
    }
    bump = False
    for regex in subscriptions.regexes:
        previous = subscriptions.resolved.get(regex)
        if regex in topics_by_regex:
            matched = topics_by_regex[regex]
            names = consumer.in_order(matched)
            records.append(group_records.regular_expression(group_id, regex, names, version, started_ms))
            bump = bump or matched != (NO_NAMES if previous is None else previous.topics)
    if not records:
        return None
    topics = _topics_with(group, topics_by_regex)
    if hashed is not None and hashed.changes == consumer.metadata.changes and hashed.topics == topics:
        metadata_hash = hashed.metadata_hash
    else:  # the metadata or the subscriptions have changed since
        metadata_hash = consumer.metadata.hash_of(topics)
    if bump or metadata_hash != group.metadata_hash:
        records.append(group_records.group_epoch(group_id, group.group_epoch + 1, metadata_hash))
        group.topics_seen(group.group_epoch + 1)
    return Outcome(records)
