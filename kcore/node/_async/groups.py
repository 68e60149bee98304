"""Groups: committed offsets, lag, description and administration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kcore.client import versions
from kcore.client.aio.broker import Broker
from kcore.client.aio.routes import GROUP
from kcore.client.malformed import malformed
from kcore.errors import GroupIdNotFoundError, KafkaError, UnsupportedVersionError, raise_partition_errors
from kcore.node._async.backend import gather, monotonic
from kcore.node._async.calls import REPEATED, AsyncCalls
from kcore.node._async.member_factory import AsyncMemberFactory
from kcore.node._async.settings import GROUP as GROUP_SETTINGS
from kcore.node._async.settings import change_config, config_of
from kcore.node._async.topics import AsyncTopics
from kcore.node.arguments import GROUP_STATES, GROUP_TYPES, check_offsets, check_text, filters, names_of
from kcore.node.descriptions import described_group
from kcore.node.requests import (
    by_topic,
    check_commit,
    commit_request,
    committed_of_groups,
    committed_offsets,
    error_about,
    offset_fetch_request,
    pending_offsets,
    share_positions,
)
from kcore.node.types import (
    GroupDescription,
    GroupListing,
    GroupMetadata,
    OffsetAndMetadata,
    Offsets,
    Partition,
    PartitionDict,
    SharePosition,
    TopicPartition,
    as_partitions,
)
from kcore.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kcore.protocol.messages.delete_groups import DeleteGroupsRequest
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest
from kcore.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kcore.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kcore.protocol.messages.list_groups import ListGroupsRequest
from kcore.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kcore.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kcore.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from kcore.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest


class AsyncGroups:
    """The groups of a node: `node.groups`."""

    __iter__ = None  # else Python would iterate without end over groups[0], groups[1], …

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"AsyncGroups({str(self._calls.transport)!r})"

    def __getitem__(self, group_id: str) -> AsyncGroup:
        """Returns a group. No request is sent, and the group need not exist.

        Raises:
            TypeError: the id is not a string.
        """
        check_text("the id of a group", group_id)
        return AsyncGroup(self._calls, group_id)

    async def list(self, *, types: str | Iterable[str] = (), states: str | Iterable[str] = ()) -> list[GroupListing]:
        """Returns the groups of all brokers, by id.

        Args:
            types: the types to list: "classic", "consumer", "share", "streams"; empty: all.
            states: the states to list, for example "Stable"; empty: all.

        Raises:
            ConfigError: a type or a state does not exist.
        """
        types, states = filters("types", types, GROUP_TYPES), filters("states", states, GROUP_STATES)
        brokers = await self._calls.brokers()
        listed = await gather(self._list(broker, types, states) for broker in brokers)
        return sorted((group for groups in listed for group in groups), key=lambda group: group.group_id)

    async def _list(self, broker: Broker, types: Sequence[str], states: Sequence[str]) -> Sequence[GroupListing]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        return await self._calls.call(request, _listings, broker=broker)

    async def describe(self, group_ids: str | Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Returns the state and the members of groups of any type, with few requests.

        Args:
            group_ids: one group or several.

        Returns:
            Group id -> the group's description, or the error if the server cannot describe the group.
        """
        described: dict[str, GroupDescription | KafkaError] = {}
        remaining = dict.fromkeys(names_of("group_ids", group_ids))
        started_s = monotonic()
        attempt = 0
        while remaining:
            for (broker, kind), ids in (await self._by_coordinator(remaining)).items():
                request = _DESCRIBE[kind](ids)
                described |= await self._calls.call(request, _descriptions(kind), broker=broker)
                missing = [each for each in ids if each not in described]
                if missing:
                    raise malformed(broker, request, f"the response lacks group {missing[0]!r}")
            # A coordinator that was loading, or that moved between the two requests, gets another request.
            errors = {each: error for each in remaining if (error := _temporary(described[each])) is not None}
            for group_id, error in errors.items():
                self._calls.transport.forget(_describe_classic([group_id]))
                last_error = error
            remaining = dict.fromkeys(errors)
            if remaining:
                await self._calls.pause(last_error, started_s, attempt)
                attempt += 1
        return described

    async def committed(self, group_ids: str | Iterable[str]) -> dict[str, PartitionDict[OffsetAndMetadata]]:
        """Returns the committed offsets of several groups, with few requests.

        Args:
            group_ids: one group or several.

        Raises:
            KafkaError, PartitionErrors: the server refused a group.
        """
        committed: dict[str, PartitionDict[OffsetAndMetadata]] = {}
        grouped: dict[Broker, Any] = {}
        listed = names_of("group_ids", group_ids)
        for (broker, _), ids in (await self._by_coordinator(listed)).items():
            grouped.setdefault(broker, []).extend(ids)
        for broker, ids in grouped.items():
            groups = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in ids]
            request = OffsetFetchRequest(groups=groups)
            committed |= await self._calls.call(
                request, committed_of_groups, at_most=versions.FETCH_OFFSETS, broker=broker
            )
        return committed

    async def _by_coordinator(self, group_ids: Iterable[str]) -> Mapping[tuple[Broker, str], Sequence[str]]:
        """Divides group ids by the coordinator and the type of their groups. Treats a missing group as classic."""
        kinds: dict[str, tuple[Broker, str]] = {}
        for broker in await self._calls.brokers():
            kinds |= {row.group_id: (broker, row.type) for row in await self._list(broker, (), ())}
        grouped: dict[tuple[Broker, str], Any] = {}
        for group_id in group_ids:
            key = kinds.get(group_id) or (await self._calls.coordinator(GROUP, group_id), "classic")
            grouped.setdefault(key, []).append(group_id)
        return grouped


