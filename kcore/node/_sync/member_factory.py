# Made by tools/generate_sync.py from _async/member_factory.py: change that file, then run the program.
"""Creation of the members and consumers of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

import kcore
from kcore.client.consumer_coordinator.interface import Assigned, Lost, Revoked
from kcore.node._sync.calls import Calls
from kcore.node.membership import Protocol, member_settings
from kcore.node.types import Isolation


class MemberFactory:
    """The operations of `Group` that create members and consumers.

    Args:
        calls: the node's requests.
        group_id: the id of the group.

    Attributes:
        id: the group id.
    """

    def __init__(self, calls: Calls, group_id: str) -> None:
        self._calls = calls
        self.id = group_id

    @overload
    def join(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        protocol: Protocol = "consumer",
        assignors: Iterable[Any] | None = None,
        server_assignor: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        session_timeout: float | None = None,
        heartbeat_interval: float | None = None,
        rebalance_timeout: float = 300.0,
        metadata_max_age: float = 300.0,
        leave_on_close: bool | None = None,
        on_assigned: Callable[[Assigned], Any] | None = None,
        on_revoked: Callable[[Revoked | Lost], Any] | None = None,
        on_lost: None = None,
    ) -> kcore.Member: ...
    @overload
    def join(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        protocol: Protocol = "consumer",
        assignors: Iterable[Any] | None = None,
        server_assignor: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        session_timeout: float | None = None,
        heartbeat_interval: float | None = None,
        rebalance_timeout: float = 300.0,
        metadata_max_age: float = 300.0,
        leave_on_close: bool | None = None,
        on_assigned: Callable[[Assigned], Any] | None = None,
        on_revoked: Callable[[Revoked], Any] | None = None,
        on_lost: Callable[[Lost], Any],
    ) -> kcore.Member: ...
    def join(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        protocol: Protocol = "consumer",
        assignors: Iterable[Any] | None = None,
        server_assignor: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        session_timeout: float | None = None,
        heartbeat_interval: float | None = None,
        rebalance_timeout: float = 300.0,
        metadata_max_age: float = 300.0,
        leave_on_close: bool | None = None,
        on_assigned: Callable[[Assigned], Any] | None = None,
        on_revoked: Callable[[Any], Any] | None = None,
        on_lost: Callable[[Lost], Any] | None = None,
    ) -> kcore.Member:
        """Returns a new member, which joins when its `with` block is entered and leaves at the block's end.

        Args:
            topics: the topics to subscribe to.
            pattern: a regular expression that selects topics, instead of names.
            protocol: "consumer" (KIP-848: the broker assigns) or "classic" (a member assigns).
            assignors: for "classic": one name of `kcore.assignors`, or names and custom assignors in the order of
                preference; None: "range" and "cooperative-sticky".
            server_assignor: for "consumer": the name of the broker's assignor; None: the broker's default.
            instance_id: makes the member static, so that it keeps its partitions if it restarts in time.
            rack: the member's rack.
            session_timeout: for "classic": the seconds without a heartbeat after which the group removes the member;
                None: 45. For "consumer", the group's setting consumer.session.timeout.ms applies.
            heartbeat_interval: for "classic": seconds between heartbeats; None: 3. For "consumer", the group's setting
                consumer.heartbeat.interval.ms applies.
            rebalance_timeout: the time in seconds in which the member must complete its part of a rebalance, and the
                longest time between two polls.
            metadata_max_age: the seconds after which the member looks up the topics again.
            leave_on_close: True to leave the group when the member is closed; False to keep the membership until its
                session timeout; None: only dynamic members leave the group.
            on_assigned: called with an `Assigned` event; may be a function.
            on_revoked: called with a `Revoked` event. When the call returns, the member gives the partitions up.
            on_lost: called with a `Lost` event; None: the member calls `on_revoked` instead.

        Raises:
            ConfigError: an argument is not valid.
        """
        from kcore.node._sync.member import Member  # noqa: PLC0415 - only members need it

        settings = member_settings(
            self.id,
            topics,
            pattern,
            protocol,
            assignors,
            instance_id=instance_id,
            rack=rack,
            server_assignor=server_assignor,
            session_timeout=session_timeout,
            heartbeat_interval=heartbeat_interval,
            rebalance_timeout=rebalance_timeout,
            metadata_max_age=metadata_max_age,
            leave_on_close=leave_on_close,
        )
        return Member(self._calls, settings, protocol, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)

    @overload
    def consume(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        protocol: Protocol = "consumer",
        assignors: Iterable[Any] | None = None,
        server_assignor: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        session_timeout: float | None = None,
        heartbeat_interval: float | None = None,
        rebalance_timeout: float = 300.0,
        metadata_max_age: float = 300.0,
        leave_on_close: bool | None = None,
        on_assigned: Callable[[Assigned], Any] | None = None,
        on_revoked: Callable[[Revoked | Lost], Any] | None = None,
        on_lost: None = None,
        auto_commit: float | None = 5.0,
        isolation: Isolation = "read_committed",
        reset: Literal["earliest", "latest", "none"] = "earliest",
        max_records: int = 500,
        interceptors: Iterable[kcore.ConsumerInterceptor] = (),
    ) -> kcore.Consumer: ...
    @overload
    def consume(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        protocol: Protocol = "consumer",
        assignors: Iterable[Any] | None = None,
        server_assignor: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        session_timeout: float | None = None,
        heartbeat_interval: float | None = None,
        rebalance_timeout: float = 300.0,
        metadata_max_age: float = 300.0,
        leave_on_close: bool | None = None,
        on_assigned: Callable[[Assigned], Any] | None = None,
        on_revoked: Callable[[Revoked], Any] | None = None,
        on_lost: Callable[[Lost], Any],
        auto_commit: float | None = 5.0,
        isolation: Isolation = "read_committed",
        reset: Literal["earliest", "latest", "none"] = "earliest",
        max_records: int = 500,
        interceptors: Iterable[kcore.ConsumerInterceptor] = (),
    ) -> kcore.Consumer: ...
    def consume(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        protocol: Protocol = "consumer",
        assignors: Iterable[Any] | None = None,
        server_assignor: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        session_timeout: float | None = None,
        heartbeat_interval: float | None = None,
        rebalance_timeout: float = 300.0,
        metadata_max_age: float = 300.0,
        leave_on_close: bool | None = None,
        on_assigned: Callable[[Assigned], Any] | None = None,
        on_revoked: Callable[[Any], Any] | None = None,
        on_lost: Callable[[Lost], Any] | None = None,
        auto_commit: float | None = 5.0,
        isolation: Isolation = "read_committed",
        reset: Literal["earliest", "latest", "none"] = "earliest",
        max_records: int = 500,
        interceptors: Iterable[kcore.ConsumerInterceptor] = (),
    ) -> kcore.Consumer:
        """Returns a new consumer: a member that reads the records of its partitions.

        See `join` for the other arguments.

        Args:
            auto_commit: the seconds between commits of the processed records. The consumer also commits them before
                partitions move, and when it is closed. None: the consumer commits only in `commit`.
            isolation: "read_committed" leaves out records of open and aborted transactions.
            reset: the position in a partition without a committed offset: "earliest", "latest", or "none" for an
                error.
            max_records: the largest number of records that `poll` returns.
            interceptors: called with records before the program sees them, and with the offsets of successful commits.
        """
        from kcore.client.fetching import FetchPositions, ReadSettings  # noqa: PLC0415 - only consumers need it
        from kcore.node._sync.consumer import Consumer  # noqa: PLC0415
        from kcore.node._sync.member import Member  # noqa: PLC0415
        from kcore.node.interceptors import interceptors_of  # noqa: PLC0415

        settings = member_settings(
            self.id,
            topics,
            pattern,
            protocol,
            assignors,
            instance_id=instance_id,
            rack=rack,
            server_assignor=server_assignor,
            session_timeout=session_timeout,
            heartbeat_interval=heartbeat_interval,
            rebalance_timeout=rebalance_timeout,
            metadata_max_age=metadata_max_age,
            leave_on_close=leave_on_close,
            auto_commit=auto_commit,
        )
        positions = FetchPositions()
        member = Member(
            self._calls,
            settings,
            protocol,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            consumed=positions.consumed,
        )
        read_settings = ReadSettings(isolation, reset, max_records, rack or "")
        return Consumer(self._calls, member, positions, read_settings, interceptors_of(interceptors, "on_consume"))
