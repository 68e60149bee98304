from typing import final

@final
class FieldLayout:
    """The positions of some fields in the objects of a message class.

    Compiled modules use it to read fields and to create objects.

    Args:
        cls: a declared class of `kcore.protocol`. None: the class is unknown, so every field is read as a Python
            attribute.
        fields: index -> name of the field. Compiled modules refer to a field by this index. The indices are 0, 1, 2, …

    Raises:
        TypeError: `cls` is not a declared class, or lacks one of the fields.
    """

    def __init__(self, cls: type | None, fields: dict[int, str]) -> None: ...
    @property
    def cls(self) -> type | None: ...
    @property
    def names(self) -> tuple[str, ...]: ...
