"""Warnings about settings that have no effect."""

from __future__ import annotations

import logging

from kcore.config.node import Config
from kcore.config.security import listener_names
from kcore.config.setting import similar_name

logger = logging.getLogger(__name__)


def warn_of_unused_settings(config: Config) -> None:
    """Logs the settings that have no effect: settings that only Kafka uses, and settings of absent listeners."""
    if ignored := config.without_effect():
        logger.warning("these settings of Apache Kafka have no effect in kcore: %s", ", ".join(ignored))
    listeners = sorted(listener_names(config.listeners))
    for setting, listener, source in config.of_absent_listeners():
        logger.warning(
            "%s: %s has no effect, because `listeners` has no listener %s, but only %s%s",
            *(source, setting, listener, ", ".join(listeners), similar_name(listener, listeners)),
        )
