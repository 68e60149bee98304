"""A workload whose every write can be made to fail, and the checks of the node afterwards."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kcore.log import LogEngine
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kcore.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kcore.runtime import ShardState
from kcore_ext.batch import iter_records, split_batches
from tests import kit
from tests.harness import DrivenHarness

RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
}
"""Errors after which clients send the request again."""
START_AGAIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
"""Errors after which a member joins its group again. They may follow a failed commit, which loses soft state."""

TRIES = 12


class Refused(Exception):  # noqa: N818
    """Raised for a response with an error code."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = code


class World(DrivenHarness):
    """A node on a log, in virtual time, whose random ids come from a seed.

    Attributes:
        refused: the names of the error codes of responses, in order.
    """

    SETTINGS: ClassVar[Mapping[str, Any]] = {
        "offsets.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1,
    }

    def __init__(self, log: LogEngine, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.refused: list[str] = []
        super().__init__(log=log)

    def new_uuid(self) -> bytes:
        return uuid.UUID(int=self.random.getrandbits(128), version=4).bytes

    # ---- requests

    def check(self, code: int) -> None:
        if code:
            self.refused.append(ErrorCode(code).name)
            raise Refused(code)

    def retry(self, step: Callable[[World], None]) -> None:
        """Repeats a step, as a client does, while its error code is retriable."""
        for _ in range(TRIES):
            try:
                step(self)
                return
            except Refused as error:
                allowed = RETRIABLE | START_AGAIN if step.__name__.startswith("group") else RETRIABLE
                if error.code not in allowed:
                    raise AssertionError(f"{step.__name__} failed with {error}") from error
            self.advance(100)
        raise AssertionError(f"{step.__name__} never succeeded: {self.refused}")

    # ---- state

    def state(self) -> dict[str, Any]:
        """Returns all state that clients can read."""
        self.settle()
        for shard in self.engine.groups:
            assert shard.state is ShardState.ACTIVE, shard.state
        topics = {info.name: info.partitions for info in self.engine.topics.all() if not info.name.startswith("__")}
        return {
            "topics": topics,
            "records": {
                (name, partition): self.records(name, partition)
                for name, partitions in sorted(topics.items())
                for partition in range(partitions)
            },
            "offsets": {group: kit.committed(self, group) for group in ("simple", "workers", "gone")},
            "groups": sorted(
                (group.group_id, group.state_name() if group.group_id != "workers" else "Stable")
                for shard in self.engine.groups
                for group in shard.machine.groups.values()
            ),
            "retention": self.engine.control.topic_configs.effective("t").get("retention.ms"),
        }

    def records(self, topic: str, partition: int) -> list[bytes | None]:
        """Returns the values of all records from the start of a partition's log."""
        offset = kit.start_offset(self, topic, partition)
        found: list[bytes | None] = []
        while True:
            request = kit.fetch(topic, offset, partition)
            (response,) = self.send(request, kit.FETCH_VERSION).responses[0].partitions
            assert response.error_code == 0, response
            events = [
                event
                for start, size in split_batches(response.records or b"").batches
                for event in iter_records((response.records or b"")[start : start + size])
                if event.offset >= offset
            ]
            if not events:
                return found
            found += [event.value for event in events]
            offset = events[-1].offset + 1


# ---- the workload: each step is done when it was acknowledged, and a step that was refused changed nothing


def topics_made(world: World) -> None:
    for topic in world.send(kit.create("t", "u", "short", "deleted-from", partitions=1)).topics:
        if topic.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            world.check(topic.error_code)


def partitions_added(world: World) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="u", count=3, assignments=None)], timeout_ms=1_000
    )
    for result in world.send(request).results:
        world.check(result.error_code)


def setting_changed(world: World) -> None:
    changes = [AlterableConfig(name="retention.ms", config_operation=0, value="123456789")]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name="t", configs=changes)]
    )
    for result in world.send(request).responses:
        world.check(result.error_code)


