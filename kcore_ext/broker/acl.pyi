from collections.abc import Iterable

Rules = dict[tuple[str, str], dict[tuple[int, int], int]]

def decide(
    literal: dict[tuple[int, str], Rules],
    prefixed: dict[tuple[int, str], Rules],
    lengths: Iterable[int],
    owners: tuple[tuple[str, str], ...],
    implied_by: frozenset[int],
    operation: int,
    resource_type: int,
    name: str,
) -> bool | None:
    """Decides if entries allow an operation on a resource; None if no entry covers it.

    Args:
        literal: (resource type, name) -> the entries of the pattern.
        prefixed: (resource type, prefix) -> the entries of the pattern.
        lengths: the lengths of the prefixes of the resource's type.
        owners: the principals and hosts of the entries that apply to the client.
        implied_by: the operations that imply the requested one in an ALLOW entry.
        operation: the requested operation.
        resource_type: the resource's type.
        name: the resource's name.
    """
