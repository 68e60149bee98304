"""From classic groups to consumer groups and back, while members go on working (KIP-848).

A consumer member that joins a classic group makes a consumer group of it (`upgrade`); its classic members stay, and
speak the classic protocol with a group that assigns by itself (`join`, `sync`, `heartbeat`, `leave`). When the last
consumer member has gone the group becomes a classic one again (`downgrade`). `group.consumer.migration.policy` says
which of the two ways is open; a group without members may go both ways at any time.
"""
