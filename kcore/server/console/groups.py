"""The console's documents about groups: a list, and the members, offsets and lag of one group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kcore.group.classic.group import ClassicGroup
from kcore.group.group import GroupType
from kcore.protocol.consumer_protocol import ConsumerProtocolAssignment
from kcore.runtime import ShardState
from kcore.server.console.paging import (
    PAGE_ROWS,
    SLICE_OFFSETS,
    Query,
    Steps,
    batches,
    contains,
    find,
    name_fields,
    page_of,
    shown,
)

if TYPE_CHECKING:
    from kcore.engine import Engine
    from kcore.group.shard import GroupShard
    from kcore.server.observe import Observer

MAX_LISTED_OFFSETS: Final = 2_000
"""Maximum number of offsets of a group for which the list of groups shows the lag. The group's page has no limit."""

MAX_ASSIGNMENT_BYTES: Final = 65_536
"""Maximum size of a classic member's assignment that the console decodes. The group's leader, a client, wrote it."""

MAX_TOPICS: Final = 20
MAX_NUMBERS: Final = 50
"""Maximum number of topics of an assignment that the console shows, and of partitions of each of these topics."""


class Position(NamedTuple):
    """The position of a group in one partition.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: the committed offset, or the start of the share partition.
        end: the high watermark; -1 if the partition does not exist.
        pending: True if an open transaction may replace the offset.
    """

    topic: str
    partition: int
    offset: int
    end: int
    pending: bool

    @property
    def lag(self) -> int:
        """Number of offsets after the position; 0 if the partition does not exist."""
        return max(self.end - self.offset, 0)


def list_groups(observer: Observer, query: Query) -> Steps:
    """Lists groups by id, with members and lag. The query may filter them by a text in the id, a type and a state."""
    engine = observer.engine
    kind, state = query.text("type"), query.text("state")
    has_text = contains(query.text("search"))
    loading = [shard for shard in engine.groups if shard.state is not ShardState.ACTIVE]

    def ids() -> Iterator[list[str]]:
        for machine in list(observer.machines()):
            yield from batches(machine.groups)

    def keep(group_id: str) -> bool:
        if not has_text(group_id):
            return False
        group = _group(engine, group_id) if kind or state else None
        return group is None or (
            (not kind or group.group_type.value == kind) and (not state or group.state_name() == state)
        )

    page, chosen = yield from find(ids(), keep, query.page())
    rows = []
    for group_id in chosen:
        group = _group(engine, group_id)
        if group is None:
            continue
        lag = yield from _listed_lag(engine, group_id)
        rows.append(
            {
                **name_fields(group_id),
                "type": group.group_type.value,
                "state": group.state_name(),
                "members": len(group.members),
                "lag": lag,
            }
        )
    return {**page.document(rows), "loading": len(loading)}


def show_group(observer: Observer, query: Query) -> Steps:
    """Shows one group, with a page of its members and of its offsets. Returns None if the group does not exist."""
    engine, group_id = observer.engine, query.text("id")
    group = _group(engine, group_id)
    if group is None:
        return None
    lag = total = 0
    number = query.page("offsets")
    first = (number - 1) * PAGE_ROWS
    rows: list[Position] = []
    newest: list[Position] = []  # the last page, in case the requested one is after it
    for position in _positions(engine, group_id):
        if total % PAGE_ROWS == 0:
            newest = []
        newest.append(position)
        if first <= total < first + PAGE_ROWS:
            rows.append(position)
        total += 1
        lag += position.lag
        if total % SLICE_OFFSETS == 0:
            yield
    yield
    group = _group(engine, group_id)
    if group is None:
        return None
    members = page_of(len(group.members), query.page("members"))
    offsets = page_of(total, number)
    return {
        **name_fields(group_id),
        "type": group.group_type.value,
        "state": group.state_name(),
        **_epochs(group),
        "lag": lag,
        "members": members.document((yield from _members(group, members.first))),
        "offsets": offsets.document(
            [
                {**each._asdict(), "topic": shown(each.topic), "lag": each.lag}
                for each in (rows if offsets.number == number else newest)
            ]
        ),
    }


def _group(engine: Engine, group_id: str) -> Any:
    machine = _machine(engine, group_id)
    return None if machine is None else machine.groups.get(group_id)


def _machine(engine: Engine, group_id: str) -> GroupShard | None:
    shard = engine.groups.of(group_id)
    return shard.machine if shard.state is ShardState.ACTIVE else None


