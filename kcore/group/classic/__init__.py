"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the state behind them.

A group meets in generations. A *join phase* collects the members that want to be in the next one, the coordinator
chooses the protocol they share and the member that leads; in the *sync phase* the leader hands in everybody's
assignment, which is opaque here, and the group is Stable until somebody comes, goes or changes its mind.

What is durable is the last Stable or Empty generation, as one `GroupMetadata` record (`replay`). A rebalance that is
under way, with its new members, its next generation number and whoever waits for an answer, is soft state, as in
Kafka: after a restart the last recorded generation goes on, and members that were in the middle of something find out
by ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID and join again.
"""
