"""The arguments and results of the consumer coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kcore.client.aio.broker import Broker
from kcore.protocol.topic_partition import TopicPartition

DYNAMIC_LEAVE: Final = "leave"
REMAIN: Final = "remain"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset.

    Attributes:
        offset: the offset of the next record to read.
        metadata: a text that the committer stores beside the offset.
        leader_epoch: the leader epoch of the last consumed record; None: unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of a member.

    Attributes:
        group_id: the id of the group.
        topics: the topic names to subscribe to.
        pattern: a regular expression that selects topics, instead of names. Classic members match it against all
            topics that they may see; in a consumer group the broker matches it (RE2 syntax).
        instance_id: the id of a static member; None: a dynamic member.
        rack: the name of the member's rack.
        session_timeout_ms: in a classic group: the time without a heartbeat after which the coordinator removes the
            member.
        heartbeat_interval_ms: in a classic group: the time between heartbeats.
        rebalance_timeout_ms: the time in which the member must handle a rebalance, and the longest time between polls.
        assignors: in a classic group: the client-side assignors, in the order of preference.
        server_assignor: in a consumer group: the name of the broker's assignor; None: the broker's default.
        auto_commit_ms: the interval at which consumed positions are committed; None: never.
        leave: DYNAMIC_LEAVE: `close` leaves the group; REMAIN: `close` does not leave the group; None: only a dynamic
            member leaves the group.
        retry_backoff_ms: the first pause before a repetition.
        retry_backoff_max_ms: the longest pause before a repetition.
        request_timeout_ms: the time limit of a response.
        metadata_max_age_ms: the interval at which the topics of the subscription are looked up again.
    """

    group_id: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    assignors: tuple[Any, ...] = ()
    server_assignor: str | None = None
    auto_commit_ms: int | None = None
    leave: str | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000

    def name_of(self, member_id: str) -> str:
        """Returns the name of the member in log lines. The coordinator gives a classic member its id at the first join.

        Args:
            member_id: the member's id; "" before the member has an id.
        """
        named = f"member {member_id}" if member_id else "a new member"
        return f"{named} of group {self.group_id}"


@dataclass(frozen=True, slots=True)
class _PartitionEvent:
    """The base of the events. An event is also a collection of its partitions, but an event without partitions is true:
    a loop such as `while event := member.poll(1.0)` must not end at it.
    """

    partitions: tuple[TopicPartition, ...]
    epoch: int

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, partition: object) -> bool:
        return partition in self.partitions


@dataclass(frozen=True, slots=True)
class Assigned(_PartitionEvent):
    """Partitions that the member owns from now on.

    Attributes:
        partitions: the added partitions, sorted.
        epoch: the fencing epoch: the member epoch, or in a classic group the generation. Stores that refuse writes
            with a lower epoch are safe against a member that was paused.
    """


@dataclass(frozen=True, slots=True)
class Revoked(_PartitionEvent):
    """Partitions that the member gives up. It owns them until the event is handled, and may commit their offsets.

    Attributes:
        partitions: the revoked partitions, sorted.
        epoch: the member epoch or generation in which the member owned them.
    """


@dataclass(frozen=True, slots=True)
class Lost(_PartitionEvent):
    """Partitions that the member has lost because it was fenced or did not poll in time. The partitions may have new
    owners already.

    Attributes:
        partitions: the lost partitions, sorted.
        epoch: the last member epoch or generation in which the member owned them.
    """


MemberEvent = Assigned | Revoked | Lost


class Generation(NamedTuple):
    """A generation of a classic group, and the member's identity in it.

    Attributes:
        id: the generation; -1: none.
        member_id: the member's id; "" before the coordinator has assigned one.
        protocol: the chosen assignor.
    """

    id: int = -1
    member_id: str = ""
    protocol: str = ""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A request that the driver sends.

    Attributes:
        request: a request message.
        broker: the broker that receives the request; None: any broker.
        timeout_ms: the time limit of the response.
        at_most: the newest version to use; None: the newest that the client and the broker support.
        handle: called with the response; returns True if the machine is idle until its next timer.
        refuse: called with the error if no response arrived.
        apart: True to send the request on a connection of its own. On the member's connection, it would wait until the
            coordinator has responded to a join or a sync, which may take as long as the rebalance.
    """

    request: Any
    broker: Broker | None
    timeout_ms: int
    handle: Callable[[Any, int], bool | None]
    refuse: Callable[[Exception, int], None]
    at_most: int | None = None
    apart: bool = False


@dataclass(slots=True, eq=False)
class Commit:
    """A commit of a member. It is completed once the coordinator has accepted or refused it.

    Attributes:
        offsets: partition -> the offset of the next record to read.
        retry: True to repeat it after retriable errors, until `deadline_ms`.
        deadline_ms: the monotonic time in ms after which the commit is not repeated.
        seen_losses: the value of `Ownership.losses` that the user's code had seen when it computed the offsets.
        on_done: called when it is completed.
        done: True once the commit is completed.
        error: the cause of the commit's failure; None if the commit succeeded, or is not completed yet.
        attempts: the number of failed attempts.
        not_before_ms: the earliest time of the next attempt.
        newest: returns the offsets to commit at the time of sending; None: the request has `offsets`.
    """

    offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    retry: bool
    deadline_ms: int
    seen_losses: int
    on_done: Callable[[Commit], None] | None = None
    done: bool = False
    error: Exception | None = None
    attempts: int = 0
    not_before_ms: int = 0
    newest: Callable[[], Mapping[TopicPartition, int | OffsetAndMetadata]] | None = field(default=None)

    def complete(self, error: Exception | None) -> None:
        """Completes the commit."""
        if not self.done:
            self.done = True
            self.error = error
            if self.on_done is not None:
                self.on_done(self)
