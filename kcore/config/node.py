"""Every setting of a node, in one table: Kafka's name, type, default, bounds, meaning.

An attribute's name is Kafka's with underscores for dots: `group.max.size` is `config.group_max_size`. Names that
begin with `kcore.` are ours. Where a default differs from Kafka's, the line says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from kcore.config.security import LISTENER_PREFIX, PER_LISTENER, SecuritySettings
from kcore.config.setting import INT_MAX, Setting, SettingType, declared, setting
from kcore.errors import ConfigError

LONG = SettingType.LONG


class Effective(NamedTuple):
    """A setting with the value in force and where it came from ("default", "file server.properties:3", "-c", …)."""

    setting: Setting
    value: Any
    source: str


class Config(SecuritySettings):
    """The settings of one node. Attributes are typed; unknown or bad settings are refused when it is made."""

    # ---- the node
    node_id: int = setting(1, "This node's id, as clients see it.", low=0)
    cluster_id: str = setting("", "The cluster's id; empty: one is made for a new data folder and kept in it.")
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where the server listens, NAME://HOST:PORT each; port 0 takes a free one. Kafka's default is all addresses; "
        "a library that people embed in tests opens the loopback one alone unless told.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        (), "The addresses that clients are told, NAME://HOST:PORT each; empty: those that are listened on."
    )

    # ---- the coordinator: classic groups
    group_min_session_timeout_ms: int = setting(6_000, "The shortest session timeout a classic member may ask for.")
    group_max_session_timeout_ms: int = setting(1_800_000, "The longest session timeout a classic member may ask for.")
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "How long an empty group waits for more members before its first rebalance."
    )
    group_max_size: int = setting(INT_MAX, "The most members a classic group may have.", low=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        "Which kinds of groups are served. Share and streams groups are not, whatever it says: clients are not offered "
        "their APIs. The default is Kafka's.",
        choices=("classic", "consumer", "share", "streams"),
    )

    # ---- the coordinator: groups of the new protocol (KIP-848)
    group_consumer_session_timeout_ms: int = setting(45_000, "Session timeout of consumer groups.", low=1)
    group_consumer_min_session_timeout_ms: int = setting(45_000, "The least a group's own setting may say.", low=1)
    group_consumer_max_session_timeout_ms: int = setting(60_000, "The most a group's own setting may say.", low=1)
    group_consumer_heartbeat_interval_ms: int = setting(5_000, "How often members of consumer groups beat.", low=1)
    group_consumer_min_heartbeat_interval_ms: int = setting(5_000, "The least a group's own setting may say.", low=1)
    group_consumer_max_heartbeat_interval_ms: int = setting(15_000, "The most a group's own setting may say.", low=1)
    group_consumer_max_size: int = setting(INT_MAX, "The most members a consumer group may have.", low=1)
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"), "Server-side assignors, by name or package.module:Class; the first is the default."
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "Which way a group may move between the classic and the new protocol while it has members.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        ignore_case=True,
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000, "How often the topics that a subscribed pattern matches are looked up again.", low=10_000
    )
    group_consumer_assignment_interval_ms: int = setting(
        1_000, "The least time between two target assignments of a consumer group.", low=0
    )
    group_consumer_min_assignment_interval_ms: int = setting(0, "The least a group's own setting may say.", low=0)
    group_consumer_max_assignment_interval_ms: int = setting(15_000, "The most a group's own setting may say.", low=0)

    # ---- share groups
    group_share_session_timeout_ms: int = setting(45_000, "Session timeout of share groups.", low=1)
    group_share_min_session_timeout_ms: int = setting(45_000, "The least a group's own setting may say.", low=1)
    group_share_max_session_timeout_ms: int = setting(60_000, "The most a group's own setting may say.", low=1)
    group_share_heartbeat_interval_ms: int = setting(5_000, "How often members of share groups beat.", low=1)
    group_share_min_heartbeat_interval_ms: int = setting(5_000, "The least a group's own setting may say.", low=1)
    group_share_max_heartbeat_interval_ms: int = setting(15_000, "The most a group's own setting may say.", low=1)
    group_share_max_size: int = setting(200, "The most members a share group may have.", low=1, high=1_000)
    group_share_assignment_interval_ms: int = setting(1_000, "The least time between two target assignments.", low=0)
    group_share_min_assignment_interval_ms: int = setting(0, "The least a group's own setting may say.", low=0)
    group_share_max_assignment_interval_ms: int = setting(15_000, "The most a group's own setting may say.", low=0)
    group_share_delivery_count_limit: int = setting(5, "How often a record is delivered at most.", low=2, high=10)
    group_share_min_delivery_count_limit: int = setting(2, "The least a group's own setting may say.", low=2)
    group_share_max_delivery_count_limit: int = setting(10, "The most a group's own setting may say.", high=25)
    group_share_record_lock_duration_ms: int = setting(
        30_000, "How long a delivered record is locked.", low=1_000, high=3_600_000
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15_000, "The least a group's own setting may say.", low=1_000
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60_000, "The most a group's own setting may say.", high=3_600_000
    )
    group_share_partition_max_record_locks: int = setting(
        2_000, "How many records of a partition may be locked.", low=100, high=10_000
    )
    group_share_min_partition_max_record_locks: int = setting(100, "The least a group's own setting may say.", low=100)
    group_share_max_partition_max_record_locks: int = setting(
        4_000, "The most a group's own setting may say.", high=10_000
    )

    # ---- streams groups
    group_streams_session_timeout_ms: int = setting(45_000, "Session timeout of streams groups.", low=1)
    group_streams_min_session_timeout_ms: int = setting(45_000, "The least a group's own setting may say.", low=1)
    group_streams_max_session_timeout_ms: int = setting(60_000, "The most a group's own setting may say.", low=1)
    group_streams_heartbeat_interval_ms: int = setting(5_000, "How often members of streams groups beat.", low=1)
    group_streams_min_heartbeat_interval_ms: int = setting(5_000, "The least a group's own setting may say.", low=1)
    group_streams_max_heartbeat_interval_ms: int = setting(15_000, "The most a group's own setting may say.", low=1)
    group_streams_max_size: int = setting(INT_MAX, "The most members a streams group may have.", low=1)
    group_streams_num_standby_replicas: int = setting(0, "Standby copies of each stateful task.", low=0)
    group_streams_max_standby_replicas: int = setting(2, "The most a group's own setting may say.", low=0)
    group_streams_assignment_interval_ms: int = setting(1_000, "The least time between two target assignments.", low=0)
    group_streams_min_assignment_interval_ms: int = setting(0, "The least a group's own setting may say.", low=0)
    group_streams_max_assignment_interval_ms: int = setting(15_000, "The most a group's own setting may say.", low=0)
    group_streams_initial_rebalance_delay_ms: int = setting(
        3_000, "How long an empty streams group waits for more members.", low=0
    )

    # ---- offsets
    offsets_topic_num_partitions: int = setting(50, "Partitions of __consumer_offsets; fixed once made.", low=1)
    offsets_topic_replication_factor: int = setting(
        1, "Copies of __consumer_offsets. Kafka's default is 3; one node holds one.", low=1, kind=SettingType.SHORT
    )
    offsets_topic_segment_bytes: int = setting(104_857_600, "segment.bytes of __consumer_offsets.", low=1)
    offsets_topic_compression_codec: int = setting(
        0, "Codec of the coordinator's batches: 0 none … 4 zstd.", low=0, high=4
    )
    offsets_load_buffer_size: int = setting(5_242_880, "Bytes that a load reads at a time.", low=1)
    offsets_commit_timeout_ms: int = setting(5_000, "How long a coordinator's write may take.", low=1)
    offset_metadata_max_bytes: int = setting(4_096, "The longest metadata of a committed offset, in UTF-16 code units.")
    offsets_retention_minutes: int = setting(10_080, "How long offsets of an inactive group are kept.", low=1)
    offsets_retention_check_interval_ms: int = setting(
        600_000, "How often expired offsets are looked for.", low=1, kind=LONG
    )

    # ---- transactions
    transaction_state_log_num_partitions: int = setting(
        50, "Partitions of __transaction_state; fixed once made.", low=1
    )
    transaction_state_log_replication_factor: int = setting(
        1, "Copies of __transaction_state. Kafka's default is 3; one node holds one.", low=1, kind=SettingType.SHORT
    )
    transaction_state_log_segment_bytes: int = setting(104_857_600, "segment.bytes of __transaction_state.", low=1)
    transaction_state_log_min_isr: int = setting(1, "min.insync.replicas of __transaction_state (Kafka: 2).", low=1)
    transaction_max_timeout_ms: int = setting(900_000, "The longest transaction timeout a producer may ask for.", low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, "How often transactions that took too long are looked for.", low=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, "How often unused transactional ids are looked for.", low=1
    )
    transactional_id_expiration_ms: int = setting(604_800_000, "How long an unused transactional id is kept.", low=1)
    transaction_partition_verification_enable: bool = setting(
        True, "Whether a partition asks the coordinator before it takes a transaction's first batch.", dynamic=True
    )
    transaction_two_phase_commit_enable: bool = setting(False, "Whether clients may run two-phase commits (KIP-939).")
    producer_id_expiration_ms: int = setting(
        86_400_000, "How long a partition remembers an idle producer.", low=1, dynamic=True
    )
    producer_id_expiration_check_interval_ms: int = setting(600_000, "How often idle producers are looked for.", low=1)

    # ---- share state
    share_coordinator_state_topic_num_partitions: int = setting(50, "Partitions of __share_group_state.", low=1)
    share_coordinator_state_topic_replication_factor: int = setting(
        1, "Copies of __share_group_state. Kafka's default is 3; one node holds one.", low=1, kind=SettingType.SHORT
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        104_857_600, "segment.bytes of __share_group_state.", low=1
    )
    share_coordinator_state_topic_min_isr: int = setting(
        1, "min.insync.replicas of __share_group_state (Kafka: 2).", low=1
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        500, "Updates of a share state between two snapshots.", low=0, high=500
    )

    # ---- topics
    auto_create_topics_enable: bool = setting(True, "Whether asking for a topic's metadata may create it.")
    delete_topic_enable: bool = setting(True, "Whether topics can be deleted.")
    num_partitions: int = setting(1, "Partitions of a topic made without saying how many.", low=1)
    default_replication_factor: int = setting(1, "Copies of a topic made without saying how many.", low=1)
    message_max_bytes: int = setting(1_048_588, "The largest batch a topic takes.", low=0, dynamic=True)
    compression_type: str = setting(
        "producer",
        "How batches are stored.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    )
    compression_gzip_level: int = setting(-1, "gzip's level: 1 to 9, or -1.", dynamic=True)
    compression_lz4_level: int = setting(9, "lz4's level.", low=1, high=17, dynamic=True)
    compression_zstd_level: int = setting(3, "zstd's level.", low=-131_072, high=22, dynamic=True)
    min_insync_replicas: int = setting(
        1, "Copies that must have a batch before acks=all is answered.", low=1, dynamic=True
    )
    unclean_leader_election_enable: bool = setting(False, "Whether a copy that lags may lead.", dynamic=True)
    log_cleanup_policy: tuple[str, ...] = setting(
        ("delete",), "What happens to old records.", choices=("compact", "delete"), dynamic=True
    )
    log_segment_bytes: int = setting(1_073_741_824, "Size of a segment.", low=1_048_576, dynamic=True)
    log_segment_delete_delay_ms: int = setting(
        60_000, "How long a deleted segment stays.", low=0, kind=LONG, dynamic=True
    )
    log_preallocate: bool = setting(False, "Whether segments are allocated ahead.", dynamic=True)
    log_roll_ms: int | None = setting(
        None, "How long a segment is written; unset: log.roll.hours.", kind=LONG, dynamic=True
    )
    log_roll_hours: int = setting(168, "How long a segment is written, in hours.", low=1)
    log_retention_ms: int | None = setting(
        None, "How long records are kept; -1 for ever; unset: log.retention.minutes or hours.", kind=LONG, dynamic=True
    )
    log_retention_minutes: int | None = setting(None, "The same in minutes.", kind=SettingType.INT)
    log_retention_hours: int = setting(168, "The same in hours.")
    log_retention_bytes: int = setting(-1, "How many bytes a partition keeps; -1: no limit.", kind=LONG, dynamic=True)
    log_retention_check_interval_ms: int = setting(300_000, "How often old records are looked for.", low=1, kind=LONG)
    log_index_interval_bytes: int = setting(4_096, "Bytes between two entries of an index.", low=0, dynamic=True)
    log_index_size_max_bytes: int = setting(10_485_760, "Largest size of an index.", low=4, dynamic=True)
    log_flush_interval_messages: int = setting(
        2**63 - 1,
        "Kept for Kafka's tools: kcore's durability says when data is flushed.",
        low=1,
        kind=LONG,
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, "How long tombstones stay in a compacted topic.", low=0, kind=LONG, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5, "The share of a compacted log that must be new before it is cleaned.", low=0, high=1, dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, "How long a record stays before compaction may take it.", low=0, kind=LONG, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        2**63 - 1, "How long a record stays at most before compaction looks at it.", low=1, kind=LONG, dynamic=True
    )
    log_cleaner_backoff_ms: int = setting(
        15_000, "How often logs to compact are looked for.", low=0, kind=LONG, dynamic=True
    )
    log_message_timestamp_type: str = setting(
        "CreateTime", "Whose clock stamps records.", choices=("CreateTime", "LogAppendTime"), dynamic=True
    )
    log_message_timestamp_before_max_ms: int = setting(
        2**63 - 1, "How far in the past a record's time may lie.", low=0, kind=LONG, dynamic=True
    )
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000, "How far in the future a record's time may lie.", low=0, kind=LONG, dynamic=True
    )
    log_local_retention_ms: int = setting(
        -2, "Kept for Kafka's tools: there are no tiers.", low=-2, kind=LONG, dynamic=True
    )
    log_local_retention_bytes: int = setting(
        -2, "Kept for Kafka's tools: there are no tiers.", low=-2, kind=LONG, dynamic=True
    )

    # ---- fetch
    fetch_max_bytes: int = setting(57_671_680, "The most bytes one fetch may bring.", low=1_024)
    max_incremental_fetch_session_cache_slots: int = setting(1_000, "How many fetch sessions are kept.", low=0)
    kcore_max_fetch_session_partitions: int = setting(
        500_000,
        "Partitions of all fetch sessions together. A fetch that would bring more gets no session and names its "
        "partitions in each request, as when max.incremental.fetch.session.cache.slots are taken.",
        low=0,
    )
    max_request_partition_size_limit: int = setting(2_000, "Partitions in one DescribeTopicPartitions answer.", low=1)

    # ---- connections
    socket_request_max_bytes: int = setting(104_857_600, "The largest frame a client may send.", low=1)
    connections_max_idle_ms: int = setting(600_000, "How long a connection may be silent; -1: for ever.", kind=LONG)
    max_connections: int = setting(
        INT_MAX,
        "How many connections are open at once, TLS handshakes included; further clients wait.",
        low=0,
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        INT_MAX, "How many connections one address may have; further ones are closed.", low=0, dynamic=True
    )
    queued_max_request_bytes: int = setting(
        -1, "Bytes of requests the whole server holds before it stops reading; -1: no limit.", kind=LONG
    )

    # ---- kcore's own
    kcore_data_dir: str = setting("", "The data folder; `--data` sets it.")
    kcore_durability: str = setting(
        "fsync",
        "When an answer may go out: after an fsync, after the write reached the system (survives the process, not "
        "the power), or never written at all. Without a data folder `kcore serve` has memory alone: it says so in its "
        "log, unless this is set to memory.",
        choices=("fsync", "os", "memory"),
    )
    kcore_map_size: int = setting(
        268_435_456, "Address space that the log's file starts with; it grows by itself.", low=1_048_576, kind=LONG
    )
    kcore_snapshot_min_bytes: int = setting(
        1_048_576,
        "A coordinator's partition is compacted when at least so many bytes are new in it: its compacted log is the "
        "snapshot that a restart loads.",
        low=0,
        kind=LONG,
    )
    kcore_snapshot_live_ratio: float = setting(
        1.0, "… and at least so many times what its last compaction left.", low=0
    )
    kcore_connection_buffer_bytes: int = setting(
        1_048_576, "Bytes of answers a connection may leave unread before its requests wait.", low=1_024
    )
    kcore_max_response_memory_bytes: int = setting(
        268_435_456,
        "Bytes of responses that the peers of all connections together may leave unread. A fetch brings at most a "
        "quarter of what is left, but always one batch; another response of more than 1 MiB that does not fit closes "
        "its connection; beyond the limit connections are not served before they read what they were sent; -1: no "
        "limit.",
        low=-1,
        kind=LONG,
    )
    kcore_max_response_bytes: int = setting(
        104_857_600,
        "The longest response in bytes. A longer one is replaced by POLICY_VIOLATION; where the API has no field for "
        "an error, the connection is closed. A Fetch response may be longer by one record batch.",
        low=65_536,
        high=2_147_483_647,
    )
    kcore_response_stall_ms: int = setting(
        30_000,
        "While more than half of kcore.max.response.memory.bytes is taken, a connection whose peer has read nothing of "
        "its answers for so long is closed.",
        low=1,
        kind=LONG,
    )

    kcore_http_listen: str = setting(
        "", "HOST:PORT for /metrics, /healthz and /readyz; port 0 takes a free one; empty: nowhere."
    )

    SETTINGS: ClassVar[dict[str, Setting]]

    def __init__(self, values: Mapping[str, Any] | None = None, sources: Mapping[str, str] | None = None) -> None:
        self._sources: dict[str, str] = {}
        self._of_listeners: dict[str, Effective] = {}  # listener.name.NAME.SETTING
        for name, entry in self.SETTINGS.items():
            setattr(self, _attribute(name), entry.default)
        for name, value in (values or {}).items():
            self.set(name, value, (sources or {}).get(name, "given"))

    @classmethod
    def of(cls, values: Mapping[str, Any] | None = None, **by_attribute: Any) -> Config:
        """A configuration from Kafka's names and, for embedders, from attribute names.

        Raises:
            ConfigError: a name is unknown or a value is not valid.
        """
        merged = dict(values or {})
        merged.update({attribute.replace("_", "."): value for attribute, value in by_attribute.items()})
        return cls(merged)

    def set(self, name: str, value: Any, source: str) -> None:
        """Puts a setting in force. Components read attributes when they need them, so it holds from then on.

        Raises:
            ConfigError: the name is unknown or the value is not valid.
        """
        entry = self.SETTINGS.get(name)
        if entry is None and name.startswith(LISTENER_PREFIX):
            own = self._of_listener(name)
            self._of_listeners[own.name.lower()] = Effective(own, own.parse(value), source)
            return
        if entry is None:
            raise ConfigError(f"unknown setting {name!r}{_like(name, self.SETTINGS)}")
        setattr(self, _attribute(name), entry.parse(value))
        self._sources[name] = source

    def reset(self, name: str) -> None:
        """Takes a setting back to its default."""
        setattr(self, _attribute(name), self.SETTINGS[name].default)
        self._sources.pop(name, None)

    def get(self, name: str) -> Any:
        """The value in force, by Kafka's name."""
        return getattr(self, _attribute(name))

    def source(self, name: str) -> str:
        """Where the value in force came from; "default" where nobody set it."""
        return self._sources.get(name, "default")

    def effective(self) -> Iterator[Effective]:
        """Every setting with its value and source, in the table's order."""
        for name, entry in self.SETTINGS.items():
            yield Effective(entry, self.get(name), self.source(name))
        yield from self._of_listeners.values()

    def for_listener(self, listener: str) -> SecuritySettings:
        """The settings of security as they are for one listener: its own, else those of all."""
        settings = SecuritySettings()
        for attribute in SecuritySettings.__annotations__:
            name = attribute.replace("_", ".")
            own = self._of_listeners.get(f"{LISTENER_PREFIX}{listener.lower()}.{name}")
            setattr(settings, attribute, self.get(name) if own is None else own.value)
        return settings

    def _of_listener(self, name: str) -> Setting:
        """The setting that a name with a listener's prefix means, under that name."""
        for attribute in PER_LISTENER:
            setting_name = attribute.replace("_", ".")
            if name.endswith(f".{setting_name}") and len(name) > len(LISTENER_PREFIX + setting_name) + 1:
                return self.SETTINGS[setting_name]._replace(name=name)
        raise ConfigError(f"{name!r} is no setting that a listener can have of its own")


Config.SETTINGS = declared(Config) | declared(SecuritySettings)


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def _like(name: str, known: Mapping[str, Setting]) -> str:
    """A hint at what was meant."""
    import difflib  # noqa: PLC0415  # only a refusal needs it

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
