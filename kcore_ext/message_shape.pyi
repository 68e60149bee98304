from typing import final

@final
class Shape:
    """Where the fields of one message class are, for other compiled modules.

    Args:
        cls: a declared class of `kcore.protocol`.
    """

    def __init__(self, cls: type) -> None: ...
    @property
    def cls(self) -> type: ...
