"""Opens the store of a cluster by its URL."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, cast

from kcore.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from kcore.cluster.store import ClusterStore, Initialised
    from kcore.config.node import Config

FACTORIES: Final = {
    "memory": "kcore.cluster.memory_store:open_store",
    "local": "kcore.cluster.local:open_store",
    "postgresql": "kcore.cluster.postgresql:open_store",
    "postgres": "kcore.cluster.postgresql:open_store",
}
"""URL scheme -> module and function. The function takes the URL and the durability; it is imported at first use."""


def is_store_url(place: str) -> bool:
    """Returns True if `place` is the URL of a store, and False if it is the path of a folder."""
    scheme, separator, _ = place.partition("://")
    return bool(separator) and scheme in FACTORIES


def open_store(url: str, durability: str = "fsync") -> ClusterStore:
    """Opens the store of a cluster.

    Args:
        url: the store's URL; its scheme selects the kind of store.
        durability: `fsync` if commits must survive the loss of the store's machine (if the store is configured for
            that); `os` if they must survive only the end of this process.

    Raises:
        ConfigError: no kind of store has this scheme, or the store needs a package that is not installed.
        LogError: the store cannot be opened.
    """
    module, name = _module(url)
    factory = cast("Callable[[str, str], ClusterStore]", getattr(module, name))
    return factory(url, durability)


def store_of_node(url: str, config: Config) -> Callable[[], ClusterStore]:
    """Returns a function that opens the store for a node of a cluster.

    Args:
        url: the store's URL.
        config: the node's settings.

    Raises:
        ConfigError: the settings name a data folder, which a node of a cluster must not have.
    """
    if config.kcore_data_dir:
        raise ConfigError(
            f"kcore.data.dir={config.kcore_data_dir}: a node of a cluster has no data folder; remove the setting"
        )
    return lambda: open_store(url, config.kcore_durability)


def initialise(url: str, node_role: str | None = None) -> Initialised:
    """Creates the store of a cluster, or migrates it to the schema of this version.

    Args:
        url: the store's URL, with a user who may create tables.
        node_role: the database role with which nodes connect, if the store has roles.

    Raises:
        ConfigError: the first node creates this kind of store, so it needs no initialisation; or a newer version of
            kcore has written the schema.
        LogError: the store cannot be reached, or refuses a change.
    """
    module, _ = _module(url)
    create = getattr(module, "initialise", None)
    if create is None:
        raise ConfigError(
            "`kcore cluster init` is only for postgresql:// URLs: any other store is created by its first node"
        )
    return cast("Callable[[str, str | None], Initialised]", create)(url, node_role)


def _module(url: str) -> tuple[ModuleType, str]:
    """Returns the module of a URL's kind of store, and the name of its factory."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in FACTORIES:
        raise ConfigError(
            f"the URL of a cluster must begin with one of {', '.join(f'{each}://' for each in FACTORIES)}"
        )
    module_name, _, name = FACTORIES[scheme].partition(":")
    try:
        return importlib.import_module(module_name), name
    except ImportError as error:
        raise ConfigError(
            f"a cluster on {scheme} needs a package that is not installed: {error}. `pip install 'kcore[cluster]'`"
        ) from error
