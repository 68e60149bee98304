"""The SQL of write transactions, reads and reclaiming.

A write transaction stores one write set, if the node still leads the partitions. Until its commit, it locks the rows
that prove the leadership: the row of the node, and the rows of the partitions. A node that takes over a partition
changes these rows. If the take-over commits first, the write transaction stores no data; otherwise the take-over waits
for the write transaction. A test without a lock would not be sufficient, because PostgreSQL evaluates the test on a
snapshot.
"""

from __future__ import annotations

from typing import Final, LiteralString

_OWNED: Final[LiteralString] = """
    SELECT p.number FROM partitions p
    JOIN unnest(%(owned)b::bigint[], %(epochs)b::bigint[]) AS w(number, epoch) ON p.number = w.number
    WHERE p.leader = %(node)b AND p.leader_epoch = w.epoch AND p.node_epoch = %(node_epoch)b
    ORDER BY p.number FOR SHARE OF p"""

APPEND: Final[LiteralString] = f"""
WITH node AS (
    SELECT 1 FROM nodes WHERE node_id = %(node)b AND session = %(session)b FOR NO KEY UPDATE
), owned AS ({_OWNED})
INSERT INTO batches
SELECT * FROM unnest(
    %(numbers)b::bigint[], %(bases)b::bigint[], %(lasts)b::bigint[], %(times)b::bigint[], %(batches)b::bytea[]
) WHERE EXISTS (SELECT 1 FROM node) AND (SELECT count(*) FROM owned) = cardinality(%(owned)b::bigint[])
"""
"""Statement of a write transaction that only appends batches. It stores all of these batches or none."""
APPEND_PARAMETERS: Final[tuple[LiteralString, ...]] = (
    "owned",
    "epochs",
    "node",
    "node_epoch",
    "session",
    "numbers",
    "bases",
    "lasts",
    "times",
    "batches",
)
"""The names of the parameters of `APPEND`, in the order in which the prepared statement receives their values."""

# The statements of other write transactions, in one pipeline. A failed check divides by zero, which aborts the
# transaction: the node cannot look at a result before it has sent COMMIT.
BEGIN_NUMBERED: Final[LiteralString] = """
WITH node AS (
    UPDATE nodes SET round = %(number)b WHERE node_id = %(node)b AND session = %(session)b RETURNING 1
)
SELECT 1 / count(*) FROM node
"""
CHECK_OWNED: Final[LiteralString] = f"""
WITH owned AS ({_OWNED})
SELECT 1 / (CASE WHEN count(*) = cardinality(%(owned)b::bigint[]) THEN 1 ELSE 0 END) FROM owned
"""
REMOVE: Final[LiteralString] = """
WITH gone AS (
    DELETE FROM partitions p USING unnest(%b::bytea[], %b::bigint[]) AS w(topic_id, partition)
    WHERE p.topic_id = w.topic_id AND p.partition = w.partition RETURNING p.number
)
INSERT INTO removed_partitions SELECT number FROM gone
"""
CREATE: Final[LiteralString] = """
INSERT INTO partitions
SELECT w.number, w.topic_id, w.partition, w.leader, w.leader_epoch,
    coalesce((SELECT n.epoch FROM nodes n WHERE n.node_id = w.leader), 0), w.meta
FROM unnest(%b::bigint[], %b::bytea[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
    AS w(number, topic_id, partition, leader, leader_epoch, meta)
"""
LOCK_MOVED: Final[LiteralString] = """
WITH locked AS (
    SELECT p.number FROM partitions p
    JOIN unnest(%b::bytea[], %b::bigint[], %b::bigint[]) AS w(topic_id, partition, previous)
        ON p.topic_id = w.topic_id AND p.partition = w.partition
    WHERE p.leader_epoch = w.previous ORDER BY p.number FOR UPDATE OF p
)
SELECT 1 / (CASE WHEN count(*) = %b THEN 1 ELSE 0 END) FROM locked
"""
MOVE: Final[LiteralString] = """
UPDATE partitions p SET leader = w.leader, leader_epoch = w.leader_epoch,
    node_epoch = coalesce((SELECT n.epoch FROM nodes n WHERE n.node_id = w.leader), 0)
FROM unnest(%b::bytea[], %b::bigint[], %b::bigint[], %b::bigint[]) AS w(topic_id, partition, leader, leader_epoch)
WHERE p.topic_id = w.topic_id AND p.partition = w.partition
"""
PUT_VALUES: Final[LiteralString] = """
INSERT INTO named_values SELECT * FROM unnest(%b::bytea[], %b::bytea[])
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
DELETE_VALUES: Final[LiteralString] = "DELETE FROM named_values WHERE name = ANY(%b::bytea[])"
NEXT_NUMBER: Final[LiteralString] = "UPDATE cluster SET next_number = greatest(next_number, %b)"
PUT_METAS: Final[LiteralString] = """
UPDATE partitions p SET meta = w.meta FROM unnest(%b::bigint[], %b::bytea[]) AS w(number, meta)
WHERE p.number = w.number
"""
DELETE_BATCHES: Final[LiteralString] = """
DELETE FROM batches b USING unnest(%b::bigint[], %b::bigint[]) AS w(number, base_offset)
WHERE b.number = w.number AND b.base_offset = w.base_offset
"""
REPLACE_BATCHES: Final[LiteralString] = """
UPDATE batches b SET last_offset = w.last_offset, max_timestamp = w.max_timestamp, batch = w.batch
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
    AS w(number, base_offset, last_offset, max_timestamp, batch)
