"""Random requests of share groups (KIP-932), for the comparison with Apache Kafka.

They cover membership, reading and acknowledging records, and start offsets."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, Final

from kcore.protocol.messages import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
    incremental_alter_configs,
    list_groups,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
)
from tools.differential.program import Call, Step, await_condition, learned_epoch
from tools.differential.side import CLIENT_IDS, Side
from tools.differential.topics import APPEND, CREATE

GROUP_RESOURCE: Final = 32
WAIT_MS: Final = 500
"""Maximum time in ms for which a ShareFetch waits for records."""
OPEN_WAIT_MS: Final = 2_000
"""Maximum time in ms for which the first ShareFetch of a session waits. Kafka may have to read the partition's state
for it.
"""
PUBLISHED_S: Final = 0.5
RELEASED_S: Final = 0.1
RELEASE, RENEW, UNKNOWN_TYPE = 2, 4, 9


def _configure(side: Side, group: str, settings: dict[str, str]) -> tuple[Any, int]:
    configs = [incremental_alter_configs.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    row = incremental_alter_configs.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=configs
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[row]), 1


def _await_published(side: Side, **_: Any) -> None:
    """Waits until the group coordinator uses changed settings of a group.

    Other responses of the server contain the changed settings earlier.
    """
    time.sleep(PUBLISHED_S)


def _beat(side: Side, group: str, member: str, epoch: str, names: list[str] | None) -> tuple[Any, int]:
    """Builds a ShareGroupHeartbeat request and its version.

    `epoch` is `join`, `leave`, or a number that is added to the member's last epoch.
    """
    member_id, known = side.members.get(f"{group}/{member}", (member, 0))
    number = {"join": 0, "leave": -1}.get(epoch)
    return share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=known + int(epoch) if number is None else number,
        subscribed_topic_names=names,
    ), 1


def _learn_beat(side: Side, response: Any, group: str, member: str, names: list[str] | None, **_: Any) -> None:
    if not response.error_code:
        side.members[f"{group}/{member}"] = (response.member_id or member, max(response.member_epoch, 0))
        side.subscribed.setdefault(group, set()).update(names or ())


def _await_initialised(side: Side, group: str, **_: Any) -> None:
    """Waits until the group has a start offset for each partition of its topics.

    The coordinator sets the start offsets after the heartbeat response.
    """
    expected = sum(name in side.topic_ids for name in side.subscribed.get(group, ()))
    row = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[row])
    await_condition(side, request, 1, lambda response: len(response.groups[0].topics) >= expected)


def _acknowledgements(kind: Any, ranges: list[tuple[int, int, list[int]]]) -> list[Any]:
    return [kind(first_offset=first, last_offset=last, acknowledge_types=types) for first, last, types in ranges]


def _session_epoch(side: Side, group: str, member: str, epoch: str) -> tuple[str, int]:
    """Returns the member's id and the session epoch of its next request.

    `epoch` is `open`, `close`, or a number to add to the next epoch of the session.
    """
    member_id, _ = learned_epoch(side, f"{group}/{member}", 0)
    number = {"open": 0, "close": -1}.get(epoch)
    return member_id, side.sessions.get(f"{group}/{member}", 0) + int(epoch) if number is None else number


def _fetch(
    side: Side, group: str, member: str, epoch: str, rows: list[tuple[str, int]], ranges: list[Any], **more: Any
) -> tuple[Any, int]:
    member_id, number = _session_epoch(side, group, member, epoch)
    batches = _acknowledgements(share_fetch.AcknowledgementBatch, ranges)
    topics = [
        share_fetch.FetchTopic(
            topic_id=side.topic_id(name),
            partitions=[share_fetch.FetchPartition(partition_index=partition, acknowledgement_batches=batches)],
        )
        for name, partition in rows
    ]
    return share_fetch.ShareFetchRequest(
        group_id=group,
        member_id=member_id,
        share_session_epoch=number,
        max_wait_ms=OPEN_WAIT_MS if epoch == "open" else WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=more["max_records"],
        batch_size=more["batch_size"],
        share_acquire_mode=more["mode"] if more["version"] >= 2 else 0,
        is_renew_ack=more["renew"] and more["version"] >= 2,
        topics=topics,
    ), more["version"]


def _acknowledge(
    side: Side, group: str, member: str, epoch: str, topic: str, partition: int, ranges: list[Any], **more: Any
) -> tuple[Any, int]:
    member_id, number = _session_epoch(side, group, member, epoch)
    row = share_acknowledge.AcknowledgePartition(
        partition_index=partition,
        acknowledgement_batches=_acknowledgements(share_acknowledge.AcknowledgementBatch, ranges),
    )
    topics = [share_acknowledge.AcknowledgeTopic(topic_id=side.topic_id(topic), partitions=[row])]
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=group,
        member_id=member_id,
        share_session_epoch=number,
        is_renew_ack=more["renew"] and more["version"] >= 2,
        topics=topics,
    ), more["version"]


def _learn_session(side: Side, response: Any, group: str, member: str, epoch: str, **_: Any) -> None:
    if not response.error_code:
        known = side.sessions.get(f"{group}/{member}", 0)
        side.sessions[f"{group}/{member}"] = {"open": 1, "close": 0}.get(epoch, known + 1)


def _await_released(side: Side, epoch: str, **_: Any) -> None:
    """Waits until the server has released the records of a share session, if the request has closed the session.

    The server releases the records only after it has sent the response.
    """
    if epoch == "close":
        time.sleep(RELEASED_S)


def _describe(side: Side, groups: list[str]) -> tuple[Any, int]:
    return share_group_describe.ShareGroupDescribeRequest(group_ids=groups), 1


def _offsets(side: Side, group: str, topics: dict[str, list[int]] | None) -> tuple[Any, int]:
    rows = None
    if topics is not None:
        kind = describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic
        rows = [kind(topic_name=name, partitions=numbers) for name, numbers in topics.items()]
    row = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=rows)
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[row]), 1


def _alter(side: Side, group: str, topic: str, partition: int, offset: int) -> tuple[Any, int]:
    row = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(
        partition_index=partition, start_offset=offset
    )
    topics = [alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[row])]
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0


def _delete_offsets(side: Side, group: str, topic: str) -> tuple[Any, int]:
    topics = [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics), 0


def _list(side: Side, states: list[str], types: list[str]) -> tuple[Any, int]:
    return list_groups.ListGroupsRequest(states_filter=states, types_filter=types), 5


def _delete(side: Side, group: str) -> tuple[Any, int]:
    return delete_groups.DeleteGroupsRequest(groups_names=[group]), 2


class Share:
    """Lists of random requests of up to four members of a share group with two topics, each with one partition."""

    NAME = "share"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "configure": Call(_configure, settle=_await_published),
        "produce": APPEND,
        "beat": Call(_beat, _learn_beat, settle=_await_initialised),
        "fetch": Call(_fetch, _learn_session, settle=_await_released),
        "acknowledge": Call(_acknowledge, _learn_session, settle=_await_released),
        "describe": Call(_describe),
        "offsets": Call(_offsets),
        "alter": Call(_alter),
        "delete_offsets": Call(_delete_offsets),
        "list": Call(_list),
        "delete": Call(_delete),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns two topics, the settings of the group, a member, and 10 to 35 random requests."""
        topics = [f"{name}-a", f"{name}-b"]
        group = f"{name}-g"
        steps = [Step(0, "create_topic", {"name": topic, "partitions": 1}) for topic in topics]
        settings = {"share.auto.offset.reset": chance.choice(["earliest", "earliest", "latest"])}
        if chance.random() < 0.3:
            settings["share.delivery.count.limit"] = "2"
        steps.append(Step(0, "configure", {"group": group, "settings": settings}))
        drawer = ShareDrawer(chance, group, topics)
        steps.append(Step(0, "beat", {"group": group, "member": "share-one", "epoch": "join", "names": topics[:1]}))
        steps += [drawer.step() for _ in range(chance.randrange(10, 35))]
        return steps


