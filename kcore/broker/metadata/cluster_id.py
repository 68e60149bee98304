"""The cluster's id in a data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kcore.errors import ConfigError
from kcore.protocol.uuids import to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcore.config.node import Config
    from kcore.log.interface import LogEngine

CLUSTER_ID_META: Final = "cluster.id"


def stored_cluster_id(log: LogEngine, config: Config, new_uuid: Callable[[], bytes]) -> str:
    """Returns the cluster's id: the stored id, else the configured id, else a new one. Stages an id that is not stored
    yet.

    Raises:
        ConfigError: the configured id differs from the stored one.
    """
    stored = log.get_meta(CLUSTER_ID_META)
    configured = config.cluster_id
    if stored is not None:
        stored_id = stored.decode()
        if configured and configured != stored_id:
            raise ConfigError(f"cluster.id={configured} was set, but the data folder belongs to cluster {stored_id}")
        return stored_id
    cluster_id: str = configured or to_text(new_uuid())
    log.put_meta(CLUSTER_ID_META, cluster_id.encode())
    return cluster_id
