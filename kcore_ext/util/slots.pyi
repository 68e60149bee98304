from typing import final

def names_by_index(names: dict[int, str]) -> tuple[str, ...]:
    """Returns the names in the order of their indices.

    Raises:
        TypeError: the indices are not 0, 1, 2, ..., each once.
    """

@final
class SlotLayout:
    """The offsets of some slots of a Python class. Other compiled modules read these slots, but never set them.

    Args:
        cls: the class; objects of its subclasses are not read.
        names: the names of at most 8 slots of the class or its bases, by the index that a module uses for each.

    Raises:
        TypeError: a name is not a slot, there are too many names, or the indices have a gap.
    """

    def __init__(self, cls: type, names: dict[int, str]) -> None: ...
    @property
    def cls(self) -> type: ...
    @property
    def names(self) -> tuple[str, ...]: ...
