"""`kcore groups`: list and describe groups."""

from __future__ import annotations

import argparse
from typing import Any

from kcore.cli import output, target
from kcore.inspect import Target, code_name, list_groups, owned_partitions
from kcore.protocol.messages.describe_groups import DescribeGroupsRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every group with its state")
    listing.add_argument("--state", action="append", default=[], help="only groups in this state (may be repeated)")
    describing = actions.add_parser("describe", help="members of groups and what they own")
    for action in (listing, describing):
        target.add_arguments(action)
        output.add_arguments(action)
    describing.add_argument("--group", action="append", default=[], help="a group (may be repeated); none: all")


def run(options: argparse.Namespace) -> int:
    """Lists or describes."""
    with target.open_target(options) as server:
        if options.action == "list":
            groups = list_groups(server, options.state)
            rows = [(g.group_id, g.group_type, g.protocol_type or None, g.group_state) for g in groups]
            output.print_rows(("group", "type", "protocol_type", "state"), rows, options.format)
            return 0
        wanted = options.group or [group.group_id for group in list_groups(server)]
        return describe(server, wanted, options.format)


def describe(server: Target, group_ids: list[str], form: str) -> int:
    """Prints one row a member, and one for each group without members. Returns 1 if a group was not there."""
    rows: list[tuple[Any, ...]] = []
    status = 0
    response = server.send(DescribeGroupsRequest(groups=group_ids)) if group_ids else None
    for group in response.groups if response is not None else ():
        if group.error_code:
            status = 1
            rows.append((group.group_id, code_name(group.error_code), None, None, None, None, None))
            continue
        rows += [
            (
                group.group_id,
                group.group_state,
                group.protocol_data or None,
                member.member_id,
                member.client_id,
                member.client_host,
                _owned(group.protocol_type, member.member_assignment),
            )
            for member in group.members
        ]
        if not group.members:
            rows.append((group.group_id, group.group_state, None, None, None, None, None))
    columns = ("group", "state", "protocol", "member", "client_id", "host", "assignment")
    output.print_rows(columns, rows, form)
    return status


def _owned(protocol_type: str, assignment: bytes) -> str | None:
    """`topic:0,1 other:2`, or the number of bytes of an assignment that is not the consumer protocol's."""
    if not assignment:
        return None
    owned = owned_partitions(assignment) if protocol_type == "consumer" else None
    if owned is None:
        return f"{len(assignment)} bytes"
    return " ".join(f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in owned.items())
