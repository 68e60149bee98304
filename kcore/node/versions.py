"""The newest versions of the requests that name topics by name, not by id (KIP-516)."""

from __future__ import annotations

from typing import Final

COMMIT: Final = 9
FETCH_OFFSETS: Final = 9
PRODUCE: Final = 12
FETCH: Final = 12
METADATA: Final = 9
DELETE_TOPICS: Final = 5
TRANSACTION_V1_PRODUCE: Final = 11
TRANSACTION_V1_COMMIT: Final = 4
TRANSACTION_V1_END: Final = 4
ADD_PARTITIONS_BY_CLIENT: Final = 3
