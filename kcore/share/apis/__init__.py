"""The classes of the share coordinator's APIs, each in its own module.

The package imports a class at its first use. `kcore.served_apis` creates the APIs.
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