def _temporary(described: GroupDescription | KafkaError) -> KafkaError | None:
    """Returns the error if it is temporary, so that a later request may succeed; else None."""
    return described if isinstance(described, KafkaError) and described.code in REPEATED else None


def _descriptions(kind: str) -> Callable[[Any], dict[str, GroupDescription | KafkaError]]:
    """Returns the function that converts a describe response of a group type."""

    def read(response: Any) -> dict[str, GroupDescription | KafkaError]:
        described: dict[str, GroupDescription | KafkaError] = {}
        for row in response.groups:
            try:
                described[row.group_id] = described_group(row.group_id, kind, row)
            except KafkaError as error:
                described[row.group_id] = error
        return described

    return read


def _listings(response: Any) -> Sequence[GroupListing]:
    if response.error_code:
        raise KafkaError.of(response.error_code)
    return [
        GroupListing(row.group_id, row.group_type.lower() or "classic", row.group_state, row.protocol_type)
        for row in response.groups
    ]


class AsyncGroup(AsyncMemberFactory):
    """One group: `node.group("workers")`.

    Attributes:
        id: the group id.
    """

    def __init__(self, calls: AsyncCalls, group_id: str) -> None:
        super().__init__(calls, group_id)
        self._send = calls.transport.send

    def __repr__(self) -> str:
        return f"AsyncGroup({self.id!r})"

    @property
    def group_metadata(self) -> GroupMetadata:
        """The identity with which a transaction commits offsets of this group, if the group has no members."""
        return GroupMetadata(self.id)

    # ---- offsets

    async def commit(self, offsets: Offsets) -> None:
        """Commits offsets for a group without active members; `Member.commit` is for members.

        Args:
            offsets: partition -> the offset of the next record to read, or an `OffsetAndMetadata`.

        Raises:
            UnknownMemberIdError: the group has active members, and only they may commit.
            KafkaError: all offsets were refused, with the same error.
            PartitionErrors: some offsets were refused; the others are committed.
            TypeError, ValueError: a key is not a partition, or an offset is not a number, negative or too large.
        """
        if not offsets:
            check_offsets(offsets)
            return
        request = commit_request(self.id, offsets)
        if self._calls.local:  # an embedded coordinator never moves, so no retry is needed
            response = await self._send(request, versions.COMMIT)
            check_commit(self._action, response, len(offsets))
            return
        await self._calls.call(
            request, lambda response: check_commit(self._action, response, len(offsets)), at_most=versions.COMMIT
        )

    @property
    def _action(self) -> str:
        return f"commit of group {self.id!r}"

    async def committed(
        self, partitions: Iterable[Partition] | None = None, *, stable: bool = False
    ) -> PartitionDict[OffsetAndMetadata]:
        """Returns committed offsets; partitions without a committed offset are left out.

        Args:
            partitions: the partitions to look up; None: all partitions with a committed offset.
            stable: True to wait until open transactions that commit offsets of the group have ended. Without
                `partitions`, the call waits only for partitions that already have a committed offset. So list a
                partition in `partitions` if an open transaction may commit its first offset.
        """
        listed = None if partitions is None else as_partitions(partitions)
        request = offset_fetch_request(self.id, listed, stable)
        return await self._calls.call(request, committed_offsets, at_most=versions.FETCH_OFFSETS)

    async def delete_offsets(self, partitions: Iterable[Partition]) -> None:
        """Deletes committed offsets.

        Raises:
            GroupSubscribedToTopicError: members of the group are subscribed to the topic.
        """
        listed = as_partitions(partitions)
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for topic, numbers in by_topic(listed).items()
        ]

        def read(response: Any) -> None:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            codes = {
                TopicPartition(topic.name, row.partition_index): row.error_code
                for topic in response.topics
                for row in topic.partitions
            }
            raise_partition_errors(f"deletion of offsets of group {self.id!r}", codes, len(listed))

        await self._calls.call(OffsetDeleteRequest(group_id=self.id, topics=topics), read)

    async def lag(self) -> PartitionDict[int]:
        """Returns the number of records that the group has not processed, for each partition.

        The lag is the difference between the end of the log and the committed offset; 0 if the offset is after the end.
        A share group has no committed offsets: its coordinator reports the number of records that are neither
        acknowledged nor archived.

        The result leaves out partitions without a committed offset, partitions that no member of the share group has
        fetched, partitions of deleted topics, and partitions without a leader.
        """
        committed = await self.committed()
        if not committed:
            positions = await self.share_positions()
            return PartitionDict(
                (each, position.lag) for each, position in positions.items() if position.lag is not None
            )
        ends = await AsyncTopics(self._calls).end_offsets(committed, "read_uncommitted")
        return PartitionDict((each, max(0, end - committed[each].offset)) for each, end in sorted(ends.items()))

    async def share_positions(self) -> PartitionDict[SharePosition]:
        """Returns the progress of a share group; {} for other groups, or if the cluster has no share groups."""
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=self.id, topics=None)]
        )
        try:
            return await self._calls.call(request, share_positions)
        except (GroupIdNotFoundError, UnsupportedVersionError):
            return PartitionDict()

    async def pending_offsets(self, partitions: Iterable[Partition]) -> set[TopicPartition]:
        """Returns the partitions that have a pending offset, which an open transaction may commit."""
        request = offset_fetch_request(self.id, as_partitions(partitions), stable=True)
        return await self._calls.call(request, pending_offsets, at_most=versions.FETCH_OFFSETS)

    # ---- settings

    async def config(self, *, own: bool = False) -> dict[str, str | None]:
        """Returns the group's effective settings, by Kafka's names, for example "share.auto.offset.reset".

        Args:
            own: True for the settings that were set for this group, without defaults.
        """
        return await config_of(self._calls, GROUP_SETTINGS, self.id, own)

    async def set_config(self, config: Mapping[str, Any]) -> None:
        """Changes settings of the group; a value of None restores the default. The group need not exist.

        Raises:
            InvalidConfigError: a setting is unknown or its value is not valid. Then no setting is changed.
        """
        await change_config(self._calls, GROUP_SETTINGS, self.id, config)

    # ---- administration

    async def describe(self) -> GroupDescription:
        """Returns the group's state and members, for groups of every type.

        Raises:
            GroupIdNotFoundError: the group does not exist.
        """
        broker = await self._coordinator()
        listed = await self._calls.call(ListGroupsRequest(), _listings, broker=broker)
        kind = next((group.type for group in listed if group.group_id == self.id), "classic")
        request = _DESCRIBE[kind]([self.id])
        return await self._calls.call(request, lambda response: described_group(self.id, kind, response.groups[0]))

    async def _coordinator(self) -> Broker:
        return await self._calls.coordinator(GROUP, self.id)

    async def delete(self) -> None:
        """Deletes the group with its committed offsets.

        Raises:
            GroupIdNotFoundError: the group does not exist.
            NonEmptyGroupError: the group has members.
        """

        def read(response: Any) -> None:
            (row,) = response.results
            if row.error_code:
                raise error_about(row.error_code, f"group {self.id!r}")

        await self._calls.call(DeleteGroupsRequest(groups_names=[self.id]), read)

    async def remove_members(
        self,
        *,
        member_ids: str | Iterable[str] = (),
        instance_ids: str | Iterable[str] = (),
        reason: str = "removed by an admin",
    ) -> None:
        """Removes members of a classic group; the group then assigns their partitions to other members.

        Args:
            member_ids: the ids of dynamic members, one or several.
            instance_ids: the instance ids of static members, one or several.
            reason: a text for the server's log.

        Raises:
            UnknownMemberIdError: the group has no such member.
            ConfigError: an argument is too long.
        """
        check_text("reason", reason)
        listed = [MemberIdentity(member_id=each, reason=reason) for each in names_of("member_ids", member_ids)]
        statics = names_of("instance_ids", instance_ids)
        listed += [MemberIdentity(group_instance_id=each, reason=reason) for each in statics]

        def read(response: Any) -> None:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            for row in response.members:
                if row.error_code:
                    raise error_about(row.error_code, f"member {row.group_instance_id or row.member_id!r}")

        await self._calls.call(LeaveGroupRequest(group_id=self.id, members=listed), read)


def _describe_classic(group_ids: Sequence[str]) -> Any:
    return DescribeGroupsRequest(groups=group_ids)


def _describe_with(request_type: Any) -> Callable[[Sequence[str]], Any]:
    return lambda group_ids: request_type(group_ids=group_ids)


_DESCRIBE: Mapping[str, Callable[[Sequence[str]], Any]] = {
    "classic": _describe_classic,
    "consumer": _describe_with(ConsumerGroupDescribeRequest),
    "share": _describe_with(ShareGroupDescribeRequest),
    "streams": _describe_with(StreamsGroupDescribeRequest),
}
