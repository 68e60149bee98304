"""The SQL of nodes, leases and the controller. All times come from the database's clock.

The statements use `statement_timestamp()`, the arrival time of a statement, which does not change during a lock wait.
`now()` is the start of the transaction, which may be earlier. A lease that was released ends at `-infinity`, so that a
late renewal cannot extend it.
"""

from __future__ import annotations

from typing import Final, LiteralString

_LEFT_MS: Final[LiteralString] = (
    "greatest(0, floor(extract(epoch FROM (greatest(expires_at, 'epoch') - statement_timestamp())) * 1000))::bigint"
)
_UNTIL: Final[LiteralString] = "statement_timestamp() + %(ttl)b * interval '1 ms'"

CLUSTER_ID: Final[LiteralString] = "SELECT cluster_id FROM cluster"

NEW_TIMELINE: Final[LiteralString] = (
    "UPDATE cluster SET timeline = %(timeline)b WHERE timeline < %(timeline)b RETURNING 1"
)
EXTEND_ALL: Final[LiteralString] = """
UPDATE leases SET expires_at = greatest(expires_at, statement_timestamp() + ttl_ms * interval '1 ms')
WHERE expires_at > '-infinity'
"""
"""Statement that extends all leases after a promotion.

The clock of the promoted standby may differ from the clock of the old primary, so a lease may seem to end too early.
"""

LOCK_LEASE: Final[LiteralString] = f"""
SELECT holder, epoch, {_LEFT_MS} FROM leases WHERE name = %b FOR UPDATE
"""
LOCK_NODE: Final[LiteralString] = "SELECT session, epoch FROM nodes WHERE node_id = %b FOR UPDATE"
NODE_STATE: Final[LiteralString] = f"""
SELECT n.session, {_LEFT_MS} FROM nodes n JOIN leases l ON l.name = 'node/' || n.node_id WHERE n.node_id = %b
"""
SET_LEASE: Final[LiteralString] = f"""
INSERT INTO leases VALUES (%(name)b, %(holder)b, 1, %(ttl)b, {_UNTIL})
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, epoch = leases.epoch + 1, ttl_ms = excluded.ttl_ms, expires_at = excluded.expires_at
RETURNING epoch, {_LEFT_MS}
"""
SET_NODE: Final[LiteralString] = """
INSERT INTO nodes (node_id, session, epoch, description) VALUES (%(node)b, %(session)b, %(epoch)b, %(description)b)
ON CONFLICT (node_id) DO UPDATE SET
    session = excluded.session, epoch = excluded.epoch, round = 0, description = excluded.description
"""
RENEW: Final[LiteralString] = f"""
UPDATE leases l SET expires_at = {_UNTIL}, ttl_ms = %(ttl)b
FROM unnest(%(names)b::text[], %(holders)b::bigint[], %(epochs)b::bigint[]) AS w(name, holder, epoch)
WHERE l.name = w.name AND l.holder = w.holder AND l.epoch = w.epoch AND l.expires_at > '-infinity'
RETURNING l.name
"""
LEAD_METADATA: Final[LiteralString] = """
UPDATE partitions SET leader = %b, leader_epoch = %b, node_epoch = %b WHERE number = 0
"""
FENCE_NODE: Final[LiteralString] = "UPDATE nodes SET session = 0 WHERE node_id = %b"
END_LEASE: Final[LiteralString] = """
UPDATE leases SET expires_at = '-infinity' WHERE name = %b AND holder = %b AND epoch = %b
"""
END_FENCED_LEASE: Final[LiteralString] = """
UPDATE leases SET epoch = epoch + 1, expires_at = '-infinity' WHERE name = %b
"""
END_CONTROLLER_OF: Final[LiteralString] = """
UPDATE leases SET expires_at = '-infinity' WHERE name = 'controller' AND holder = %b
"""
SET_DRAINING: Final[LiteralString] = "UPDATE nodes SET draining = %b WHERE node_id = %b"
NODES: Final[LiteralString] = f"""
SELECT n.node_id, n.session = 0, n.draining, n.description, l.name, l.holder, l.epoch, {_LEFT_MS}
FROM nodes n JOIN leases l ON l.name = 'node/' || n.node_id ORDER BY n.node_id
"""
CONTROLLER: Final[LiteralString] = f"SELECT name, holder, epoch, {_LEFT_MS} FROM leases WHERE name = 'controller'"
LEADERS: Final[LiteralString] = """
SELECT number, topic_id, partition, leader, leader_epoch FROM partitions ORDER BY number
"""
LEASES: Final[LiteralString] = f"SELECT name, holder, epoch, {_LEFT_MS} FROM leases ORDER BY name"
VALUE_NAMES: Final[LiteralString] = "SELECT name FROM named_values WHERE name IS NOT NULL ORDER BY name"
COUNTS: Final[LiteralString] = """
SELECT (SELECT next_number FROM cluster), (SELECT max(number) FROM partitions),
    (SELECT count(*) FROM named_values WHERE name IS NULL OR value IS NULL),
    (SELECT count(*) FROM leases WHERE expires_at IS NULL)
"""