def _listed_lag(engine: Engine, group_id: str) -> Steps:
    """Sums the lag of a group. The result is None if the group has too many offsets for the list of groups."""
    lag = count = 0
    for position in _positions(engine, group_id):
        lag += position.lag
        count += 1
        if count > MAX_LISTED_OFFSETS:
            yield
            return None
    if count > MAX_LISTED_OFFSETS // 10:
        yield
    return lag


def _positions(engine: Engine, group_id: str) -> Iterator[Position]:
    """Yields the positions of a group by topic and partition. The group may change between two positions."""
    machine = _machine(engine, group_id)
    if machine is None:
        return
    for key, share in sorted(engine.share_partitions.by_group.get(group_id, {}).items(), key=_partition_of):
        partition = share.partition
        yield Position(partition.topic, key.partition, share.start_offset, partition.high_watermark, False)
    offsets = machine.offsets
    topics = offsets.topics(group_id)
    for topic in sorted(topics):
        for index in sorted(topics.get(topic, ())):
            committed = offsets.get(group_id, topic, index)
            if committed is None:
                continue
            end = engine.partitions.high_watermark(topic, index)
            pending = offsets.has_pending(group_id, topic, index)
            yield Position(topic, index, committed.committed_offset, -1 if end is None else end, pending)


def _partition_of(item: tuple[Any, Any]) -> tuple[str, int]:
    return item[1].partition.topic, item[1].partition.index


def _epochs(group: Any) -> dict[str, Any]:
    """Returns the epoch and the protocol or assignor of a group of any type."""
    if isinstance(group, ClassicGroup):
        return {"epoch": group.generation_id, "protocol": shown(group.protocol_name)}
    return {"epoch": group.group_epoch, "protocol": ""}


def _members(group: Any, first: int) -> Steps:
    """Returns the documents of the members on the page that begins at the index `first`."""
    rows = []
    looked_at = 0
    for member in list(islice(group.members.values(), first, first + PAGE_ROWS)):
        row = _member(group, member)
        rows.append(row)
        looked_at += row["partitions"]
        if looked_at > SLICE_OFFSETS:
            looked_at = 0
            yield
    return rows


def _member(group: Any, member: Any) -> dict[str, Any]:
    """Returns the document of a member, for a group of any type."""
    if isinstance(group, ClassicGroup):
        assigned, epoch, metadata = _classic_assignment(group, member), group.generation_id, member
        instance_id = member.group_instance_id
    else:
        assigned, epoch, metadata = _assignment(group, member), member.current.member_epoch, member.metadata
        instance_id = None if group.group_type is GroupType.SHARE else metadata.instance_id
    return {
        "id": shown(member.member_id),
        "instance_id": shown(instance_id),
        "client_id": shown(metadata.client_id),
        "client_host": shown(metadata.client_host),
        "epoch": epoch,
        **assigned,
    }


def _assignment(group: Any, member: Any) -> dict[str, Any]:
    """Returns the partitions of a member of a consumer or share group, or the active tasks of a streams member."""
    assigned = member.current.assigned
    if group.group_type is GroupType.STREAMS:
        return _assigned(assigned.active)
    topics = group.shard.topics
    known = ((topics.by_id(topic_id), numbers) for topic_id, numbers in assigned.items())
    return _assigned({topic.name: numbers for topic, numbers in known if topic is not None})


def _classic_assignment(group: ClassicGroup, member: Any) -> dict[str, Any]:
    """Returns the partitions of a classic member; empty if the group does not use the consumer protocol."""
    data = member.assignment
    if group.protocol_type != "consumer" or not data or len(data) > MAX_ASSIGNMENT_BYTES:
        return _assigned({})
    try:
        assignment, _ = ConsumerProtocolAssignment.decode_versioned(data)
    except ValueError:
        return _assigned({})
    return _assigned({each.topic: each.partitions for each in assignment.assigned_partitions})


def _assigned(topics: Mapping[str, Iterable[int]]) -> dict[str, Any]:
    sizes = {name: list(numbers) for name, numbers in topics.items()}
    return {
        "partitions": sum(map(len, sizes.values())),
        "assigned": [
            {"topic": shown(name), "count": len(sizes[name]), "numbers": nsmallest(MAX_NUMBERS, sizes[name])}
            for name in islice(sorted(sizes), MAX_TOPICS)
        ],
    }
