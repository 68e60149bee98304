"""The APIs of the share coordinator, one in each file; a class is imported at its first use.

`kcore.share.served_apis` makes the APIs.
"""

from typing import TYPE_CHECKING, Final

from kcore.protocol.api_keys import ApiKey
from kcore.runtime.deferred import api_finder

if TYPE_CHECKING:
    from kcore.share.apis.delete_share_group_state import DeleteShareGroupStateApi as DeleteShareGroupStateApi
    from kcore.share.apis.initialize_share_group_state import (
        InitializeShareGroupStateApi as InitializeShareGroupStateApi,
    )
    from kcore.share.apis.read_share_group_state import ReadShareGroupStateApi as ReadShareGroupStateApi
    from kcore.share.apis.read_share_group_state_summary import (
        ReadShareGroupStateSummaryApi as ReadShareGroupStateSummaryApi,
    )
    from kcore.share.apis.write_share_group_state import WriteShareGroupStateApi as WriteShareGroupStateApi

__getattr__ = api_finder(__name__)

VERSIONS: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
}
"""The served versions of each API, equal to those of its class: clients get them before any class is imported."""
