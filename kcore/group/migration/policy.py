"""The conversions between the protocols that `group.consumer.migration.policy` allows."""

from __future__ import annotations

from typing import Final, NamedTuple


class MigrationPolicy(NamedTuple):
    """The conversions that a group with members may undergo.

    Attributes:
        upgrade: True if a consumer member may convert a classic group to a consumer group.
        downgrade: True if a consumer group without consumer members becomes a classic group.
        mixed: True if classic members may join a consumer group.
    """

    upgrade: bool
    downgrade: bool
    mixed: bool


POLICIES: Final[dict[str, MigrationPolicy]] = {
    "bidirectional": MigrationPolicy(upgrade=True, downgrade=True, mixed=True),
    "upgrade": MigrationPolicy(upgrade=True, downgrade=False, mixed=True),
    "downgrade": MigrationPolicy(upgrade=False, downgrade=True, mixed=True),
    "disabled": MigrationPolicy(upgrade=False, downgrade=False, mixed=False),
}
"""Mapping from each value of `group.consumer.migration.policy` to its policy."""


def migration_policy(setting: str) -> MigrationPolicy:
    """Returns the policy for a value of the setting, in upper or lower case."""
    return POLICIES[setting.lower()]
