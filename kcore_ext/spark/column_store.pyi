from typing import Any, final

@final
class Input:
    """One Arrow column, read in place.

    Args:
        validity: one bit per value; None if no value is null.
        offsets: int32, for text and bytes; None for booleans.
        data: the bytes of all values, or one bit per boolean; None without values.
        first: the position of the column's first row in these buffers.
    """

    def __init__(self, validity: Any, offsets: Any, data: Any, first: int) -> None: ...
