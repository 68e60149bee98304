"""Groups: members that share work, and the offsets they commit.

The *group shard* (`kcore.group.shard`) is the state machine of one partition of `__consumer_offsets`. It holds groups
of every kind (`kcore.group.group.Group` says what all kinds have in common) and the offset store. What is durable is
changed by replaying records alone; what is soft (who waits for a join, session deadlines) lives beside it.
"""
