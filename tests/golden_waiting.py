"""Golden scenarios that need a part that kcore does not have yet, by that part: none at present."""

ALL_PARTS: set[str] = set()

WAITING = ALL_PARTS
