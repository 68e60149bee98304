"""Version limits of requests. The client API does not use the newest versions of these requests.

Some newest versions name topics by id instead of by name (KIP-516). Others belong to the second version of the
transaction protocol (KIP-890), or only brokers send them.
"""

from __future__ import annotations

from typing import Final

COMMIT: Final = 9
FETCH_OFFSETS: Final = 9
PRODUCE: Final = 12
INIT_PRODUCER_ID: Final = 5  # version 6 is for two-phase commit (KIP-939)
FETCH: Final = 12
METADATA: Final = 9
DELETE_TOPICS: Final = 5
KEYS_IN_LISTS: Final = 4  # FindCoordinator 4 and later look up several keys (KIP-699)
TOPICS_IN_STRUCTS: Final = 6  # DeleteTopics 6 and later may name topics by id
TRANSACTION_V1_PRODUCE: Final = 11
TRANSACTION_V1_COMMIT: Final = 4
TRANSACTION_V1_END: Final = 4
ADD_PARTITIONS_BY_CLIENT: Final = 3
