"""The limit on the different topics that all members of a consumer group or share group name.

A member may name topics that do not exist. Each change of the group's topics visits all of them in one slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

REQUESTS: Final = 2
"""Number of largest requests whose topics one group may have."""


def check_names(
    group_id: str, named: Mapping[str, int], before: AbstractSet[str], after: AbstractSet[str], max_elements: int
) -> None:
    """Refuses the names of a member with which the group would have too many; names may always be removed.

    Args:
        group_id: the group.
        named: number of members that name a topic.
        before: the names of the member until now.
        after: its new names.
        max_elements: the largest number of elements of one request.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED.
    """
    most = REQUESTS * max_elements
    if len(named) + len(after) <= most:
        return
    added = sum(name not in named for name in after)
    if not added:
        return
    removed = sum(named.get(name) == 1 for name in before if name not in after)
    if len(named) + added - removed > most:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the members of {group_id} would name {len(named) + added - removed} topics; the maximum is {most} "
            f"({REQUESTS} times kcore.max.request.elements)",
        )
