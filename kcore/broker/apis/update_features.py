"""UpdateFeatures (key 57, versions 0-2): upgrades and downgrades of finalized levels (KIP-584, KIP-1022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from kcore.broker.apis.control import ControlApi, client_code
from kcore.broker.metadata.features import (
    ELIGIBLE_REPLICAS,
    FEATURES,
    FIXED_FEATURES,
    MIN_INSYNC_REPLICAS,
    eligible_replicas_records,
)
from kcore.broker.metadata.records import feature_record
from kcore.errors import KafkaError
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from kcore.broker.configs.broker_config import BrokerConfig
    from kcore.broker.metadata.machine import MetadataMachine
    from kcore.protocol.authorizer import Authorizer
    from kcore.runtime.api import RequestContext
    from kcore.runtime.shard import Shard

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UNDOWNGRADABLE = frozenset({"metadata.version", "kraft.version"})
"""Features whose level kcore never lowers. Kafka does not lower them below a level that changed the format of
records.
"""
SUCCESS_TEXT = "NONE"
"""Error message of a feature whose update succeeded, in versions 0 and 1."""


class UpdateFeaturesApi(ControlApi[UpdateFeaturesRequest, UpdateFeaturesResponse]):
    """Handler of UpdateFeatures requests. It changes the levels of all requested features or of none.

    Args:
        shard: the metadata shard.
        broker: this broker's settings.
        authorizer: decides about each operation; None allows all.
    """

    __slots__ = ("_broker",)

    key: ClassVar[ApiKey] = ApiKey.UPDATE_FEATURES
    request_type: ClassVar[type] = UpdateFeaturesRequest
    response_type: ClassVar[type] = UpdateFeaturesResponse
    versions: ClassVar[tuple[int, int]] = (0, 2)

    def __init__(
        self, shard: Shard[MetadataMachine], broker: BrokerConfig, authorizer: Authorizer | None = None
    ) -> None:
        super().__init__(shard, authorizer)
        self._broker = broker

    def decide(self, machine: MetadataMachine, context: RequestContext, request: UpdateFeaturesRequest) -> Any:
        """Checks every update and changes the levels. Refuses the whole request if an update is invalid."""
        if not self.allowed(context, Operation.ALTER, ResourceType.CLUSTER):
            return self.error(context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        records = []
        for update in request.feature_updates:
            fixed = FIXED_FEATURES.get(update.feature)
            present = machine.image.features.get(update.feature, 0) if fixed is None else fixed.initial
            _check(update, present, _kind(context, update))
            if update.max_version_level != present:
                records.append(feature_record(update.feature, update.max_version_level))
                if update.feature == ELIGIBLE_REPLICAS and update.max_version_level:
                    records += eligible_replicas_records(machine.image, self._broker.static_value(MIN_INSYNC_REPLICAS))
        response = UpdateFeaturesResponse(error_message=None)
        if context.api_version < 2:
            response.results = [
                UpdatableFeatureResult(feature=update.feature, error_message=SUCCESS_TEXT)
                for update in request.feature_updates
            ]
        return machine.outcome([] if request.validate_only else records, response)

    def error(
        self, context: RequestContext, request: UpdateFeaturesRequest, code: ErrorCode, message: str | None = None
    ) -> UpdateFeaturesResponse:
        """Makes a response with the error code and its text for the whole request."""
        code = client_code(code)
        return UpdateFeaturesResponse(error_code=code, error_message=message or code.message)


def _kind(context: RequestContext, update: FeatureUpdateKey) -> int:
    """Returns the upgrade type of an update. Requests of version 0 have the flag `allow_downgrade` instead."""
    if context.api_version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _check(update: FeatureUpdateKey, present: int, kind: int) -> None:
    def refused(reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.feature} cannot be set to level {update.max_version_level}: {reason}",
        )

    feature = FEATURES.get(update.feature) or FIXED_FEATURES.get(update.feature)
    level = update.max_version_level
    if kind not in {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}:
        raise refused(f"unknown upgrade type {kind}")
    if feature is None:
        raise refused("the feature is unknown to this broker")
    if not feature.lowest <= level <= feature.highest:
        raise refused(f"the supported levels are {feature.lowest} to {feature.highest}")
    if level < present and kind == UPGRADE:
        raise refused(f"the level is below the present level {present}, and the request is an upgrade")
    if level < present and update.feature in UNDOWNGRADABLE:
        raise refused(f"a downgrade from the present level {present} is not possible: metadata could be lost")
    if level > present and kind != UPGRADE:
        raise refused(f"the level is above the present level {present}, and the request is a downgrade")
