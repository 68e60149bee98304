"""Committed offsets of groups: materialised ones, pending ones in transactions, and their expiration.

`store` holds the state, which only replay changes. `records` makes the records. `commit` is shared by OffsetCommit and
TxnOffsetCommit. `expiry` and `deletion` remove old offsets and those of deleted topics.
"""
