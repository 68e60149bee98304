"""Committed offsets: what groups have read, materialised or pending in a transaction, and when it is forgotten.

`store` holds the state and is changed by replay alone; `records` makes the records; `commit` is what OffsetCommit and
TxnOffsetCommit have in common; `expiry` and `deletion` forget what is old or belongs to nobody any more.
"""
