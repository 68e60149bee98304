"""AlterConfigs (key 33, versions 0-2): replaces all settings of a resource (KIP-133)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kcore.broker.apis.alteration import AlterationApi
from kcore.broker.configs.alter import Alteration, ConfigOperation
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record


class AlterConfigsApi(AlterationApi[AlterConfigsRequest, AlterConfigsResponse]):
    """Handler of AlterConfigs requests. It sets the requested settings and removes all others of the resource."""

    __slots__ = ()

    key: ClassVar[ApiKey] = ApiKey.ALTER_CONFIGS
    request_type: ClassVar[type] = AlterConfigsRequest
    response_type: ClassVar[type] = AlterConfigsResponse
    result_type: ClassVar[type] = AlterConfigsResourceResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)

    def alterations(self, resource: AlterConfigsResource) -> list[Alteration]:
        """Lists the requested changes of a resource."""
        return [Alteration(c.name, ConfigOperation.SET, c.value) for c in resource.configs]

    def records(
        self,
        machine: MetadataMachine,
        context: RequestContext,
        resource: AlterConfigsResource,
        alterations: list[Alteration],
    ) -> list[Record]:
        """Makes the records that replace the settings of one resource."""
        kind, name = resource.resource_type, resource.resource_name
        return self.changes.whole(machine.image, kind, name, alterations, forwarded=context.forwarded)
