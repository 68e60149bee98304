"""Control records: the transaction markers in a partition's log (KIP-98).

The key is an int16 version and an int16 type; the value of a marker is an int16 version and the coordinator's epoch.
"""

from enum import IntEnum

from kcore.protocol.records.base import RecordValue
from kcore.protocol.schema import Int16, Int32, Message


class ControlRecordType(IntEnum):
    """The type of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of a control record after its int16 version."""

    type: Int16 = 0


class EndTxnMarker(RecordValue, versions="0"):
    """The value of a commit or abort marker."""

    coordinator_epoch: Int32 = 0
