"""`kcore groups`: lists and describes groups."""

from __future__ import annotations

import argparse
from typing import Any, Final

from kcore.cli import output, target
from kcore.group.classic.states import GroupState as ClassicState
from kcore.group.consumer.states import GroupState as ConsumerState
from kcore.group.share.states import GroupState as ShareState
from kcore.group.streams.states import GroupState as StreamsState
from kcore.inspect import Target, list_groups, owned_partitions
from kcore.inspect.consumer_groups import CLASSIC_MEMBER, consumer_groups, parts_of, progress, shown
from kcore.inspect.share_groups import share_groups
from kcore.inspect.streams_groups import shown_tasks, streams_groups, task_progress, tasks_of, topic_fault
from kcore.protocol.error_codes import code_name
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest

FILTERS: Final[dict[str, str]] = {
    **{state.value: state.value for kind in (ClassicState, ConsumerState, ShareState) for state in kind},
    **{state.kafka_name: state.filter_name for state in StreamsState},
}
"""The states of every kind of group, and the text by which a server filters for each."""

STATES: Final[list[str]] = sorted(FILTERS)
"""The names of these states."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every group with its state")
    listing.add_argument(
        "--state", action="append", default=[], type=_state, help="only groups in this state (may be repeated)"
    )
    describing = actions.add_parser("describe", help="members of groups with their partitions")
    for action in (listing, describing):
        target.add_arguments(action)
        output.add_arguments(action)
    describing.add_argument("--group", action="append", default=[], help="a group (may be repeated); default: all")


def _state(text: str) -> str:
    """Returns the filter for a state by Kafka's name, in any case: a server reports no groups for an unknown state,
    rather than an error.

    Raises:
        ArgumentTypeError: the state does not exist.
    """
    for name in STATES:
        if name.lower() == text.lower():
            return FILTERS[name]
    raise argparse.ArgumentTypeError(f"{text!r} is not a group state; valid: {', '.join(STATES)}")


def run(options: argparse.Namespace) -> int:
    """Lists or describes groups."""
    with target.open_target(options) as server:
        if options.action == "list":
            groups = list_groups(server, options.state)
            rows = [(g.group_id, g.group_type, g.protocol_type or None, g.group_state) for g in groups]
            output.print_rows(("group", "type", "protocol_type", "state"), rows, options.format)
            return 0
        wanted = options.group or [group.group_id for group in list_groups(server)]
        return describe(server, wanted, options.format)


COLUMNS = (
    "group",
    "type",
    "state",
    "protocol",
    "epoch",
    "assignment_epoch",
    "member",
    "client_id",
    "host",
    "member_epoch",
    "member_state",
    "assignment",
    "target",
    "waits_for",
)


def describe(server: Target, group_ids: list[str], form: str) -> int:
    """Prints one row per member, and one for each group without members. Returns 1 if a group does not exist.

    Consumer groups (KIP-848) and streams groups (KIP-1071) have epochs, targets and pending steps; share groups
    (KIP-932) have epochs, classic groups none of these.
    """
    rows: list[dict[str, Any]] = []
    modern = consumer_groups(server, group_ids)
    shared = share_groups(server, [group_id for group_id in group_ids if group_id not in modern])
    others = [group_id for group_id in group_ids if group_id not in modern and group_id not in shared]
    streams = streams_groups(server, others)
    classic = [group_id for group_id in others if group_id not in streams]
    response = server.send(DescribeGroupsRequest(groups=classic)) if classic else None
    described = {group.group_id: group for group in response.groups} if response is not None else {}
    missing = False
    for group_id in group_ids:
        group = modern.get(group_id) or shared.get(group_id) or streams.get(group_id) or described[group_id]
        if group.error_code:
            missing = True
            rows.append({"group": group_id, "state": code_name(group.error_code)})
            continue
        if group_id in streams:
            rows += _streams_rows(group, topic_fault(server, group))
        elif group_id in shared:
            rows += _share_rows(group)
        else:
            rows += _consumer_rows(group) if group_id in modern else _classic_rows(group)
    output.print_rows(COLUMNS, [tuple(row.get(column) for column in COLUMNS) for row in rows], form)
    return 1 if missing else 0


def _classic_rows(group: Any) -> list[dict[str, Any]]:
    of_group = {
        "group": group.group_id,
        "type": "classic",
        "state": group.group_state,
        "protocol": group.protocol_data or None,
    }
    return [
        {
            **of_group,
            "member": member.member_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "assignment": _owned(group.protocol_type, member.member_assignment),
        }
        for member in group.members
    ] or [of_group]


def _consumer_rows(group: Any) -> list[dict[str, Any]]:
    of_group = {
        "group": group.group_id,
        "type": "consumer",
        "state": group.group_state,
        "protocol": group.assignor_name,
        "epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
    }
    rows = []
    for member in group.members:
        state, waits_for = progress(group, member)
        rows.append(
            {
                **of_group,
                "member": member.member_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "member_epoch": member.member_epoch,
                "member_state": f"{state} (classic)" if member.member_type == CLASSIC_MEMBER else state,
                "assignment": shown(parts_of(member.assignment)),
                "target": shown(parts_of(member.target_assignment)),
                "waits_for": waits_for,
            }
        )
    return rows or [of_group]


def _share_rows(group: Any) -> list[dict[str, Any]]:
    of_group = {
        "group": group.group_id,
        "type": "share",
        "state": group.group_state,
        "protocol": group.assignor_name,
        "epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
    }
    rows = []
    for member in group.members:
        is_behind = member.member_epoch < group.group_epoch
        rows.append(
            {
                **of_group,
                "member": member.member_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "member_epoch": member.member_epoch,
                "member_state": "Behind" if is_behind else "Stable",
                "assignment": shown(parts_of(member.assignment)),
                "waits_for": "its next heartbeat" if is_behind else None,
            }
        )
    return rows or [of_group]


def _streams_rows(group: Any, fault: str | None) -> list[dict[str, Any]]:
    of_group = {
        "group": group.group_id,
        "type": "streams",
        "state": group.group_state,
        "epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
    }
    rows = []
    for member in group.members:
        state, waits_for = task_progress(group, member)
        rows.append(
            {
                **of_group,
                "member": member.member_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "member_epoch": member.member_epoch,
                "member_state": state,
                "assignment": shown_tasks(tasks_of(member.assignment)),
                "target": shown_tasks(tasks_of(member.target_assignment)),
                "waits_for": fault or waits_for,
            }
        )
    return rows or [of_group]


def _owned(protocol_type: str, assignment: bytes) -> str | None:
    """Formats an assignment as `topic:0,1 other:2`, or as its size if it is not of the consumer protocol."""
    if not assignment:
        return None
    owned = owned_partitions(assignment) if protocol_type == "consumer" else None
    if owned is None:
        return f"{len(assignment)} bytes"
    return " ".join(f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in owned.items())
