"""Migration between classic and consumer groups while members continue to work (KIP-848).

A consumer member that joins a classic group converts it to a consumer group (`upgrade`). The classic members stay and
use the classic protocol, but the coordinator assigns (`join`, `classic_members`). When the last consumer member leaves,
the group becomes a classic group again (`downgrade`). `group.consumer.migration.policy` determines the allowed
conversions; a group without members may always be converted.
"""
