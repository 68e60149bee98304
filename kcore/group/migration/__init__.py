"""Migration between classic and consumer groups while members continue to work (KIP-848).

When a consumer member joins a classic group, the group becomes a consumer group (`upgrade`). The classic members stay
and use the classic protocol, but the coordinator computes their assignments (`join`, `classic_members`). When the last
consumer member leaves, the group becomes a classic group again (`downgrade`). `group.consumer.migration.policy`
determines the allowed conversions. A group without members may always be converted.
"""
