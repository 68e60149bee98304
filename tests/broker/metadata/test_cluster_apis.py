"""ApiVersions, features, ListConfigResources, and the APIs of features that this node does not have."""

from __future__ import annotations

from typing import Any

import pytest

from kcore.broker.apis.api_versions import MAX_READABLE
from kcore.broker.metadata.features import FEATURES, FIXED_FEATURES
from kcore.protocol.api_keys import ApiKey
from kcore.protocol.authorizer import Operation, ResourceType, authorized_operations
from kcore.protocol.error_codes import ErrorCode
from kcore.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from kcore.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kcore.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kcore.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kcore.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kcore.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kcore.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kcore.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kcore.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kcore.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kcore.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kcore.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from kcore.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kcore.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kcore.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kcore.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kcore.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kcore.served_apis import SERVED_APIS
from tests.broker.context import BrokerContext
from tests.broker.metadata.test_create_topics import Only

CLIENT = {"client_software_name": "test", "client_software_version": "1"}


# ---------------------------------------------------------------- resource types
@pytest.mark.parametrize("kind", [0, 1, 3, 5, 64, -1, 127])
@pytest.mark.parametrize("topics", [1, 200])
def test_a_resource_type_without_settings_is_an_error_of_the_whole_request(kind: int, topics: int) -> None:
    """Every resource of the DescribeConfigs request gets INVALID_REQUEST, even if the request is decided in slices."""
    node = BrokerContext()
    named = [(2, f"t{index}") for index in range(topics)]
    for _, name in named[:2]:
        node.create(name)
    kinds = [*named, (kind, "x")]
    resources = [DescribeConfigsResource(resource_type=of, resource_name=name) for of, name in kinds]
    assert node.call(DescribeConfigsRequest(resources=resources), 4) == DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=42,
                error_message=f"resource type {kind} has no settings",
                resource_type=of,
                resource_name=name,
            )
            for of, name in kinds
        ]
    )


# ---------------------------------------------------------------- ApiVersions
def test_every_api_is_listed_once_with_its_range() -> None:
    """Every version of ApiVersions lists Produce from 0 on, although the node serves Produce from 3 on."""
    node = BrokerContext()
    expected = {int(row.key): row.versions for row in SERVED_APIS}
    expected[ApiKey.PRODUCE] = (0, 13)
    for version in range(5):
        request = ApiVersionsRequest(**CLIENT) if version >= 3 else ApiVersionsRequest()
        keys = node.call(request, version).api_keys
        assert [(k.api_key, (k.min_version, k.max_version)) for k in keys] == sorted(expected.items())


def test_features_are_listed_from_version_3_on_with_their_levels() -> None:
    """Version 4 adds ranges that begin at 0. Features with level 0 are omitted. The epoch increases
    with each change.
    """
    node = BrokerContext()

    def listed_features(version: int) -> tuple[set[str], dict[str, int], int]:
        r = node.call(ApiVersionsRequest(**CLIENT), version)
        for feature in r.finalized_features:
            assert feature.min_version_level == feature.max_version_level
        levels = {f.name: f.max_version_level for f in r.finalized_features}
        return {f.name for f in r.supported_features}, levels, r.finalized_features_epoch

    initial = {name: f.initial for name, f in (FEATURES | FIXED_FEATURES).items()}
    assert listed_features(4)[:2] == (set(FEATURES | FIXED_FEATURES), initial)
    assert listed_features(3)[:2] == ({"metadata.version"}, initial)
    epoch = listed_features(4)[2]
    off = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
    assert node.call(UpdateFeaturesRequest(feature_updates=[off])).error_code == 0
    del initial["share.version"]
    assert listed_features(4)[1] == initial
    assert listed_features(4)[2] > epoch
    node.restart()
    assert listed_features(3)[1] == initial
    assert node.topics.feature_level("share.version") == 0
    assert node.call(ApiVersionsRequest(), 2).finalized_features == ()


def test_the_name_of_client_software_must_be_legal_in_every_request() -> None:
    """The node caches legal names up to a limit, and illegal names never."""
    node = BrokerContext()

    def code(name: str, version: str = "1") -> int:
        return int(
            node.call(ApiVersionsRequest(client_software_name=name, client_software_version=version), 3).error_code
        )

    for number in range(2 * MAX_READABLE):
        assert code(f"client-{number}") == 0
        assert code("client", "1" * number + "0") == 0
    for name, version in (("", "1"), ("x y", "1"), ("-x", "1"), ("x", ""), ("1", "x_y"), ("client-1", "1.")):
        assert [code(name, version), code(name, version)] == [42, 42], (name, version)
    assert [code("client-1"), code(f"client-{2 * MAX_READABLE - 1}")] == [0, 0]


