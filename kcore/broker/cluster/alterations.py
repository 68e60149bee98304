"""Changes of settings at a node that is not the controller.

The node decides some changes itself, and forwards the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcore.broker.configs.broker_config import CLUSTER_DEFAULT
from kcore.broker.metadata.image import ConfigType
from kcore.runtime.pending import Pending, gather

if TYPE_CHECKING:
    from kcore.broker.cluster.forwarding import Forwarder
    from kcore.runtime.api import Api, Handler, RequestContext


class SplitAlteration(Pending):
    """The deferred response to AlterConfigs or IncrementalAlterConfigs on a node that is not the controller.

    As in Kafka, the node itself changes the levels of its loggers, which are not stored. It also checks changes of its
    own settings and of the defaults of all nodes, because the controller cannot read the node's key stores and may have
    other settings. The node then forwards the checked changes to the controller.

    Args:
        api: the handler of AlterConfigs or IncrementalAlterConfigs.
        context: the client and the API version of the request.
        request: the request that changes settings.
        forwarder: sends requests to the controller.
    """

    __slots__ = ("_forwarder", "_results")

    def __init__(self, api: Api[Any, Any], context: RequestContext, request: Any, forwarder: Forwarder) -> None:
        super().__init__(api, context, request, parked=True)
        self._forwarder = forwarder
        self._results: dict[tuple[int, str], Any] = {}

    def begin(self, handle: Handler, name: str) -> None:
        """Changes the levels of this node's loggers, and checks the changes of this node's settings and defaults.

        Args:
            handle: handles a request on this node.
            name: the node id as text, which is the resource name of the node's loggers and settings.
        """
        loggers, settings = [], []
        for resource in self.request.resources:
            if resource.resource_type == ConfigType.BROKER_LOGGER:
                loggers.append(resource)
            elif resource.resource_type == ConfigType.BROKER and resource.resource_name in (name, CLUSTER_DEFAULT):
                settings.append(resource)
        make = self.api.request_type
        parts = []
        if loggers:
            parts.append(handle(self.context, make(resources=loggers, validate_only=self.request.validate_only)))
        if settings:
            parts.append(handle(self.context, make(resources=settings, validate_only=True)))
        own = gather(self.api, self.context, self.request, parts, self._joined)
        if isinstance(own, Pending):
            own.on_complete(self.decided)
        else:
            self.decided(own)

    def _joined(self, parts: list[Any]) -> Any:
        return self.api.response_type(responses=[result for part in parts for result in part.responses])

    def decided(self, response: Any) -> None:
        """Stores the final results in this node's own response, and forwards the other resources to the controller.

        A result is final if it is an error, or if it is about this node's loggers.

        Args:
            response: the response of this node to its part of the request.
        """
        for result in response.responses:
            if result.error_code or result.resource_type == ConfigType.BROKER_LOGGER:
                self._results[_key(result)] = result
        left = [resource for resource in self.request.resources if _key(resource) not in self._results]
        if not left:
            self._finish()
            return
        request = self.api.request_type(resources=left, validate_only=self.request.validate_only)
        self._forwarder.forward(self.api, self.context, request).on_complete(self.forwarded)

    def forwarded(self, response: Any) -> None:
        """Adds the results in the response of the controller, and completes the response to the client."""
        self._results.update((_key(result), result) for result in response.responses)
        self._finish()

    def _finish(self) -> None:
        results = [self._results[_key(resource)] for resource in self.request.resources]
        self.complete(self.api.response_type(responses=results))


def _key(resource: Any) -> tuple[int, str]:
    """Returns the key of a resource in a request, or of its result."""
    return resource.resource_type, resource.resource_name


def alter(
    api: Api[Any, Any], handle: Handler, context: RequestContext, request: Any, *, node_id: int, forwarder: Forwarder
) -> Any:
    """Handles a request that changes settings, at a node that is not the controller.

    Args:
        api: the handler of AlterConfigs or IncrementalAlterConfigs.
        handle: handles a request on this node.
        context: the client and the API version of the request.
        request: the request that changes settings.
        node_id: the id of this node.
        forwarder: sends requests to the controller.

    Returns:
        The response, or a `Pending` for it.
    """
    split = SplitAlteration(api, context, request, forwarder)
    split.begin(handle, str(node_id))
    return split.response if split.done else split
