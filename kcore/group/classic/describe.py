"""The DescribeGroups response for a classic group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcore.group.classic.states import GroupState
from kcore.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember

if TYPE_CHECKING:
    from kcore.group.classic.group import ClassicGroup


def describe(group: ClassicGroup) -> DescribedGroup:
    """Returns the current description of the group.

    The description has the protocol and member metadata only while the group is Stable. During a rebalance, it has the
    assignments of the previous generation.
    """
    stable = group.state is GroupState.STABLE
    name = group.protocol_name
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