WHERE b.number = w.number AND b.base_offset = w.base_offset
"""
INSERT_BATCHES: Final[LiteralString] = """
INSERT INTO batches SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
"""
INSERT_BATCH: Final[LiteralString] = "INSERT INTO batches VALUES (%b, %b, %b, %b, %b)"
"""Statement that stores one large batch. The server would copy an element of an array more often than a parameter."""
PUT_CHUNKS: Final[LiteralString] = """
INSERT INTO snapshot_chunks SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
ON CONFLICT (number, snapshot_offset, chunk_index) DO UPDATE SET data = excluded.data
"""
NOTIFY: Final[LiteralString] = "SELECT pg_notify('kcore', '')"

FENCED_NODE: Final[LiteralString] = "SELECT count(*) = 0 FROM nodes WHERE node_id = %b AND session = ANY(%b::bigint[])"
NOT_OWNED: Final[LiteralString] = """
SELECT w.number FROM unnest(%(owned)b::bigint[], %(epochs)b::bigint[]) AS w(number, epoch)
LEFT JOIN partitions p ON p.number = w.number
WHERE p.leader IS DISTINCT FROM %(node)b::bigint OR p.leader_epoch IS DISTINCT FROM w.epoch
    OR p.node_epoch IS DISTINCT FROM %(node_epoch)b::bigint
ORDER BY w.number
"""

# -- uncertain writes

NEW_SESSION: Final[LiteralString] = """
UPDATE nodes SET session = %b WHERE node_id = %b AND epoch = %b AND session = ANY(%b::bigint[]) RETURNING round
"""
"""Statement that changes the session token of a node that has lost its connection during a transaction.

The statement waits until the server has ended this transaction. If the server has not received the transaction yet, the
new token fences it.
"""
LAST_NUMBER: Final[LiteralString] = "SELECT round FROM nodes WHERE node_id = %b AND epoch = %b"
STORED_BATCHES: Final[LiteralString] = """
SELECT w.number,
    (p.leader = %(node)b AND p.leader_epoch = w.epoch AND p.node_epoch = %(node_epoch)b) IS TRUE,
    (SELECT b.batch FROM batches b WHERE b.number = w.number AND b.base_offset = w.base_offset),
    (SELECT b.last_offset FROM batches b WHERE b.number = w.number ORDER BY b.base_offset DESC LIMIT 1)
FROM unnest(%(numbers)b::bigint[], %(epochs)b::bigint[], %(bases)b::bigint[]) AS w(number, epoch, base_offset)
LEFT JOIN partitions p ON p.number = w.number
ORDER BY w.number
"""
OWNED_ENDS: Final[LiteralString] = """
SELECT p.number, p.meta,
    (SELECT b.last_offset FROM batches b WHERE b.number = p.number ORDER BY b.base_offset DESC LIMIT 1)
FROM partitions p WHERE p.number = ANY(%b::bigint[]) AND p.leader = %b AND p.node_epoch = %b ORDER BY p.number
"""

# -- reads

READ_BARRIER: Final[LiteralString] = """
INSERT INTO read_barriers VALUES (%b, 1) ON CONFLICT (node_id) DO UPDATE SET count = read_barriers.count + 1
"""
"""Statement that makes a reading transaction write, so that its commit waits for the synchronous standbys.