def test_an_unknown_version_gets_a_response_of_version_0() -> None:
    """The response has the format of version 0, UNSUPPORTED_VERSION, and only the range of this API (KIP-511)."""
    assert BrokerContext().apis[ApiKey.API_VERSIONS].unsupported() == ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )


# ---------------------------------------------------------------- UpdateFeatures
@pytest.mark.parametrize(
    ("feature", "level", "kind", "code"),
    [
        ("group.version", 1, 1, 0),
        ("group.version", 0, 1, 95),
        ("group.version", 0, 2, 0),
        ("group.version", 0, 3, 0),
        ("group.version", 2, 1, 95),
        ("group.version", -1, 2, 95),
        ("group.version", 1, 0, 95),
        ("group.version", 1, 4, 95),
        ("transaction.version", 1, 2, 0),
        ("nope.version", 1, 1, 95),
        ("metadata.version", 6, 2, 95),
        ("metadata.version", 30, 2, 0),
        ("metadata.version", 29, 2, 95),
        ("metadata.version", 29, 3, 95),
        ("metadata.version", 7, 3, 95),
        ("kraft.version", 1, 1, 0),
        ("kraft.version", 0, 3, 95),
        ("kraft.version", 2, 1, 95),
        ("eligible.leader.replicas.version", 0, 2, 0),
    ],
)
def test_only_supported_levels_and_permitted_downgrades_are_accepted(
    feature: str, level: int, kind: int, code: int
) -> None:
    """A level must be supported, and only a downgrade may lower it. An invalid update makes the whole request fail."""
    node = BrokerContext()
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    other = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
    node.records()
    for validate_only in (True, False):
        for version in (1, 2):
            before = node.durable_state()
            requested = UpdateFeaturesRequest(feature_updates=[other, update], validate_only=validate_only)
            response = node.call(requested, version)
            assert response.error_code == code
            assert (response.error_message is None) == (code == 0)
            results = [
                UpdatableFeatureResult(feature=name, error_message="NONE") for name in ("streams.version", feature)
            ]
            assert list(response.results) == (results if version == 1 and code == 0 else [])
            if validate_only or code:
                assert node.durable_state() == before
    assert node.topics.feature_level("streams.version") == (0 if code == 0 else 1)


def test_version_0_lowers_a_level_only_with_allow_downgrade_and_raises_it_only_without() -> None:
    """A request of version 0 with allow_downgrade may lower a level, but not raise it. Without the flag, it may raise
    the level, but not lower it.
    """
    node = BrokerContext()

    def to(level: int, down: bool) -> UpdateFeaturesResponse:
        update = FeatureUpdateKey(feature="share.version", max_version_level=level, allow_downgrade=down)
        response: UpdateFeaturesResponse = node.call(UpdateFeaturesRequest(feature_updates=[update]), 0)
        return response

    assert to(0, False).error_code == 95
    assert to(0, True).error_code == 0
    assert to(1, True).error_code == 95
    assert to(1, False).error_code == 0
    assert node.call(UpdateFeaturesRequest()) == UpdateFeaturesResponse(error_message=None)


# ---------------------------------------------------------------- ListConfigResources
def test_config_resources_are_listed_by_type() -> None:
    """Version 0 lists metrics subscriptions. Version 1 lists all topics and brokers, and the groups that have
    settings.
    """
    node = BrokerContext()
    node.create("t")
    node.alter(32, "g", ("share.isolation.level", 0, "read_committed"))
    node.alter(16, "m", ("interval.ms", 0, "1000"))

    def listed(version: int, *types: int) -> Any:
        response: ListConfigResourcesResponse = node.call(ListConfigResourcesRequest(resource_types=types), version)
        return response.error_code, [(r.resource_type, r.resource_name) for r in response.config_resources]

    assert listed(0) == (0, [(16, "m")])
    assert listed(1) == (0, [(2, "t"), (4, "1"), (8, "1"), (16, "m"), (32, "g")])
    assert listed(1, 32, 2) == (0, [(2, "t"), (32, "g")])
    assert listed(1, 2, 3) == (35, [])
    node.alter(32, "g", ("share.isolation.level", 1, None))
    assert listed(1, 32) == (0, [])


# ---------------------------------------------------------------- features that this node does not have
ALICE = "User:alice"


