# Made by tools/generate_sync.py from _async/brokers.py: change that file, then run the program.
"""Brokers: their settings, their loggers, and the directories of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kcore.client.aio.broker import Broker
from kcore.errors import KafkaError
from kcore.node._sync.calls import Calls
from kcore.node._sync.settings import BROKER, LOGGER, change_config, config_of
from kcore.node.arguments import MAX_COUNT, check_number
from kcore.node.cluster_types import BrokerDescription, ClusterDescription, LogDirectory
from kcore.node.types import PartitionDict, TopicPartition
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

ALL_BROKERS = ""
"""Name of the resource that has the settings of all brokers."""


def described_cluster(calls: Calls) -> ClusterDescription:
    """Returns the cluster with its live brokers."""
    response = calls.metadata([])
    brokers = [BrokerDescription(row.node_id, row.host, row.port, row.rack) for row in response.brokers]
    brokers.sort(key=lambda broker: broker.id)
    controller = response.controller_id if response.controller_id >= 0 else None
    return ClusterDescription(response.cluster_id, controller, tuple(brokers))


class Brokers:
    """The brokers of a cluster: `node.brokers`."""

    __iter__ = None  # else Python would iterate without end over brokers[0], brokers[1], …

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"Brokers({str(self._calls.transport)!r})"

    def __getitem__(self, broker_id: int) -> ClusterBroker:
        """Returns a broker, without a request. Operations of a broker that is not alive raise an error.

        Raises:
            TypeError, ValueError: the id is not a whole number, or too large.
        """
        check_number("broker_id", broker_id, MAX_COUNT)
        return ClusterBroker(self._calls, broker_id)

    def list(self) -> list[BrokerDescription]:
        """Returns the live brokers, by id."""
        return list((described_cluster(self._calls)).brokers)

    def config(self) -> dict[str, str | None]:
        """Returns the settings that were set for all brokers at run time; sensitive values are None."""
        return config_of(self._calls, BROKER, ALL_BROKERS, False)

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Changes settings of all brokers; a value of None restores the default.

        The settings of a single broker take precedence. The server stores unknown settings, because a plugin may use
        them.

        Raises:
            InvalidRequestError, InvalidConfigError: a setting cannot be changed at run time, or its value is not valid.
                Then no setting is changed.
        """
        change_config(self._calls, BROKER, ALL_BROKERS, config)


class ClusterBroker:
    """One broker: `node.brokers[1]`.

    Attributes:
        id: the broker id.
    """

    def __init__(self, calls: Calls, broker_id: int) -> None:
        self._calls = calls
        self.id = broker_id

    def __repr__(self) -> str:
        return f"ClusterBroker({self.id})"

    def config(self, *, own: bool = False) -> dict[str, str | None]:
        """Returns the effective settings, by Kafka's names; sensitive values are None.

        Args:
            own: True to return only settings that were set for this broker, at run time or at its start. The result
                then lacks defaults, and settings that were set for all brokers.

        Raises:
            BrokerNotAvailableError: no live broker has this id.
        """
        return config_of(self._calls, BROKER, str(self.id), own, self._address())

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Changes settings of this broker; a value of None restores the default.

        The broker stores unknown settings, because a plugin may use them.

        Raises:
            BrokerNotAvailableError: no live broker has this id.
            InvalidRequestError, InvalidConfigError: a setting cannot be changed at run time, or its value is not valid.
                Then no setting is changed.
        """
        change_config(self._calls, BROKER, str(self.id), config, self._address())

    def loggers(self) -> dict[str, str | None]:
        """Returns the levels of the broker's loggers, for example `{"kcore.server": "INFO"}`.

        Raises:
            BrokerNotAvailableError: no live broker has this id.
        """
        return config_of(self._calls, LOGGER, str(self.id), False, self._address())

    def set_loggers(self, levels: Mapping[str, str | None]) -> None:
        """Changes the levels of loggers until the broker ends; None restores the level of the parent logger.

        Raises:
            BrokerNotAvailableError: no live broker has this id.
            KafkaError: a logger or a level does not exist.
        """
        change_config(self._calls, LOGGER, str(self.id), levels, self._address())

    def log_dirs(self) -> list[LogDirectory]:
        """Returns the directories of the broker's logs with the sizes of its partitions, by path.

        Raises:
            BrokerNotAvailableError: no live broker has this id.
            KafkaError: the broker refused the request.
        """

        def read(response: Any) -> list[LogDirectory]:
            if response.error_code:
                raise KafkaError.of(response.error_code)
            return sorted(map(_log_directory, response.results), key=lambda directory: directory.path)

        return self._calls.call(DescribeLogDirsRequest(topics=None), read, broker=self._address())

    def _address(self) -> Broker | None:
        """Returns the address for requests about this broker; None if the node is embedded and serves them itself."""
        for broker in (described_cluster(self._calls)).brokers:
            if broker.id == self.id:
                return None if self._calls.local else Broker(broker.id, broker.host, broker.port)
        raise KafkaError.of(ErrorCode.BROKER_NOT_AVAILABLE, f"no live broker has the id {self.id!r}")


def _log_directory(row: Any) -> LogDirectory:
    sizes = {
        TopicPartition(topic.name, each.partition_index): each.partition_size
        for topic in row.topics
        for each in topic.partitions
        if not each.is_future_key
    }
    return LogDirectory(
        row.log_dir,
        PartitionDict(sorted(sizes.items())),
        row.total_bytes if row.total_bytes >= 0 else None,
        row.usable_bytes if row.usable_bytes >= 0 else None,
        KafkaError.of(row.error_code) if row.error_code else None,
    )
