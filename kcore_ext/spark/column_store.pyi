from typing import Any, final

@final
class Input:
    """One column that Arrow holds, read where it lies.

    Args:
        validity: a bit a value; None where none is null.
        offsets: int32, for text and bytes; None for truth values.
        data: the bytes of all values, or a bit a truth value; None if there are none.
        first: where the column's rows begin in these buffers.
    """

    def __init__(self, validity: Any, offsets: Any, data: Any, first: int) -> None: ...