def _produced(topic: str, data: bytes, partition: int = 0) -> Callable[[World], None]:
    def produced(world: World) -> None:
        response = world.send(kit.produce(topic, data, partition), kit.PRODUCE_VERSION)
        world.check(response.responses[0].partition_responses[0].error_code)

    return produced


def idempotent(world: World) -> None:
    """Makes another producer, whose sequences continue after the last acknowledged batch."""
    response = world.send(kit.producer_id())
    world.check(response.error_code)
    for sequence in range(3):
        data = kit.batch([b"i%d" % sequence], producer_id=response.producer_id, epoch=0, sequence=sequence)
        world.retry(_produced("t", data))


def committed(world: World) -> None:
    offsets = {("t", 0): 5, ("u", 0): 6, ("u", 2): 7}
    _commit(world, kit.commit("simple", offsets))


def committed_again(world: World) -> None:
    _commit(world, kit.commit("simple", {("t", 0): 8}))


def committed_elsewhere(world: World) -> None:
    _commit(world, kit.commit("gone", {("t", 0): 1}))


def _commit(world: World, request: Any) -> None:
    codes = [p.error_code for t in world.send(request, kit.COMMIT_VERSION).topics for p in t.partitions]
    assert len(set(codes)) == 1, f"a commit is whole or not at all: {codes}"
    world.check(codes[0])


def group_works(world: World) -> None:
    """Checks that a member can join, sync, send a heartbeat and commit."""
    first = world.send(kit.join("workers", session_ms=600_000))
    assert first.error_code, "the first join gets an error with a member id (KIP-394)"
    if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        world.check(first.error_code)
    member = first.member_id
    joined = world.send(kit.join("workers", member, session_ms=600_000))
    world.check(joined.error_code)
    generation = joined.generation_id
    synced = world.send(kit.sync("workers", member, generation, {member: b"all"}))
    world.check(synced.error_code)
    assert synced.assignment == b"all"
    world.check(world.send(kit.heartbeat("workers", member, generation)).error_code)
    _commit(world, kit.commit("workers", {("t", 0): 3}, member, generation))
    left = world.send(kit.leave("workers", member))
    world.check(left.error_code)
    world.check(left.members[0].error_code)


def offsets_deleted(world: World) -> None:
    gone = [OffsetDeleteRequestTopic(name="u", partitions=[OffsetDeleteRequestPartition(partition_index=2)])]
    response = world.send(OffsetDeleteRequest(group_id="simple", topics=gone))
    world.check(response.error_code)
    world.check(response.topics[0].partitions[0].error_code)


def group_deleted(world: World) -> None:
    (result,) = world.send(DeleteGroupsRequest(groups_names=["gone"])).results
    world.check(result.error_code)


def records_deleted(world: World) -> None:
    parts = [DeleteRecordsPartition(partition_index=0, offset=2)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="deleted-from", partitions=parts)], timeout_ms=1_000)
    world.check(world.send(request).topics[0].partitions[0].error_code)


def topic_deleted(world: World) -> None:
    for result in world.send(DeleteTopicsRequest(topic_names=["short"], timeout_ms=1_000), 5).responses:
        world.check(result.error_code)


WORKLOAD: list[Callable[[World], None]] = [
    topics_made,
    _produced("t", kit.batch([b"a", b"b"])),
    partitions_added,
    _produced("u", kit.batch([b"c"]), 2),
    committed,
    setting_changed,
    idempotent,
    committed_again,
    committed_elsewhere,
    group_works,
    _produced("deleted-from", kit.batch([b"0"])),
    _produced("deleted-from", kit.batch([b"1"])),
    _produced("deleted-from", kit.batch([b"2", b"3"])),
    records_deleted,
    offsets_deleted,
    group_deleted,
    _produced("short", kit.batch([b"gone"])),
    topic_deleted,
    _produced("t", kit.batch([b"end"])),
]
