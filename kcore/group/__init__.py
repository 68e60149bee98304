"""Groups: members that share work, and the offsets they commit.

The *group shard* (`kcore.group.shard`) is the state machine of one partition of `__consumer_offsets`. It holds groups
of every kind and the offset store. `kcore.group.group.Group` is the interface that all kinds implement. Durable state
changes only by replaying records. Soft state (parked joins, session deadlines) is in memory only.
"""
