from typing import final

@final
class FieldLayout:
    """The memory positions of a message class's fields, for other compiled modules.

    Args:
        cls: a declared class of `kcore.protocol`. None: every field is read as a Python attribute, because the class is
            not known.
        fields: the names of the fields that a module uses, by the indices 0, 1, 2, ... with which it reads them.

    Raises:
        TypeError: `cls` is not a declared class, or lacks one of the fields.
    """

    def __init__(self, cls: type | None, fields: dict[int, str]) -> None: ...
    @property
    def cls(self) -> type | None: ...
    @property
    def names(self) -> tuple[str, ...]: ...
