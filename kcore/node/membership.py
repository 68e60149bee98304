"""The settings of members, from the arguments of `Group.join` and `Group.consume`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from kcore.client.consumer_coordinator.interface import DYNAMIC_LEAVE, REMAIN, MemberSettings
from kcore.errors import ConfigError
from kcore.node.arguments import check_choice, check_seconds, check_texts, names_of

Protocol: TypeAlias = Literal["consumer", "classic"]

MemberState: TypeAlias = Literal[
    "Unsubscribed",
    "Unjoined",
    "Preparing",
    "Joining",
    "Syncing",
    "Completing",
    "Reconciling",
    "Acknowledging",
    "Stable",
    "Fenced",
    "Stale",
    "PrepareLeaving",
    "Leaving",
    "Fatal",
    "Closed",
]
"""The states of a member, in classic and consumer groups. docs/states.md has their transitions."""

SESSION_TIMEOUT_S, HEARTBEAT_INTERVAL_S = 45.0, 3.0
"""Default session timeout and heartbeat interval, in seconds, of a member of a classic group."""

LONG_SESSION_S, LONG_HEARTBEAT_S, LONG_COMMIT_S = 1_800.0, 600.0, 300.0
LONG_REBALANCE_S = LONG_METADATA_S = 21_600.0
"""Times in seconds above which an argument of a member causes a warning: the caller probably passed milliseconds."""

ASSIGNORS = ("range", "cooperative-sticky")
"""Names of the default assignors of a member of a classic group, as in Java's client."""


def member_settings(
    group_id: str,
    topics: str | Iterable[str],
    pattern: str | None,
    protocol: str,
    assignors: Iterable[Any] | None,
    *,
    instance_id: str | None,
    rack: str | None,
    server_assignor: str | None,
    session_timeout: float | None,
    heartbeat_interval: float | None,
    rebalance_timeout: float,
    metadata_max_age: float,
    leave_on_close: bool | None,
    auto_commit: float | None = None,
) -> MemberSettings:
    """Converts the arguments of a member; the times are in seconds.

    Raises:
        ConfigError: an argument is not valid, or an assignor is unknown.
        TypeError: an argument has another type.
    """
    names = tuple(names_of("topics", topics))
    check_texts(pattern=pattern, instance_id=instance_id, rack=rack, server_assignor=server_assignor)
    if bool(names) == (pattern is not None):
        raise ConfigError("a member subscribes either to topics or to a pattern")
    if not group_id:
        raise ConfigError("a group needs an id")
    check_choice("protocol", protocol, ("consumer", "classic"))
    chosen: list[Any] = []
    _check_protocol(protocol, assignors, server_assignor, session_timeout, heartbeat_interval)
    session_timeout = SESSION_TIMEOUT_S if session_timeout is None else session_timeout
    heartbeat_interval = HEARTBEAT_INTERVAL_S if heartbeat_interval is None else heartbeat_interval
    check_seconds("session_timeout", session_timeout, LONG_SESSION_S)
    check_seconds("heartbeat_interval", heartbeat_interval, LONG_HEARTBEAT_S)
    check_seconds("rebalance_timeout", rebalance_timeout, LONG_REBALANCE_S)
    check_seconds("metadata_max_age", metadata_max_age, LONG_METADATA_S)
    if not rebalance_timeout:
        raise ConfigError("rebalance_timeout=0; valid: seconds, above 0")
    if protocol == "classic":
        from kcore.assignors import get  # noqa: PLC0415 - imports numpy
        from kcore.assignors.api import checked  # noqa: PLC0415

        listed = [assignors] if isinstance(assignors, str) else assignors or ASSIGNORS
        chosen = [get(one) if isinstance(one, str) else checked(one) for one in listed]
        if heartbeat_interval >= session_timeout:
            raise ConfigError("heartbeat_interval must be shorter than session_timeout")
        if pattern is not None:
            _check_pattern(pattern)
    leave = None if leave_on_close is None else DYNAMIC_LEAVE if leave_on_close else REMAIN
    return MemberSettings(
        group_id=group_id,
        topics=names,
        pattern=pattern,
        instance_id=instance_id,
        rack=rack,
        session_timeout_ms=round(session_timeout * 1000),
        heartbeat_interval_ms=round(heartbeat_interval * 1000),
        rebalance_timeout_ms=round(rebalance_timeout * 1000),
        assignors=tuple(chosen),
        server_assignor=server_assignor,
        auto_commit_ms=_commit_interval_ms(auto_commit),
        leave=leave,
        metadata_max_age_ms=round(metadata_max_age * 1000),
    )


def _check_protocol(
    protocol: str,
    assignors: Iterable[Any] | None,
    server_assignor: str | None,
    session_timeout: float | None,
    heartbeat_interval: float | None,
) -> None:
    """Raises ConfigError if an argument does not apply to `protocol`."""
    if protocol == "consumer" and (session_timeout is not None or heartbeat_interval is not None):
        raise ConfigError(
            "session_timeout and heartbeat_interval are only for protocol='classic'; in a consumer group, change the "
            "group's settings consumer.session.timeout.ms and consumer.heartbeat.interval.ms with Group.set_config"
        )
    if protocol == "consumer" and assignors is not None:
        raise ConfigError(
            "assignors are only for protocol='classic'; in a consumer group, the broker assigns partitions: choose "
            "its assignor with server_assignor"
        )
    if protocol == "classic" and server_assignor is not None:
        raise ConfigError("server_assignor is only for protocol='consumer'; for a classic group, use assignors")


def _check_pattern(pattern: str) -> None:
    """Raises ConfigError if a pattern is not a regular expression. In a consumer group, the coordinator checks it."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"pattern={pattern!r} is not a regular expression: {error}") from None


def _commit_interval_ms(auto_commit: float | None) -> int | None:
    if auto_commit is None:
        return None
    is_negative = isinstance(auto_commit, int | float) and auto_commit < 0
    if isinstance(auto_commit, bool) or is_negative:  # False equals 0, which would commit at every step
        raise ConfigError(f"auto_commit={auto_commit!r}; valid: None (only commit() commits), or seconds, 0 or more")
    check_seconds("auto_commit", auto_commit, LONG_COMMIT_S)
    return round(auto_commit * 1000)
