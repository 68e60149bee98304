"""The states of a transactional id, and the complete table of their transitions.

```mermaid
stateDiagram-v2
    [*] --> Empty: InitProducerId
    Empty --> Ongoing: partitions or offsets added
    CompleteCommit --> Ongoing: partitions or offsets added
    CompleteAbort --> Ongoing: partitions or offsets added
    Ongoing --> Ongoing: more added
    Ongoing --> PrepareCommit: EndTxn commit
    Ongoing --> PrepareAbort: EndTxn abort
    Ongoing --> PrepareEpochFence: timeout, or InitProducerId of a new instance
    PrepareEpochFence --> PrepareAbort: at once
    Empty --> PrepareAbort: EndTxn v5 abort with nothing to abort
    CompleteCommit --> PrepareAbort: EndTxn v5 abort with nothing to abort
    CompleteAbort --> PrepareAbort: EndTxn v5 abort with nothing to abort
    PrepareCommit --> CompleteCommit: every marker is written
    PrepareAbort --> CompleteAbort: every marker is written
    Empty --> Empty: InitProducerId
    CompleteCommit --> Empty: InitProducerId
    CompleteAbort --> Empty: InitProducerId
    Empty --> Dead: the id expires
    CompleteCommit --> Dead: the id expires
    CompleteAbort --> Dead: the id expires
    Dead --> [*]
```

Two of Kafka's states never occur in a log. Dead is a tombstone in the log. PrepareEpochFence lasts in Kafka until the
abort is appended. kcore applies a decision as a whole, so no request sees an id in either state.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionStatus(IntEnum):
    """The state of a transactional id; the number is the same as in `__transaction_state` records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


EMPTY = TransactionStatus.EMPTY
ONGOING = TransactionStatus.ONGOING
PREPARE_COMMIT = TransactionStatus.PREPARE_COMMIT
PREPARE_ABORT = TransactionStatus.PREPARE_ABORT
COMPLETE_COMMIT = TransactionStatus.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionStatus.COMPLETE_ABORT
DEAD = TransactionStatus.DEAD
PREPARE_EPOCH_FENCE = TransactionStatus.PREPARE_EPOCH_FENCE

PREVIOUS: dict[TransactionStatus, frozenset[TransactionStatus]] = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""State -> the states that may precede it."""

COMPLETION: dict[TransactionStatus, TransactionStatus] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""State of a prepared transaction -> its state after the last marker.

Until then, requests for the transactional id get CONCURRENT_TRANSACTIONS.
"""

MAY_EXPIRE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""States in which a transactional id expires if no client uses it."""

NAMES: dict[TransactionStatus, str] = {
    status: "".join(word.capitalize() for word in status.name.split("_")) for status in TransactionStatus
}
"""State -> its name in DescribeTransactions and ListTransactions."""

BY_NAME: dict[str, TransactionStatus] = {name: status for status, name in NAMES.items()}
"""Name of a state, case-sensitive -> the state."""