class ShareDrawer:
    """Draws the steps of a test program of the area `share`.

    Args:
        chance: the source of randomness.
        group: the name of the group.
        topics: the names of the two topics.
    """

    def __init__(self, chance: random.Random, group: str, topics: list[str]) -> None:
        self.chance = chance
        self.group = group
        self.topics = topics
        self.opened: set[str] = set()
        self.leaves = True
        weights = {
            self._beat: 6, self._produce: 5, self._fetch: 9, self._acknowledge: 7, self._describe: 2,
            self._offsets: 2, self._alter: 1, self._delete_offsets: 1, self._list: 1, self._delete: 1,
        }  # fmt: skip
        self.kinds = [kind for kind in weights if kind == self._fetch or chance.random() < 0.85]
        self.weights = [weights[kind] for kind in self.kinds]
        self.members = [f"share-{each}" for each in CLIENT_IDS[: chance.choice([1, 2, 2, 4])]]

    def step(self) -> Step:
        """Returns a random request of a member."""
        client = self.chance.randrange(len(self.members))
        (kind,) = self.chance.choices(self.kinds, self.weights)
        call, arguments = kind(self.members[client])
        return Step(client, call, arguments)

    def _place(self) -> tuple[str, int]:
        if self.chance.random() < 0.95:
            return self.topics[0], 0
        return self.chance.choice([(self.topics[0], 3), (self.topics[0] + "-none", 0), (self.topics[1], 0)])

    def _ranges(self) -> list[tuple[int, int, list[int]]]:
        ranges = []
        start = self.chance.choice([0, 0, 0, 1, 2, 3])
        for _ in range(self.chance.choice([1, 1, 2])):
            last = start + self.chance.choice([0, 0, 1, 2, 2, -1])
            types = [self.chance.choices([0, 1, RELEASE, 3, RENEW, UNKNOWN_TYPE], [3, 30, 30, 15, 4, 2])[0]]
            if last > start and self.chance.random() < 0.2:
                types = [self.chance.choice([0, 1, RELEASE, 3]) for _ in range(last - start + 1)]
            ranges.append((start, last, types))
            start = last + self.chance.choice([1, 1, 2, 0])
        return ranges

    def _session(self, member: str) -> str:
        if member not in self.opened or self.chance.random() < 0.08:
            self.opened.add(member)
            return "open"
        epoch = self.chance.choices(["0", "close", "1", "-1"], [83, 9, 4, 4])[0]
        if epoch == "close":
            self.opened.discard(member)
        return epoch

    def _beat(self, member: str) -> tuple[str, dict[str, Any]]:
        epoch = self.chance.choices(["join", "0", "leave", "-1", "1"], [30, 50, 12, 4, 4])[0]
        if epoch == "leave" and (self.opened or not self.leaves):
            epoch = "0"  # Kafka keeps the sessions and the share partitions of members that have left
        names: list[str] | None = None
        if epoch == "join" or self.chance.random() < 0.15:
            names = [self.topics[0]] if self.chance.random() < 0.85 else self.chance.choice([[], self.topics[1:]])
        return "beat", {"group": self.group, "member": member, "epoch": epoch, "names": names}

    def _produce(self, member: str) -> tuple[str, dict[str, Any]]:
        counts = [self.chance.choice([1, 2, 3, 5]) for _ in range(self.chance.choice([1, 1, 2]))]
        return "produce", {"topic": self.topics[0], "counts": counts}

    def _fetch(self, member: str) -> tuple[str, dict[str, Any]]:
        epoch = self._session(member)
        # Only one partition: Kafka reads the states of several partitions in the background, and may respond earlier.
        rows = [(self.topics[0], 0)] if epoch == "open" or self.chance.random() < 0.3 else []
        with_ranges = rows and (epoch != "open" or self.chance.random() < 0.05) and self.chance.random() < 0.8
        return "fetch", {
            "group": self.group,
            "member": member,
            "epoch": epoch,
            "rows": rows,
            "ranges": self._ranges() if with_ranges else [],
            "max_records": self.chance.choice([1, 2, 5, 100, 100]),
            "batch_size": self.chance.choice([1, 2, 100]),
            "mode": self.chance.choice([0, 0, 1]),
            "renew": self.chance.random() < 0.05,
            "version": self.chance.choice([1, 2, 2]),
        }

    def _acknowledge(self, member: str) -> tuple[str, dict[str, Any]]:
        topic, partition = self._place()
        return "acknowledge", {
            "group": self.group,
            "member": member,
            "epoch": self._session(member),
            "topic": topic,
            "partition": partition,
            "ranges": self._ranges(),
            "renew": self.chance.random() < 0.08,
            "version": self.chance.choice([1, 2, 2]),
        }

    def _describe(self, member: str) -> tuple[str, dict[str, Any]]:
        return "describe", {"groups": [self.group, self.group + "-none"]}

    def _offsets(self, member: str) -> tuple[str, dict[str, Any]]:
        topics = self.chance.choice([None, {self.topics[0]: [0]}, {self.topics[1]: [0]}])
        return "offsets", {"group": self.group, "topics": topics}

    def _alter(self, member: str) -> tuple[str, dict[str, Any]]:
        topic, partition = self._place()
        offset = self.chance.choice([0, 1, 3, -1])
        return "alter", {"group": self.group, "topic": topic, "partition": partition, "offset": offset}

    def _delete_offsets(self, member: str) -> tuple[str, dict[str, Any]]:
        return "delete_offsets", {"group": self.group, "topic": self._place()[0]}

    def _list(self, member: str) -> tuple[str, dict[str, Any]]:
        return "list", {"states": self.chance.choice([[], ["Stable"], ["Empty"]]), "types": ["share"]}

    def _delete(self, member: str) -> tuple[str, dict[str, Any]]:
        return "delete", {"group": self.group}
