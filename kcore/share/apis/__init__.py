"""The APIs of the share coordinator, one in each file; a class is imported at its first use.

`kcore.served_apis` creates them.
"""

from typing import TYPE_CHECKING

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
