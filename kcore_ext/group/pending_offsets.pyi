from typing import Any

from kcore_ext.group.offset_block import OffsetBlock

Partitions = dict[int, Any]
Groups = dict[str, dict[str, Partitions]]

def hold(
    pending: dict[int, Groups],
    opened: dict[str, dict[str, dict[int, set[int]]]],
    producer_id: int,
    group_id: str,
    block: OffsetBlock[Any],
    first_offset: int,
) -> None:
    """The offsets of a block become pending; see `OffsetStore.put_pending`.

    Args:
        pending: producer id -> group -> topic -> partition -> offset.
        opened: group -> topic -> partition -> producers with an offset pending there.
        producer_id: in whose transaction the block stands.
        group_id: the group; the store's own string.
        block: the offsets.
        first_offset: where the first record stands; the others follow.

    Raises:
        ValueError: the block was put somewhere before.
    """

def release(
    pending: dict[int, Groups],
    opened: dict[str, dict[str, dict[int, set[int]]]],
    groups: Groups,
    producer_id: int,
    commit: bool,
) -> int:
    """A transaction ended; see `OffsetStore.complete`.

    Args:
        pending: as in `hold`.
        opened: as in `hold`.
        groups: group -> topic -> partition -> the group's own offset.
        producer_id: whose transaction.
        commit: how it ended.

    Returns:
        How many partitions have an offset that had none.
    """
