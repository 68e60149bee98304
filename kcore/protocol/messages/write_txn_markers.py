"""WriteTxnMarkers (API key 27): commit and abort markers that a coordinator sends to a broker (KIP-98)."""

from kcore.protocol.schema import Array, Bool, Int8, Int16, Int32, Int64, Message, Request, String, Struct, field


class WritableTxnMarkerTopic(Struct):
    """One entry of `topics` of WritableTxnMarker."""

    name: String = ""
    partition_indexes: Array[Int32] = ()


class WritableTxnMarker(Struct):
    """One entry of `markers` of WriteTxnMarkersRequest."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: Array[WritableTxnMarkerTopic] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], api_key=27, versions="1-2", flexible="1+"):
    """Markers to write; v2 names the transaction version (KIP-1228)."""

    markers: Array[WritableTxnMarker] = ()


class WritableTxnMarkerPartitionResult(Struct):
    """One entry of `partitions` of WritableTxnMarkerTopicResult."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    """One entry of `topics` of WritableTxnMarkerResult."""

    name: String = ""
    partitions: Array[WritableTxnMarkerPartitionResult] = ()


class WritableTxnMarkerResult(Struct):
    """One entry of `markers` of WriteTxnMarkersResponse."""

    producer_id: Int64 = 0
    topics: Array[WritableTxnMarkerTopicResult] = ()


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    """One error code per partition."""

    markers: Array[WritableTxnMarkerResult] = ()