def test_access_lists_are_off() -> None:
    """Without an authorizer, each API of access control lists responds with SECURITY_DISABLED and a message."""
    node, code, message = BrokerContext(), 54, ErrorCode.SECURITY_DISABLED.message
    any_ = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    for version in (1, 2, 3):
        assert node.call(DescribeAclsRequest(**any_), version) == DescribeAclsResponse(
            error_code=code, error_message=message
        )
        created = AclCreationResult(error_code=code, error_message=message)
        requested = CreateAclsRequest(creations=[AclCreation(resource_type=2, operation=3, permission_type=3)] * 2)
        assert node.call(requested, version) == CreateAclsResponse(results=[created, created])
        deleted = DeleteAclsFilterResult(error_code=code, error_message=message)
        assert node.call(DeleteAclsRequest(filters=[DeleteAclsFilter(**any_)]), version) == DeleteAclsResponse(
            filter_results=[deleted]
        )


@pytest.mark.parametrize(("principal", "code"), [("User:ANONYMOUS", 64), (ALICE, 61)])
def test_delegation_tokens_are_off(principal: str, code: int) -> None:
    """Clients without authentication get DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64), others
    DELEGATION_TOKEN_AUTH_DISABLED (61).
    """
    node, name = BrokerContext(), principal.removeprefix("User:")
    who = {"principal": principal}
    assert node.call(DescribeDelegationTokenRequest(), **who) == DescribeDelegationTokenResponse(error_code=code)
    time_ms = 0 if code == 61 else -1
    renewed = RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=time_ms)
    assert node.call(RenewDelegationTokenRequest(), **who) == renewed
    expired = ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=time_ms)
    assert node.call(ExpireDelegationTokenRequest(), **who) == expired
    none = {"issue_timestamp_ms": time_ms, "expiry_timestamp_ms": time_ms, "max_timestamp_ms": time_ms}
    requester = {"token_requester_principal_type": "User", "token_requester_principal_name": name}
    owned = CreateDelegationTokenResponse(error_code=code, principal_type="User", principal_name=name, **none)
    assert node.call(CreateDelegationTokenRequest(), 2, **who) == owned
    requested = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    assert node.call(requested, 3, **who) == CreateDelegationTokenResponse(
        error_code=code, principal_type="User", principal_name="bob", **none, **requester
    )


def test_a_refused_delegation_token_has_the_first_error_of_kafka() -> None:
    """Kafka checks the permission for another owner first, and then the types of the renewers."""
    node = BrokerContext()
    node.apis[38]._authorizer = Only()

    def code(owner: str, renewer: str = "User") -> int:
        requested = CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name=owner,
            renewers=[CreatableRenewers(principal_type=renewer, principal_name="bob")],
        )
        response = node.call(requested, 3, principal=ALICE)
        assert response.issue_timestamp_ms == (0 if response.error_code == 61 else -1)
        return int(response.error_code)

    assert [code("bob"), code("bob", "Group"), code("alice", "Group"), code("alice")] == [65, 65, 67, 61]
    node.apis[38]._authorizer = Only((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    assert [code("bob"), code("bob", "Group")] == [61, 67]


def test_nothing_is_reassigned() -> None:
    node = BrokerContext()
    response = ListPartitionReassignmentsResponse(error_message=None)
    assert node.call(ListPartitionReassignmentsRequest(topics=None)) == response
    node.apis[46]._authorizer = Only()
    requested = ListPartitionReassignmentsTopics(name="t", partition_indexes=[3])
    refused = node.call(ListPartitionReassignmentsRequest(topics=[requested]))
    partition = OngoingPartitionReassignment(partition_index=3)
    topics = (OngoingTopicReassignment(name="t", partitions=(partition,)),)
    assert (refused.error_code, refused.topics) == (31, topics)


def test_a_refused_reassignment_is_refused_for_each_partition() -> None:
    node = BrokerContext()
    node.apis[45].authorizer = Only()
    topic = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=9, replicas=None)])
    request = AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=False)
    refused = node.call(request, 1)
    assert (refused.error_code, refused.responses[0].partitions[0].error_code) == (31, 31)
    empty = node.call(AlterPartitionReassignmentsRequest(allow_replication_factor_change=False), 1)
    assert empty.allow_replication_factor_change
    assert refused.allow_replication_factor_change, "the response does not have the value of the request"


def test_a_refused_move_is_refused_for_each_folder() -> None:
    node = BrokerContext()
    node.apis[34].authorizer = Only()
    topics = [AlterReplicaLogDirTopic(name="t", partitions=[0]), AlterReplicaLogDirTopic(name="u", partitions=[])]
    dirs = [AlterReplicaLogDir(path=path, topics=topics) for path in ("/a", "/b")]
    refused = node.call(AlterReplicaLogDirsRequest(dirs=dirs), 2)
    codes = [(topic.topic_name, [row.error_code for row in topic.partitions]) for topic in refused.results]
    assert codes == [("t", [31]), ("u", [])] * 2


