"""The APIs of the transaction coordinator, one in each file; a class is imported at its first use.

`kcore.transaction.served_apis` makes the APIs.
"""

from typing import TYPE_CHECKING, Final

from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import api_finder

if TYPE_CHECKING:
    from kcore.transaction.apis.add_offsets_to_txn import AddOffsetsToTxnApi as AddOffsetsToTxnApi
    from kcore.transaction.apis.add_partitions_to_txn import AddPartitionsToTxnApi as AddPartitionsToTxnApi
    from kcore.transaction.apis.describe_transactions import DescribeTransactionsApi as DescribeTransactionsApi
    from kcore.transaction.apis.end_txn import EndTxnApi as EndTxnApi
    from kcore.transaction.apis.list_transactions import ListTransactionsApi as ListTransactionsApi
    from kcore.transaction.apis.write_txn_markers import WriteTxnMarkersApi as WriteTxnMarkersApi

__getattr__ = api_finder(__name__)

VERSIONS: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
}
"""The served versions of each API, equal to those of its class: clients get them before any class is imported."""
