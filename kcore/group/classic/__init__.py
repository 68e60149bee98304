"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and their state.

A rebalance forms the next generation in two phases. The *join phase* collects the members of the next generation; the
coordinator then chooses a protocol that all of them support, and the leader. In the *sync phase* the leader sends every
member's assignment, which is opaque to the coordinator. The group is then Stable until a member joins, leaves or
changes its protocols.

The last Stable or Empty generation is durable, as a single `GroupMetadata` record, which module `replay` applies. A
rebalance in progress is soft state, as in Kafka: its new members, its generation number and its parked requests. After
a restart the last recorded generation continues. Members that were rebalancing receive ILLEGAL_GENERATION or
UNKNOWN_MEMBER_ID, and join again.
"""
