"""Which ways between the protocols are open: `group.consumer.migration.policy`."""

from __future__ import annotations

from typing import Final, NamedTuple


class MigrationPolicy(NamedTuple):
    """What a group with members may do.

    Attributes:
        upgrade: a consumer member may make a consumer group of a classic one.
        downgrade: a consumer group without consumer members becomes a classic one.
        mixed: classic members may join a consumer group.
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
"""Every value of the setting."""


def migration_policy(setting: str) -> MigrationPolicy:
    """The policy that a value of the setting names, whatever its case."""
    return POLICIES[setting.lower()]
