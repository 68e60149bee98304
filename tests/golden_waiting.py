"""Golden scenarios that wait for a part that kcore does not have yet, with the part they wait for."""

TRANSACTIONS: set[str] = set()
CONSUMER_GROUPS: set[str] = set()
SHARE_GROUPS: set[str] = set()
STREAMS_GROUPS: set[str] = set()

WAITING = TRANSACTIONS | CONSUMER_GROUPS | SHARE_GROUPS | STREAMS_GROUPS
