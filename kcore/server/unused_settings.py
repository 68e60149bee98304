"""Warnings about settings that have no effect."""

from __future__ import annotations

import logging

from kcore.config.node import Config
from kcore.config.security import listener_names
from kcore.config.setting import similar_name

logger = logging.getLogger(__name__)


_BETWEEN_NODES = ("sasl.jaas.config", "ssl.endpoint.identification.algorithm")
"""Ends of the names of settings that only connections between nodes use."""


def warn_of_unused_settings(config: Config, *, in_cluster: bool = False) -> None:
    """Logs the settings that have no effect: settings that only Kafka uses, and settings of absent listeners.

    Args:
        config: the settings.
        in_cluster: True for a node of a cluster, which connects to other nodes.
    """
    ignored = config.without_effect()
    if in_cluster:
        ignored = [name for name in ignored if not name.endswith(_BETWEEN_NODES)]
    if ignored:
        logger.warning("these settings of Apache Kafka have no effect in kcore: %s", ", ".join(ignored))
    listeners = sorted(listener_names(config.listeners))
    for setting, listener, source in config.of_absent_listeners():
        logger.warning(
            "%s: %s has no effect, because `listeners` has no listener %s, but only %s%s",
            *(source, setting, listener, ", ".join(listeners), similar_name(listener, listeners)),
        )
