"""Base class of IncrementalAlterConfigs and AlterConfigs: each resource is changed as a whole or not at all."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from kcore.broker.apis.control import ControlApi, client_code, text
from kcore.broker.metadata.image import ConfigType
from kcore.errors import KafkaError
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kcore.broker.configs.alter import Alteration, ConfigChanges
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.machine import Record
    from kcore.runtime.shard import Shard


class Resource(Protocol):
    """A resource in a request of AlterConfigs or IncrementalAlterConfigs."""

    resource_type: int
    resource_name: str
    configs: Any


Request = TypeVar("Request")
Response = TypeVar("Response")


class AlterationApi(ControlApi[Request, Response]):
    """The base class of handlers that change settings. Subclasses define the changes of a resource.

    Args:
        shard: the metadata shard.
        changes: checks changes of settings and makes their records.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("changes",)

    result_type: ClassVar[Any]
    """Class of the result for one resource in the API's response."""

    def __init__(
        self, shard: Shard[MetadataMachine], changes: ConfigChanges, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shard, authorizer)
        self.changes = changes

    @abstractmethod
    def alterations(self, resource: Any) -> list[Alteration]:
        """Lists the requested changes of a resource."""

    def alter_loggers(self, alterations: list[Alteration], validate_only: bool) -> None:
        """Changes the levels of loggers immediately. The broker does not store the new levels.

        Raises:
            KafkaError: the changes are refused.
        """
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "the levels of loggers can only be changed with IncrementalAlterConfigs"
        )

    @abstractmethod
    def records(
        self, machine: MetadataMachine, context: RequestContext, resource: Any, alterations: list[Alteration]
    ) -> list[Record]:
        """Makes the records that change the settings of one resource.

        Raises:
            KafkaError: the changes are refused.
        """

    def response(self, results: list[tuple[Any, ErrorCode, str | None]]) -> Response:
        """Makes the response from a code and a text for each resource."""
        make: Any = self.response_type
        response: Response = make(
            responses=[
                self.result_type(
                    error_code=code,
                    error_message=message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, code, message in results
            ]
        )
        return response

    def handle(self, context: RequestContext, request: Any) -> Any:
        """Handles the request, in parts if it names many resources."""
        make_request: Any = self.request_type
        make_response: Any = self.response_type

        def part(resources: list[Any]) -> Any:
            return make_request(resources=resources, validate_only=request.validate_only)

        def merge(parts: list[Any]) -> Any:
            return make_response(responses=[result for part in parts for result in part.responses])

        return self.in_parts(
            context,
            request,
            request.resources,
            part,
            merge,
            key=lambda resource: (resource.resource_type, resource.resource_name),
        )

    def decide(self, machine: MetadataMachine, context: RequestContext, request: Any) -> Any:
        """Checks each resource, and changes only the resources that pass the checks."""
        counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
        results: list[tuple[Any, ErrorCode, str | None]] = []
        records: list[Record] = []
        for resource in request.resources:
            try:
                if counts[resource.resource_type, resource.resource_name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is in the request more than once")
                alterations = self.alterations(resource)
                self.changes.check(resource.resource_type, resource.resource_name, alterations)
                self._authorize(context, resource)
                if resource.resource_type == ConfigType.BROKER_LOGGER:
                    self.alter_loggers(alterations, request.validate_only)
                    changed: list[Record] = []
                else:
                    changed = self.records(machine, context, resource, alterations)
            except KafkaError as error:
                results.append((resource, error.code, text(error.code, error.message)))
                continue
            results.append((resource, ErrorCode.NONE, None))
            if not request.validate_only:
                records += changed
        response = self.response(results)
        own = all(resource.resource_type == ConfigType.BROKER_LOGGER for resource in request.resources)
        if not records and (own or request.validate_only):
            return response  # any node of a cluster changes its own loggers, and checks changes of its settings
        return machine.outcome(records, response)

    def _authorize(self, context: RequestContext, resource: Resource) -> None:
        kind, name = resource.resource_type, resource.resource_name
        if kind == ConfigType.TOPIC:
            if not self.allowed(context, Operation.ALTER_CONFIGS, ResourceType.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif kind == ConfigType.GROUP:
            if not self.allowed(context, Operation.ALTER_CONFIGS, ResourceType.GROUP, name):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        elif not self.allowed(context, Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def error(self, context: RequestContext, request: Any, code: ErrorCode, message: str | None = None) -> Response:
        """Makes a response with the same error code for each resource."""
        code = client_code(code)
        return self.response([(resource, code, text(code, message)) for resource in request.resources])
