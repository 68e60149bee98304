"""Share groups (KIP-932): members that share the records of partitions, acknowledged one by one.

This package implements the membership of share groups: heartbeats, epochs, and the target assignment. It also lists the
share partitions for which the share coordinator stores a state (`partitions`). `kcore.share` stores the states, and the
group accesses them through a `Persister`. `kcore.broker.share` delivers the records.

Several members may have the same partition, so no member waits for another. A heartbeat moves its member to the target
in one step. The target contains only partitions whose state is *initialized*. The first heartbeat of a group starts the
initialization (`initialization`), and its response assigns no partitions. A heartbeat after the initialization assigns
them.

`heartbeat` decides heartbeats, `target` computes targets, `offsets` and `deletion` serve the admin APIs. `replay` is
the only code that changes durable state.
"""
