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
        cls: the class. Slots of objects of its subclasses are not read.
        names: index -> name of a slot of the class or its bases. Compiled modules refer to a slot by this index. At
            most 8 slots are allowed.

    Raises:
        TypeError: a name is not a slot, there are too many names, or the indices have a gap.
    """

    def __init__(self, cls: type, names: dict[int, str]) -> None: ...
    @property
    def cls(self) -> type: ...
    @property
    def names(self) -> tuple[str, ...]: ...