After the commit, the standbys also have all data that the transaction has read. Without this statement, a read after a
crash of the primary may show a commit that no standby has.
"""
UNFENCED_NODE: Final[LiteralString] = """
SELECT 1 FROM nodes WHERE node_id = %b AND epoch = %b AND session <> 0
"""
LOOK_UP: Final[LiteralString] = """
SELECT p.number, p.topic_id, p.partition, p.leader, p.leader_epoch, p.node_epoch, p.meta,
    (SELECT b.base_offset FROM batches b WHERE b.number = p.number ORDER BY b.base_offset DESC LIMIT 1),
    (SELECT b.last_offset FROM batches b WHERE b.number = p.number ORDER BY b.base_offset DESC LIMIT 1),
    (SELECT substring(b.batch FROM 1 FOR 61) FROM batches b WHERE b.number = p.number
        ORDER BY b.base_offset DESC LIMIT 1),
    (SELECT b.last_offset FROM batches b WHERE b.number = p.number ORDER BY b.base_offset LIMIT 1),
    (SELECT array_agg(DISTINCT c.snapshot_offset) FROM snapshot_chunks c WHERE c.number = p.number)
FROM partitions p JOIN unnest(%b::bytea[], %b::bigint[]) AS w(topic_id, partition)
    ON p.topic_id = w.topic_id AND p.partition = w.partition
"""
_FROM: Final[LiteralString] = """
FROM batches WHERE number = %(number)b AND base_offset < %(limit)b AND last_offset >= %(offset)b
    AND base_offset >= coalesce((SELECT s.base_offset FROM batches s WHERE s.number = %(number)b
        AND s.base_offset <= %(offset)b ORDER BY s.base_offset DESC LIMIT 1), %(offset)b)
ORDER BY base_offset LIMIT %(count)b
"""
SLICE: Final[LiteralString] = f"""
SELECT base_offset, batch FROM (
    SELECT base_offset, batch, coalesce(octet_length(batch), 0) AS size,
        sum(coalesce(octet_length(batch), 0)) OVER (ORDER BY base_offset ROWS UNBOUNDED PRECEDING) AS total
    FROM (SELECT base_offset, batch {_FROM}) AS found
) AS sized WHERE total - size < %(bytes)b ORDER BY base_offset
"""
SUMMARIES: Final[LiteralString] = f"SELECT base_offset, last_offset, max_timestamp, octet_length(batch) {_FROM}"
CHUNK: Final[LiteralString] = """
SELECT data FROM snapshot_chunks WHERE number = %b AND snapshot_offset = %b AND chunk_index = %b
"""
VALUE: Final[LiteralString] = "SELECT value FROM named_values WHERE name = %b"
VALUE_NAMES: Final[LiteralString] = "SELECT name FROM named_values WHERE substring(name FROM 1 FOR %b::int) = %b"
REMOVED: Final[LiteralString] = """
SELECT (SELECT next_number FROM cluster), array(SELECT number FROM removed_partitions ORDER BY number)
"""
SIZES: Final[LiteralString] = "SELECT pg_total_relation_size('batches') + pg_total_relation_size('snapshot_chunks')"
STRAY: Final[LiteralString] = """
WITH RECURSIVE used(number) AS (
    (SELECT min(number) FROM batches)
    UNION ALL SELECT (SELECT min(b.number) FROM batches b WHERE b.number > used.number) FROM used
        WHERE used.number IS NOT NULL
)
SELECT number FROM (
    SELECT number FROM used WHERE number IS NOT NULL UNION SELECT DISTINCT number FROM snapshot_chunks
) AS found
WHERE number NOT IN (SELECT number FROM partitions) AND number NOT IN (SELECT number FROM removed_partitions)
ORDER BY number
"""

# -- reclaiming

RECLAIM_BATCHES: Final[LiteralString] = """
DELETE FROM batches WHERE number = %(number)b AND base_offset IN (
    SELECT base_offset FROM batches WHERE number = %(number)b AND base_offset < %(below)b AND last_offset < %(below)b
    ORDER BY base_offset LIMIT %(left)b)
"""
RECLAIM_CHUNKS: Final[LiteralString] = """
DELETE FROM snapshot_chunks WHERE number = %(number)b AND (snapshot_offset, chunk_index) IN (
    SELECT snapshot_offset, chunk_index FROM snapshot_chunks
    WHERE number = %(number)b AND snapshot_offset <> ALL(%(keep)b::bigint[])
    ORDER BY snapshot_offset, chunk_index LIMIT %(left)b)
"""
HAS_BATCHES: Final[LiteralString] = """
SELECT EXISTS (SELECT 1 FROM batches WHERE number = %(number)b AND base_offset < %(below)b AND last_offset < %(below)b)
"""
HAS_CHUNKS: Final[LiteralString] = """
SELECT EXISTS (SELECT 1 FROM snapshot_chunks
    WHERE number = %(number)b AND snapshot_offset <> ALL(%(keep)b::bigint[]))
"""
FORGET: Final[LiteralString] = "DELETE FROM removed_partitions WHERE number = %b"
