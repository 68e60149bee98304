"""Random requests about the servers themselves, for the comparison with Apache Kafka.

They are requests about coordinators, brokers, reassignments, log folders, users, features and transaction markers, and
logins that the server refuses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from kcore.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_delegation_token,
    describe_cluster,
    describe_delegation_token,
    describe_log_dirs,
    describe_quorum,
    describe_user_scram_credentials,
    expire_delegation_token,
    find_coordinator,
    list_config_resources,
    list_partition_reassignments,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tools.differential.program import Call, Step
from tools.differential.side import CHOSEN_PRODUCERS, CLIENT_IDS, Side
from tools.differential.topics import CREATE

UNKNOWN_BROKER: Final = 5
Arguments = dict[str, Any]


def _find(side: Side, kind: int, keys: list[str], version: int) -> tuple[Any, int]:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest(key=keys[0], key_type=kind if version else 0), version
    return find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys), version


def _cluster(side: Side, operations: bool, kind: int, fenced: bool, version: int) -> tuple[Any, int]:
    return describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=kind if version >= 1 else 1,
        include_fenced_brokers=fenced and version >= 2,
    ), version


def _resources(side: Side, kinds: list[int], version: int) -> tuple[Any, int]:
    return list_config_resources.ListConfigResourcesRequest(resource_types=kinds if version else []), version


def _reassign(side: Side, topic: str, rows: list[tuple[int, list[int] | None]], change: bool, version: int) -> Any:
    partitions = [
        alter_partition_reassignments.ReassignablePartition(partition_index=number, replicas=replicas)
        for number, replicas in rows
    ]
    topics = [alter_partition_reassignments.ReassignableTopic(name=topic, partitions=partitions)]
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        timeout_ms=5_000, allow_replication_factor_change=change or version == 0, topics=topics
    ), version


def _reassignments(side: Side, topics: dict[str, list[int]] | None) -> tuple[Any, int]:
    rows = [
        list_partition_reassignments.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
        for name, numbers in (topics or {}).items()
    ]
    return list_partition_reassignments.ListPartitionReassignmentsRequest(
        timeout_ms=5_000, topics=None if topics is None else rows
    ), 0


def _log_dirs(side: Side, topics: dict[str, list[int]], version: int) -> tuple[Any, int]:
    rows = [describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=parts) for name, parts in topics.items()]
    return describe_log_dirs.DescribeLogDirsRequest(topics=rows), version


def _move(side: Side, path: str, topics: dict[str, list[int]], version: int) -> tuple[Any, int]:
    rows = [
        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=parts) for name, parts in topics.items()
    ]
    place = alter_replica_log_dirs.AlterReplicaLogDir(path=path, topics=rows)
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[place]), version


def _credentials(
    side: Side, deletions: list[tuple[str, int]], upsertions: list[tuple[str, int, int, int]]
) -> tuple[Any, int]:
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[
            alter_user_scram_credentials.ScramCredentialDeletion(name=name, mechanism=mechanism)
            for name, mechanism in deletions
        ],
        upsertions=[
            alter_user_scram_credentials.ScramCredentialUpsertion(
                name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(size)
            )
            for name, mechanism, iterations, size in upsertions
        ],
    ), 0


def _users(side: Side, names: list[str]) -> tuple[Any, int]:
    users = [describe_user_scram_credentials.UserName(name=name) for name in names]
    return describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=users), 0


def _features(side: Side, rows: list[tuple[str, int, int]], version: int) -> tuple[Any, int]:
    """Builds an UpdateFeatures request that changes no feature.

    From version 1 on, the request sets `validate_only`. Version 0 lacks this field, so the request names unknown
    features.
    """
    updates = [
        update_features.FeatureUpdateKey(
            feature=name if version else f"{name}.unknown",
            max_version_level=level,
            **({"upgrade_type": kind} if version else {}),
        )
        for name, level, kind in rows
    ]
    return update_features.UpdateFeaturesRequest(
        timeout_ms=5_000, feature_updates=updates, validate_only=version >= 1
    ), version


def _unregister(side: Side, broker: int) -> tuple[Any, int]:
    return unregister_broker.UnregisterBrokerRequest(broker_id=broker), 0


def _markers(side: Side, rows: list[tuple[int, int, bool, dict[str, list[int]], int]], version: int) -> tuple[Any, int]:
    markers = [
        write_txn_markers.WritableTxnMarker(
            producer_id=producer,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[
                write_txn_markers.WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ],
            coordinator_epoch=coordinator_epoch,
            transaction_version=2 if version >= 2 else 0,
        )
        for producer, epoch, commit, topics, coordinator_epoch in rows
    ]
    return write_txn_markers.WriteTxnMarkersRequest(markers=markers), version


def _quorum(side: Side, topic: str, number: int, version: int) -> tuple[Any, int]:
    partitions = [describe_quorum.PartitionData(partition_index=number)]
    topics = [describe_quorum.TopicData(topic_name=topic, partitions=partitions)]
    return describe_quorum.DescribeQuorumRequest(topics=topics), version


def _token(side: Side, kind: str) -> tuple[Any, int]:
    requests = {
        "create": create_delegation_token.CreateDelegationTokenRequest(max_lifetime_ms=1_000),
        "renew": renew_delegation_token.RenewDelegationTokenRequest(hmac=b"unknown", renew_period_ms=1_000),
        "expire": expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"unknown", expiry_time_period_ms=1_000),
        "describe": describe_delegation_token.DescribeDelegationTokenRequest(owners=None),
    }
    return requests[kind], 2


def _versions(side: Side, name: str, client_version: str, version: int) -> tuple[Any, int]:
    if version < 3:
        return api_versions.ApiVersionsRequest(), version
    return api_versions.ApiVersionsRequest(client_software_name=name, client_software_version=client_version), version


def _handshake(side: Side, mechanism: str, version: int) -> tuple[Any, int]:
    return sasl_handshake.SaslHandshakeRequest(mechanism=mechanism), version


def _authenticate(side: Side, version: int) -> tuple[Any, int]:
    return sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), version


class ClusterArea:
    """Lists of random requests about the servers themselves, with one topic and two users."""

    NAME = "cluster"
    CALLS: Mapping[str, Call] = {
        "create_topic": CREATE,
        "find": Call(_find),
        "cluster": Call(_cluster),
        "resources": Call(_resources),
        "reassign": Call(_reassign, changes_metadata=True),
        "reassignments": Call(_reassignments),
        "log_dirs": Call(_log_dirs),
        "move": Call(_move),
        "credentials": Call(_credentials, changes_metadata=True),
        "users": Call(_users),
        "features": Call(_features),
        "unregister": Call(_unregister),
        "markers": Call(_markers),
        "quorum": Call(_quorum),
        "token": Call(_token),
        "versions": Call(_versions),
        "handshake": Call(_handshake),
        "authenticate": Call(_authenticate),
    }

    def draw(self, chance: random.Random, name: str) -> list[Step]:
        """Returns 10 to 25 random requests."""
        drawer = _Drawer(chance, name)
        first = [Step(0, "create_topic", {"name": f"{name}-a", "partitions": 2})]
        return first + [drawer.step() for _ in range(chance.randrange(10, 25))]


class _Drawer:
    def __init__(self, chance: random.Random, name: str) -> None:
        self.chance = chance
        self.name = name

    def step(self) -> Step:
        kinds: dict[Callable[[], tuple[str, Arguments]], int] = {
            self._find: 3, self._cluster: 1, self._resources: 1, self._reassign: 3, self._reassignments: 1,
            self._log_dirs: 2, self._move: 2, self._credentials: 4, self._users: 4, self._features: 3,
            self._unregister: 1, self._markers: 5, self._quorum: 1, self._token: 1, self._versions: 1, self._login: 1,
        }  # fmt: skip
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        call, arguments = kind()
        return Step(self.chance.randrange(len(CLIENT_IDS)), call, arguments)

    def _topic(self) -> str:
        return f"{self.name}-{self.chance.choices('ax', [6, 1])[0]}"

    def _numbers(self) -> list[int]:
        return self.chance.sample([0, 1, 2, -1], self.chance.choice([1, 1, 2]))

    def _find(self) -> tuple[str, Arguments]:
        kind = self.chance.choice([0, 0, 1, 2, 3, -1])
        names = [f"{self.name}-g", "", f"{self.name}-g:AAAAAAAAAAAAAAAAAAAAAQ:0", f"{self.name}:x:0", f"{self.name}:"]
        return "find", {
            "kind": kind,
            "keys": self.chance.sample(names, self.chance.choice([1, 1, 2])),
            "version": self.chance.choice([0, 1, 3, 4, 5, 6]),
        }

    def _cluster(self) -> tuple[str, Arguments]:
        return "cluster", {
            "operations": self.chance.random() < 0.5, "kind": self.chance.choice([1, 1, 2, 3, 0]),
            "fenced": self.chance.random() < 0.5, "version": self.chance.choice([0, 1, 2]),
        }  # fmt: skip

    def _resources(self) -> tuple[str, Arguments]:
        kinds = self.chance.choice([[], [2], [4], [8], [16], [32], [2, 32], [1], [2, 2]])
        return "resources", {"kinds": kinds, "version": self.chance.choice([0, 1, 1])}

    def _reassign(self) -> tuple[str, Arguments]:
        brokers: list[list[int] | None] = [None, [1], [1, 1], [UNKNOWN_BROKER], [1, UNKNOWN_BROKER], [], [-1]]
        rows = [(number, self.chance.choice(brokers)) for number in self._numbers()]
        return "reassign", {
            "topic": self._topic(), "rows": rows, "change": self.chance.random() < 0.7,
            "version": self.chance.choice([0, 1]),
        }  # fmt: skip

    def _reassignments(self) -> tuple[str, Arguments]:
        return "reassignments", {"topics": self.chance.choice([None, {}, {self._topic(): self._numbers()}])}

    def _log_dirs(self) -> tuple[str, Arguments]:
        return "log_dirs", {"topics": {self._topic(): self._numbers()}, "version": self.chance.choice([1, 2, 3, 4, 5])}

    def _move(self) -> tuple[str, Arguments]:
        return "move", {
            "path": self.chance.choice(["/no/such/folder", "relative", ""]),
            "topics": {self._topic(): self._numbers()},
            "version": self.chance.choice([1, 2]),
        }

    def _user(self) -> str:
        return self.chance.choices([f"{self.name}-one", f"{self.name}-two", ""], [10, 10, 1])[0]

    def _credentials(self) -> tuple[str, Arguments]:
        deletions, upsertions = [], []
        for _ in range(self.chance.choice([1, 1, 2])):
            mechanism = self.chance.choices([1, 2, 0, 3], [10, 10, 1, 1])[0]
            if self.chance.random() < 0.3:
                deletions.append((self._user(), mechanism))
            else:
                iterations = self.chance.choices([4096, 8192, 16384, 4095, 16385, 0], [5, 5, 5, 1, 1, 1])[0]
                upsertions.append((self._user(), mechanism, iterations, self.chance.choice([32, 64, 64, 5, 0])))
        return "credentials", {"deletions": deletions, "upsertions": upsertions}

    def _users(self) -> tuple[str, Arguments]:
        names = [self._user() for _ in range(self.chance.choice([1, 1, 2]))]
        return "users", {"names": names}

    def _features(self) -> tuple[str, Arguments]:
        names = ["group.version", "share.version", "transaction.version", "streams.version", "no.such.feature"]
        rows = [
            (name, self.chance.choice([0, 1, 2, 9, -1]), self.chance.choice([1, 1, 2, 3, 4, 0]))
            for name in self.chance.sample(names, self.chance.choice([1, 1, 2]))
        ]
        return "features", {"rows": rows, "version": self.chance.choice([0, 1, 2])}

    def _unregister(self) -> tuple[str, Arguments]:
        return "unregister", {"broker": self.chance.choice([UNKNOWN_BROKER, -1, 1000])}

    def _markers(self) -> tuple[str, Arguments]:
        rows = [
            (
                self.chance.choice(sorted(CHOSEN_PRODUCERS)),
                self.chance.choice([0, 1, 2]),
                self.chance.random() < 0.5,
                {self._topic(): self._numbers()},
                self.chance.choice([0, 1, 2, -1]),
            )
            for _ in range(self.chance.choice([1, 1, 2]))
        ]
        return "markers", {"rows": rows, "version": self.chance.choice([1, 2])}

    def _quorum(self) -> tuple[str, Arguments]:
        topic, number = self.chance.choice([(self._topic(), 0), ("__cluster_metadata", 1), ("", 0)])
        return "quorum", {"topic": topic, "number": number, "version": self.chance.choice([0, 1, 2])}

    def _token(self) -> tuple[str, Arguments]:
        return "token", {"kind": self.chance.choice(["create", "renew", "expire", "describe"])}

    def _versions(self) -> tuple[str, Arguments]:
        return "versions", {
            "name": self.chance.choice(["kcore", "", "a b", "-x"]),
            "client_version": self.chance.choice(["1.0", "", "1 0", "."]),
            "version": self.chance.choice([0, 1, 2, 3, 4]),
        }

    def _login(self) -> tuple[str, Arguments]:
        if self.chance.random() < 0.5:
            return "handshake", {"mechanism": self.chance.choice(["PLAIN", "GSSAPI", ""]), "version": 1}
        return "authenticate", {"version": self.chance.choice([0, 1, 2])}
