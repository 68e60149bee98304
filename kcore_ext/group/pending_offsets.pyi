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
    """Stores the offsets of a block as pending offsets of a transaction.

    Args:
        pending: producer id -> group -> topic -> partition -> offset.
        opened: group -> topic -> partition -> producers with a pending offset.
        producer_id: the producer of the transaction.
        group_id: the group. This string object becomes the group's key in the dictionaries.
        block: the offsets.
        first_offset: the record offset of the first record. The other records have the following offsets.

    Raises:
        ValueError: the block was stored before.
    """

def release(
    pending: dict[int, Groups],
    opened: dict[str, dict[str, dict[int, set[int]]]],
    groups: Groups,
    producer_id: int,
    commit: bool,
) -> int:
    """Ends a transaction: commits or drops its pending offsets.

    Args:
        pending: producer id -> group -> topic -> partition -> offset.
        opened: group -> topic -> partition -> producers with a pending offset.
        groups: group -> topic -> partition -> the committed offset.
        producer_id: the producer of the transaction.
        commit: True to commit, False to abort.

    Returns:
        The number of partitions that had no committed offset before.
    """