def test_refused_users_have_no_names() -> None:
    node = BrokerContext()
    node.apis[50].authorizer = Only()
    refused = node.call(DescribeUserScramCredentialsRequest(users=[UserName(name="one")]))
    assert (refused.error_code, [(row.user, row.error_code) for row in refused.results]) == (31, [("", 31)])


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_reassignment_whose_deadline_has_passed_times_out(timeout_ms: int) -> None:
    """The response and each of its partitions have REQUEST_TIMED_OUT without a message. A request without topics
    succeeds.
    """
    node = BrokerContext()
    topic = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=9, replicas=None)])
    partition = ReassignablePartitionResponse(partition_index=9, error_code=7, error_message=None)
    assert node.call(
        AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=timeout_ms), 0
    ) == AlterPartitionReassignmentsResponse(
        error_code=7,
        error_message=None,
        responses=[ReassignableTopicResponse(name="t", partitions=[partition])],
    )
    assert node.call(
        AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms), 0
    ) == AlterPartitionReassignmentsResponse(error_message="")


def component(entity_type: str, match_type: int = 2, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=entity_type, match_type=match_type, match=match)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], 0),
        ([component("user"), component("client-id", 0, "c")], 0),
        ([component("ip", 1)], 0),
        ([component("nope")], 35),
        ([component("")], 42),
        ([component("user", 3)], 42),
        ([component("user"), component("user", 1)], 42),
        ([component("user", 0)], 42),
        ([component("user", 1, "u")], 42),
        ([component("user"), component("ip")], 42),
    ],
)
def test_a_new_node_has_no_client_quotas(components: list[ComponentData], code: int) -> None:
    """The list of quotas is empty. The response to an invalid filter has an error, and null instead of the list."""
    node = BrokerContext()
    for version in (0, 1):
        response = node.call(DescribeClientQuotasRequest(components=components), version)
        if code == 0:
            assert response == DescribeClientQuotasResponse()
        else:
            assert (response.error_code, response.entries, bool(response.error_message)) == (code, None, True)


def test_a_user_that_is_named_twice_is_refused_although_the_first_password_is_empty() -> None:
    node = BrokerContext()

    def results(*changes: tuple[str, int, bytes]) -> list[tuple[str, int]]:
        upsertions = [
            ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=4096, salt=b"s", salted_password=password
            )
            for name, mechanism, password in changes
        ]
        response: Any = node.call(AlterUserScramCredentialsRequest(upsertions=upsertions))
        return [(result.user, result.error_code) for result in response.results]

    first = ("a", 1, b"")
    assert results(first) == [("a", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert results(first, ("a", 2, b"p")) == [("a", ErrorCode.DUPLICATE_RESOURCE)]


def test_descriptions_of_scram_users_have_no_secrets() -> None:
    """Unknown users get RESOURCE_NOT_FOUND, and duplicates DUPLICATE_RESOURCE. An empty request lists all users."""
    node = BrokerContext()

    def described(*names: str) -> Any:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
        response: DescribeUserScramCredentialsResponse = node.call(request)
        assert (response.error_code, response.error_message) == (0, "")
        return list(response.results)

    def refused(name: str, code: ErrorCode) -> DescribeUserScramCredentialsResult:
        return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=code.message)

    assert described() == []
    assert described("a") == [refused("a", ErrorCode.RESOURCE_NOT_FOUND)]
    for mechanism, iterations in ((2, 8192), (1, 4096)):
        upsertion = ScramCredentialUpsertion(
            name="b", mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
        )
        node.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    infos = [CredentialInfo(mechanism=1, iterations=4096), CredentialInfo(mechanism=2, iterations=8192)]
    known = DescribeUserScramCredentialsResult(user="b", credential_infos=infos)
    assert described() == [known]
    assert described("b", "a") == [known, refused("a", ErrorCode.RESOURCE_NOT_FOUND)]
    assert described("b", "b") == [refused("b", ErrorCode.DUPLICATE_RESOURCE)]


# ---------------------------------------------------------------- operations
@pytest.mark.parametrize(
    ("resource_type", "bits"), [(ResourceType.TOPIC, 3576), (ResourceType.CLUSTER, 8096), (ResourceType.GROUP, 3400)]
)
def test_authorized_operations_are_bits(resource_type: ResourceType, bits: int) -> None:
    """Without access control all bits are set; otherwise one bit for each allowed operation (KIP-430)."""
    assert authorized_operations(None, None, resource_type, "x") == bits
    everything = Only(*((operation, resource_type, "x") for operation in Operation))
    assert authorized_operations(everything, None, resource_type, "x") == bits
    one = Only((Operation.DESCRIBE, resource_type, "x"))
    assert authorized_operations(one, None, resource_type, "x") == 1 << 8
