"""`kcore groups`: lists and describes groups."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from kcore.cli import output, target
from kcore.errors import KafkaError
from kcore.inspect.members import progress, share_progress, shown, shown_tasks, task_progress, topic_fault
from kcore.node.arguments import GROUP_STATES

if TYPE_CHECKING:
    from kcore.node._sync.node import Node
    from kcore.node.types import GroupDescription, MemberDescription

STATES: Final[list[str]] = sorted(GROUP_STATES)
"""The states of groups of every type."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list every group with its state")
    listing.add_argument(
        "--state", action="append", default=[], type=_state, help="only groups in this state (may be repeated)"
    )
    describing = actions.add_parser("describe", help="show the members of groups with their partitions")
    for action in (listing, describing):
        target.add_arguments(action)
        output.add_arguments(action)
    describing.add_argument("--group", action="append", default=[], help="a group (may be repeated); default: all")


def _state(text: str) -> str:
    """Returns Kafka's spelling of a group state. The case of letters in `text` does not matter.

    Raises:
        ArgumentTypeError: the state does not exist.
    """
    for name in STATES:
        if name.lower() == text.lower():
            return name
    raise argparse.ArgumentTypeError(f"{text!r} is not a group state; valid: {', '.join(STATES)}")


def run(options: argparse.Namespace) -> int:
    """Lists or describes groups."""
    with target.open_target(options) as node:
        if options.action == "list":
            rows = [
                (group.group_id, group.type, group.protocol_type or None, group.state)
                for group in node.groups.list(states=options.state)
            ]
            output.print_rows(("group", "type", "protocol_type", "state"), rows, options.format)
            return 0
        wanted = options.group or [group.group_id for group in node.groups.list()]
        return describe(node, wanted, options.format)


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


def describe(node: Node, group_ids: list[str], form: str) -> int:
    """Prints a row for each member, and a row for each group without members. Returns 1 if a group does not exist.

    The rows of consumer groups (KIP-848) and streams groups (KIP-1071) show the members' epochs, their targets, and the
    steps for which they wait. Share groups (KIP-932) have no targets. Classic groups have none of these columns.
    """
    rows: list[dict[str, Any]] = []
    described = node.groups.describe(group_ids)
    for group_id in group_ids:
        group = described[group_id]
        if isinstance(group, KafkaError):
            rows.append({"group": group_id, "state": group.code.name})
        else:
            rows += _rows(group, topic_fault(node, group))
    output.print_rows(COLUMNS, [tuple(row.get(column) for column in COLUMNS) for row in rows], form)
    return 1 if any(isinstance(group, KafkaError) for group in described.values()) else 0


def _rows(group: GroupDescription, fault: str | None) -> list[dict[str, Any]]:
    """Returns the rows of a group.

    Args:
        group: the description of the group.
        fault: the missing or wrong topics of a streams group that is not ready; None for other groups.
    """
    of_group: dict[str, Any] = {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol": group.assignor or None,
    }
    if group.type != "classic":
        of_group |= {"epoch": group.epoch, "assignment_epoch": group.assignment_epoch}
    return [
        {
            **of_group,
            "member": member.member_id,
            "client_id": member.client_id,
            "host": member.host,
            **_of_member(group, member, fault),
        }
        for member in group.members
    ] or [of_group]


def _of_member(group: GroupDescription, member: MemberDescription, fault: str | None) -> dict[str, Any]:
    """Returns the columns of a member that depend on the group's type."""
    if group.type == "classic":
        return {"assignment": _owned(group.protocol_type, member)}
    if group.type == "streams":
        state, waits_for = task_progress(group, member)
        return {
            "member_epoch": member.epoch,
            "member_state": state,
            "assignment": shown_tasks(member.assigned_tasks),
            "target": shown_tasks(member.target_tasks),
            "waits_for": fault or waits_for,
        }
    if group.type == "share":
        state, waits_for = share_progress(group, member)
        return {
            "member_epoch": member.epoch,
            "member_state": state,
            "assignment": shown(member.assignment),
            "waits_for": waits_for,
        }
    state, waits_for = progress(group, member)
    return {
        "member_epoch": member.epoch,
        "member_state": f"{state} (classic)" if member.classic else state,
        "assignment": shown(member.assignment),
        "target": shown(member.target),
        "waits_for": waits_for,
    }


def _owned(protocol_type: str, member: MemberDescription) -> str | None:
    """Formats the assignment of a member of a classic group as `topic:0,1 other:2`.

    An assignment in another format than that of the consumer protocol is shown as its size in bytes.
    """
    if not member.raw_assignment:
        return None
    if protocol_type != "consumer" or not member.assignment_decoded:
        return f"{len(member.raw_assignment)} bytes"
    return shown(member.assignment) or ""
