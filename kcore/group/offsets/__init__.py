"""Offsets of groups: committed offsets, pending offsets of open transactions, and their expiration.

`store` holds the state, which only replay changes. `records` makes the records. `commit` is shared by OffsetCommit and
TxnOffsetCommit. `expiry` removes old offsets, and `deletion` removes the offsets of deleted topics.
"""
