"""The limit on the number of different topics to which the members of a consumer group or share group subscribe.

Members may subscribe to topics that do not exist, so nothing else limits the number of topics. Each change of the
group's topics visits all of its topics in one slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

REQUESTS: Final = 2
"""Maximum number of topic names of a group, as a multiple of the maximum number of elements of a request."""


def check_names(
    group_id: str, named: Mapping[str, int], before: AbstractSet[str], after: AbstractSet[str], max_elements: int
) -> None:
    """Refuses the new names of a member if the group would then have too many names.

    A change that adds no name to the group is always allowed.

    Args:
        group_id: the group, for the error message.
        named: for each topic name, the number of members that subscribe to it.
        before: the current names of the member.
        after: the new names of the member.
        max_elements: the maximum number of elements of one request.

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
