"""Records of `__transaction_state`, type 0: transactions (KIP-98)."""

from kcore.protocol.records.base import TRANSACTION_STATE, RecordKey, RecordValue
from kcore.protocol.schema import Array, Int8, Int16, Int32, Int64, String, Struct, field


class PartitionsSchema(Struct):
    """One entry of `transaction_partitions` of TransactionLogValue."""

    topic: String = ""
    partition_ids: Array[Int32] = ()


class TransactionLogValue(RecordValue, versions="0-1", flexible="1+"):
    """A transaction's state; v1 adds the next producer id and epoch (KIP-890)."""

    producer_id: Int64 = 0
    previous_producer_id: Int64 = field("1+", default=-1, tag=0)
    next_producer_id: Int64 = field("1+", default=-1, tag=1)
    producer_epoch: Int16 = 0
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Array[PartitionsSchema] | None = ()
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = field("1+", default=0, tag=2)


class TransactionLogKey(RecordKey, topic=TRANSACTION_STATE, record_type=0, value=TransactionLogValue):
    """The key: a transactional id."""

    transactional_id: String = ""
