"""Share groups (KIP-932): members that share the records of partitions, acknowledged one by one.

This package is the membership: heartbeats, epochs, the target assignment, and the list of share partitions whose state
the share coordinator holds (`partitions`). The state itself belongs to `kcore.share`, and the delivery of records to
`kcore.broker.share`; the group reaches the state through a `Persister`.

Several members may have the same partition, so no member waits for another: a heartbeat takes its member to the target
in one step. The target contains only partitions whose state is *initialized*. The first heartbeat of a group starts the
initialization (`initialization`) and gets no partitions; a later heartbeat finds it complete and assigns them.

`heartbeat` decides heartbeats, `target` computes targets, `offsets` and `deletion` serve the admin APIs. `replay` is
the only code that changes durable state.
"""
