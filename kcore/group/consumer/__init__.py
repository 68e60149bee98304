"""Consumer groups (KIP-848): one heartbeat instead of joins and syncs, assignments computed by the coordinator, members
that rebalance independently.

Three epochs describe the progress of a group. The *group epoch* grows by one with every change that affects the
assignment. The *assignment epoch* is the group epoch for which the current target assignment was computed. A member
takes the assignment epoch as its *member epoch* when it has revoked the partitions that are no longer in its target.
The member then receives partitions that other members have released. Members do not wait for each other, and a
partition never has two owners.

`heartbeat` decides a heartbeat. `reconcile` moves a member towards its target, with the table in `states`. `target`
computes targets, `regex` resolves patterns, `leave` removes members. `replay` is the only code that changes durable
state.
"""
