"""IncrementalAlterConfigs (key 44, versions 0-1): sets, deletes, appends and subtracts single settings (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.alteration import AlterationApi
from kcore.broker.configs.alter import Alteration
from kcore.broker.configs.loggers import alter_loggers
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record


class IncrementalAlterConfigsApi(AlterationApi[IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse]):
    """Handler of IncrementalAlterConfigs requests. It changes the requested settings and keeps the others."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.INCREMENTAL_ALTER_CONFIGS
    request_type: ClassVar[type] = IncrementalAlterConfigsRequest
    response_type: ClassVar[type] = IncrementalAlterConfigsResponse
    result_type: ClassVar[type] = AlterConfigsResourceResponse
    versions: ClassVar[tuple[int, int]] = (0, 1)

    def alterations(self, resource: AlterConfigsResource) -> list[Alteration]:
        """Lists the requested changes of a resource."""
        return [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]

    def alter_loggers(self, alterations: list[Alteration], validate_only: bool) -> None:
        """Changes the levels of loggers immediately. The broker does not store the new levels."""
        alter_loggers(alterations, validate_only=validate_only)

    def records(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        resource: AlterConfigsResource,
        alterations: list[Alteration],
    ) -> list[Record]:
        """Makes the records that change the settings of one resource."""
        kind, name = resource.resource_type, resource.resource_name
        return self.changes.incremental(machine.image, kind, name, alterations, forwarded=context.forwarded)
