"""An encoder for the share partitions of a group (record type 15) that creates no object for each topic."""

def encode_state(
    initializing: dict[bytes, tuple[str, frozenset[int]]],
    initialized: dict[bytes, tuple[str, frozenset[int]]],
    deleting: dict[bytes, str],
) -> bytes:
    """Returns the encoded value of a record of type 15, version 0. It begins with the version as an int16.

    Args:
        initializing: topic id -> (topic name, partitions) of the share partitions that are being initialized.
        initialized: topic id -> (topic name, partitions) of the initialized share partitions.
        deleting: topic id -> name of the topics whose share partitions are being deleted.

    Raises:
        ValueError: a topic id or a name is invalid.
        OverflowError: a partition does not fit into 32 bits.
        TypeError: a value has another type.
    """
