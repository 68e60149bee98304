"""Encodes the lists of share partitions of a group (record 15) without an object for each topic."""

def encode_state(
    initializing: dict[bytes, tuple[str, frozenset[int]]],
    initialized: dict[bytes, tuple[str, frozenset[int]]],
    deleting: dict[bytes, str],
) -> bytes:
    """Returns the value of record 15 in version 0, preceded by its version as an int16.

    Args:
        initializing: name and partitions of each topic id.
        initialized: name and partitions of each topic id.
        deleting: name of each topic id.

    Raises:
        ValueError: a topic id or a name is invalid.
        OverflowError: a partition does not fit into 32 bits.
        TypeError: a value has another type.
    """
