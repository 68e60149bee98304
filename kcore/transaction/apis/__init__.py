"""The classes of the transaction coordinator's APIs, each in its own module.

The package imports a class at its first use. `kcore.served_apis` creates the APIs.
"""

from typing import TYPE_CHECKING

from kcore.runtime.deferred import api_finder

if TYPE_CHECKING:
    from kcore.transaction.apis.add_offsets_to_txn import AddOffsetsToTxnApi as AddOffsetsToTxnApi
    from kcore.transaction.apis.add_partitions_to_txn import AddPartitionsToTxnApi as AddPartitionsToTxnApi
    from kcore.transaction.apis.describe_transactions import DescribeTransactionsApi as DescribeTransactionsApi
    from kcore.transaction.apis.end_txn import EndTxnApi as EndTxnApi
    from kcore.transaction.apis.list_transactions import ListTransactionsApi as ListTransactionsApi
    from kcore.transaction.apis.transactional_init_producer_id import (
        TransactionalInitProducerIdApi as TransactionalInitProducerIdApi,
    )
    from kcore.transaction.apis.write_txn_markers import WriteTxnMarkersApi as WriteTxnMarkersApi

__getattr__ = api_finder(__name__)
