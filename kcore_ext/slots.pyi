from typing import final

@final
class Slots:
    """Where some slots of one Python class are, for other compiled modules. They are read, never set.

    Args:
        cls: a class; objects of its subclasses are not read.
        names: of slots of it or of its bases, 8 at most; a module calls each by its place here.

    Raises:
        TypeError: one of them is no slot, or there are more.
    """

    def __init__(self, cls: type, *names: str) -> None: ...
    @property
    def cls(self) -> type: ...
    @property
    def names(self) -> tuple[str, ...]: ...
